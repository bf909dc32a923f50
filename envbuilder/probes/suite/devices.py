"""Compare the GPUs that TensorFlow sees with those that the driver has."""

from __future__ import annotations

from typing import Any

from . import driver
from .answer import Answer, Facts, finding, judged


def seen_by_tensorflow(facts: Facts) -> Answer:
    """Ask TensorFlow for its GPUs; the driver, not TensorFlow, says how many there should be."""
    seen = driver.look()
    nothing = driver.without_gpu(seen, "the driver's GPUs")
    if nothing is not None:
        return nothing
    import tensorflow as tf

    names = [device.name for device in tf.config.list_physical_devices("GPU")]
    details = [_details(tf, device) for device in tf.config.list_physical_devices("GPU")]
    findings = driver.without_code(seen, facts)
    if len(names) != seen.count and not findings:
        text = "the driver has {0} GPU(s), TensorFlow sees {1}: it would silently run on the CPU".format(
            seen.count, len(names)
        )
        fix = "see the log of this check: TensorFlow names the library or the driver error that stopped it"
        findings.append(finding("GPU_NOT_VISIBLE", "GPU", text, str(seen.count), str(len(names)), fix))
    observed = ", ".join(details) or "none"
    return judged(findings, "{0} GPU(s)".format(seen.count), observed)


def _details(tf: Any, device: Any) -> str:
    try:
        told = tf.config.experimental.get_device_details(device)
    except (AttributeError, ValueError, RuntimeError):
        return str(device.name)
    capability = ".".join(map(str, told.get("compute_capability", ())))
    return "{0} ({1}, {2})".format(device.name, told.get("device_name", "?"), capability or "?")
