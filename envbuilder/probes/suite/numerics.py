"""Compare what TensorFlow computes with float64 references: wrong numbers are worse than none."""

from __future__ import annotations

import math
from typing import Any

from .answer import Answer, Facts, Finding, finding, judged, measure

# Relative Frobenius error of a K-long float32 dot product grows with sqrt(K) times the unit round-off 6e-8 at most
# (random signs); 2e-6 leaves a factor of eight at K = 4096.
FLOAT32_BOUND = 2e-6


def wrong(subject: str, error: float, bound: float, more: str = "") -> Finding:
    """Name a result that is too far from its reference."""
    text = "{0}: relative error {1:.3g} exceeds {2:.3g}{3}".format(subject, error, bound, more)
    fix = "compare with TF_ENABLE_ONEDNN_OPTS=0 and on another host; report the build"
    return finding("WRONG_NUMBERS", subject, text, "at most {0:g}".format(bound), "{0:.3g}".format(error), fix)


def frobenius(values: Any, reference: Any) -> float:
    """Return |values - reference| over |reference| (Frobenius, in float64); inf for what is not finite."""
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
