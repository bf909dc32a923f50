"""Checks on real GPUs through TensorFlow; without a GPU each is skipped with its reason."""

from __future__ import annotations

import ctypes
import json
import math
from itertools import permutations
from typing import Any

from . import cpu_checks, cuda_driver, gpu_code, operations, startup
from .cpu_checks import frobenius, judged_errors, wrong
from .cuda_driver import DriverState, on_driver, on_gpu, on_gpus
from .result import Answer, Facts, finding, judged, measure, passed, skipped

# Relative Frobenius error of a matmul against float64, K = 256 to 4096, by input type. Starting points from the
# project's own design notes, to be calibrated on real GPUs; TF32 has 10 bits of mantissa, so 1e-5 is out of its reach.
BOUNDS = (("float32", 2e-6), ("tf32", 1.2e-3), ("float16", 1.5e-3), ("bfloat16", 1.2e-2))
TF32_AT_LEAST = 1e-5
GPU = "/GPU:0"


def _tensorflow(*, soft: bool = False) -> Any:
    """Import TensorFlow with TF32 off and, by default, without soft placement."""
    import tensorflow as tf

    tf.config.set_soft_device_placement(soft)
    tf.config.experimental.enable_tensor_float_32_execution(False)
    return tf


@on_driver
def devices(facts: Facts, seen: DriverState) -> Answer:
    import tensorflow as tf

    listed = tf.config.list_physical_devices("GPU")
    findings = gpu_code.without_code(seen.gpus, facts)
    if len(listed) != seen.count and not findings:
        text = f"the driver has {seen.count} GPU(s), TensorFlow sees {len(listed)}: it would silently run on the CPU"
        fix = "see the log of this check: TensorFlow names the library or the driver error that stopped it"
        findings.append(finding("GPU_NOT_VISIBLE", "GPU", text, seen.count, len(listed), fix))
    observed = ", ".join(_details(tf, device) for device in listed) or "none"
    return judged(findings, f"{seen.count} GPU(s)", observed)


def _details(tf: Any, device: Any) -> str:
    try:
        details = tf.config.experimental.get_device_details(device)
    except (AttributeError, ValueError, RuntimeError):
        return str(device.name)
    capability = ".".join(map(str, details.get("compute_capability", ())))
    return f"{device.name} ({details.get('device_name', '?')}, {capability or '?'})"


@on_gpu
def first_op(facts: Facts, seen: DriverState) -> Answer:
    return startup.first_op(facts, GPU, "GPU ")


@on_gpu
def xla(facts: Facts, seen: DriverState) -> Answer:
    return cpu_checks.xla(facts, GPU)


@on_gpu
def placement(facts: Facts, seen: DriverState) -> Answer:
    tf = _tensorflow()
    with tf.device(GPU):
        product = tf.matmul(tf.fill((64, 64), 1.0), tf.fill((64, 64), 1.0))
    findings = []
    if "GPU:0" not in product.device:
        text = f"a product requested on the GPU is on {product.device}"
        findings.append(finding("GPU_NOT_VISIBLE", "placement", text, "GPU:0", product.device))
    if float(product[0, 0]) != 64.0:
        findings.append(wrong("placement", abs(float(product[0, 0]) - 64.0), 0.0))
    return judged(findings, "a product on GPU:0", product.device)


@on_gpu
def matmul(facts: Facts, seen: DriverState) -> Answer:
    """Multiply in float32 with TF32 off and on, float16 and bfloat16, each within its own bound of float64."""
    tf = _tensorflow()
    findings, errors = [], {}
    has_tf32 = cuda_driver.numbers(seen.gpus[0]["compute_capability"])[0] >= 8 if seen.gpus else True
    for kind, bound in BOUNDS:
        tf.config.experimental.enable_tensor_float_32_execution(kind == "tf32")
        dtype = "float32" if kind == "tf32" else kind
        shapes = [(256, inner, 256) for inner in (256, 1024, 4096)]
        for (_, inner, _), error in cpu_checks.product_errors(shapes, dtype, 3, GPU).items():
            name = f"{kind} K={inner}"
            errors[name] = error
            if not error <= bound:
                findings.append(wrong("matmul " + name, error, bound))
            if kind == "tf32" and has_tf32 and error < TF32_AT_LEAST:
                text = f"TF32 was on, and the error {error:.2g} shows that it was not used"
                findings.append(finding("WRONG_NUMBERS", "TF32", text, "more than 1e-5", f"{error:.2g}"))
    tf.config.experimental.enable_tensor_float_32_execution(False)
    expected = ", ".join(f"{kind} at most {bound:g}" for kind, bound in BOUNDS)
    observed = ", ".join(f"{name} {error:.2g}" for name, error in errors.items())
    measured = {"error " + name: measure(min(error, 1e300), "1") for name, error in errors.items()}
    return judged(findings, expected, observed, measurements=measured)


