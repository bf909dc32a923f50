"""Record the steps of a training-like loop and report stalls with a known cause."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, List, Tuple

from . import host, stall_rules, tensorflow1_compat
from .result import Answer, Facts, Finding, finding, judged, measure
from .stall_rules import WARM_UP, Cause, Step

Recording = Tuple[List[Step], List[float]]
"""The steps of a loop, and the seconds of those on one constant batch."""

STEPS = 160


class Recorder:
    """Records each step of a loop: seconds of its parts, and the counters of the stall rules."""

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

        with context.eager_mode():  # also within a graph
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
        begun = time.perf_counter()
        value = action(*arguments)
        self._parts[part] = self._parts.get(part, 0.0) + time.perf_counter() - begun
        return value

    def end(self, shape: object = None) -> None:
        now = time.perf_counter()
        parts: Step = {part: self._parts.get(part, 0.0) for part in ("data", "step", "sync")}
        parts["other"] = max(0.0, now - self._begun - sum(parts.values()))
        usage = resource.getrusage(resource.RUSAGE_SELF)
        parts.update(
            shape=str(shape),
            traces=sum(tensorflow1_compat.traces(function) for function in self.traced),
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
    """Return the bytes that this process had at its peak since the last call and has no more (Linux, proc(5))."""
    try:
        peak, held = host.peak_memory(), _resident()
        with open("/proc/self/clear_refs", "w", encoding="ascii") as stream:
            stream.write("5")  # start a new peak
    except OSError:
        return 0
    return max(0, peak - held)


def _waited() -> float:
    """Return the seconds that all threads of this process waited for a processor; 0 if this is unknown."""
    total = 0
    for thread in os.listdir("/proc/self/task"):
        with suppress(OSError, ValueError, IndexError):
            with open(f"/proc/self/task/{thread}/schedstat", encoding="ascii") as stream:
                total += int(stream.read().split()[1])
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
        tf = self.tf
        with tf.GradientTape() as tape:
            output = tf.matmul(tf.nn.relu(tf.matmul(inputs, self.first)), self.second)
            loss = tf.reduce_mean(tf.square(output - targets))
        for variable, gradient in zip((self.first, self.second), tape.gradient(loss, (self.first, self.second))):
            variable.assign_sub(rate * gradient)
        return loss


def batch(tf: Any, width: int = 64, rows: int = 32) -> tuple[Any, Any]:
    return tf.fill((rows, width), 0.5), tf.fill((rows, 1), 1.0)


def dataset(tf: Any) -> Any:
    """Return an endless prefetching pipeline that makes each batch."""
    return tf.data.Dataset.range(1 << 40).map(lambda _: batch(tf)).prefetch(4)


def constant(tf: Any) -> Iterator[Any]:
    return iter(tf.data.Dataset.from_tensors(batch(tf)).repeat().prefetch(4))


def run(
    recorder: Recorder,
    model: Model,
    batches: Any,
    steps: int,
    body: Callable[..., Any] | None = None,
    after: Callable[[int], None] | None = None,
) -> None:
    """Run a loop: next batch, train step, wait for its loss; ``body`` replaces the step, ``after`` follows it."""
    for index in range(steps):
        inputs, targets = recorder.timed("data", next, batches)
        loss = recorder.timed("step", body or model.train, inputs, targets)
        recorder.timed("sync", float, loss)
        if after is not None:
            after(index)
        recorder.end(getattr(inputs, "shape", None))


def recorded(tf: Any, batches: Iterable[Any], steps: int = STEPS) -> Recording:
    """Record a loop on batches, and on one constant batch."""
    model = Model(tf)
    with Recorder(tf, [model.train]) as recorder:
        run(recorder, model, iter(batches), steps)
    with Recorder(tf, [model.train]) as other:
        run(other, model, constant(tf), WARM_UP + 40)
    return recorder.steps, stall_rules.totals(other.steps[WARM_UP:])


def check(facts: Facts) -> Answer:
    if facts.get("simulated"):
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # nothing can be trained on a simulated GPU
    import tensorflow as tf

    throttled = _throttled()
    steps, on_constant = recorded(tf, dataset(tf))
    findings = [_named(cause) for cause in stall_rules.causes(steps, on_constant)]
    times = stall_rules.distribution(steps)
    observed = ", ".join(f"{name} {1e3 * seconds:.2f} ms" for name, seconds in times.items())
    observed += "; " + "; ".join(one["message"] for one in findings) if findings else ""
    measurements = {"step_" + name: measure(seconds, "s") for name, seconds in times.items()}
    measurements["retraces"] = measure(steps[-1]["traces"] - steps[WARM_UP]["traces"], "1")
    measurements["throttled"] = measure(_throttled() - throttled, "1")
    return judged(findings, f"no stall in {len(steps)} steps", observed, measurements=measurements)


def _named(cause: Cause) -> Finding:
    text = f"{cause.name}: {cause.evidence}"
    return finding("STALLS", cause.name, text, fix=cause.fix, severity="warning")


def _throttled() -> int:
    """Return how often the processor quota of this container stopped it; 0 without a quota."""
    for path in ("/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/cpu/cpu.stat"):
        with suppress(OSError, ValueError), open(path, encoding="ascii") as stream:
            return int(dict(line.split() for line in stream).get("nr_throttled", 0))
    return 0
