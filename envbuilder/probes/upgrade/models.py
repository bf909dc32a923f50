"""Save a small model in every format, or load what the other image saved, and compare the predictions."""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from ..suite.channel import Writer

TOLERANCE = 1e-4
"""Predictions of the same weights differ by rounding alone."""


def main(writer: Writer, wanted: Mapping[str, Any]) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    if "folder" in wanted:
        writer.send({"loaded": load(tf, wanted["folder"], wanted["formats"])})
    else:
        writer.send({"saved": save(tf)})


def inputs(tf: Any) -> Any:
    return tf.reshape(tf.range(8, dtype="float32"), [2, 4]) / 8.0


def network(tf: Any) -> Any:
    """Create a network with the same weights in every version."""
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Dense(3, activation="relu", input_shape=(4,)), layers.Dense(1)])
    model(inputs(tf))
    model.set_weights([tf.ones(one.shape).numpy() * (number + 1) / 8 for number, one in enumerate(model.weights)])
    return model


def module(tf: Any) -> Any:
    found = tf.Module()
    found.weights = tf.Variable(tf.ones([4, 1]) / 8.0)
    signature = [tf.TensorSpec([None, 4], tf.float32)]
    found.call = tf.function(lambda x: tf.matmul(x, found.weights) + 1.125, input_signature=signature)
    return found


def expected(tf: Any, name: str) -> Any:
    x = inputs(tf)
    if name in ("SavedModel", "checkpoint"):
        return tf.reduce_sum(x, axis=1, keepdims=True) / 8.0 + 1.125
    hidden = tf.nn.relu(tf.reduce_sum(x, axis=1, keepdims=True) / 8.0 + 2 / 8)
    return 3 * hidden * 3 / 8 + 4 / 8


def checkpoint(tf: Any, folder: str) -> None:
    tf.train.Checkpoint(weights=module(tf).weights).write(os.path.join(folder, "checkpoint"))


def restored(tf: Any, folder: str) -> Any:
    """Read a checkpoint into a module with other weights."""
    found = module(tf)
    found.weights.assign(tf.zeros([4, 1]))
    tf.train.Checkpoint(weights=found.weights).read(os.path.join(folder, "checkpoint")).assert_consumed()
    return found.call(inputs(tf))


def weights_of(tf: Any, folder: str) -> Any:
    """Read weights into a network with other ones."""
    model = network(tf)
    model.set_weights([0 * one for one in model.get_weights()])
    model.load_weights(os.path.join(folder, "m.weights.h5"))
    return model(inputs(tf))


def keras(file: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return how a Keras model is saved as a file (or, '', a folder) and loaded."""
    return (
        lambda tf, folder: network(tf).save(os.path.join(folder, file)),
        lambda tf, folder: tf.keras.models.load_model(os.path.join(folder, file))(inputs(tf)),
    )


def served(tf: Any, folder: str) -> Mapping[str, Any]:
    """Call the signature of a saved Keras model; the module has to exist during the call."""
    loaded = tf.saved_model.load(folder)
    found: Mapping[str, Any] = loaded.signatures["serving_default"](inputs(tf))
    return found


FORMATS: Mapping[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "SavedModel": (
        lambda tf, folder: tf.saved_model.save(module(tf), folder),
        lambda tf, folder: tf.saved_model.load(folder).call(inputs(tf)),
    ),
    "SavedModel of a Keras model": (
        lambda tf, folder: tf.saved_model.save(network(tf), folder),
        lambda tf, folder: next(iter(served(tf, folder).values())),
    ),
    "checkpoint": (checkpoint, restored),
    "Keras .keras": keras("m.keras"),
    "Keras .h5": keras("m.h5"),
    "Keras folder": keras(""),
    "Keras weights": (lambda tf, folder: network(tf).save_weights(os.path.join(folder, "m.weights.h5")), weights_of),
}
"""Every format: how it is saved into a folder, and how a prediction is made from there."""


def save(tf: Any) -> dict[str, dict[str, str]]:
    """Save in every format that this version can write: format → path → content in base 64."""
    found = {}
    for name, (write, _) in FORMATS.items():
        with tempfile.TemporaryDirectory() as folder, suppress(Exception):  # then nobody has such a model from it
            write(tf, folder)
            found[name] = dict(contents(folder))
    return found


def contents(folder: str) -> Iterator[tuple[str, str]]:
    for place, _, names in os.walk(folder):
        for path in (os.path.join(place, name) for name in names):
            with open(path, "rb") as stream:
                yield os.path.relpath(path, folder), base64.b64encode(stream.read()).decode()


def load(tf: Any, folder: str, formats: Mapping[str, str]) -> dict[str, str]:
    return {name: tried(tf, name, os.path.join(folder, place)) for name, place in formats.items()}


def tried(tf: Any, name: str, folder: str) -> str:
    try:
        found = FORMATS[name][1](tf, folder)
        difference = float(tf.reduce_max(tf.abs(found - expected(tf, name))))
    except Exception as error:
        return "{0}: {1}".format(type(error).__name__, (str(error).strip().splitlines() or [""])[0][:300])
    return "" if difference <= TOLERANCE else f"its predictions differ by {difference:.2g}"