# Kernels that MLIR generates from 2.4 on; exact for these numbers in every type. Every release has them for these
# types on GPUs; those of int32 are often kept in the host's memory.
ELEMENT_WISE_TYPES = ("float16", "float32", "float64", "int64")
ELEMENT_WISE = operations.parsed("""
cast | tf.cast(left, tf.float32) | left
abs | tf.abs(left) | abs(left)
divide | tf.divide(left, right) | left / right
not_equal | tf.not_equal(left, right) | left != right
negative | tf.negative(left) | -left
maximum | tf.maximum(left, right) | np.maximum(left, right)
""")


@on_gpu
def element_wise(facts: Facts, seen: DriverState) -> Answer:
    import numpy as np

    tf, errors = _tensorflow(), {}
    for kind in ELEMENT_WISE_TYPES:
        arrays = {"left": np.array([-8, 6, 0, 4, -2], kind), "right": np.array([2, -2, 1, 4, -1], kind)}
        found = _errors_on_gpu(tf, ELEMENT_WISE, arrays)
        errors.update({f"{name} of {kind}": error for name, error in found.items()})
    return judged_errors(errors, 0.0, "NumPy's results")


def _errors_on_gpu(tf: Any, rows: list[operations.Row], arrays: dict[str, Any]) -> dict[str, float]:
    """Compute rows on the GPU. What the framework raises is kept: its text names the cause."""
    import numpy as np

    with tf.device(GPU):
        values = operations.operands(tf, np, arrays)
        return {row.name: operations.error_of(row, tf, np, *values) for row in rows}


@on_gpu
def convolution(facts: Facts, seen: DriverState) -> Answer:
    import numpy as np

    tf = _tensorflow()
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
    pairs = zip(names, answers["gpu"], answers["cpu"])
    errors = {name: frobenius(one.numpy(), other.numpy()) for name, one, other in pairs}
    return judged_errors(errors, 1e-5, "within 1e-5 of float64", "convolution ")


@on_gpu
def lstm(facts: Facts, seen: DriverState) -> Answer:
    import numpy as np

    tf = _tensorflow(soft=True)
    random = np.random.RandomState(6)
    inputs = random.standard_normal((4, 10, 8)).astype(np.float32)
    layer = tf.keras.layers.LSTM(16, return_sequences=True)
    with tf.device(GPU):
        computed = layer(tf.constant(inputs)).numpy()
    weights = [value.numpy() if hasattr(value, "numpy") else value for value in layer.get_weights()]
    error = frobenius(computed, _lstm(np, inputs, *weights))
    return judged_errors({"LSTM": error}, 1e-4, "within 1e-4 of the recurrence in float64")


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


MATH_LIBRARIES = operations.parsed("""
cuFFT | tf.signal.rfft(signal) | np.fft.rfft(signal)
cuSOLVER | tf.linalg.cholesky(definite) | np.linalg.cholesky(definite)
cuSPARSE | _sparse_product(sparse, square) | sparse @ square
""")


@on_gpu
def math_libraries(facts: Facts, seen: DriverState) -> Answer:
    import numpy as np

    random = np.random.RandomState(9)
    signal = random.standard_normal((8, 256)).astype(np.float32)
    square = random.standard_normal((24, 24)).astype(np.float32)
    definite = (square @ square.T + 24 * np.eye(24)).astype(np.float32)
    sparse = np.where(np.abs(square) > 1.0, square, 0).astype(np.float32)
    arrays = {"signal": signal, "square": square, "definite": definite, "sparse": sparse}
    errors = _errors_on_gpu(_tensorflow(soft=True), MATH_LIBRARIES, arrays)
    library = cuda_driver.opened("libcurand.so.10")  # itself: TensorFlow has generators of its own
    if library is not None:
        code = library.curandCreateGenerator(ctypes.byref(ctypes.c_void_p()), 100)
        errors[f"cuRAND (answers {code})"] = math.inf if code else 0.0
    return judged_errors(errors, 1e-5, "each within 1e-5 of float64")


