"""Check that the driver gives contexts and memory on every GPU, and that TensorFlow sees the driver's GPUs."""

from __future__ import annotations

import ctypes
from typing import Any

from . import driver
from .result import Answer, Facts, finding, judged

BYTES = 1 << 20


def made(facts: Facts) -> Answer:
    """Create the primary context of every GPU, allocate and free memory on it."""
    seen = driver.read_state()
    nothing = driver.without_gpu(seen, "a context on every GPU")
    if nothing is not None:
        return nothing
    library = driver.opened("libcuda.so.1")
    findings = []
    for device in range(seen.count):
        call, result = driver.in_context(library, device, "cuMemAlloc", lambda: _allocate(library))
        if result:
            findings.append(driver.refused(device, call, result))
    observed = "; ".join(found["message"] for found in findings) or "on {0} GPU(s)".format(seen.count)
    return judged(findings, "a context and memory on every GPU", observed)


def _allocate(library: Any) -> int:
    memory = ctypes.c_ulonglong()
    result = library.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(BYTES))
    if result == 0:
        library.cuMemFree_v2(memory)
    return int(result)


def seen_by_tensorflow(facts: Facts) -> Answer:
    """Compare TensorFlow's GPUs with the driver's."""
    seen = driver.read_state()
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
        details = tf.config.experimental.get_device_details(device)
    except (AttributeError, ValueError, RuntimeError):
        return str(device.name)
    capability = ".".join(map(str, details.get("compute_capability", ())))
    return "{0} ({1}, {2})".format(device.name, details.get("device_name", "?"), capability or "?")
