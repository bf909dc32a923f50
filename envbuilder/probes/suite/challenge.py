"""Compute what only a working TensorFlow is likely to answer: drawn numbers, and the operations that people live on.

The answers are data: the host draws the same numbers, computes by itself and compares. Nothing here knows what is
right.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from .answer import Answer, Facts, passed
from .draw import LARGE, ROWS, Draw, png


def answered(facts: Facts) -> Answer:
    """Answer every task of the table; one that raises says so, and costs no other."""
    import numpy as np
    import tensorflow as tf

    drawn = Draw(facts["challenge"])
    given = Given(tf, np, drawn)
    answers: dict[str, Any] = {}
    products = {product_name(shape): functools.partial(_product, shape=shape) for shape in LARGE}
    for name, task in dict(TASKS, **products).items():
        try:
            answers[name] = plain(task(given))
        except Exception as error:
            answers[name] = {"error": "{0}: {1}".format(type(error).__name__, error)[:300]}
    return passed("what the host computes of the same numbers", "{0} answers".format(len(answers)), data=answers)


def product_name(shape: Sequence[int]) -> str:
    """Name the product of a shape: rows, inner, columns."""
    return "matmul {0}x{1}x{2}".format(*shape)


class Given:
    """What a task works with: the framework, NumPy, and what the nonce gives."""

    def __init__(self, tf: Any, np: Any, drawn: Draw) -> None:
        self.tf = tf
        self.np = np
        self.drawn = drawn

    def numbers(self, name: str, *shape: int, low: int = -8, high: int = 7) -> Any:
        """Return drawn integers as a float32 tensor."""
        count = 1
        for size in shape:
            count *= size
        values = self.drawn.integers(name, count, low, high)
        return self.tf.constant(self.np.array(values, self.np.float32).reshape(shape))

    def whole(self, name: str, *shape: int, low: int = 0, high: int = 4) -> Any:
        """Return drawn integers as an int32 tensor."""
        return self.tf.cast(self.numbers(name, *shape, low=low, high=high), self.tf.int32)


def plain(value: Any) -> list[Any]:
    """Flatten tensors and lists of them to numbers and texts, as JSON has them."""
    if isinstance(value, dict):
        return [value]
    if isinstance(value, (list, tuple)):
        return [one for part in value for one in plain(part)]
    if hasattr(value, "numpy"):
        value = value.numpy()
    if hasattr(value, "ravel"):
        return [_told(one) for one in value.ravel().tolist()]
    return [_told(value)]


def _told(value: Any) -> Any:
    """Return one value as JSON has it: what is not finite as a text."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value if not isinstance(value, float) or math.isfinite(value) else repr(value)


def _product(given: Given, shape: Sequence[int]) -> Any:
    """Multiply, and give the digest of drawn rows and the product of all of it with a drawn vector."""
    tf, np, drawn = given.tf, given.np, given.drawn
    rows, inner, columns = shape
    name = product_name(shape)

    def matrix(part: str, height: int, width: int) -> Any:
        octets = drawn.nibbles(name + part, height * width)
        return tf.constant(np.frombuffer(octets, np.uint8).reshape(height, width).astype(np.float32))

    product = tf.matmul(matrix(" left", rows, inner), matrix(" right", inner, columns)).numpy()
    chosen = [row * rows // ROWS for row in range(ROWS)]
    vector = np.frombuffer(drawn.nibbles(name + " vector", columns), np.uint8).astype(np.float64)
    digest = hashlib.sha256(np.rint(product[chosen]).astype("<u4").tobytes()).hexdigest()
    return [digest, *(product.astype(np.float64) @ vector).tolist()]


def _files(given: Given) -> Any:
    """Write and read a file and records."""
    tf, text = given.tf, given.drawn.word("file", 200)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "records")
        tf.io.write_file(os.path.join(folder, "file"), text)
        with tf.io.TFRecordWriter(path) as writer:
            for start in range(0, 200, 40):
                writer.write(text[start : start + 40].encode())
        records = [record.numpy() for record in tf.data.TFRecordDataset(path)]
        return [tf.io.read_file(os.path.join(folder, "file")), records]


def _pipeline(given: Given) -> Any:
    """Map, filter, batch and shuffle a data set."""
    tf = given.tf
    values = given.whole("data", 40, low=0, high=99)
    data = tf.data.Dataset.from_tensor_slices(values).map(lambda x: x * 3 + 1).filter(lambda x: x % 2 == 0)
    shuffled = tf.data.Dataset.from_tensor_slices(values).shuffle(40, seed=1).batch(8)
    return [list(data), tf.sort(tf.concat(list(shuffled), 0))]