@on_gpu
def memory(facts: Facts, seen: DriverState, mode: str) -> Answer:
    """Configure memory before first use (growth, a limit, pre-allocation) and read the use from the driver."""
    import tensorflow as tf

    device = tf.config.list_physical_devices("GPU")[0]
    if mode == "growth":
        tf.config.experimental.set_memory_growth(device, True)
    elif mode == "limit":
        limit = tf.config.LogicalDeviceConfiguration(memory_limit=512)
        tf.config.set_logical_device_configuration(device, [limit])
    before = sum(cuda_driver.memory_used()[:1])
    with tf.device(GPU):
        tf.matmul(tf.fill((256, 256), 1.0), tf.fill((256, 256), 1.0)).numpy()
    used = sum(cuda_driver.memory_used()[:1]) - before
    total = seen.gpus[0]["memory"]
    holds = {"growth": used < total * 0.2, "limit": used < 512 * 2**20 + total * 0.1, "all": used > total * 0.5}[mode]
    text = f"{mode}: {used / 1e9:.2f} GB of {total / 1e9:.2f} GB are used after one product"
    findings = [] if holds else [finding("GPU_MEMORY", "memory " + mode, text)]
    return judged(findings, "memory as configured: " + mode, text, measurements={"used": measure(used, "B")})


@on_gpu
def visibility(facts: Facts, seen: DriverState, expected: str) -> Answer:
    import tensorflow as tf

    count = len(tf.config.list_physical_devices("GPU"))
    findings = []
    if count != int(expected):
        text = f"{expected} GPU(s) were made visible and TensorFlow sees {count}"
        findings.append(finding("GPU_NOT_VISIBLE", "CUDA_VISIBLE_DEVICES", text, expected, str(count)))
    return judged(findings, f"{expected} GPU(s)", f"{count} GPU(s)")


@on_gpu
def errors(facts: Facts, seen: DriverState, moment: str) -> Answer:
    """Read the GPUs' error counters (ECC, Xid) before and after the other checks; none may have grown."""
    path = "/tmp/envbuilder-gpu-errors.json"
    counters = cuda_driver.error_counters()
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


@on_gpus
def peers(facts: Facts, seen: DriverState) -> Answer:
    library = cuda_driver.opened("libcuda.so.1")
    library.cuInit(0)
    pairs, count = list(permutations(range(seen.count), 2)), 0
    for one, other in pairs:
        able = ctypes.c_int(0)
        count += library.cuDeviceCanAccessPeer(ctypes.byref(able), one, other) == 0 and able.value > 0
    text = f"{count} of {len(pairs)} pairs have peer access"
    findings = [] if count == len(pairs) else [finding("STALLS", "peer access", text, severity="warning")]
    return judged(findings, "a statement for every pair", text, measurements={"pairs": measure(count, "1")})


@on_gpus
def all_reduce(facts: Facts, seen: DriverState) -> Answer:
    import numpy as np
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.NcclAllReduce())
    values = np.arange(1024, dtype=np.float32)

    @tf.function  # type: ignore[untyped-decorator]
    def step() -> Any:
        def each() -> Any:
            replica = tf.distribute.get_replica_context()
            rank = tf.cast(replica.replica_id_in_sync_group + 1, tf.float32)
            return replica.all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(values) * rank)

        return strategy.run(each)

    count = strategy.num_replicas_in_sync
    wanted = values * (count * (count + 1) / 2)
    sums = [part.numpy() for part in strategy.experimental_local_results(step())]
    error = max(cpu_checks.largest(part, wanted) for part in sums)
    is_right = error == 0 and count == seen.count
    findings = [] if is_right else [wrong(f"all-reduce over {count} GPUs", error, 0.0)]
    return judged(findings, f"the exact sum on {seen.count} GPUs", f"largest difference {error:g}")


@on_gpus
def one_context_each(facts: Facts, seen: DriverState) -> Answer:
    import tensorflow as tf

    for index in range(seen.count):
        with tf.device(f"/GPU:{index}"):
            tf.matmul(tf.fill((64, 64), 1.0), tf.fill((64, 64), 1.0)).numpy()
    counts = cuda_driver.contexts_of_this_process()
    text = f"contexts per GPU: {counts}"
    is_wrong = any(count != 1 for count in counts)
    findings = [finding("STALLS", "contexts", text, "one each", counts, severity="warning")] if is_wrong else []
    return judged(findings, "one context per device", text)
