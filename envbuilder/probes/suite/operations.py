"""Compare common operations of TensorFlow with NumPy or plain Python, each on the same small inputs."""

# ruff: noqa: ARG005 - all functions of the table have one signature

from __future__ import annotations

import base64
import math
import os
import re
import struct
import tempfile
import types
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from .cpu_checks import wrong
from .result import Answer, Facts, judged, measure

BOUND = 1e-5
"""The largest relative error. Most results are exact; float32 functions are within 32 units in the last place, 2e-6."""

TEXT = "the quick brown fox jumps over the lazy dog"
JPEG_BOUND = 0.02
"""A JPEG of one grey is within two of its 256 steps."""


def compared(facts: Facts) -> Answer:
    """Run every row of the table. An operation that raises is wrong, and the others still run."""
    import numpy as np
    import tensorflow as tf

    arrays = inputs(np)
    tensors = {name: tf.constant(array) for name, array in arrays.items()}
    wide = {name: array.astype(np.float64) if array.dtype == np.float32 else array for name, array in arrays.items()}
    findings, errors = [], {}
    for name, (error, more) in errors_of(tf, types.SimpleNamespace(**tensors), np, types.SimpleNamespace(**wide)):
        bound = JPEG_BOUND if name == "jpeg" else BOUND
        errors[name] = error
        if not error <= bound:
            findings.append(wrong(name, error, bound, more))
    worst = max((error, name) for name, error in errors.items() if name != "jpeg")
    return judged(
        findings,
        "{0} operations within {1:g} of NumPy".format(len(TABLE), BOUND),
        "worst: {1} {0:.2g}".format(*worst),
        measurements={"elementary_error": measure(min(worst[0], 1e300), "1")},
    )


def errors_of(tf: Any, tensors: Any, np: Any, arrays: Any) -> Iterator[tuple[str, tuple[float, str]]]:
    """Yield the error of each operation of the table, and what it raised: then the error is inf."""
    for name, (by_tensorflow, by_numpy) in TABLE.items():
        try:
            yield name, (distance(flat(by_tensorflow(tf, tensors)), flat(by_numpy(np, arrays))), "")
        except Exception as problem:
            yield name, (math.inf, ": {0}: {1}".format(type(problem).__name__, problem)[:300])


def flat(value: Any) -> list[Any]:
    """Flatten tensors, arrays and lists of them to numbers and bytes."""
    if isinstance(value, (list, tuple)):
        return [one for part in value for one in flat(part)]
    if hasattr(value, "numpy"):
        value = value.numpy()
    if hasattr(value, "ravel"):
        return list(value.ravel().tolist())
    return [value]


def distance(result: list[Any], reference: list[Any]) -> float:
    """Return the relative error of numbers; texts are equal (0) or not (inf)."""
    if len(result) != len(reference) or any(isinstance(one, bytes) for one in result + reference):
        return 0.0 if result == reference else math.inf
    error = math.sqrt(sum(abs(one - other) ** 2 for one, other in zip(result, reference)))
    size = math.sqrt(sum(abs(one) ** 2 for one in reference))
    return error / (size or 1.0) if math.isfinite(error) else math.inf


def inputs(np: Any) -> dict[str, Any]:
    """Return the inputs by name. Integers below 2^24 are exact in float32, in any order of summation."""
    random = np.random.RandomState(8)

    def numbers(*shape: int, low: int = -8, high: int = 7) -> Any:
        return random.randint(low, high + 1, shape).astype(np.float32)

    def indices(*shape: int, high: int) -> Any:
        return random.randint(0, high + 1, shape).astype(np.int32)

    return {
        "image": numbers(1, 8, 8, 2),
        "kernel": numbers(3, 3, 2, 3),
        "depthwise": numbers(3, 3, 2, 2),
        "table": numbers(6, 5),
        "other": numbers(4, 5),
        "more": numbers(6, 2),
        "dense": numbers(5, 3),
        "long": numbers(30),
        "updates": numbers(9),
        "small": numbers(16) / 7,
        "positive": numbers(16, low=1, high=16) / 7,
        "rows": indices(9, high=5),
        "places": indices(7, 2, high=4),
        "segments": indices(30, high=6),
        "labels": indices(6, high=4),
        "shuffled": random.permutation(50).astype(np.int32),
        # The diagonal keeps the condition number below 10.
        "lower": (np.tril(numbers(5, 5, low=1, high=4)) + 12 * np.eye(5)).astype(np.float32),
        "right": numbers(5, 1),
        "matrix": numbers(5, 5),
        "signal": numbers(8),
        "imaginary": numbers(8),
        "data": indices(40, high=99),
        "pixels": random.randint(0, 256, (7, 9, 1)).astype(np.uint8),
    }


