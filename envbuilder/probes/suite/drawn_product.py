"""Multiply matrices that are drawn for this run; the host computes the same product and compares."""

from __future__ import annotations

import hashlib
from typing import Any

from .result import Answer, Facts, passed

SHAPE = (1031, 517, 1029)
"""Rows, inner size and columns: no blocking divides them."""

ROWS = 32
"""Rows that are compared completely; all of the product is compared by its product with a drawn vector."""


def nibbles(nonce: str, name: str, count: int) -> bytes:
    """Draw numbers from 0 to 15, a byte each: sums of up to 74,000 products of them are exact in float32."""
    octets = hashlib.shake_128("{0}:{1}".format(nonce, name).encode()).digest(count)
    return octets.translate(bytes(value & 15 for value in range(256)))


def computed(facts: Facts) -> Answer:
    """Return the digest of some rows of the product, and the product of all of it with a drawn vector."""
    import numpy as np
    import tensorflow as tf

    rows, inner, columns = SHAPE

    def matrix(name: str, height: int, width: int) -> Any:
        octets = nibbles(facts["challenge"], name, height * width)
        return tf.constant(np.frombuffer(octets, np.uint8).reshape(height, width).astype(np.float32))

    product = tf.matmul(matrix("left", rows, inner), matrix("right", inner, columns)).numpy()
    chosen = [row * rows // ROWS for row in range(ROWS)]
    vector = np.frombuffer(nibbles(facts["challenge"], "vector", columns), np.uint8).astype(np.float64)
    digest = hashlib.sha256(np.rint(product[chosen]).astype("<u4").tobytes()).hexdigest()
    sums = (product.astype(np.float64) @ vector).tolist()
    return passed("the host's product of the same numbers", "a product", data={"rows": digest, "sums": sums})
