"""Use common parts of TensorFlow as a user would and report every warning, deprecation and error.

The work runs in a child process with all of Python's warnings on. Lines are normalised (clock, process ids, addresses,
line numbers), so that two runs of the same version print the same.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from ..suite.channel import Writer

NORMAL = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d+: "), ""),
    (re.compile(r"^([EWIF])\d{4} \d\d:\d\d:[\d.]+ +\d+ "), r"\1 "),
    (re.compile(r"0x[0-9a-f]+"), "0x…"),
    (re.compile(r"/\S*/(site-packages|lib/python3\.\d+)/"), ""),
    (re.compile(r"/tmp/\S+"), "/tmp/…"),
    (re.compile(r"(\.(?:py|cc|h)):\d+"), r"\1"),
    (re.compile(r"<stdin>:\d+|<string>:\d+"), "<script>"),
    (re.compile(r"\b\d{6,}\b"), "…"),
)

MARKS = re.compile(r"[Ww]arning|WARNING|[Dd]eprecat|^[EWF][ :]|^E0000|^W0000|\bERROR\b|: [EWF] ")
"""What makes a line worth reporting; information lines are left out."""

WORK = r"""
import os, sys, tempfile
import numpy as np
import tensorflow as tf
if os.environ.get("TF_ENVBUILDER_IMPORT_ONLY"):
    sys.exit(0)
folder = tempfile.mkdtemp()
def part(name, function):
    try:
        function()
    except Exception as error:
        print("ERROR in %s: %s: %s" % (name, type(error).__name__, str(error).splitlines()[:1]), file=sys.stderr)
x = np.arange(64, dtype="float32").reshape(16, 4)
y = np.arange(16, dtype="float32")
model = tf.keras.Sequential([tf.keras.layers.Dense(4, activation="relu", input_shape=(4,)), tf.keras.layers.Dense(1)])
part("compile", lambda: model.compile(optimizer=tf.keras.optimizers.Adam(learning_rate=0.01), loss="mse"))
part("fit", lambda: model.fit(x, y, epochs=1, verbose=0))
part("predict", lambda: model.predict(x, verbose=0))
part("save keras", lambda: model.save(os.path.join(folder, "model.keras")))
part("load keras", lambda: tf.keras.models.load_model(os.path.join(folder, "model.keras")))
part("save h5", lambda: model.save(os.path.join(folder, "model.h5")))
part("save SavedModel", lambda: tf.saved_model.save(model, os.path.join(folder, "saved")))
part("load SavedModel", lambda: tf.saved_model.load(os.path.join(folder, "saved")))
part("data", lambda: list(tf.data.Dataset.from_tensor_slices(x).shuffle(4).batch(3).map(lambda v: v * 2)))
part("function", lambda: tf.function(lambda v: v + 1)(tf.ones([2])))
part("compat.v1", lambda: tf.compat.v1.placeholder_with_default(1.0, shape=()))
part("strategy", lambda: tf.distribute.MirroredStrategy())
part("image", lambda: tf.image.resize(tf.ones([1, 4, 4, 3]), [8, 8]))
part("lite", lambda: tf.lite.TFLiteConverter.from_concrete_functions(
    [tf.function(lambda v: v * 2).get_concrete_function(tf.TensorSpec([2], tf.float32))]).convert())
"""


def main(writer: Writer, wanted: Mapping[str, Any]) -> None:
    writer.send({"imported": printed({"TF_ENVBUILDER_IMPORT_ONLY": "1"}, wanted), "used": printed({}, wanted)})


def printed(extra: Mapping[str, str], wanted: Mapping[str, Any]) -> list[str]:
    env = dict(os.environ, PYTHONWARNINGS="always", TF_CPP_MIN_LOG_LEVEL="0", **extra)
    with tempfile.TemporaryFile() as log:
        code = subprocess.call(
            [sys.executable, "-c", wanted.get("work", WORK)], env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        log.seek(0)
        lines = log.read().decode("utf-8", "replace").splitlines()
    found = {normal(line) for line in lines if MARKS.search(line)}
    if code:
        found.add(f"ERROR: the process ended with exit code {code}")
    return sorted(line for line in found if line)


def normal(line: str) -> str:
    for pattern, text in NORMAL:
        line = pattern.sub(text, line)
    return line.strip()[:500]
