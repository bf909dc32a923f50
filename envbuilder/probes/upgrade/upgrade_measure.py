"""Time one start-up and three workloads in this fresh process; one sample for each, in seconds.

Start-up is divided into phases from the first instruction to the first results. A workload's sample is the fastest of
many repetitions, taken in turn with the other workloads over seconds: what other processes do to the machine only ever
adds time, and rarely for so long.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from .upgrade_answer import Channel

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


def main(channel: Channel, wanted: Mapping[str, Any]) -> None:
    """Print the durations as one JSON document."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    durations = start_up(channel.started)
    durations.update(work(wanted))
    channel.say({"seconds": durations})


def start_up(started: float) -> dict[str, float]:
    """Time the phases from nothing to the first eager result and the first traced function."""
    durations = {}
    last = [time.perf_counter()]

    def phase(name: str) -> None:
        now = time.perf_counter()
        durations["start." + name] = now - last[0]
        last[0] = now

    import tensorflow as tf

    phase("import")
    tf.config.list_physical_devices()
    tf.add(tf.ones([4]), 1.0).numpy()
    phase("first_op")
    assert tf.keras.layers.Dense is not None
    phase("keras")
    tf.function(lambda x: tf.reduce_sum(tf.matmul(x, x)))(tf.ones([16, 16])).numpy()
    phase("first_function")
    durations["start.total"] = last[0] - started
    return durations


def work(wanted: Mapping[str, Any]) -> dict[str, float]:
    """Repeat the workloads in turn and return the fastest call of each, in seconds."""
    makers = {"matmul": matmul, "convolution": convolution, "step": step}
    options = {name: dict(DEFAULTS[name], **wanted.get(name, {})) for name in makers}
    calls = {name: make(options[name]["size"]) for name, make in makers.items()}
    for call in calls.values():
        call()
    best: dict[str, float] = {}
    begun = time.perf_counter()
    done = 0
    while done < REPETITIONS or time.perf_counter() - begun < SECONDS:
        for name, call in calls.items():
            took = repeated(call, options[name]["calls"]) / DEFAULTS[name]["calls"]
            best[name] = min(took, best.get(name, took))
        done += 1
    return {"work." + name: took for name, took in best.items()}


def repeated(call: Callable[[], object], calls: int) -> float:
    """Time so many calls."""
    begun = time.perf_counter()
    for _ in range(calls):
        call()
    return time.perf_counter() - begun


def matmul(size: int) -> Callable[[], Any]:
    """Multiply two square matrices."""
    import tensorflow as tf

    one = tf.random.stateless_normal([size, size], seed=(1, 2))
    product = tf.function(lambda: tf.matmul(one, one))
    return lambda: product().numpy()


def convolution(size: int) -> Callable[[], Any]:
    """Convolve eight images with sixteen filters of three by three."""
    import tensorflow as tf

    images = tf.random.stateless_normal([8, size, size, 16], seed=(1, 2))
    filters = tf.random.stateless_normal([3, 3, 16, 16], seed=(3, 4))
    convolved = tf.function(lambda: tf.nn.conv2d(images, filters, strides=1, padding="SAME"))
    return lambda: convolved().numpy()


def step(size: int) -> Callable[[], Any]:
    """Take a gradient step of a network with two dense layers."""
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
