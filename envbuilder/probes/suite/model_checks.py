"""Save, load, convert and train small models."""

from __future__ import annotations

import os
import tempfile
from typing import Any

from .cpu_checks import judged_errors, largest
from .result import Answer, Facts, finding, judged, measure, skipped


def _module(tf: Any) -> Any:
    class Affine(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weights = tf.Variable(tf.reshape(tf.range(12.0) / 10.0, (4, 3)))
            self.bias = tf.Variable([0.5, -0.5, 0.25])

        @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32)])  # type: ignore[untyped-decorator]
        def __call__(self, inputs: Any) -> Any:
            return tf.nn.relu(tf.matmul(inputs, self.weights) + self.bias)

    return Affine()


def saved_model(facts: Facts) -> Answer:
    import numpy as np
    import tensorflow as tf

    inputs = tf.constant(np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4))
    module = _module(tf)
    before = module(inputs).numpy()
    with tempfile.TemporaryDirectory(prefix="probe-") as folder:
        tf.saved_model.save(module, folder)
        after = tf.saved_model.load(folder)(inputs).numpy()
    return judged_errors({"SavedModel": largest(after, before)}, 0.0, "the same answer")


def checkpoint(facts: Facts) -> Answer:
    import tensorflow as tf

    module = _module(tf)
    before = module.weights.numpy()
    with tempfile.TemporaryDirectory(prefix="probe-") as folder:
        path = tf.train.Checkpoint(module=module).write(os.path.join(folder, "point"))
        module.weights.assign(tf.zeros_like(module.weights))
        again = tf.train.Checkpoint(module=module)
        if hasattr(again, "read"):
            again.read(path).assert_consumed()
        else:  # before 2.2: restore() asks for the counter that only save() writes
            again.restore(path).assert_nontrivial_match()
    return judged_errors({"checkpoint": largest(module.weights.numpy(), before)}, 0.0, "the same values")


def tflite(facts: Facts) -> Answer:
    import numpy as np
    import tensorflow as tf

    if not hasattr(tf, "lite"):
        return skipped("this build has no TFLite")
    module = _module(tf)
    inputs = np.linspace(-1, 1, 4, dtype=np.float32).reshape(1, 4)
    before = module(tf.constant(inputs)).numpy()
    concrete = module.__call__.get_concrete_function(tf.TensorSpec([1, 4], tf.float32))
    model = _convert(tf, concrete, module)
    interpreter = tf.lite.Interpreter(model_content=model)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], inputs)
    interpreter.invoke()
    after = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    sizes = {"tflite_model": measure(len(model), "B")}
    return judged_errors({"TFLite": largest(after, before)}, 1e-5, "the same answer within 1e-5", measurements=sizes)


def _convert(tf: Any, concrete: Any, module: Any) -> Any:
    """Convert; the module is the second argument since 2.7."""
    try:
        converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], module)
    except TypeError:
        converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete])
    return converter.convert()


def keras_fit(facts: Facts) -> Answer:
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
        text = f"loss went from {first:.4g} to {last:.4g} in {len(history)} epochs"
        findings.append(finding("WRONG_NUMBERS", "Keras fit", text, f"a tenth of {first:.4g}", f"{last:.4g}"))
    observed = "loss {0:.4g} → {1:.4g} with Keras {2}".format(first, last, getattr(tf.keras, "__version__", "?"))
    return judged(findings, "loss falls at least tenfold", observed, measurements={"final_loss": measure(last, "1")})
