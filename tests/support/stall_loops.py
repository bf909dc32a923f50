"""Loops that stall on purpose, as a probe for a container: the stall rules have to name the cause of each."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from envbuilder_probes import stall_rules  # the suite, by its name in a container
from envbuilder_probes.result import Answer, Facts, failed, passed
from envbuilder_probes.step_timing import STEPS, Model, Recorder, Recording, batch, constant, dataset, recorded, run


def input_pipeline(tf: Any) -> Recording:
    """Take several times as long for the input as for the step."""

    def slow(number: Any) -> Any:
        time.sleep(0.03)
        return number

    numbers = tf.data.Dataset.range(1 << 40)
    numbers = numbers.map(lambda number: tf.ensure_shape(tf.numpy_function(slow, [number], tf.int64), ()))
    return recorded(tf, numbers.map(lambda _: batch(tf)).prefetch(4), 60)


def retracing(tf: Any) -> Recording:
    """Give a traced function a Python number that changes: it is part of the signature."""
    model = Model(tf)
    count = [0]

    def body(inputs: Any, targets: Any) -> Any:
        count[0] += 1
        return model.train(inputs, targets, 0.001 * count[0])

    return _plain(tf, model, body, steps=36)


def shape_churn(tf: Any) -> Recording:
    """Give a traced function batches of ever new sizes."""
    model = Model(tf)
    batches = (batch(tf, rows=8 + index) for index in range(1 << 20))
    with Recorder(tf, [model.train]) as recorder:
        run(recorder, model, batches, 36)
    return recorder.steps, []


def growing_graph(tf: Any) -> Recording:
    """Add operations to the graph inside of the loop, as programs for TensorFlow 1 do by mistake."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        value = tf.constant(1.0)
        with Recorder(tf) as recorder:
            for _ in range(120):
                recorder.timed("step", lambda: session.run(tf.reduce_sum(value * 2.0)))
                recorder.end()
    return recorder.steps, []


def session_recreation(tf: Any) -> Recording:
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        output = tf.reduce_sum(tf.matmul(tf.ones((32, 32)), tf.ones((32, 32))))
        with Recorder(tf) as recorder:
            for _ in range(80):

                def step() -> Any:
                    with v1.Session(graph=graph) as session:
                        return session.run(output)

                recorder.timed("step", step)
                recorder.end()
    return recorder.steps, []


def periodic_hook(tf: Any) -> Recording:
    def after(index: int) -> None:
        if index % 20 == 19:
            time.sleep(0.15)

    return _plain(tf, Model(tf), None, after=after, steps=200)


def allocator_churn(tf: Any) -> Recording:
    """Make new large arrays in every step: more than 32 MB each, which the C library maps and unmaps every time."""
    model = Model(tf)

    def body(inputs: Any, targets: Any) -> Any:
        total = np.ones((9000, 1024), dtype=np.float32) + 1.0
        return model.train(inputs, targets * float(total[0, 0]))

    return _plain(tf, model, body, steps=60)


def host_copies(tf: Any) -> Recording:
    model = Model(tf)
    big = tf.fill((1024, 1024), 1.0)

    def body(inputs: Any, targets: Any) -> Any:
        (big + 1.0).numpy()
        return model.train(inputs, targets)

    return _plain(tf, model, body, steps=60)


def slow_growth(tf: Any) -> Recording:
    """Keep results, and look at all of them ever more often: the work doubles in 20 steps, whatever a host adds."""
    model = Model(tf)
    kept: list[Any] = []

    def body(inputs: Any, targets: Any) -> Any:
        kept.append(tf.fill((128, 1024), 1.0) + float(len(kept)))
        for one in kept * round(1.6 ** (len(kept) / 20)):
            tf.reduce_sum(one)
        return model.train(inputs, targets)

    return _plain(tf, model, body, steps=140)


def _plain(
    tf: Any,
    model: Model,
    body: Callable[..., Any] | None,
    after: Callable[[int], None] | None = None,
    steps: int = STEPS,
) -> Recording:
    with Recorder(tf, [model.train]) as recorder:
        run(recorder, model, constant(tf), steps, body, after)
    return recorder.steps, []


# Each control, and the one cause that must be found in it.
CONTROLS = (
    (input_pipeline, "input pipeline"),
    (retracing, "retracing"),
    (shape_churn, "shape churn"),
    (growing_graph, "growing graph"),
    (session_recreation, "session re-creation"),
    (periodic_hook, "periodic hook"),
    (allocator_churn, "allocator churn"),
    (host_copies, "host-device copies"),
    (slow_growth, "slow growth"),
)


def controls(facts: Facts) -> Answer:
    """Run every loop that is written to stall, and the healthy one several times: the detector's own test."""
    wrong, lines = [], []
    for loop, cause in CONTROLS:
        names = [found.name for found in stall_rules.causes(*loop(tf))]
        lines.append(f"{loop.__name__}: {names}")
        if names != [cause]:
            wrong.append(f"{loop.__name__} must be {cause} and is {names or 'nothing'}")
    for index in range(6):
        found = stall_rules.causes(*recorded(tf, dataset(tf)))
        if found:
            wrong.append(f"healthy run {index}: {found[0].name}: {found[0].evidence}")
    answer = failed if wrong else passed
    return answer("each cause by name, a healthy loop nothing", "; ".join(wrong or lines))
