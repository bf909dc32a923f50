"""Compare common operations of TensorFlow with NumPy or plain Python, each on the same small inputs."""

from __future__ import annotations

import base64
import math
import os
import re
import struct
import tempfile
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from .cpu_checks import wrong
from .result import Answer, Facts, judged, measure


class Row(NamedTuple):
    """One operation, or a few of one kind: as an expression of TensorFlow and one of NumPy."""

    name: str
    tensorflow: str
    numpy: str


BOUND = 1e-5
"""The largest relative error. Most results are exact; float32 functions are within 32 units in the last place, 2e-6."""

TEXT = "the quick brown fox jumps over the lazy dog"
JPEG_BOUND = 0.02
"""A JPEG of one grey is within two of its 256 steps."""


def compared(facts: Facts) -> Answer:
    """Compute every row of the table. An operation that raises is wrong, and the others still run."""
    import numpy as np
    import tensorflow as tf

    values = operands(tf, np, inputs(np))
    findings, errors = [], {}
    for row in ROWS:
        name, raised = row.name, ""
        try:
            errors[name] = error_of(row, tf, np, *values)
        except Exception as problem:
            errors[name], raised = math.inf, f": {type(problem).__name__}: {problem}"[:300]
        bound = JPEG_BOUND if name == "jpeg" else BOUND
        if not errors[name] <= bound:
            findings.append(wrong(name, errors[name], bound, raised))
    error, worst = max((error, name) for name, error in errors.items() if name != "jpeg")
    return judged(
        findings,
        f"{len(ROWS)} operations within {BOUND:g} of NumPy",
        f"worst: {worst} {error:.2g}",
        measurements={"elementary_error": measure(min(error, 1e300), "1")},
    )


