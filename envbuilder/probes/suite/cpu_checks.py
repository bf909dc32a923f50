"""Compare what TensorFlow computes on the CPU with references in float64, in each way of running a program."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from . import tensorflow1_compat
from .result import Answer, Facts, Finding, finding, judged, measure, skipped

# Relative Frobenius error of a K-long float32 dot product grows with sqrt(K) times the unit round-off 6e-8 at most
# (random signs); 2e-6 leaves a factor of eight at K = 4096.
FLOAT32_BOUND = 2e-6


def wrong(subject: str, error: float, bound: float, more: str = "") -> Finding:
    text = "{0}: relative error {1:.3g} exceeds {2:.3g}{3}".format(subject, error, bound, more)
    fix = "compare with TF_ENABLE_ONEDNN_OPTS=0 and on another host; report the build"
    return finding("WRONG_NUMBERS", subject, text, "at most {0:g}".format(bound), "{0:.3g}".format(error), fix)


def frobenius(values: Any, reference: Any) -> float:
    """Return |values - reference| / |reference| (Frobenius, in float64); inf if a value is not finite."""
    import numpy as np

    values = np.asarray(values, dtype=np.float64)
    reference = np.asarray(reference, dtype=np.float64)
    if values.shape != reference.shape or not np.isfinite(values).all():
        return math.inf
    scale = float(np.sqrt(np.sum(reference * reference)))
    return float(np.sqrt(np.sum((values - reference) ** 2))) / (scale or 1.0)


def matmul(facts: Facts, device: str = "/CPU:0", bound: float = FLOAT32_BOUND) -> Answer:
    """Multiply random matrices of several shapes in float32 and compare with float64 arithmetic of NumPy."""
    import numpy as np
    import tensorflow as tf

    random = np.random.RandomState(20)
    findings, measurements = [], {}
    worst = 0.0
    for rows, inner, columns in ((7, 5, 3), (64, 256, 64), (128, 1024, 96), (32, 4096, 32)):
        left = random.standard_normal((rows, inner)).astype(np.float32)
        right = random.standard_normal((inner, columns)).astype(np.float32)
        with tf.device(device):
            product = tf.matmul(tf.constant(left), tf.constant(right)).numpy()
        error = frobenius(product, left.astype(np.float64) @ right.astype(np.float64))
        worst = max(worst, error)
        if not error <= bound:
            findings.append(wrong("matmul {0}x{1}x{2}".format(rows, inner, columns), error, bound))
    measurements["matmul_error"] = measure(min(worst, 1e300), "1")
    expected = "relative Frobenius error at most {0:g}".format(bound)
    return judged(findings, expected, "{0:.3g}".format(worst), measurements=measurements)


MIXED_BOUND = 2e-2


def modes(facts: Facts) -> Answer:
    """Compute one function eagerly, traced, and twice in one graph session: the same answer every time."""
    import numpy as np
    import tensorflow as tf

    values = np.linspace(-2.0, 2.0, 24, dtype=np.float32).reshape(4, 6)
    weights = np.linspace(0.5, -0.5, 30, dtype=np.float32).reshape(6, 5)

    def program(inputs: Any, kernel: Any) -> Any:
        return tf.reduce_sum(tf.tanh(tf.matmul(inputs, kernel)), axis=1)

    reference = np.tanh(values.astype(np.float64) @ weights.astype(np.float64)).sum(axis=1)
    answers = {"eager": program(tf.constant(values), tf.constant(weights)).numpy()}
    traced = tf.function(program)
    answers["function"] = traced(tf.constant(values), tf.constant(weights)).numpy()
    answers["function again"] = traced(tf.constant(values), tf.constant(weights)).numpy()
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        inputs = v1.placeholder(tf.float32, [None, 6])
        output = program(inputs, tf.constant(weights))
        with v1.Session() as session:
            answers["session"] = session.run(output, {inputs: values})
            answers["session again"] = session.run(output, {inputs: values})
    errors = {name: float(np.max(np.abs(answer - reference))) for name, answer in answers.items()}
    findings = [wrong(name, error, 1e-5) for name, error in errors.items() if not error <= 1e-5]
    traces = tensorflow1_compat.traces(traced)
    if traces != 1:
        text = "the function was traced {0} times for one signature".format(traces)
        findings.append(finding("STALLS", "tf.function", text, "1", str(traces), "give inputs as tensors"))
    observed = ", ".join("{0} {1:.1g}".format(name, error) for name, error in errors.items())
    return judged(findings, "one answer in every mode, one trace", observed)


def gradients(facts: Facts) -> Answer:
    """Compare automatic gradients with derivatives that are known in closed form."""
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
    errors = {
        "by inputs": np.max(np.abs(by_inputs.numpy() - 2 * product @ kernel.T.astype(np.float64))),
        "by weights": np.max(np.abs(by_weights.numpy() - 2 * values.T.astype(np.float64) @ product)),
    }
    point = tf.Variable(0.7)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            height = tf.sin(point) * tf.exp(point)
        slope = inner.gradient(height, point)
    bend = outer.gradient(slope, point)
    errors["second derivative"] = abs(float(bend) - 2 * np.exp(0.7) * np.cos(0.7))
    findings = [wrong("gradient " + name, float(error), 1e-4) for name, error in errors.items() if not error <= 1e-4]
    observed = ", ".join("{0} {1:.1g}".format(name, float(error)) for name, error in errors.items())
    return judged(findings, "gradients as derived by hand, within 1e-4", observed)


def xla(facts: Facts, device: str = "/CPU:0") -> Answer:
    """Compile a function by XLA and compare it with the same function not compiled."""
    import time

    import numpy as np
    import tensorflow as tf

    def program(left: Any, right: Any) -> Any:
        return tf.reduce_sum(tf.nn.relu(tf.matmul(left, right)) * 0.5, axis=0)

    compile_it = jit(tf, program)
    if compile_it is None:
        return skipped("this release cannot be asked to compile a function")
    random = np.random.RandomState(4)
    left = tf.constant(random.standard_normal((16, 32)).astype(np.float32))
    right = tf.constant(random.standard_normal((32, 8)).astype(np.float32))
    with tf.device(device):
        begun = time.perf_counter()
        compiled = compile_it(left, right).numpy()
        took = time.perf_counter() - begun
        plain = program(left, right).numpy()
    error = float(np.max(np.abs(compiled - plain)))
    findings = [] if error <= 1e-4 else [wrong("XLA", error, 1e-4)]
    return judged(
        findings,
        "the same answer within 1e-4",
        "{0:.1g} after {1:.2f} s".format(error, took),
        measurements={"xla_compile": measure(took, "s")},
        phases={"first XLA compile": {"cold_s": [took], "warm_s": []}},
    )


def jit(tf: Any, program: Callable[..., Any]) -> Any:
    """Return the function compiled by XLA, None if the release cannot; before 2.5 the option has another name."""
    for option in ("jit_compile", "experimental_compile"):
        try:
            return tf.function(program, **{option: True})
        except (TypeError, ValueError):
            continue
    return None


def mixed_precision(facts: Facts) -> Answer:
    """Multiply in bfloat16 and float16 and compare with float64: less precise, not wrong."""
    import numpy as np
    import tensorflow as tf

    random = np.random.RandomState(5)
    left = random.standard_normal((32, 64)).astype(np.float32)
    right = random.standard_normal((64, 16)).astype(np.float32)
    reference = left.astype(np.float64) @ right.astype(np.float64)
    findings, seen = [], []
    for name, dtype in (("bfloat16", tf.bfloat16), ("float16", tf.float16)):
        product = tf.cast(tf.matmul(tf.cast(left, dtype), tf.cast(right, dtype)), tf.float32).numpy()
        error = float(np.linalg.norm(product - reference) / np.linalg.norm(reference))
        seen.append("{0} {1:.2g}".format(name, error))
        if not error <= MIXED_BOUND:
            findings.append(wrong("matmul in " + name, error, MIXED_BOUND))
    return judged(findings, "relative error at most {0:g}".format(MIXED_BOUND), ", ".join(seen))


def operations(facts: Facts) -> Answer:
    """Count the operations that are registered: a build that lost kernels has far fewer."""
    from tensorflow.python.framework import op_def_registry

    known = getattr(op_def_registry, "get", None) or op_def_registry.get_registered_ops().get  # the latter before 2.2
    names = [name for name in ("MatMul", "Conv2D", "While", "ReadVariableOp", "Einsum") if known(name) is None]
    count = _registered()
    findings = []
    if names:
        findings.append(finding("PACKAGE_CONFLICT", "operations", "not registered: " + ", ".join(names)))
    if count is not None and count < 1000:
        findings.append(finding("PACKAGE_CONFLICT", "operations", "only {0} operations are registered".format(count)))
    more = {"measurements": {"operations": measure(count, "1")}} if count is not None else {}
    return judged(findings, "the basic operations, and more than 1000", "{0} operations".format(count), **more)


def _registered() -> int | None:
    """Return the number of registered operations; None if this release does not report it."""
    try:
        from tensorflow.core.framework import op_def_pb2
        from tensorflow.python.client import pywrap_tf_session

        buffer = pywrap_tf_session.TF_GetAllOpList()
        listing = op_def_pb2.OpList()
        listing.ParseFromString(pywrap_tf_session.TF_GetBuffer(buffer))
        return len(listing.op)
    except (ImportError, AttributeError):
        return None
