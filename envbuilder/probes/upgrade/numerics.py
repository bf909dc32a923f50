"""Compute common operations in every precision: the error of each against double precision, and its results.

Inputs come from NumPy's ``RandomState``, whose stream is frozen, so both images compute on the same bytes; their digest
is in the output. The error is the largest absolute one, relative to the largest reference value. An operation that is
wrong in all precisions alike has no error against itself, so the results are in the output too, to be compared with the
other image's. So are digests of seeded random generators.
"""

from __future__ import annotations

import base64
import hashlib
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..suite.channel import Writer

SEED = 20


def operations(tf: Any) -> tuple[tuple[str, Callable[..., Any], tuple[tuple[int, ...], ...]], ...]:
    depthwise = tf.nn.depthwise_conv2d
    return (
        ("matmul", tf.matmul, ((192, 160), (160, 128))),
        ("conv2d", lambda x, k: tf.nn.conv2d(x, k, 1, "SAME"), ((2, 24, 24, 8), (3, 3, 8, 16))),
        ("depthwise_conv2d", lambda x, k: depthwise(x, k, [1, 1, 1, 1], "SAME"), ((2, 24, 24, 8), (3, 3, 8, 1))),
        ("softmax", tf.nn.softmax, ((64, 100),)),
        ("log_softmax", tf.nn.log_softmax, ((64, 100),)),
        ("logsumexp", lambda x: tf.reduce_logsumexp(x, axis=-1), ((64, 100),)),
        ("reduce_sum", lambda x: tf.reduce_sum(x, axis=-1), ((32, 4096),)),
        ("reduce_mean", lambda x: tf.reduce_mean(x, axis=-1), ((32, 4096),)),
        ("variance", lambda x: tf.math.reduce_variance(x, axis=-1), ((32, 4096),)),
        ("cumsum", lambda x: tf.cumsum(x, axis=-1), ((8, 1024),)),
        ("exp", tf.exp, ((4096,),)),
        ("tanh", tf.tanh, ((4096,),)),
        ("sigmoid", tf.sigmoid, ((4096,),)),
        ("erf", tf.math.erf, ((4096,),)),
        ("gelu", tf.nn.gelu, ((4096,),)),
        ("sin", tf.sin, ((4096,),)),
        ("rsqrt", lambda x: tf.math.rsqrt(tf.square(x) + 1), ((4096,),)),
        ("l2_normalize", lambda x: tf.math.l2_normalize(x, axis=-1), ((64, 256),)),
        ("avg_pool2d", lambda x: tf.nn.avg_pool2d(x, 2, 2, "SAME"), ((2, 24, 24, 8),)),
        ("einsum", lambda a, b: tf.einsum("bij,bjk->bik", a, b), ((4, 32, 48), (4, 48, 24))),
        ("gradient_of_matmul", lambda a, b: gradient(tf, a, b), ((64, 48), (48, 32))),
    )


def gradient(tf: Any, one: Any, other: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(one)
        loss = tf.reduce_sum(tf.square(tf.matmul(one, other)))
    return tape.gradient(loss, one)


def main(writer: Writer, wanted: Mapping[str, Any]) -> None:
    import numpy as np
    import tensorflow as tf

    stream = np.random.RandomState(SEED)
    rows = []
    for name, operation, shapes in operations(tf):
        inputs = [stream.standard_normal(shape).astype("float32") for shape in shapes]
        rows += [
            dict(compute(np, tf, operation, inputs, dtype), name=name + "." + dtype, precision=dtype)
            for dtype in ("float32", "float16", "bfloat16", "float64")
        ]
    writer.send({"operations": rows, "streams": streams(tf)})


def streams(tf: Any) -> dict[str, str]:
    """Return digests of random generators with fixed seeds; '' if one raises."""
    makers = {
        "stateless_normal": lambda: tf.random.stateless_normal([1024], seed=(1, 2)),
        "stateless_uniform": lambda: tf.random.stateless_uniform([1024], seed=(1, 2)),
        "normal after set_seed": lambda: seeded(tf),
        "Generator": lambda: tf.random.Generator.from_seed(3).normal([1024]),
        "keras GlorotUniform": lambda: tf.keras.initializers.GlorotUniform(seed=4)((32, 32)),
        "keras RandomNormal": lambda: tf.keras.initializers.RandomNormal(seed=5)((32, 32)),
    }
    return {name: digested(make) for name, make in makers.items()}


def seeded(tf: Any) -> Any:
    tf.random.set_seed(6)
    return tf.random.normal([1024])


def digested(make: Callable[[], Any]) -> str:
    try:
        return hashlib.sha256(make().numpy().tobytes()).hexdigest()[:16]
    except Exception:
        return ""


def compute(np: Any, tf: Any, operation: Callable[..., Any], inputs: Sequence[Any], dtype: str) -> dict[str, Any]:
    """Compute one operation in a precision and in double precision from the same (already rounded) inputs."""
    digest = hashlib.sha256(b"".join(one.tobytes() for one in inputs)).hexdigest()[:16]
    try:
        rounded = [tf.cast(one, dtype) for one in inputs]
        exact = operation(*[tf.cast(one, "float64") for one in rounded]).numpy()
        result = operation(*rounded)
        values = tf.cast(result, "float64").numpy()
    except Exception as error:
        return {"error": None, "failure": f"{type(error).__name__}: {str(error)[:300]}", "inputs": digest}
    scale = float(np.max(np.abs(exact))) or 1.0
    largest = float(np.max(np.abs(values - exact))) / scale
    kept = values if dtype == "float64" else values.astype("float32")
    known = math.isfinite(largest)
    return {
        "error": largest if known else None,
        "failure": "" if known else "the results are not finite",
        "values": base64.b64encode(zlib.compress(kept.tobytes(), 1)).decode() if known else "",
        "inputs": digest,
        "outputs": hashlib.sha256(values.tobytes()).hexdigest()[:16],
    }
