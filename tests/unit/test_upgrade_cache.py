"""What was measured and observed is kept: an interrupted comparison goes on, and nothing stands for other images."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_engine import FakeEngine, Script

from envbuilder.engine.port import ContainerSpec
from envbuilder.support.console import Console
from envbuilder.upgrade.cache import AnswerCache, Rounds, key_of
from envbuilder.upgrade.measure import measure
from envbuilder.upgrade.observe import ProbeTarget
from envbuilder.upgrade.statistics import Samples


class Machine:
    """Two images that answer the measurement; the user presses Ctrl-C before container ``dies``."""

    def __init__(self, dies: int | None = None) -> None:
        self.dies, self.ran = dies, 0
        self.engine = FakeEngine(script=self.answer)
        for name in ("old", "new", "other"):
            self.engine.add(name, name.encode())

    def answer(self, spec: ContainerSpec) -> Script:  # noqa: ARG002 - what an engine asks a script with
        if self.ran == self.dies:
            raise KeyboardInterrupt
        self.ran += 1
        document = {"seconds": {"start.total": 1.0 + self.ran / 100}, "bytes": {"memory.start": 5e8}}
        return Script(stdout=json.dumps(document).encode())

    def measure(self, folder: Path, rounds: int, *, new: str = "new", fresh: bool = False) -> tuple[Samples, ...]:
        with Console().task("t") as task:
            places = ProbeTarget(self.engine, "old"), ProbeTarget(self.engine, new)
            return measure(*places, rounds, task, cache=AnswerCache(folder, fresh=fresh))[0]


def test_interrupted_measurement_reuses_complete_rounds(tmp_path: Path) -> None:
    first = Machine(dies=9)  # two to warm up, three rounds of two, and half of the fourth
    with pytest.raises(KeyboardInterrupt):
        first.measure(tmp_path, 6)
    again = Machine()
    found = {one.name: one for one in again.measure(tmp_path, 6)}
    assert again.ran == 2 + 3 * 2
    assert len(found["start.total"].old) == len(found["start.total"].new) == 6
    assert found["memory.start"].old == (5e8,) * 6


def test_more_rounds_extend_cached_rounds(tmp_path: Path) -> None:
    machine = Machine()
    (first, _) = machine.measure(tmp_path, 3)
    assert machine.ran == 8
    assert machine.measure(tmp_path, 3)[0] == first
    assert machine.ran == 8
    (more, _) = machine.measure(tmp_path, 5)
    assert machine.ran == 8 + 2 + 4
    assert more.old[:3] == first.old
    assert machine.measure(tmp_path, 2)[0].old == first.old[:2]


def test_rounds_of_other_images_are_measured_again(tmp_path: Path) -> None:
    machine = Machine()
    machine.measure(tmp_path, 2)
    machine.measure(tmp_path, 2, new="other")
    assert machine.ran == 12
    machine.measure(tmp_path, 2, new="other", fresh=True)
    assert machine.ran == 18


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
