"""Checks on real GPUs through TensorFlow; without a GPU each is skipped with its reason."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

from . import cpu_checks, driver, startup, tensorflow_install
from .cpu_checks import frobenius, wrong
from .result import Answer, Facts, finding, judged, measure, passed, skipped

# Relative Frobenius error of a matmul against float64, K = 256 to 4096, by input type. Starting points from the
# project's own design notes, to be calibrated on real GPUs; TF32 has 10 bits of mantissa, so 1e-5 is out of its reach.
BOUNDS = (("float32", 2e-6), ("tf32", 1.2e-3), ("float16", 1.5e-3), ("bfloat16", 1.2e-2))
TF32_AT_LEAST = 1e-5
GPU = "/GPU:0"
SIMULATED = "a simulated driver cannot compute"


def usable(facts: Facts) -> driver.DriverState | Answer:
    """Return what the driver reports if a GPU can compute, otherwise the skipped result of the check."""
    seen = driver.read_state()
    if not seen.present:
        return skipped(driver.NO_DRIVER)
    if facts.get("simulated"):
        return skipped(SIMULATED)
    if not seen.gpus and not seen.count:
        return skipped("the driver has no GPU")
    return seen


def on_gpu(check: Callable[..., Answer]) -> Callable[..., Answer]:
    """Skip a check if no GPU can compute."""

    def guarded(facts: Facts, **arguments: Any) -> Answer:
        seen = usable(facts)
        return seen if isinstance(seen, dict) else check(facts, seen, **arguments)

    guarded.__name__ = check.__name__
    guarded.__doc__ = check.__doc__
    return guarded


def _tensorflow() -> Any:
    import tensorflow as tf

    tf.config.set_soft_device_placement(False)
    return tf


@on_gpu
def first_op(facts: Facts, seen: driver.DriverState) -> Answer:
    return startup.first_op(facts, GPU, "GPU ")


@on_gpu
def placement(facts: Facts, seen: driver.DriverState) -> Answer:
    """Request the GPU with soft placement off, and read the device of the result."""
    tf = _tensorflow()
    with tf.device(GPU):
        product = tf.matmul(tf.fill((64, 64), 1.0), tf.fill((64, 64), 1.0))
    findings = []
    if "GPU:0" not in product.device:
        text = "a product requested on the GPU is on {0}".format(product.device)
        findings.append(finding("GPU_NOT_VISIBLE", "placement", text, "GPU:0", product.device))
    if float(product[0, 0]) != 64.0:
        findings.append(wrong("placement", abs(float(product[0, 0]) - 64.0), 0.0))
    return judged(findings, "a product on GPU:0", product.device)


@on_gpu
def matmul(facts: Facts, seen: driver.DriverState) -> Answer:
    """Multiply in float32 with TF32 off and on, float16 and bfloat16, each within its own bound of float64."""
    import numpy as np

    tf = _tensorflow()
    random = np.random.RandomState(3)
    findings, measurements, lines = [], {}, []
    has_tf32 = all(_capability(gpu) >= (8, 0) for gpu in seen.gpus[:1])
    for inner in (256, 1024, 4096):
        left = random.standard_normal((256, inner)).astype(np.float32)
        right = random.standard_normal((inner, 256)).astype(np.float32)
        reference = left.astype(np.float64) @ right.astype(np.float64)
        for kind, bound in BOUNDS:
            error = frobenius(_product(tf, left, right, kind), reference)
            name = "{0} K={1}".format(kind, inner)
            lines.append("{0} {1:.2g}".format(name, error))
            measurements["error " + name] = measure(min(error, 1e300), "1")
            if not error <= bound:
                findings.append(wrong("matmul " + name, error, bound))
            if kind == "tf32" and has_tf32 and error < TF32_AT_LEAST:
                text = "TF32 was on, and the error {0:.2g} shows that it was not used".format(error)
                findings.append(finding("WRONG_NUMBERS", "TF32", text, "more than 1e-5", "{0:.2g}".format(error)))
    tf.config.experimental.enable_tensor_float_32_execution(False)
    expected = ", ".join("{0} at most {1:g}".format(*row) for row in BOUNDS)
    return judged(findings, expected, ", ".join(lines), measurements=measurements)


def _capability(gpu: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(int(part) for part in gpu["compute_capability"].split("."))


def _product(tf: Any, left: Any, right: Any, kind: str) -> Any:
    tf.config.experimental.enable_tensor_float_32_execution(kind == "tf32")
    dtype = tf.float32 if kind in ("float32", "tf32") else getattr(tf, kind)
    with tf.device(GPU):
        return tf.cast(tf.matmul(tf.cast(left, dtype), tf.cast(right, dtype)), tf.float32).numpy()


# Kernels that MLIR generates from 2.4 on; exact for these numbers in every type. Every release has them for these
# types on GPUs; those of int32 are often kept in the host's memory.
ELEMENT_WISE_TYPES = ("float16", "float32", "float64", "int64")
ELEMENT_WISE = ("cast", "abs", "divide", "not_equal", "negative", "maximum")


@on_gpu
def element_wise(facts: Facts, seen: driver.DriverState) -> Answer:
    """Compute with generated kernels in several number types, and compare each result with NumPy's."""
    import numpy as np

    tf = _tensorflow()
    findings = []
    for kind in ELEMENT_WISE_TYPES:
        left = np.array([-8, 6, 0, 4, -2], kind)
        right = np.array([2, -2, 1, 4, -1], kind)
        with tf.device(GPU):
            got = _element_wise(tf, tf.constant(left), tf.constant(right))
        want = (left.astype(np.float32), abs(left), left / right, left != right, -left, np.maximum(left, right))
        for name, one, other in zip(ELEMENT_WISE, got, want):
            error = float(np.max(np.abs(one.numpy().astype(np.float64) - np.asarray(other).astype(np.float64))))
            if error != 0.0:
                findings.append(wrong("{0} of {1}".format(name, kind), error, 0.0))
    return judged(
        findings,
        "NumPy's results",
        "{0} operations in {1} number types".format(len(ELEMENT_WISE), len(ELEMENT_WISE_TYPES)),
    )


