"""Give a TensorFlow before 2.4 the interface of a later one: eager execution, and the names of today.

TensorFlow 1 only computes eagerly if that is enabled before the first operation. It has the later interface under
``compat.v2``; names that moved out of ``experimental`` are set to their new places. Sessions of
TensorFlow 1 are checked as well, by that release's own interface.
"""

from __future__ import annotations

import sys
from typing import Any

MOVED = (
    ("config.list_physical_devices", "config.experimental.list_physical_devices"),
    ("config.list_logical_devices", "config.experimental.list_logical_devices"),
    ("config.set_logical_device_configuration", "config.experimental.set_virtual_device_configuration"),
    ("config.LogicalDeviceConfiguration", "config.experimental.VirtualDeviceConfiguration"),
    ("random.Generator", "random.experimental.Generator"),
    ("io.encode_png", "image.encode_png"),
)
"""The name of today, and the former one."""

GROUPS = ("framework", "gpu", "multi-gpu", "steps")
"""Groups of checks that compute: how their names begin."""

IMPORTS = "startup:import_tensorflow"
"""The check that times the import itself: nothing may have been imported before it."""


def prepare(release: str, group: str, probe: str) -> None:
    """Prepare the framework before a check that computes, if the expected release is before 2.4."""
    if group.startswith(GROUPS) and probe != IMPORTS and is_older(release):
        import tensorflow as tf

        as_later(tf)


def is_older(release: str) -> bool:
    """Return True if a release lacks names of today, by its version: ``1.15.5``, ``2.1.4``."""
    parts = release.split(".")
    return len(parts) > 1 and parts[0] in ("1", "2") and parts[1].isdigit() and (int(parts[0]), int(parts[1])) < (2, 4)


def is_first(tf: Any) -> bool:
    return str(tf.__version__).startswith("1.")


def as_later(tf: Any) -> Any:
    """Return a framework with the names of today; ``import tensorflow`` finds it from now on."""
    if is_first(tf) and sys.modules["tensorflow"] is not getattr(tf, "_as_later", None):
        tf.compat.v1.enable_v2_behavior()
        spec = tf.__spec__
        tf = sys.modules["tensorflow"] = tf.compat.v2
        tf._as_later, tf.__spec__ = tf, spec  # the folder of the package is read from it
    for name, former in MOVED:
        place, _, leaf = name.rpartition(".")
        if not hasattr(found(tf, place), leaf) and found(tf, former) is not None:
            setattr(found(tf, place), leaf, found(tf, former))
    if not hasattr(tf.config.experimental, "enable_tensor_float_32_execution"):
        tf.config.experimental.enable_tensor_float_32_execution = lambda _: None  # no such build multiplies so
    return tf


def found(tf: Any, name: str) -> Any:
    for part in name.split("."):
        tf = getattr(tf, part, None)
    return tf


def traces(function: Any) -> int:
    """Return how often a function was traced; before 2.3, the number of its graphs."""
    for name in ("experimental_get_tracing_count", "_get_tracing_count"):
        if hasattr(function, name):
            return int(getattr(function, name)())
    kept = (getattr(function, name, None) for name in ("_stateful_fn", "_stateless_fn"))
    return max([len(one._function_cache.primary) for one in kept if one is not None] or [0])
