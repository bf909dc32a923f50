"""What is measured and observed in two images is stored, and nothing stands for other images."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from fake_engine import FakeEngine, Script

from envbuilder.engine.port import ContainerSpec
from envbuilder.support.console import Console
from envbuilder.upgrade.observe import AnswerCache, ProbeTarget, Rounds, key_of, measure, observe
from envbuilder.upgrade.statistics import Samples


class Machine:
    """Images that answer the measurement: each container takes 1 ms more than the one before."""

    def __init__(self, script: Callable[[ContainerSpec], Script] | None = None) -> None:
        self.engine = FakeEngine(script=script or self.answer)
        for name in ("old", "new", "other"):
            self.engine.add(name, name.encode())

    def answer(self, spec: ContainerSpec) -> Script:
        seconds = (1.0 if spec.image == "old" else 1.5) + len(self.engine.runs) / 1000
        return Script(stdout=json.dumps({"seconds": {"start.total": seconds}, "bytes": {"memory": 5e8}}).encode())

    def measure(
        self, rounds: int, folder: Path | None = None, *, new: str = "new"
    ) -> tuple[tuple[Samples, ...], tuple[str, ...]]:
        places = ProbeTarget(self.engine, "old"), ProbeTarget(self.engine, new)
        with Console().task("t") as task:
            return measure(*places, rounds, task, cache=AnswerCache(folder) if folder else None)


def test_rounds_alternate_the_first_image_without_the_warm_up() -> None:
    machine = Machine()
    (seconds, memory), gaps = machine.measure(3)
    assert [spec.image for spec in machine.engine.runs] == ["new", "old", "old", "new", "new", "old", "old", "new"]
    assert not gaps
    assert (seconds.old, seconds.new) == ((1.003, 1.006, 1.007), (1.504, 1.505, 1.508))
    assert (memory.old, memory.new) == ((5e8,) * 3, (5e8,) * 3)


def test_image_that_does_not_start_gives_no_samples_and_a_gap() -> None:
    def script(spec: ContainerSpec) -> Script:
        if spec.image == "new":
            return Script(stderr=b"noise\nImportError: libcudart.so.12\n", exit_code=1)
        return Script(stdout=b'{"seconds": {"x": 1.0}}')

    gap = "measurement of the new image: exit code 1: ImportError: libcudart.so.12"
    assert Machine(script).measure(3) == ((), (gap,))


def test_probe_containers_are_closed_with_equal_limits() -> None:
    machine = Machine()
    machine.measure(1)
    limits = {(s.read_only, s.user, s.memory, s.pids, s.gpus) for s in machine.engine.runs}
    assert limits == {(True, "65534:65534", 8 << 30, 2048, "none")}


def test_failed_probe_is_a_gap() -> None:
    answers = {
        "inventory": Script(stdout=b'{"python": "3.11.2", "packages": [], "build": {}}'),
        "surface": Script(stderr=b"Segmentation fault", exit_code=139),
        "numerics": Script(seconds=10_000),
        "warning_lines": Script(stdout=b"hello"),
    }
    with Console().task("t") as task:
        seen = observe(ProbeTarget(Machine(lambda spec: answers[spec.command[2]]).engine, "old"), task)
    assert seen.inventory is not None
    assert (seen.surface, seen.numerics, seen.printed) == (None, None, None)
    assert [gap.partition(":")[0] for gap in seen.gaps] == ["public names", "numerics", "warnings"]
    assert "139" in seen.gaps[0]
    assert "no answer within" in seen.gaps[1]


def test_more_rounds_extend_cached_rounds(tmp_path: Path) -> None:
    machine = Machine()
    for rounds, containers in ((3, 8), (3, 8), (5, 8 + 2 + 4), (2, 14)):
        (seconds, _), _ = machine.measure(rounds, tmp_path)
        assert len(machine.engine.runs) == containers
        assert len(seconds.old) == len(seconds.new) == rounds
        assert seconds.old[:2] == (1.003, 1.006)


def test_rounds_of_other_images_are_measured_again(tmp_path: Path) -> None:
    machine = Machine()
    machine.measure(2, tmp_path)
    machine.measure(2, tmp_path, new="other")
    assert len(machine.engine.runs) == 12


def test_key_of_depends_on_image_gpus_memory_and_contents() -> None:
    engine = FakeEngine()
    places = [
        ProbeTarget(engine, "a"),
        ProbeTarget(engine, "b"),
        ProbeTarget(engine, "a", gpus="all"),
        ProbeTarget(engine, "a", memory=1),
    ]
    keys = {key_of(place) for place in places} | {key_of(places[0], more={"suite": b"1"})}
    assert len(keys) == 5


def test_complete_answers_are_cached(tmp_path: Path) -> None:
    made: list[int] = []

    def make() -> tuple[int, ...]:
        made.append(1)
        return (len(made),)

    kept = AnswerCache(tmp_path)
    kind = tuple[int, ...]
    assert [kept.answer("x", "k", kind, make) for _ in range(2)] == [(1,), (1,)]
    assert kept.answer("x", "other", kind, make) == (2,)
    assert kept.answer("y", "k", kind, make, lambda _: False) == (3,)
    assert kept.answer("y", "k", kind, make) == (4,)
    (tmp_path / "y.json").write_text('{"key": "k", "value": "nonsense"}')
    assert kept.answer("y", "k", kind, make) == (5,)
    assert AnswerCache(tmp_path, fresh=True).answer("y", "k", kind, make) == (6,)
    assert kept.rounds("none") == Rounds(key="none")
