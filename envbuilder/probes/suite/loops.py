"""Training-like loops and what is recorded of each step: a healthy one, and others written to stall, as controls."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterable
from typing import Any, List, Tuple

from . import older
from .stalls import WARM_UP, Step

Recording = Tuple[List[Step], List[float]]
"""The steps of a loop, and the seconds of those on one constant batch."""

STEPS = 160


class Recorder:
    """Records a loop step by step: seconds of its parts, and the counters that tell why it stalls."""

    def __init__(self, tf: Any, traced: Iterable[Any] = ()) -> None:
        self.tf = tf
        self.traced = list(traced)
        self.steps: list[Step] = []
        self.sessions = 0
        self.copied = 0
        self._undo: list[tuple[Any, str, Any]] = []
        self._parts: dict[str, float] = {}

    def __enter__(self) -> Recorder:
        recorder = self
        session = self.tf.compat.v1.Session
        plain_init = session.__init__

        def counted(self: Any, *arguments: Any, **options: Any) -> Any:
            recorder.sessions += 1
            return plain_init(self, *arguments, **options)

        self._patch(session, "__init__", counted)
        from tensorflow.python.eager import context

        with context.eager_mode():  # also where a graph is being built
            owner: Any = next(kind for kind in type(self.tf.constant(0)).__mro__ if "numpy" in vars(kind))
        plain_numpy = owner.numpy

        def fetched(self: Any) -> Any:
            value = plain_numpy(self)
            recorder.copied += getattr(value, "nbytes", 0)
            return value

        self._patch(owner, "numpy", fetched)
        self._begun = time.perf_counter()
        return self

    def __exit__(self, *failure: object) -> None:
        for owner, name, value in reversed(self._undo):
            setattr(owner, name, value)

    def _patch(self, owner: Any, name: str, value: Any) -> None:
        self._undo.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def timed(self, part: str, action: Callable[..., Any], *arguments: Any) -> Any:
        """Run one part of a step and add its seconds."""
        begun = time.perf_counter()
        value = action(*arguments)
        self._parts[part] = self._parts.get(part, 0.0) + time.perf_counter() - begun
        return value

    def end(self, shape: object = None) -> None:
        """End a step: what its parts do not account for is ``other``."""
        now = time.perf_counter()
        parts: Step = {part: self._parts.get(part, 0.0) for part in ("data", "step", "sync")}
        parts["other"] = max(0.0, now - self._begun - sum(parts.values()))
        usage = resource.getrusage(resource.RUSAGE_SELF)
        parts.update(
            shape=str(shape),
            traces=sum(older.traces(function) for function in self.traced),
            nodes=self.tf.compat.v1.get_default_graph().version,
            sessions=self.sessions,
            copied=self.copied,
            faults=usage.ru_minflt,
            rss=_resident(),
            transient=_transient(),
            cpu=time.process_time(),
            waited=_waited(),
        )
        self.steps.append(parts)
        self._parts = {}
        self._begun = time.perf_counter()


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as stream:
        return int(stream.read().split()[1]) * resource.getpagesize()


def _transient() -> int:
    """Return the bytes that this process held at its peak since the last call and holds no more (Linux, proc(5))."""
    try:
        with open("/proc/self/status", encoding="ascii") as stream:
            peak = next(int(line.split()[1]) * 1024 for line in stream if line.startswith("VmHWM"))
        held = _resident()
        with open("/proc/self/clear_refs", "w", encoding="ascii") as stream:
            stream.write("5")  # start a new peak
    except (OSError, StopIteration):
        return 0
    return max(0, peak - held)


def _waited() -> float:
    """Return the seconds that all threads of this process have waited for a processor; 0 where it is not told."""
    total = 0
    for thread in os.listdir("/proc/self/task"):
        try:
            with open("/proc/self/task/{0}/schedstat".format(thread), encoding="ascii") as stream:
                total += int(stream.read().split()[1])
        except (OSError, ValueError, IndexError):
            continue
    return total / 1e9


class Model:
    """A two-layer perceptron with its own gradient step: the same work in every TensorFlow from 2.3 on."""

    def __init__(self, tf: Any, width: int = 64) -> None:
        self.tf = tf
        self.width = width
        generator = tf.random.Generator.from_seed(1)
        self.first = tf.Variable(generator.normal((width, width)) / width**0.5)
        self.second = tf.Variable(generator.normal((width, 1)) / width**0.5)
        self.train = tf.function(self.plain)

    def plain(self, inputs: Any, targets: Any, rate: float = 0.01) -> Any:
        """Take one gradient step and return the loss."""
        tf = self.tf
        with tf.GradientTape() as tape:
            output = tf.matmul(tf.nn.relu(tf.matmul(inputs, self.first)), self.second)
            loss = tf.reduce_mean(tf.square(output - targets))
        for variable, gradient in zip((self.first, self.second), tape.gradient(loss, (self.first, self.second))):
            variable.assign_sub(rate * gradient)
        return loss


def _batch(tf: Any, width: int = 64, rows: int = 32) -> tuple[Any, Any]:
    return tf.fill((rows, width), 0.5), tf.fill((rows, 1), 1.0)


def dataset(tf: Any, delay: float = 0.0) -> Any:
    """Return an endless prefetching pipeline of batches; ``delay`` seconds are lost in each where that is wanted."""
    numbers = tf.data.Dataset.range(1 << 40)
    if delay:

        def slow(number: Any) -> Any:
            time.sleep(delay)
            return number

        numbers = numbers.map(lambda number: tf.ensure_shape(tf.numpy_function(slow, [number], tf.int64), ()))
    return numbers.map(lambda _: _batch(tf)).prefetch(4)


def run(
    tf: Any,
    recorder: Recorder,
    model: Model,
    batches: Any,
    steps: int,
    body: Callable[..., Any] | None = None,
    after: Callable[[int], None] | None = None,
) -> None:
    """Run a loop: next batch, train step, wait for its loss; ``body`` replaces the step, ``after`` comes behind it."""
    for index in range(steps):
        inputs, targets = recorder.timed("data", next, batches)
        loss = recorder.timed("step", body or model.train, inputs, targets)
        recorder.timed("sync", float, loss)
        if after is not None:
            after(index)
        recorder.end(getattr(inputs, "shape", None))


def healthy(tf: Any, steps: int = STEPS, delay: float = 0.0) -> Recording:
    """Run a loop as it should be; with a ``delay`` its input pipeline cannot keep up."""
    model = Model(tf)
    constant = iter(tf.data.Dataset.from_tensors(_batch(tf)).repeat().prefetch(4))
    with Recorder(tf, [model.train]) as recorder:
        run(tf, recorder, model, iter(dataset(tf, delay)), steps)
    with Recorder(tf, [model.train]) as beside:
        run(tf, beside, model, constant, WARM_UP + 40)
    return recorder.steps, [
        sum(step[part] for part in ("data", "step", "sync", "other")) for step in beside.steps[WARM_UP:]
    ]


def input_pipeline(tf: Any) -> Recording:
    """Take several times as long for the input as for the step."""
    return healthy(tf, 60, delay=0.03)


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
    batches = (_batch(tf, rows=8 + index) for index in range(1 << 20))
    with Recorder(tf, [model.train]) as recorder:
        run(tf, recorder, model, batches, 36)
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
    """Make a session for every step."""
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
    """Write something in every twentieth step."""

    def after(index: int) -> None:
        if index % 20 == 19:
            time.sleep(0.15)

    return _plain(tf, Model(tf), None, after=after, steps=200)


def allocator_churn(tf: Any) -> Recording:
    """Make large arrays anew in every step: more than 32 MB each, which the C library maps and unmaps every time."""
    import numpy as np

    model = Model(tf)

    def body(inputs: Any, targets: Any) -> Any:
        total = np.ones((9000, 1024), dtype=np.float32) + 1.0
        return model.train(inputs, targets * float(total[0, 0]))

    return _plain(tf, model, body, steps=60)


def host_copies(tf: Any) -> Recording:
    """Fetch a large result to the host in every step."""
    model = Model(tf)
    big = tf.fill((1024, 1024), 1.0)

    def body(inputs: Any, targets: Any) -> Any:
        (big + 1.0).numpy()
        return model.train(inputs, targets)

    return _plain(tf, model, body, steps=60)


def slow_growth(tf: Any) -> Recording:
    """Keep results, and look at all of them in every step."""
    model = Model(tf)
    kept: list[Any] = []

    def body(inputs: Any, targets: Any) -> Any:
        kept.append(tf.fill((256, 1024), 1.0) + float(len(kept)))
        tf.add_n([tf.reduce_sum(one) for one in kept])
        return model.train(inputs, targets)

    return _plain(tf, model, body, steps=140)


def _plain(
    tf: Any,
    model: Model,
    body: Callable[..., Any] | None,
    after: Callable[[int], None] | None = None,
    steps: int = STEPS,
) -> Recording:
    batches = iter(tf.data.Dataset.from_tensors(_batch(tf)).repeat().prefetch(4))
    with Recorder(tf, [model.train]) as recorder:
        run(tf, recorder, model, batches, steps, body, after)
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