def _element_wise(tf: Any, left: Any, right: Any) -> tuple[Any, ...]:
    return (
        tf.cast(left, tf.float32),
        tf.abs(left),
        tf.divide(left, right),
        tf.not_equal(left, right),
        tf.negative(left),
        tf.maximum(left, right),
    )


@on_gpu
def convolution(facts: Facts, seen: driver.DriverState) -> Answer:
    """Convolve forward and backward through cuDNN and compare with the CPU in float64."""
    import numpy as np

    tf = _tensorflow()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    random = np.random.RandomState(5)
    image = random.standard_normal((4, 17, 17, 8))
    kernel = random.standard_normal((3, 3, 8, 16))
    answers = {}
    for name, device, dtype in (("gpu", GPU, np.float32), ("cpu", "/CPU:0", np.float64)):
        with tf.device(device), tf.GradientTape() as tape:
            inputs, weights = tf.constant(image.astype(dtype)), tf.constant(kernel.astype(dtype))
            tape.watch([inputs, weights])
            output = tf.nn.conv2d(inputs, weights, strides=1, padding="SAME")
            loss = tf.reduce_sum(tf.square(output))
        answers[name] = [output, *tape.gradient(loss, [inputs, weights])]
    names = ("forward", "gradient by image", "gradient by kernel")
    errors = [frobenius(a.numpy(), b.numpy()) for a, b in zip(answers["gpu"], answers["cpu"])]
    findings = [wrong("convolution " + name, e, 1e-5) for name, e in zip(names, errors) if not e <= 1e-5]
    observed = ", ".join("{0} {1:.2g}".format(*pair) for pair in zip(names, errors))
    return judged(findings, "within 1e-5 of float64", observed)


@on_gpu
def lstm(facts: Facts, seen: driver.DriverState) -> Answer:
    """Run an LSTM with cuDNN's own kernel and compare with the same weights on the CPU."""
    import numpy as np

    tf = _tensorflow()
    tf.config.set_soft_device_placement(True)
    tf.config.experimental.enable_tensor_float_32_execution(False)
    random = np.random.RandomState(6)
    inputs = random.standard_normal((4, 10, 8)).astype(np.float32)
    layer = tf.keras.layers.LSTM(16, return_sequences=True)
    with tf.device(GPU):
        on_gpu_answer = layer(tf.constant(inputs)).numpy()
    weights = [value.numpy() if hasattr(value, "numpy") else value for value in layer.get_weights()]
    error = frobenius(on_gpu_answer, _lstm(np, inputs, *weights))
    findings = [] if error <= 1e-4 else [wrong("LSTM", error, 1e-4)]
    return judged(findings, "within 1e-4 of the recurrence in float64", "{0:.2g}".format(error))


def _lstm(np: Any, inputs: Any, kernel: Any, recurrent: Any, bias: Any) -> Any:
    """Compute the LSTM recurrence by definition, in float64 (gates in Keras's order: input, forget, cell, output)."""
    units = recurrent.shape[0]
    hidden = state = np.zeros((inputs.shape[0], units))
    out = []
    for step in range(inputs.shape[1]):
        gates = inputs[:, step].astype(np.float64) @ kernel + hidden @ recurrent + bias
        into, forget, cell, give = (gates[:, index * units : (index + 1) * units] for index in range(4))
        state = state / (1 + np.exp(-forget)) + np.tanh(cell) / (1 + np.exp(-into))
        hidden = np.tanh(state) / (1 + np.exp(-give))
        out.append(hidden)
    return np.stack(out, axis=1)