def _jpeg(given: Given) -> Any:
    """Write and read a JPEG of one drawn grey."""
    grey = 40 + given.drawn.integers("grey", 1, 0, 150)[0]
    image = given.tf.fill((16, 16, 3), given.tf.constant(grey, given.tf.uint8))
    return given.tf.reduce_mean(
        given.tf.cast(given.tf.io.decode_jpeg(given.tf.io.encode_jpeg(image)), given.tf.float32)
    )


def _loops(given: Given) -> Any:
    """Sum by a traced loop with a branch inside, and by map_fn."""
    tf = given.tf

    def summed(values: Any) -> Any:
        def body(index: Any, total: Any) -> Any:
            return index + 1, tf.cond(values[index] > 0, lambda: total + values[index], lambda: total - 1.0)

        return tf.while_loop(lambda index, _: index < 12, body, (0, 0.0))[1]

    traced = tf.function(summed, autograph=False)
    return [traced(given.numbers("loop", 12)), tf.map_fn(lambda x: x * x, given.numbers("loop", 12))]


def _positive(given: Given) -> Any:
    """Make a symmetric positive matrix of small integers, from a drawn lower triangle."""
    lower = _lower(given)
    return given.tf.matmul(lower, lower, transpose_b=True)


def _lower(given: Given) -> Any:
    """Make a lower triangle of small integers, with a diagonal that keeps it well-conditioned."""
    tf = given.tf
    return tf.linalg.band_part(given.numbers("lower", 5, 5, low=1, high=4), -1, 0) + 12.0 * tf.eye(5)