def operands(tf: Any, np: Any, arrays: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return arrays as tensors, and for NumPy with float64 instead of float32."""
    wide = {name: array.astype(np.float64) if array.dtype == np.float32 else array for name, array in arrays.items()}
    return {name: tf.constant(array) for name, array in arrays.items()}, wide


def error_of(row: Row, tf: Any, np: Any, tensors: Mapping[str, Any], wide: Mapping[str, Any]) -> float:
    made = [
        flat(eval(expression, dict(globals(), tf=tf, np=np, **values)))  # noqa: S307 - expressions of our tables
        for expression, values in ((row.tensorflow, tensors), (row.numpy, wide))
    ]
    return distance(*made)


def flat(value: Any) -> list[Any]:
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


SHAPES: dict[str, tuple[int, ...]] = {
    "image": (1, 8, 8, 2),
    "kernel": (3, 3, 2, 3),
    "depthwise": (3, 3, 2, 2),
    "table": (6, 5),
    "other": (4, 5),
    "more": (6, 2),
    "dense": (5, 3),
    "matrix": (5, 5),
    "right": (5, 1),
    "long": (30,),
    "updates": (9,),
    "signal": (8,),
    "imaginary": (8,),
}
INDICES = {"rows": ((9,), 6), "places": ((7, 2), 5), "segments": ((30,), 7), "labels": ((6,), 5), "data": ((40,), 100)}
"""Shapes of arrays of small integers, and of indices below a number."""


def inputs(np: Any) -> dict[str, Any]:
    """Return the inputs by name. Integers below 2^24 are exact in float32, in any order of summation."""
    random = np.random.RandomState(8)
    numbers = {name: random.randint(-8, 8, shape).astype(np.float32) for name, shape in SHAPES.items()}
    indices = {name: random.randint(0, end, shape).astype(np.int32) for name, (shape, end) in INDICES.items()}
    return dict(
        numbers,
        **indices,
        small=random.randint(-8, 8, 16).astype(np.float32) / 7,
        positive=random.randint(1, 17, 16).astype(np.float32) / 7,
        shuffled=random.permutation(50).astype(np.int32),
        # The diagonal keeps the condition number below 10.
        lower=(np.tril(random.randint(1, 5, (5, 5))) + 12 * np.eye(5)).astype(np.float32),
        pixels=random.randint(0, 256, (7, 9, 1)).astype(np.uint8),
    )


def _png(pixels: bytes, width: int, height: int) -> bytes:
    """Write 8-bit grey pixels, row by row (RFC 2083)."""
    rows = b"".join(b"\0" + pixels[row * width : (row + 1) * width] for row in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    )


def _base64(text: str) -> bytes:
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=")


def _pictures(tf: Any, pixels: Any) -> list[Any]:
    decoded = tf.io.decode_png(_png(pixels.numpy().tobytes(), 9, 7))
    return [decoded, tf.io.decode_png(tf.io.encode_png(decoded))]


def _jpeg(tf: Any) -> Any:
    image = tf.fill((16, 16, 3), tf.constant(100, tf.uint8))
    return tf.reduce_mean(tf.cast(tf.io.decode_jpeg(tf.io.encode_jpeg(image)), tf.float32))


def _files(tf: Any) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "records")
        tf.io.write_file(os.path.join(folder, "file"), TEXT)
        with tf.io.TFRecordWriter(path) as writer:
            for word in TEXT.split():
                writer.write(word.encode())
        records = [record.numpy() for record in tf.data.TFRecordDataset(path)]
        return [tf.io.read_file(os.path.join(folder, "file")), records]


def _pipeline(tf: Any, values: Any) -> list[Any]:
    # AutoGraph finds the source of a lambda only if there is one on its line.
    data = tf.data.Dataset.from_tensor_slices(values)
    mapped = data.map(lambda number: number * 3 + 1)
    even = mapped.filter(lambda number: number % 2 == 0)
    shuffled = data.shuffle(40, seed=1).batch(8)
    return [list(even), tf.sort(tf.concat(list(shuffled), 0))]


def _loops(tf: Any, values: Any) -> list[Any]:
    def summed(values: Any) -> Any:
        def body(index: Any, total: Any) -> Any:
            return index + 1, tf.cond(values[index] > 0, lambda: total + values[index], lambda: total - 1.0)

        return tf.while_loop(lambda index, _: index < 30, body, (0, 0.0))[1]

    return [tf.function(summed, autograph=False)(values), tf.map_fn(lambda value: value * value, values)]


def _sparse_product(sparse: Any, dense: Any) -> Any:
    from tensorflow.python.ops.linalg.sparse import sparse_csr_matrix_ops as csr

    return csr.matmul(csr.CSRSparseMatrix(sparse), dense)


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


TABLE = """
max_pool | tf.nn.max_pool2d(image, 2, 2, "VALID") | image.reshape(4, 2, 4, 2, 2).max(axis=(1, 3))
avg_pool | tf.nn.avg_pool2d(image, 2, 2, "VALID") | image.reshape(4, 2, 4, 2, 2).mean(axis=(1, 3))
conv2d | tf.nn.conv2d(image, kernel, 2, "VALID") | _convolved(np, image, kernel, 2, "yxc,co->yxo")
depthwise_conv2d | tf.nn.depthwise_conv2d(image, depthwise, (1, 1, 1, 1), "VALID")
  | _convolved(np, image, depthwise, 1, "yxc,co->yxco")
gather | tf.gather(table, rows) | table[rows]
gather_nd | tf.gather_nd(table, places) | table[places[:, 0], places[:, 1]]
embedding | tf.nn.embedding_lookup(table, rows) | table[rows]
cumsum | tf.cumsum(table, 0) | table.cumsum(0)
cumsum_backwards | tf.cumsum(table, 1, exclusive=True, reverse=True) | table.sum(1, keepdims=True) - table.cumsum(1)
reverse | tf.reverse(table, [1]) | table[:, ::-1]
roll | tf.roll(table, 2, 0) | np.roll(table, 2, 0)
transpose | tf.transpose(table) | table.T
concat | tf.concat([table, more], 1) | np.concatenate([table, more], 1)
pad | tf.pad(table, [[1, 0], [0, 2]]) | np.pad(table, [(1, 0), (0, 2)], "constant")
tile | tf.tile(more, [1, 3]) | np.tile(more, [1, 3])
one_hot | tf.one_hot(rows, 6) | np.eye(6)[rows]
where | tf.where(table > 0, table, -1.0) | np.where(table > 0, table, -1)
boolean_mask | tf.boolean_mask(table, table > 2) | table[table > 2]
segment_sum | tf.math.segment_sum(table, [0, 0, 1, 1, 1, 2]) | np.add.reduceat(table, [0, 2, 5])
unsorted_segment_sum | tf.math.unsorted_segment_sum(long, segments, 7) | np.bincount(segments, long, 7)
scatter_nd | tf.scatter_nd(rows[:, None], updates, [6]) | np.bincount(rows, updates, 6)
sort | tf.sort(long, direction="DESCENDING") | np.sort(long)[::-1]
argsort | tf.argsort(shuffled) | np.argsort(shuffled)
top_k | tf.math.top_k(shuffled, 7).indices | np.argsort(-shuffled)[:7]
unique | tf.unique(long).y | list(dict.fromkeys(long.tolist()))
reductions | [reduce(table, 1) for reduce in (tf.reduce_sum, tf.reduce_prod, tf.reduce_max, tf.reduce_min, tf.argmax)]
  | [reduce(table, 1) for reduce in (np.sum, np.prod, np.max, np.min, np.argmax)]
einsum | tf.einsum("ij,kj->ik", table, other) | table @ other.T
functions | [f(small) for f in (tf.math.erf, tf.tan, tf.exp, tf.sin, tf.tanh, tf.sigmoid, tf.nn.softplus)]
  | [*(f(small) for f in (np.vectorize(math.erf), np.tan, np.exp, np.sin, np.tanh)),
     1 / (1 + np.exp(-small)), np.log1p(np.exp(small))]
positive_functions | [f(positive) for f in (tf.sqrt, tf.math.rsqrt, tf.math.log, tf.math.log1p, tf.math.lgamma)]
  | [*(f(positive) for f in (np.sqrt, lambda x: 1 / np.sqrt(x), np.log, np.log1p, np.vectorize(math.lgamma)))]
softmax | tf.nn.softmax(table) | _softmax(np, table)
cross_entropy | tf.nn.sparse_softmax_cross_entropy_with_logits(labels, table)
  | -np.log(_softmax(np, table)[np.arange(6), labels])
cholesky | tf.linalg.cholesky(tf.matmul(lower, lower, transpose_b=True)) | lower
solve | tf.linalg.solve(lower, right) | np.linalg.solve(lower, right)
det | tf.linalg.det(lower) | np.prod(np.diag(lower))
svd | tf.linalg.svd(matrix, compute_uv=False) | np.linalg.svd(matrix, compute_uv=False)
fft | [tf.signal.fft(tf.complex(signal, imaginary)), tf.signal.rfft(signal)]
  | [np.fft.fft(signal + 1j * imaginary), np.fft.rfft(signal)]
strings | [tf.strings.upper(TEXT), tf.strings.join(["one", "two"], "-"), tf.strings.regex_replace(TEXT, "[aeiou]", "_"),
  tf.strings.substr(TEXT, 3, 5), tf.strings.split(TEXT, "e"), tf.strings.length(TEXT), tf.strings.to_number("-12"),
  tf.io.encode_base64(TEXT)]
  | [*(text.encode() for text in (TEXT.upper(), "one-two", re.sub("[aeiou]", "_", TEXT), TEXT[3:8], *TEXT.split("e"))),
     len(TEXT), -12.0, _base64(TEXT)]
png | _pictures(tf, pixels) | [pixels, pixels]
jpeg | _jpeg(tf) | 100.0
resize_nearest | tf.image.resize(image, (16, 16), method="nearest") | image.repeat(2, 1).repeat(2, 2)
resize_bilinear | tf.image.resize(image, (16, 16))
  | np.einsum("yi,xj,ijc->yxc", _doubling(np), _doubling(np), image[0])
flip | tf.image.flip_left_right(image) | image[:, :, ::-1]
files | _files(tf) | [TEXT.encode(), [word.encode() for word in TEXT.split()]]
data | _pipeline(tf, data) | [[value for value in data * 3 + 1 if value % 2 == 0], np.sort(data)]
loops | _loops(tf, long) | [np.where(long > 0, long, -1).sum(), long**2]
ragged | tf.reduce_sum(tf.RaggedTensor.from_row_lengths(long, [10, 0, 5, 15]), axis=1)
  | [long[:10].sum(), 0, long[10:15].sum(), long[15:].sum()]
sparse_matmul | tf.sparse.sparse_dense_matmul(tf.sparse.from_dense(tf.nn.relu(table)), dense)
  | np.maximum(table, 0) @ dense
"""
"""Rows: name, TensorFlow, NumPy in float64. An indented line continues the row."""


def parsed(table: str) -> list[Row]:
    return [Row(*map(str.strip, row.split(" | "))) for row in re.split(r"\n(?=\S)", table.strip())]


ROWS = parsed(TABLE)
