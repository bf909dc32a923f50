"""Compare what TensorFlow computes on the CPU with references in float64, in each way of running a program."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Tuple

from . import tensorflow1_compat
from .result import Answer, Facts, Finding, finding, judged, measure, skipped

# Relative Frobenius error of a K-long float32 dot product grows with sqrt(K) times the unit round-off 6e-8 at most
# (random signs); 2e-6 leaves a factor of eight at K = 4096.
FLOAT32_BOUND = 2e-6
MIXED_BOUND = 2e-2


def wrong(subject: str, error: float, bound: float, more: str = "") -> Finding:
    text = f"{subject}: error {error:.3g} exceeds {bound:.3g}{more}"
    fix = "compare with TF_ENABLE_ONEDNN_OPTS=0 and on another host; report the build"
    return finding("WRONG_NUMBERS", subject, text, f"at most {bound:g}", f"{error:.3g}", fix)


def judged_errors(
    errors: Mapping[str, float],
    bound: float,
    expected: str,
    subject: str = "",
    more: Iterable[Finding] = (),
    **rest: Any,
) -> Answer:
    """Judge errors by name: none may exceed the bound or be NaN. ``subject`` begins their names in findings."""
    found = [wrong(subject + name, error, bound) for name, error in errors.items() if not error <= bound]
    observed = ", ".join(f"{name} {error:.2g}" for name, error in errors.items())
    return judged([*found, *more], expected, observed, **rest)


def frobenius(values: Any, reference: Any) -> float:
    """Return |values - reference| / |reference| (Frobenius, in float64); inf if a value is not finite."""
    import numpy as np

    values = np.asarray(values, dtype=np.float64)
    reference = np.asarray(reference, dtype=np.float64)
    if values.shape != reference.shape or not np.isfinite(values).all():
        return math.inf
    scale = float(np.sqrt(np.sum(reference * reference)))
    return float(np.sqrt(np.sum((values - reference) ** 2))) / (scale or 1.0)


def largest(values: Any, reference: Any) -> float:
    import numpy as np

    return float(np.max(np.abs(values - reference)))


Shape = Tuple[int, int, int]
"""Rows, inner size and columns of a product of two matrices."""


def product_errors(shapes: Iterable[Shape], kind: str, seed: int, device: str = "/CPU:0") -> dict[Shape, float]:
    """Multiply random float32 matrices in a type of number; return the errors against NumPy in float64."""
    import numpy as np
    import tensorflow as tf

    random = np.random.RandomState(seed)
    errors = {}
    for shape in shapes:
        left, right = (random.standard_normal(size).astype(np.float32) for size in (shape[:2], shape[1:]))
        with tf.device(device):
            product = tf.matmul(*(tf.cast(one, getattr(tf, kind)) for one in (left, right)))
            found = tf.cast(product, tf.float32).numpy()
        errors[shape] = frobenius(found, left.astype(np.float64) @ right.astype(np.float64))
    return errors


def matmul(facts: Facts) -> Answer:
    shapes = ((7, 5, 3), (64, 256, 64), (128, 1024, 96), (32, 4096, 32))
    errors = {"{0}x{1}x{2}".format(*shape): error for shape, error in product_errors(shapes, "float32", 20).items()}
    expected = f"relative Frobenius error at most {FLOAT32_BOUND:g}"
    measured = {"matmul_error": measure(min(max(errors.values()), 1e300), "1")}
    return judged_errors(errors, FLOAT32_BOUND, expected, "matmul ", measurements=measured)


def mixed_precision(facts: Facts) -> Answer:
    shape = (32, 64, 16)
    errors = {kind: product_errors([shape], kind, 5)[shape] for kind in ("bfloat16", "float16")}
    return judged_errors(errors, MIXED_BOUND, f"relative error at most {MIXED_BOUND:g}", "matmul in ")


def modes(facts: Facts) -> Answer:
    """Compute one function eagerly, traced, and twice in one graph session: the same answer every time."""
    import numpy as np
    import tensorflow as tf

    values = np.linspace(-2.0, 2.0, 24, dtype=np.float32).reshape(4, 6)
    weights = np.linspace(0.5, -0.5, 30, dtype=np.float32).reshape(6, 5)

    def program(inputs: Any, kernel: Any) -> Any:
        return tf.reduce_sum(tf.tanh(tf.matmul(inputs, kernel)), axis=1)

    traced = tf.function(program)
    eager = {"eager": program, "function": traced, "function again": traced}
    answers = {name: run(tf.constant(values), tf.constant(weights)).numpy() for name, run in eager.items()}
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        inputs = v1.placeholder(tf.float32, [None, 6])
        output = program(inputs, tf.constant(weights))
        with v1.Session() as session:
            answers["session"] = session.run(output, {inputs: values})
            answers["session again"] = session.run(output, {inputs: values})
    reference = np.tanh(values.astype(np.float64) @ weights.astype(np.float64)).sum(axis=1)
    errors = {name: largest(answer, reference) for name, answer in answers.items()}
    findings, traces = [], tensorflow1_compat.traces(traced)
    if traces != 1:
        text = f"the function was traced {traces} times for one signature"
        findings.append(finding("STALLS", "tf.function", text, "1", traces, "give inputs as tensors"))
    return judged_errors(errors, 1e-5, "one answer in every mode, one trace", more=findings)


def gradients(facts: Facts) -> Answer:
    import numpy as np
    import tensorflow as tf

    values = np.linspace(-1.5, 1.5, 12, dtype=np.float32).reshape(3, 4)
    kernel = np.linspace(0.3, -0.2, 8, dtype=np.float32).reshape(4, 2)
    with tf.GradientTape() as tape:
        inputs, weights = tf.constant(values), tf.Variable(kernel)
        tape.watch(inputs)
        loss = tf.reduce_sum(tf.square(tf.matmul(inputs, weights)))
    by_inputs, by_weights = tape.gradient(loss, [inputs, weights])
    product = values.astype(np.float64) @ kernel.astype(np.float64)
    point = tf.Variable(0.7)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            height = tf.sin(point) * tf.exp(point)
        slope = inner.gradient(height, point)
    bend = outer.gradient(slope, point)
    errors = {
        "by inputs": largest(by_inputs.numpy(), 2 * product @ kernel.T.astype(np.float64)),
        "by weights": largest(by_weights.numpy(), 2 * values.T.astype(np.float64) @ product),
        "second derivative": largest(float(bend), 2 * np.exp(0.7) * np.cos(0.7)),
    }
    return judged_errors(errors, 1e-4, "gradients as derived by hand, within 1e-4", "gradient ")


def xla(facts: Facts, device: str = "/CPU:0") -> Answer:
    import numpy as np
    import tensorflow as tf

    def program(left: Any, right: Any) -> Any:
        return tf.reduce_sum(tf.nn.relu(tf.matmul(left, right)) * 0.5, axis=0)

    compiled = jit(tf, program)
    if compiled is None:
        return skipped("this release cannot be asked to compile a function")
    random = np.random.RandomState(4)
    left = tf.constant(random.standard_normal((16, 32)).astype(np.float32))
    right = tf.constant(random.standard_normal((32, 8)).astype(np.float32))
    with tf.device(device):
        begun = time.perf_counter()
        answer = compiled(left, right).numpy()
        took = time.perf_counter() - begun
        error = largest(answer, program(left, right).numpy())
    return judged_errors(
        {"XLA": error},
        1e-4,
        "the same answer within 1e-4",
        measurements={"xla_compile": measure(took, "s")},
        phases={"first XLA compile": {"cold_s": [took], "warm_s": []}},
    )


def jit(tf: Any, program: Callable[..., Any]) -> Any:
    """Return the function compiled by XLA, None if the release cannot; before 2.5 the option has another name."""
    for option in ("jit_compile", "experimental_compile"):
        with suppress(TypeError, ValueError):
            return tf.function(program, **{option: True})
    return None


def operations(facts: Facts) -> Answer:
    from tensorflow.python.framework import op_def_registry

    known = getattr(op_def_registry, "get", None) or op_def_registry.get_registered_ops().get  # the latter before 2.2
    names = [name for name in ("MatMul", "Conv2D", "While", "ReadVariableOp", "Einsum") if known(name) is None]
    count = _registered()
    findings = []
    if names:
        findings.append(finding("PACKAGE_CONFLICT", "operations", "not registered: " + ", ".join(names)))
    if count is not None and count < 1000:
        findings.append(finding("PACKAGE_CONFLICT", "operations", f"only {count} operations are registered"))
    measured = {"operations": measure(count, "1")} if count is not None else {}
    return judged(findings, "the basic operations, and more than 1000", f"{count} operations", measurements=measured)


def _registered() -> int | None:
    try:
        from tensorflow.core.framework import op_def_pb2
        from tensorflow.python.client import pywrap_tf_session

        buffer = pywrap_tf_session.TF_GetAllOpList()
        listing = op_def_pb2.OpList()
        listing.ParseFromString(pywrap_tf_session.TF_GetBuffer(buffer))
        return len(listing.op)
    except (ImportError, AttributeError):
        return None
