"""Multiply matrices that are drawn for this run; the host computes the same product and compares."""

from __future__ import annotations

import hashlib

from .result import Answer, Facts, passed

SHAPE = (1031, 517, 1029)
"""Rows, inner size and columns: no blocking divides them."""

SIZES = {"left": SHAPE[0] * SHAPE[1], "right": SHAPE[1] * SHAPE[2], "vector": SHAPE[2]}


def drawn(nonce: str, name: str, count: int) -> bytes:
    """Draw numbers from 1 to 16, a byte each: sums of up to 65,000 products of them are exact in float32."""
    octets = hashlib.shake_128(f"{nonce}:{name}".encode()).digest(count)
    return octets.translate(bytes((value & 15) + 1 for value in range(256)))


def computed(facts: Facts) -> Answer:
    """Return the product of the matrices' product with a drawn vector: one wrong number always changes it."""
    import numpy as np
    import tensorflow as tf

    rows, inner, columns = SHAPE
    left, right, vector = (np.frombuffer(drawn(facts["challenge"], *one), np.uint8) for one in SIZES.items())
    product = tf.matmul(
        tf.constant(left.reshape(rows, inner).astype(np.float32)),
        tf.constant(right.reshape(inner, columns).astype(np.float32)),
    ).numpy()
    sums = (product.astype(np.float64) @ vector.astype(np.float64)).tolist()
    return passed("the host's product of the same numbers", "a product", data=sums)
