"""Time one start-up and three workloads in this fresh process, and read its peak memory; one sample for each.

Start-up is divided into phases. A workload's sample is the fastest of many repetitions, in turn with the others for
seconds: other processes on the machine only ever add time, and rarely for so long.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..suite.channel import Writer
from ..suite.cuda_timeline import Timeline
from ..suite.host import peak_memory

DEFAULTS = {
    "matmul": {"size": 512, "calls": 10},
    "convolution": {"size": 32, "calls": 10},
    "step": {"size": 64, "calls": 20},
}
"""Side lengths, and the calls that one repetition times."""

REPETITIONS = 7
"""The fewest repetitions of each workload, however long they take."""

SECONDS = 3.0
"""How long the workloads are repeated together."""


def main(writer: Writer, wanted: Mapping[str, Any]) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    durations = start_up(wanted["started"])
    memory = {"memory.start": peak_memory()}
    durations["start.first_step"], workloads = made(wanted)
    durations.update(work(wanted, workloads))
    memory["memory.work"] = peak_memory()
    memory.update(of_gpu())
    writer.send({"seconds": durations, "bytes": {name: size for name, size in memory.items() if size > 0}})


def of_gpu() -> dict[str, int]:
    """Return the peak of TensorFlow's memory on the first GPU; nothing without a GPU."""
    import tensorflow as tf

    try:
        return {"memory.gpu": int(tf.config.experimental.get_memory_info("GPU:0")["peak"])}
    except Exception:
        return {}


def start_up(started: float) -> dict[str, float]:
    """Time the phases from nothing to the first eager result and the first traced function."""
    line = Timeline("start.")
    tf = line.timed("import", lambda: importlib.import_module("tensorflow"))
    line.timed("first_op", lambda: (tf.config.list_physical_devices(), tf.add(tf.ones([4]), 1.0).numpy()))
    line.timed("keras", lambda: tf.keras.layers.Dense)
    traced = tf.function(lambda x: tf.reduce_sum(tf.matmul(x, x)))
    line.timed("first_function", lambda: traced(tf.ones([16, 16])).numpy())
    line.add("total", time.perf_counter() - started)
    return {row["phase"]: row["seconds"] for row in line.phases}


def made(wanted: Mapping[str, Any]) -> tuple[float, dict[str, Callable[[], object]]]:
    """Create the workloads and call each once; return the seconds of the first training step, tracing included."""
    makers = {"step": step, "matmul": matmul, "convolution": convolution}
    calls = {}
    first = 0.0
    for name, make in makers.items():
        begun = time.perf_counter()
        calls[name] = make(dict(DEFAULTS[name], **wanted.get(name, {}))["size"])
        calls[name]()
        first = first or time.perf_counter() - begun
    return first, {name: calls[name] for name in DEFAULTS}


def work(wanted: Mapping[str, Any], calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Repeat the workloads in turn and return the seconds of the fastest call of each."""
    options = {name: dict(DEFAULTS[name], **wanted.get(name, {})) for name in calls}
    best: dict[str, float] = {}
    begun = time.perf_counter()
    done = 0
    while done < REPETITIONS or time.perf_counter() - begun < SECONDS:
        for name, call in calls.items():
            before = time.perf_counter()
            for _ in range(options[name]["calls"]):
                call()
            took = (time.perf_counter() - before) / DEFAULTS[name]["calls"]
            best[name] = min(took, best.get(name, took))
        done += 1
    return {"work." + name: took for name, took in best.items()}


def matmul(size: int) -> Callable[[], Any]:
    import tensorflow as tf

    one = tf.random.stateless_normal([size, size], seed=(1, 2))
    product = tf.function(lambda: tf.matmul(one, one))
    return lambda: product().numpy()


def convolution(size: int) -> Callable[[], Any]:
    import tensorflow as tf

    images = tf.random.stateless_normal([8, size, size, 16], seed=(1, 2))
    filters = tf.random.stateless_normal([3, 3, 16, 16], seed=(3, 4))
    convolved = tf.function(lambda: tf.nn.conv2d(images, filters, strides=1, padding="SAME"))
    return lambda: convolved().numpy()


def step(size: int) -> Callable[[], Any]:
    import tensorflow as tf

    inputs = tf.random.stateless_normal([64, size], seed=(1, 2))
    weights = [tf.Variable(tf.random.stateless_normal(shape, seed=(3, 4))) for shape in ((size, 256), (256, 10))]

    @tf.function  # type: ignore[untyped-decorator]
    def train() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.matmul(tf.nn.relu(tf.matmul(inputs, weights[0])), weights[1])))
        for variable, gradient in zip(weights, tape.gradient(loss, weights)):
            variable.assign_sub(1e-6 * gradient)
        return loss

    return lambda: train().numpy()