def _png(pixels: bytes, width: int, height: int) -> bytes:
    """Write 8-bit grey pixels, row by row (RFC 2083)."""
    rows = b"".join(b"\0" + pixels[row * width : (row + 1) * width] for row in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    )


def _pictures(tf: Any, x: Any) -> list[Any]:
    decoded = tf.io.decode_png(_png(x.pixels.numpy().tobytes(), 9, 7))
    return [decoded, tf.io.decode_png(tf.io.encode_png(decoded))]


def _jpeg(tf: Any, x: Any) -> Any:
    image = tf.fill((16, 16, 3), tf.constant(100, tf.uint8))
    return tf.reduce_mean(tf.cast(tf.io.decode_jpeg(tf.io.encode_jpeg(image)), tf.float32))


def _files(tf: Any, x: Any) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "records")
        tf.io.write_file(os.path.join(folder, "file"), TEXT)
        with tf.io.TFRecordWriter(path) as writer:
            for word in TEXT.split():
                writer.write(word.encode())
        records = [record.numpy() for record in tf.data.TFRecordDataset(path)]
        return [tf.io.read_file(os.path.join(folder, "file")), records]


def _pipeline(tf: Any, x: Any) -> list[Any]:
    # AutoGraph finds the source of a lambda only if there is one on its line.
    data = tf.data.Dataset.from_tensor_slices(x.data)
    mapped = data.map(lambda number: number * 3 + 1)
    even = mapped.filter(lambda number: number % 2 == 0)
    shuffled = data.shuffle(40, seed=1).batch(8)
    return [list(even), tf.sort(tf.concat(list(shuffled), 0))]


def _loops(tf: Any, x: Any) -> list[Any]:
    def summed(values: Any) -> Any:
        def body(index: Any, total: Any) -> Any:
            return index + 1, tf.cond(values[index] > 0, lambda: total + values[index], lambda: total - 1.0)

        return tf.while_loop(lambda index, _: index < 30, body, (0, 0.0))[1]

    return [tf.function(summed, autograph=False)(x.long), tf.map_fn(lambda x: x * x, x.long)]


def _convolved(np: Any, image: Any, kernel: Any, stride: int, product: str) -> Any:
    """Convolve by definition: the sum over the nine places of the kernel."""
    size = (image.shape[1] - 3) // stride + 1
    places = [slice(start, start + stride * size, stride) for start in range(3)]
    return sum(
        np.einsum(product, image[0, places[row], places[column]], kernel[row, column])
        for row in range(3)
        for column in range(3)
    )


def _doubling(np: Any) -> Any:
    """Return the weights that double 8 pixels to 16 bilinearly, with pixel centres at halves."""
    weights = np.zeros((16, 8))
    for place in range(16):
        centre = (place + 0.5) / 2 - 0.5
        below = math.floor(centre)
        weights[place, max(0, below)] += 1 - (centre - below)
        weights[place, min(7, below + 1)] += centre - below
    return weights


def _softmax(np: Any, table: Any) -> Any:
    powers = np.exp(table)
    return powers / powers.sum(axis=1, keepdims=True)


