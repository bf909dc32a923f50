"""Check that Keras learns: loss must fall on data that can be learnt."""

from __future__ import annotations

from .answer import Answer, Facts, finding, judged, measure


def keras_fit(facts: Facts) -> Answer:
    """Fit a tiny model to a line in a few epochs; a loss that does not fall tenfold is no learning."""
    import numpy as np
    import tensorflow as tf

    tf.keras.utils.set_random_seed(7) if hasattr(tf.keras.utils, "set_random_seed") else tf.random.set_seed(7)
    random = np.random.RandomState(7)
    inputs = random.standard_normal((256, 4)).astype(np.float32)
    targets = inputs @ np.array([[0.5], [-1.0], [2.0], [0.1]], dtype=np.float32) + 0.3
    model = tf.keras.Sequential([tf.keras.layers.Dense(16, activation="relu"), tf.keras.layers.Dense(1)])
    model.compile(optimizer=tf.keras.optimizers.Adam(0.02), loss="mse")
    history = model.fit(inputs, targets, batch_size=16, epochs=6, verbose=0).history["loss"]
    first, last = history[0], history[-1]
    findings = []
    if not last * 10 <= first:
        text = "loss went from {0:.4g} to {1:.4g} in {2} epochs".format(first, last, len(history))
        findings.append(
            finding("WRONG_NUMBERS", "Keras fit", text, "a tenth of {0:.4g}".format(first), "{0:.4g}".format(last))
        )
    observed = "loss {0:.4g} → {1:.4g} with Keras {2}".format(first, last, getattr(tf.keras, "__version__", "?"))
    return judged(findings, "loss falls at least tenfold", observed, measurements={"final_loss": measure(last, "1")})
