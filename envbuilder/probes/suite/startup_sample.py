"""One sample of start-up in a fresh process: each phase from the first line to steady work, as JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from . import startup, tensorflow1_compat


def main(descriptor: int, started: float) -> NoReturn:
    """Import, list devices, compute for the first time; write the phases to the descriptor and exit at once."""
    order = json.loads(sys.stdin.read())
    phases = [("process start", started - order["spawned"])]
    clock = time.perf_counter
    begun = clock()
    import tensorflow as tf

    phases.append(("import", clock() - begun))
    if tensorflow1_compat.is_older(tf.__version__):
        tf = tensorflow1_compat.as_later(tf)
    begun = clock()
    gpus = tf.config.list_physical_devices("GPU")
    phases.append(("device listing", clock() - begun))
    if order.get("growth"):
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
    device = "/GPU:0" if gpus else "/CPU:0"
    prefix = "GPU " if gpus else ""
    begun = clock()
    tf.config.list_logical_devices()
    phases.append(("contexts and allocator", clock() - begun))
    with tf.device(device):
        _compute(tf, phases, prefix, clock)
    memory = _peak()
    document = {"phases": phases, "gpus": len(gpus), "peak_memory": memory}
    os.write(descriptor, json.dumps(document).encode())
    os.close(descriptor)
    os._exit(0)


def _compute(tf: Any, phases: list[tuple[str, float]], prefix: str, clock: Callable[[], float]) -> None:
    def timed(name: str, action: Callable[[], object]) -> None:
        begun = clock()
        action()
        phases.append((prefix + name, clock() - begun))

    times, _ = startup.first_operations(tf)
    phases += [(prefix + name, seconds) for name, seconds in times]
    if prefix:
        image, kernel = tf.fill((1, 32, 32, 3), 0.5), tf.fill((3, 3, 3, 8), 0.1)
        timed("first convolution", lambda: tf.nn.conv2d(image, kernel, 1, "SAME").numpy())
    from .cpu_checks import jit  # not before the import of TensorFlow is timed

    matrix = tf.fill((256, 256), 0.5)
    compiled = jit(tf, lambda x: tf.reduce_sum(tf.matmul(x, x) * 2.0))
    if compiled is not None:
        timed("first XLA compile", lambda: compiled(matrix))


def _peak() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
