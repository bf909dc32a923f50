"""Import TensorFlow and compute for the first time, with the time that each step takes."""

from __future__ import annotations

import importlib.machinery
import sys
import time
from typing import Any

from . import tensorflow1_compat
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

    with tf.device(device):
        times, (three, product, total) = first_operations(tf)
    times += _session(tf, device) if tensorflow1_compat.is_first(tf) else []
    right = three == 3.0 and abs(product - 64.0) < 1e-3 and abs(total / (64.0 * 65536) - 1) < 1e-4
    more = {
        "measurements": {prefix + name.replace(" ", "_"): measure(value, "s") for name, value in times},
        "phases": {prefix + name: phase([value]) for name, value in times},
    }
    observed = "1+2={0:g}, product {1:g}, sum {2:g}".format(three, product, total)
    findings = [] if right else [finding("WRONG_NUMBERS", prefix + "first operations", observed)]
    return judged(findings, "1+2=3, product 64, sum {0:g}".format(64.0 * 65536), observed, **more)


def first_operations(tf: Any) -> tuple[list[tuple[str, float]], tuple[float, float, float]]:
    """Return the seconds of the first operations by name, and their results: a sum, a product, a reduced product."""
    clock = time.perf_counter
    begun = clock()
    three = float(tf.add(tf.constant(1.0), tf.constant(2.0)).numpy())
    times = [("first op", clock() - begun)]
    matrix = tf.fill((256, 256), 0.5)
    begun = clock()
    product = tf.matmul(matrix, matrix).numpy()
    times.append(("first matmul", clock() - begun))
    steady = []
    for _ in range(20):
        begun = clock()
        tf.matmul(matrix, matrix).numpy()
        steady.append(clock() - begun)
    times.append(("steady matmul", sorted(steady)[10]))
    traced = tf.function(lambda x: tf.reduce_sum(tf.matmul(x, x)))
    begun = clock()
    total = float(traced(matrix))
    times.append(("first function", clock() - begun))
    return times, (three, float(product[0, 0]), total)


def _session(tf: Any, device: str) -> list[tuple[str, float]]:
    """Time the start of a TensorFlow 1 program: a session, its first run, a later one. Raises for a wrong product."""
    clock = time.perf_counter
    with tf.Graph().as_default() as graph, tf.device(device):
        given = tf.compat.v1.placeholder(tf.float32, [256, 256])
        product = tf.matmul(given, given)
        begun = clock()
        with tf.compat.v1.Session(graph=graph) as session:
            made = clock()
            values = [[0.5] * 256] * 256
            first = session.run(product, {given: values})
            ran = clock()
            session.run(product, {given: values})
            again = clock()
    if abs(float(first[0, 0]) - 64.0) >= 1e-3:
        raise ArithmeticError("a session multiplies to {0:g} where 64 is right".format(float(first[0, 0])))
    return [("first session", made - begun), ("first run", ran - made), ("second run", again - ran)]