TABLE: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "max_pool": (
        lambda tf, x: tf.nn.max_pool2d(x.image, 2, 2, "VALID"),
        lambda np, x: x.image.reshape(4, 2, 4, 2, 2).max(axis=(1, 3)),
    ),
    "avg_pool": (
        lambda tf, x: tf.nn.avg_pool2d(x.image, 2, 2, "VALID"),
        lambda np, x: x.image.reshape(4, 2, 4, 2, 2).mean(axis=(1, 3)),
    ),
    "conv2d": (
        lambda tf, x: tf.nn.conv2d(x.image, x.kernel, 2, "VALID"),
        lambda np, x: _convolved(np, x.image, x.kernel, 2, "yxc,co->yxo"),
    ),
    "depthwise_conv2d": (
        lambda tf, x: tf.nn.depthwise_conv2d(x.image, x.depthwise, (1, 1, 1, 1), "VALID"),
        lambda np, x: _convolved(np, x.image, x.depthwise, 1, "yxc,co->yxco"),
    ),
    "gather": (lambda tf, x: tf.gather(x.table, x.rows), lambda np, x: x.table[x.rows]),
    "gather_nd": (
        lambda tf, x: tf.gather_nd(x.table, x.places),
        lambda np, x: x.table[x.places[:, 0], x.places[:, 1]],
    ),
    "embedding": (lambda tf, x: tf.nn.embedding_lookup(x.table, x.rows), lambda np, x: x.table[x.rows]),
    "cumsum": (lambda tf, x: tf.cumsum(x.table, 0), lambda np, x: x.table.cumsum(0)),
    "cumsum_backwards": (
        lambda tf, x: tf.cumsum(x.table, 1, exclusive=True, reverse=True),
        lambda np, x: x.table.sum(1, keepdims=True) - x.table.cumsum(1),
    ),
    "reverse": (lambda tf, x: tf.reverse(x.table, [1]), lambda np, x: x.table[:, ::-1]),
    "roll": (lambda tf, x: tf.roll(x.table, 2, 0), lambda np, x: np.roll(x.table, 2, 0)),
    "transpose": (lambda tf, x: tf.transpose(x.table), lambda np, x: x.table.T),
    "concat": (lambda tf, x: tf.concat([x.table, x.more], 1), lambda np, x: np.concatenate([x.table, x.more], 1)),
    "pad": (
        lambda tf, x: tf.pad(x.table, [[1, 0], [0, 2]]),
        lambda np, x: np.pad(x.table, [(1, 0), (0, 2)], "constant"),
    ),
    "tile": (lambda tf, x: tf.tile(x.more, [1, 3]), lambda np, x: np.tile(x.more, [1, 3])),
    "one_hot": (lambda tf, x: tf.one_hot(x.rows, 6), lambda np, x: np.eye(6)[x.rows]),
    "where": (lambda tf, x: tf.where(x.table > 0, x.table, -1.0), lambda np, x: np.where(x.table > 0, x.table, -1)),
    "boolean_mask": (lambda tf, x: tf.boolean_mask(x.table, x.table > 2), lambda np, x: x.table[x.table > 2]),
    "segment_sum": (
        lambda tf, x: tf.math.segment_sum(x.table, [0, 0, 1, 1, 1, 2]),
        lambda np, x: np.add.reduceat(x.table, [0, 2, 5]),
    ),
    "unsorted_segment_sum": (
        lambda tf, x: tf.math.unsorted_segment_sum(x.long, x.segments, 7),
        lambda np, x: np.bincount(x.segments, x.long, 7),
    ),
    "scatter_nd": (
        lambda tf, x: tf.scatter_nd(x.rows[:, None], x.updates, [6]),
        lambda np, x: np.bincount(x.rows, x.updates, 6),
    ),
    "sort": (lambda tf, x: tf.sort(x.long, direction="DESCENDING"), lambda np, x: np.sort(x.long)[::-1]),
    "argsort": (lambda tf, x: tf.argsort(x.shuffled), lambda np, x: np.argsort(x.shuffled)),
    "top_k": (lambda tf, x: tf.math.top_k(x.shuffled, 7).indices, lambda np, x: np.argsort(-x.shuffled)[:7]),
    "unique": (lambda tf, x: tf.unique(x.long).y, lambda np, x: list(dict.fromkeys(x.long.tolist()))),
    "reductions": (
        lambda tf, x: [
            reduce(x.table, 1) for reduce in (tf.reduce_sum, tf.reduce_prod, tf.reduce_max, tf.reduce_min, tf.argmax)
        ],
        lambda np, x: [reduce(x.table, 1) for reduce in (np.sum, np.prod, np.max, np.min, np.argmax)],
    ),
    "einsum": (lambda tf, x: tf.einsum("ij,kj->ik", x.table, x.other), lambda np, x: x.table @ x.other.T),
    "functions": (
        lambda tf, x: [
            function(x.small) for function in (tf.math.erf, tf.tan, tf.exp, tf.sin, tf.tanh, tf.sigmoid, tf.nn.softplus)
        ],
        lambda np, x: [
            np.vectorize(math.erf)(x.small),
            *(function(x.small) for function in (np.tan, np.exp, np.sin, np.tanh)),
            1 / (1 + np.exp(-x.small)),
            np.log1p(np.exp(x.small)),
        ],
    ),
    "positive_functions": (
        lambda tf, x: [
            function(x.positive) for function in (tf.sqrt, tf.math.rsqrt, tf.math.log, tf.math.log1p, tf.math.lgamma)
        ],
        lambda np, x: [
            np.sqrt(x.positive),
            1 / np.sqrt(x.positive),
            np.log(x.positive),
            np.log1p(x.positive),
            np.vectorize(math.lgamma)(x.positive),
        ],
    ),
    "softmax": (lambda tf, x: tf.nn.softmax(x.table), lambda np, x: _softmax(np, x.table)),
    "cross_entropy": (
        lambda tf, x: tf.nn.sparse_softmax_cross_entropy_with_logits(x.labels, x.table),
        lambda np, x: -np.log(_softmax(np, x.table)[np.arange(6), x.labels]),
    ),
    "cholesky": (
        lambda tf, x: tf.linalg.cholesky(tf.matmul(x.lower, x.lower, transpose_b=True)),
        lambda np, x: x.lower,
    ),
    "solve": (lambda tf, x: tf.linalg.solve(x.lower, x.right), lambda np, x: np.linalg.solve(x.lower, x.right)),
    "det": (lambda tf, x: tf.linalg.det(x.lower), lambda np, x: np.prod(np.diag(x.lower))),
    "svd": (
        lambda tf, x: tf.linalg.svd(x.matrix, compute_uv=False),
        lambda np, x: np.linalg.svd(x.matrix, compute_uv=False),
    ),
    "fft": (
        lambda tf, x: [tf.signal.fft(tf.complex(x.signal, x.imaginary)), tf.signal.rfft(x.signal)],
        lambda np, x: [np.fft.fft(x.signal + 1j * x.imaginary), np.fft.rfft(x.signal)],
    ),
    "strings": (
        lambda tf, x: [
            tf.strings.upper(TEXT),
            tf.strings.join(["one", "two"], "-"),
            tf.strings.regex_replace(TEXT, "[aeiou]", "_"),
            tf.strings.substr(TEXT, 3, 5),
            tf.strings.split(TEXT, "e"),
            tf.strings.length(TEXT),
            tf.strings.to_number("-12"),
            tf.io.encode_base64(TEXT),
        ],
        lambda np, x: [
            *(text.encode() for text in (TEXT.upper(), "one-two", re.sub("[aeiou]", "_", TEXT), TEXT[3:8])),
            *(part.encode() for part in TEXT.split("e")),
            len(TEXT),
            -12.0,
            base64.urlsafe_b64encode(TEXT.encode()).rstrip(b"="),
        ],
    ),
    "png": (_pictures, lambda np, x: [x.pixels, x.pixels]),
    "jpeg": (_jpeg, lambda np, x: 100.0),
    "resize_nearest": (
        lambda tf, x: tf.image.resize(x.image, (16, 16), method="nearest"),
        lambda np, x: x.image.repeat(2, 1).repeat(2, 2),
    ),
    "resize_bilinear": (
        lambda tf, x: tf.image.resize(x.image, (16, 16)),
        lambda np, x: np.einsum("yi,xj,ijc->yxc", _doubling(np), _doubling(np), x.image[0]),
    ),
    "flip": (lambda tf, x: tf.image.flip_left_right(x.image), lambda np, x: x.image[:, :, ::-1]),
    "files": (_files, lambda np, x: [TEXT.encode(), [word.encode() for word in TEXT.split()]]),
    "data": (
        _pipeline,
        lambda np, x: [[value for value in x.data * 3 + 1 if value % 2 == 0], np.sort(x.data)],
    ),
    "loops": (_loops, lambda np, x: [np.where(x.long > 0, x.long, -1).sum(), x.long**2]),
    "ragged": (
        lambda tf, x: tf.reduce_sum(tf.RaggedTensor.from_row_lengths(x.long, [10, 0, 5, 15]), axis=1),
        lambda np, x: [x.long[:10].sum(), 0, x.long[10:15].sum(), x.long[15:].sum()],
    ),
    "sparse_matmul": (
        lambda tf, x: tf.sparse.sparse_dense_matmul(tf.sparse.from_dense(tf.nn.relu(x.table)), x.dense),
        lambda np, x: np.maximum(x.table, 0) @ x.dense,
    ),
}
"""Each operation, or a few of one kind: by TensorFlow, and by NumPy in float64."""