@on_gpu
def math_libraries(facts: Facts, seen: driver.DriverState) -> Answer:
    """Use cuFFT, cuSOLVER, cuSPARSE and cuRAND once each, and compare the results."""
    import numpy as np

    tf = _tensorflow()
    tf.config.set_soft_device_placement(True)
    random = np.random.RandomState(9)
    signal = random.standard_normal((8, 256)).astype(np.float32)
    square = random.standard_normal((24, 24)).astype(np.float32)
    spd = (square @ square.T + 24 * np.eye(24)).astype(np.float32)
    with tf.device(GPU):
        rows = [
            ("cuFFT", tf.signal.rfft(signal).numpy(), np.fft.rfft(signal.astype(np.float64))),
            ("cuSOLVER", tf.linalg.cholesky(spd).numpy(), np.linalg.cholesky(spd.astype(np.float64))),
        ]
        sparse = np.where(np.abs(square) > 1.0, square, 0).astype(np.float32)
        rows.append(("cuSPARSE", _sparse_product(tf, sparse, square), sparse.astype(np.float64) @ square))
    findings, lines = [], []
    for name, computed, reference in rows:
        error = float(np.linalg.norm(computed - reference) / np.linalg.norm(reference))
        lines.append("{0} {1:.2g}".format(name, error))
        if not error <= 1e-5:
            findings.append(wrong(name, error, 1e-5))
    lines.append("cuRAND {0}".format(_random_numbers()))
    return judged(findings, "each within 1e-5 of float64", ", ".join(lines))


def _sparse_product(tf: Any, sparse: Any, dense: Any) -> Any:
    from tensorflow.python.ops.linalg.sparse import sparse_csr_matrix_ops as csr

    matrix = csr.CSRSparseMatrix(tf.constant(sparse))
    return csr.matmul(matrix, tf.constant(dense)).numpy()


def _random_numbers() -> str:
    """Create a cuRAND generator in the library itself: TensorFlow has generators of its own."""
    search = tensorflow_install.new_search()
    path, _ = tensorflow_install.find(search, "libcurand.so.10", tensorflow_install.callers(search))
    if path is None:
        return "is not installed"
    generator = ctypes.c_void_p()
    code = ctypes.CDLL(path).curandCreateGenerator(ctypes.byref(generator), 100)
    return "works" if code == 0 else "answers {0}".format(code)


@on_gpu
def xla(facts: Facts, seen: driver.DriverState) -> Answer:
    return cpu_checks.xla(facts, GPU)


@on_gpu
def memory(facts: Facts, seen: driver.DriverState, mode: str) -> Answer:
    """Configure memory before first use (growth, a limit, pre-allocation) and read the use from the driver."""
    import tensorflow as tf

    device = tf.config.list_physical_devices("GPU")[0]
    if mode == "growth":
        tf.config.experimental.set_memory_growth(device, True)
    elif mode == "limit":
        limit = tf.config.LogicalDeviceConfiguration(memory_limit=512)
        tf.config.set_logical_device_configuration(device, [limit])
    before = _used()
    with tf.device(GPU):
        tf.matmul(tf.fill((256, 256), 1.0), tf.fill((256, 256), 1.0)).numpy()
    used = _used() - before
    total = seen.gpus[0]["memory"]
    holds = {"growth": used < total * 0.2, "limit": used < 512 * 2**20 + total * 0.1, "all": used > total * 0.5}[mode]
    text = "{0}: {1:.2f} GB of {2:.2f} GB are used after one product".format(mode, used / 1e9, total / 1e9)
    findings = [] if holds else [finding("GPU_MEMORY", "memory " + mode, text)]
    return judged(findings, "memory as configured: " + mode, text, measurements={"used": measure(used, "B")})


def _used() -> int:
    gpus = driver.memory_used()
    return gpus[0] if gpus else 0


@on_gpu
def visibility(facts: Facts, seen: driver.DriverState, expected: str) -> Answer:
    """With CUDA_VISIBLE_DEVICES set for this process, TensorFlow sees exactly those devices."""
    import tensorflow as tf

    count = len(tf.config.list_physical_devices("GPU"))
    findings = []
    if count != int(expected):
        text = "{0} GPU(s) were made visible and TensorFlow sees {1}".format(expected, count)
        findings.append(finding("GPU_NOT_VISIBLE", "CUDA_VISIBLE_DEVICES", text, expected, str(count)))
    return judged(findings, "{0} GPU(s)".format(expected), "{0} GPU(s)".format(count))


@on_gpu
def errors(facts: Facts, seen: driver.DriverState, moment: str) -> Answer:
    """Read the GPUs' error counters (ECC, Xid) before and after the other checks; none may have grown."""
    import json
    import os

    path = os.path.join(facts.get("scratch", "/tmp"), "envbuilder-gpu-errors.json")
    counters = driver.error_counters()
    if moment == "before":
        with open(path, "w", encoding="utf-8") as stream:
            json.dump(counters, stream)
        return passed("counters can be read", str(counters))
    try:
        with open(path, encoding="utf-8") as stream:
            before = json.load(stream)
    except OSError:
        return skipped("the counters were not read before")
    grown = [name for name, value in counters.items() if value > before.get(name, value)]
    text = "grew during the checks: " + ", ".join(grown)
    findings = [finding("GPU_ERRORS", "GPU", text, str(before), str(counters), "test the GPU")] if grown else []
    return judged(findings, "no counter grows", str(counters))
