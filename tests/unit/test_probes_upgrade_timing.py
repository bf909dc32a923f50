"""The timing probe, with a module in place of TensorFlow whose parts take a given time."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import envbuilder
from envbuilder.probes.upgrade import timing as probe
from envbuilder.upgrade.observed import TimingSample

UPGRADE = Path(envbuilder.__file__).parent / "probes" / "upgrade"

FRAMEWORK = """
import sys, time, types
time.sleep(IMPORT)

class Tensor:
    shape = ()
    def numpy(self): return 0.0
    def assign_sub(self, other): pass
    def __rmul__(self, other): return self

def any_tensor(*args, **more): return Tensor()

class Lazy(types.ModuleType):
    @property
    def keras(self):
        time.sleep(KERAS)
        return types.SimpleNamespace(layers=types.SimpleNamespace(Dense=Tensor))

class Tape:
    def __enter__(self): return self
    def __exit__(self, *args): pass
    def gradient(self, loss, variables): return [Tensor() for _ in variables]

FIRST = {"traced": 0}
held = []

def function(made):
    def call(*args):
        if made.__name__ == "train" and not FIRST["traced"]:
            FIRST["traced"] = 1
            time.sleep(TRACING)
        return made(*args)
    return call

def matmul(a, b):
    held.append(b"\\1" * WORK_BYTES) if not held and FIRST["traced"] else None
    return Tensor()

random = types.SimpleNamespace(stateless_normal=any_tensor)
nn = types.SimpleNamespace(conv2d=any_tensor, relu=any_tensor)
config = types.SimpleNamespace(
    list_physical_devices=lambda: [],
    experimental=types.SimpleNamespace(get_memory_info=lambda device: GPU),
)
add = ones = reduce_sum = reduce_mean = square = any_tensor
Variable, GradientTape = any_tensor, Tape
sys.modules[__name__].__class__ = Lazy
"""


def measured(folder: Path, arguments: object = None, **given: object) -> TimingSample:
    """Run the probe in a process of its own with a framework that takes this long, and holds that much."""
    values = {"IMPORT": 0.0, "KERAS": 0.0, "TRACING": 0.0, "WORK_BYTES": 1, "GPU": {}, **given}
    folder.mkdir(exist_ok=True)
    constants = "".join(f"{name} = {value!r}\n" for name, value in values.items())
    (folder / "tensorflow.py").write_text(constants + FRAMEWORK)
    done = subprocess.run(
        [sys.executable, str(UPGRADE), "timing", json.dumps(arguments or {})],
        capture_output=True,
        check=True,
        env={"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"},
    )
    return TimingSample(**json.loads(done.stdout))


NAMES = {
    *(f"start.{name}" for name in ("import", "first_op", "keras", "first_function", "total", "first_step")),
    *(f"work.{name}" for name in ("matmul", "convolution", "step")),
}


def test_each_phase_of_start_up_has_its_own_time(tmp_path: Path) -> None:
    plain = measured(tmp_path / "plain").seconds
    slow = measured(tmp_path / "slow", IMPORT=0.5, KERAS=0.4, TRACING=0.6).seconds
    assert plain.keys() == slow.keys() == NAMES
    for name, least in (("start.import", 0.5), ("start.keras", 0.4), ("start.first_step", 0.6)):
        assert slow[name] >= least > plain[name], name
    assert slow["start.first_op"] < 0.4
    assert slow["start.first_function"] < 0.4
    phases = ("import", "first_op", "keras", "first_function")
    assert slow["start.total"] >= sum(slow[f"start.{name}"] for name in phases)
    assert slow["work.step"] < 0.01, "what tracing took is no step's time"


def test_peaks_of_memory_belong_to_their_phase(tmp_path: Path) -> None:
    plain = measured(tmp_path / "plain").bytes
    working = measured(tmp_path / "working", WORK_BYTES=200_000_000).bytes
    assert plain.keys() == {"memory.start", "memory.work"}
    assert working["memory.start"] - plain["memory.start"] < 50e6
    assert 180e6 < working["memory.work"] - working["memory.start"] < 260e6


def test_peak_of_a_gpu_needs_a_framework_that_reports_it(tmp_path: Path) -> None:
    assert measured(tmp_path / "gpu", GPU={"peak": 123_456_789}).bytes["memory.gpu"] == 123_456_789
    assert "memory.gpu" not in measured(tmp_path / "idle", GPU={"peak": 0}).bytes


def loop(calls: dict[str, Callable[[], object]], wanted: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    monkeypatch.setattr(probe, "SECONDS", 0.0)
    return probe.work(wanted, calls)


def test_sample_is_the_fastest_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = iter([0.02] * 30 + [0.0] * 10 + [0.02] * 30)
    found = loop({"matmul": lambda: time.sleep(next(waits))}, {}, monkeypatch)
    assert found["work.matmul"] < 0.02
    slow = loop({"matmul": lambda: time.sleep(0.005)}, {}, monkeypatch)
    assert slow["work.matmul"] >= 0.005


def test_more_calls_give_longer_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    def call() -> None:
        counted.append(1)
        time.sleep(0.002)

    found = loop({"matmul": call}, {"matmul": {"calls": 20}}, monkeypatch)
    assert len(counted) == 20 * probe.REPETITIONS
    assert found["work.matmul"] >= 0.002 * 20 / 10


def test_gpu_that_raises_has_no_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(device: str) -> None:
        raise ValueError(f"no {device}")

    experimental = types.SimpleNamespace(get_memory_info=raises)
    config = types.SimpleNamespace(experimental=experimental)
    monkeypatch.setitem(sys.modules, "tensorflow", types.SimpleNamespace(config=config))
    assert probe.of_gpu() == {}


def test_peak_is_that_of_the_kernel() -> None:
    before = probe.peak()
    held = b"\1" * 50_000_000
    after = probe.peak()
    assert before > 5e6
    assert after >= before
    assert after >= 45_000_000
    del held
    assert probe.peak() >= after - 5e6  # the kernel sums its counters of several processors now and then