TASKS: dict[str, Callable[[Given], Any]] = {
    "max_pool": lambda g: g.tf.nn.max_pool2d(g.numbers("image", 1, 8, 8, 2), 2, 2, "VALID"),
    "avg_pool": lambda g: g.tf.nn.avg_pool2d(g.numbers("image", 1, 8, 8, 2), 2, 2, "VALID"),
    "conv2d": lambda g: g.tf.nn.conv2d(g.numbers("image", 1, 8, 8, 2), g.numbers("kernel", 3, 3, 2, 3), 2, "VALID"),
    "depthwise_conv2d": lambda g: g.tf.nn.depthwise_conv2d(
        g.numbers("image", 1, 8, 8, 2), g.numbers("depthwise", 3, 3, 2, 2), (1, 1, 1, 1), "VALID"
    ),
    "gather": lambda g: g.tf.gather(g.numbers("table", 6, 5), g.whole("rows", 9, high=5)),
    "gather_nd": lambda g: g.tf.gather_nd(g.numbers("table", 6, 5), g.whole("places", 7, 2)),
    "cumsum": lambda g: g.tf.cumsum(g.numbers("table", 6, 5), 0),
    "cumsum_backwards": lambda g: g.tf.cumsum(g.numbers("table", 6, 5), 1, exclusive=True, reverse=True),
    "reverse": lambda g: g.tf.reverse(g.numbers("table", 6, 5), [1]),
    "roll": lambda g: g.tf.roll(g.numbers("table", 6, 5), 2, 0),
    "transpose": lambda g: g.tf.transpose(g.numbers("table", 6, 5)),
    "concat": lambda g: g.tf.concat([g.numbers("table", 6, 5), g.numbers("more", 6, 2)], 1),
    "pad": lambda g: g.tf.pad(g.numbers("table", 6, 5), [[1, 0], [0, 2]]),
    "tile": lambda g: g.tf.tile(g.numbers("more", 6, 2), [1, 3]),
    "one_hot": lambda g: g.tf.one_hot(g.whole("rows", 9, high=5), 6),
    "where": lambda g: g.tf.where(g.numbers("table", 6, 5) > 0, g.numbers("table", 6, 5), -1.0),
    "boolean_mask": lambda g: g.tf.boolean_mask(g.numbers("table", 6, 5), g.numbers("table", 6, 5) > 2),
    "segment_sum": lambda g: g.tf.math.segment_sum(g.numbers("table", 6, 5), [0, 0, 1, 1, 1, 2]),
    "unsorted_segment_sum": lambda g: g.tf.math.unsorted_segment_sum(
        g.numbers("long", 30), g.whole("segments", 30, high=6), 7
    ),
    "sort": lambda g: g.tf.sort(g.numbers("long", 30), direction="DESCENDING"),
    "argsort": lambda g: g.tf.argsort(g.tf.constant(g.drawn.order("shuffled", 50))),
    "top_k": lambda g: g.tf.math.top_k(g.tf.constant(g.drawn.order("shuffled", 50)), 7).indices,
    "unique": lambda g: g.tf.unique(g.numbers("long", 30)).y,
    "reductions": lambda g: [
        reduce(g.numbers("table", 6, 5), 1)
        for reduce in (g.tf.reduce_sum, g.tf.reduce_prod, g.tf.reduce_max, g.tf.reduce_min, g.tf.argmax)
    ],
    "scatter_nd": lambda g: g.tf.scatter_nd(g.whole("rows", 9, 1, high=5), g.numbers("updates", 9), [6]),
    "einsum": lambda g: g.tf.einsum("ij,kj->ik", g.numbers("table", 6, 5), g.numbers("other", 4, 5)),
    "functions": lambda g: [
        function(g.numbers("small", 16) / 7.0)
        for function in (g.tf.math.erf, g.tf.tan, g.tf.exp, g.tf.sin, g.tf.tanh, g.tf.sigmoid, g.tf.nn.softplus)
    ],
    "positive_functions": lambda g: [
        function(g.numbers("small", 16, low=1, high=16) / 7.0)
        for function in (g.tf.sqrt, g.tf.math.rsqrt, g.tf.math.log, g.tf.math.log1p, g.tf.math.lgamma)
    ],
    "softmax": lambda g: g.tf.nn.softmax(g.numbers("table", 6, 5)),
    "cross_entropy": lambda g: g.tf.nn.sparse_softmax_cross_entropy_with_logits(
        g.whole("labels", 6), g.numbers("table", 6, 5)
    ),
    "cholesky": lambda g: g.tf.linalg.cholesky(_positive(g)),
    "solve": lambda g: g.tf.linalg.solve(_lower(g), g.numbers("right", 5, 1)),
    "det": lambda g: g.tf.linalg.det(_lower(g)),
    "svd": lambda g: g.tf.linalg.svd(
        g.tf.gather(g.tf.linalg.diag(g.numbers("values", 5, low=1, high=9)), [3, 1, 4, 0, 2]), compute_uv=False
    ),
    "fft": lambda g: [
        part(g.tf.signal.fft(g.tf.complex(g.numbers("signal", 8), g.numbers("signal 2", 8))))
        for part in (g.tf.math.real, g.tf.math.imag)
    ],
    "strings": lambda g: [
        g.tf.strings.upper(g.drawn.word("text")),
        g.tf.strings.join([g.drawn.word("text"), g.drawn.word("text 2")], "-"),
        g.tf.strings.regex_replace(g.drawn.word("text", 40), "[aeiou]", "_"),
        g.tf.strings.substr(g.drawn.word("text"), 3, 5),
        g.tf.strings.split(g.drawn.word("text", 40), "e"),
        g.tf.strings.length(g.drawn.word("text", 33)),
        g.tf.strings.to_number(str(g.drawn.integers("number", 1)[0])),
        g.tf.io.encode_base64(g.drawn.word("text", 20)),
    ],
    "decode_png": lambda g: g.tf.io.decode_png(png(9, 7, g.drawn.octets("picture", 63))),
    "png_again": lambda g: g.tf.io.decode_png(
        g.tf.io.encode_png(g.tf.io.decode_png(png(9, 7, g.drawn.octets("picture", 63))))
    ),
    "jpeg": _jpeg,
    "resize_nearest": lambda g: g.tf.image.resize(g.numbers("image", 1, 8, 8, 2), (16, 16), method="nearest"),
    "resize_bilinear": lambda g: g.tf.image.resize(g.numbers("image", 1, 8, 8, 2), (16, 16)),
    "flip": lambda g: g.tf.image.flip_left_right(g.numbers("image", 1, 8, 8, 2)),
    "files": _files,
    "data": _pipeline,
    "loops": _loops,
    "embedding": lambda g: g.tf.nn.embedding_lookup(g.numbers("table", 6, 5), g.whole("rows", 9, high=5)),
    "ragged": lambda g: g.tf.reduce_sum(
        g.tf.RaggedTensor.from_row_lengths(g.numbers("long", 30), [10, 0, 5, 15]), axis=1
    ),
    "sparse_matmul": lambda g: g.tf.sparse.sparse_dense_matmul(
        g.tf.sparse.from_dense(g.tf.nn.relu(g.numbers("table", 6, 5))), g.numbers("dense", 5, 3)
    ),
}
"""Every task by name. The host has an answer of the same name (``validation/challenge_answers.py``)."""
