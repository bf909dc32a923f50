"""Import TensorFlow and compute for the first time, with the time that each step takes."""

from __future__ import annotations

import importlib.machinery
import json
import os
import sys
import time
from typing import Any, NoReturn

from . import host, tensorflow1_compat
from .channel import private_output
from .cuda_timeline import Timeline
from .result import Answer, Facts, finding, judged, measure, phase


def import_tensorflow(facts: Facts) -> Answer:
    """Import it; divide the time into shared objects (mapping, relocation, initialisers) and Python modules."""
    worker = facts["worker"]
    before = len(sys.modules)
    with Objects() as objects:
        begun = time.perf_counter()
        import tensorflow as tf

        took = time.perf_counter() - begun
    start = worker["started"] - worker["spawned"]
    expected = facts.get("tensorflow") or ""
    observed = "TensorFlow {0} in {1:.2f} s".format(tf.__version__, took)
    more = {
        "measurements": {
            "process_start": measure(start, "s"),
            "import": measure(took, "s"),
            "import_shared_objects": measure(objects.seconds, "s"),
            "modules": measure(len(sys.modules) - before, "1"),
        },
        "phases": {
            "process start": phase([start]),
            "import": phase([took]),
            "import: shared objects": phase([objects.seconds]),
            "import: Python modules": phase([took - objects.seconds]),
        },
    }
    findings = []
    if expected and not same_release(expected, tf.__version__):
        text = "the environment names TensorFlow {0}, and {1} is imported".format(expected, tf.__version__)
        findings.append(finding("LOCK_MISMATCH", "tensorflow", text, expected, tf.__version__))
    return judged(findings, expected or "an import", observed, **more)


def same_release(wheel: str, module: str) -> bool:
    """Compare a wheel's version with ``tf.__version__``: ``2.21.0rc1`` is ``2.21.0-rc1``, a post-release its base."""
    return _plain(wheel.split(".post", maxsplit=1)[0]) == _plain(module)


def _plain(version: str) -> str:
    return version.partition("+")[0].replace("-", "").replace(".dev", "dev")


class Objects:
    """Adds up the time in which extension modules load."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0
        self._kind: Any = importlib.machinery.ExtensionFileLoader

    def __enter__(self) -> Objects:
        self._plain = self._kind.create_module
        outer = self

        def timed(self: Any, spec: Any) -> Any:
            begun = time.perf_counter()
            outer._depth += 1
            try:
                return outer._plain(self, spec)
            finally:
                outer._depth -= 1
                if outer._depth == 0:
                    outer.seconds += time.perf_counter() - begun

        self._kind.create_module = timed
        return self

    def __exit__(self, *failure: object) -> None:
        self._kind.create_module = self._plain


def first_op(facts: Facts, device: str = "/CPU:0", prefix: str = "") -> Answer:
    """Time the first operation, the first and the steady matmul, and the first traced function."""
    import tensorflow as tf

    line = Timeline(prefix)
    with tf.device(device):
        three, product, total = first_operations(tf, line)
    if tensorflow1_compat.is_first(tf):
        _session(tf, device, line)
    right = three == 3.0 and abs(product - 64.0) < 1e-3 and abs(total / (64.0 * 65536) - 1) < 1e-4
    more = {
        "measurements": {_underscored(row["phase"], prefix): measure(row["seconds"], "s") for row in line.phases},
        "phases": {row["phase"]: phase([row["seconds"]]) for row in line.phases},
    }
    observed = "1+2={0:g}, product {1:g}, sum {2:g}".format(three, product, total)
    findings = [] if right else [finding("WRONG_NUMBERS", prefix + "first operations", observed)]
    return judged(findings, "1+2=3, product 64, sum {0:g}".format(64.0 * 65536), observed, **more)


def _underscored(name: str, prefix: str) -> str:
    return prefix + name[len(prefix) :].replace(" ", "_")


def first_operations(tf: Any, line: Timeline) -> tuple[float, float, float]:
    """Time the first operations; return their results: a sum, a product, a reduced product."""
    three = line.timed("first op", lambda: float(tf.add(tf.constant(1.0), tf.constant(2.0)).numpy()))
    matrix = tf.fill((256, 256), 0.5)
    product = line.timed("first matmul", lambda: tf.matmul(matrix, matrix).numpy())
    later = Timeline()
    for _ in range(20):
        later.timed("", lambda: tf.matmul(matrix, matrix).numpy())
    line.add("steady matmul", sorted(row["seconds"] for row in later.phases)[10])
    traced = tf.function(lambda x: tf.reduce_sum(tf.matmul(x, x)))
    total = line.timed("first function", lambda: float(traced(matrix)))
    return three, float(product[0, 0]), total


def _session(tf: Any, device: str, line: Timeline) -> None:
    """Time the start of a TensorFlow 1 program: a session, its first run, a later one. Raises for a wrong product."""
    with tf.Graph().as_default() as graph, tf.device(device):
        given = tf.compat.v1.placeholder(tf.float32, [256, 256])
        product = tf.matmul(given, given)
        with line.timed("first session", lambda: tf.compat.v1.Session(graph=graph)) as session:
            values = [[0.5] * 256] * 256
            first = line.timed("first run", lambda: session.run(product, {given: values}))
            line.timed("second run", lambda: session.run(product, {given: values}))
    if abs(float(first[0, 0]) - 64.0) >= 1e-3:
        raise ArithmeticError("a session multiplies to {0:g} where 64 is right".format(float(first[0, 0])))


def sample(started: float) -> NoReturn:
    """Time a start-up in this fresh process, from its first line to steady work; print the phases and exit at once."""
    order, output = json.loads(sys.stdin.read()), private_output()
    line = Timeline()
    line.add("process start", started - order["spawned"])
    tf = line.timed("import", lambda: importlib.import_module("tensorflow"))
    if tensorflow1_compat.is_older(tf.__version__):
        tf = tensorflow1_compat.as_later(tf)
    gpus = line.timed("device listing", lambda: tf.config.list_physical_devices("GPU"))
    for gpu in gpus if order.get("growth") else ():
        tf.config.experimental.set_memory_growth(gpu, True)
    line.timed("contexts and allocator", tf.config.list_logical_devices)
    work = Timeline("GPU " if gpus else "")
    with tf.device("/GPU:0" if gpus else "/CPU:0"):
        first_operations(tf, work)
        if gpus:
            image, kernel = tf.fill((1, 32, 32, 3), 0.5), tf.fill((3, 3, 3, 8), 0.1)
            work.timed("first convolution", lambda: tf.nn.conv2d(image, kernel, 1, "SAME").numpy())
        from .cpu_checks import jit  # not before the import of TensorFlow is timed

        matrix = tf.fill((256, 256), 0.5)
        compiled = jit(tf, lambda x: tf.reduce_sum(tf.matmul(x, x) * 2.0))
        if compiled is not None:
            work.timed("first XLA compile", lambda: compiled(matrix))
    document = {"phases": line.phases + work.phases, "gpus": len(gpus), "peak_memory": host.peak_memory()}
    os.write(output, json.dumps(document).encode())
    os._exit(0)
