"""What is observed, exchanged and measured in two images is stored, and nothing stands for other images."""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine, Script
from table_rows import rows

from envbuilder.engine.port import ContainerSpec
from envbuilder.support.console import Console
from envbuilder.upgrade.document import ModelExchange
from envbuilder.upgrade.observe import AnswerCache, ProbeTarget, exchange, key_of, measure, observe, probe_files
from envbuilder.upgrade.statistics import Samples


def engine_with(script: Callable[[ContainerSpec], Script]) -> FakeEngine:
    engine = FakeEngine(script=script)
    for name in ("old", "new", "other"):
        engine.add(name, name.encode())
    return engine


class Machine:
    """Images that answer the measurement: each container takes 1 ms more than the one before."""

    def __init__(self, folder: Path, script: Callable[[ContainerSpec], Script] | None = None) -> None:
        self.engine, self.cache = engine_with(script or self.answer), AnswerCache(folder)

    def answer(self, spec: ContainerSpec) -> Script:
        seconds = (1.0 if spec.image == "old" else 1.5) + len(self.engine.runs) / 1000
        return Script(stdout=json.dumps({"seconds": {"start.total": seconds}, "bytes": {"memory": 5e8}}).encode())

    def measure(self, rounds: int, *, new: str = "new") -> tuple[tuple[Samples, ...], tuple[str, ...]]:
        with Console().task("t") as task:
            return measure(ProbeTarget(self.engine, "old"), ProbeTarget(self.engine, new), rounds, task, self.cache)


def test_rounds_alternate_the_first_image_without_the_warm_up(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (seconds, memory), gaps = machine.measure(3)
    assert [spec.image for spec in machine.engine.runs] == ["new", "old", "old", "new", "new", "old", "old", "new"]
    assert not gaps
    assert (seconds.old, seconds.new) == ((1.003, 1.006, 1.007), (1.504, 1.505, 1.508))
    assert (memory.old, memory.new) == ((5e8,) * 3, (5e8,) * 3)
    limits = {(s.read_only, s.user, s.memory, s.pids, s.gpus) for s in machine.engine.runs}
    assert limits == {(True, "65534:65534", 8 << 30, 2048, "none")}, "closed, with the same limits for both images"


def test_image_that_does_not_start_gives_no_samples_and_a_gap(tmp_path: Path) -> None:
    def script(spec: ContainerSpec) -> Script:
        if spec.image == "new":
            return Script(stderr=b"noise\nImportError: libcudart.so.12\n", exit_code=1)
        return Script(stdout=b'{"seconds": {"x": 1.0}}')

    gap = "measurement of the new image: exit code 1: ImportError: libcudart.so.12"
    assert Machine(tmp_path, script).measure(3) == ((), (gap,))


def test_failed_probe_is_a_gap() -> None:
    answers = {
        "inventory": Script(stdout=b'{"python": "3.11.2", "packages": [], "build": {}}'),
        "surface": Script(stderr=b"Segmentation fault", exit_code=139),
        "numerics": Script(seconds=10_000),
        "warning_lines": Script(stdout=b"hello"),
    }
    with Console().task("t") as task:
        seen = observe(ProbeTarget(engine_with(lambda spec: answers[spec.command[2]]), "old"), task)
    assert seen.inventory is not None
    assert (seen.surface, seen.numerics, seen.printed) == (None, None, None)
    assert [gap.partition(":")[0] for gap in seen.gaps] == ["public names", "numerics", "warnings"]
    assert "139" in seen.gaps[0]
    assert "no answer within" in seen.gaps[1]


def test_more_rounds_extend_stored_rounds_of_the_same_images(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for rounds, containers in ((3, 8), (3, 8), (5, 8 + 2 + 4), (2, 14)):
        (seconds, _), _ = machine.measure(rounds)
        assert len(machine.engine.runs) == containers
        assert len(seconds.old) == len(seconds.new) == rounds
        assert seconds.old[:2] == (1.003, 1.006)
    machine.measure(2, new="other")
    assert len(machine.engine.runs) == 14 + 6


def test_key_of_depends_on_image_gpus_memory_and_contents() -> None:
    engine = FakeEngine()
    ways = ({"image": "a"}, {"image": "b"}, {"image": "a", "gpus": "all"}, {"image": "a", "memory": 1})
    places = [ProbeTarget(engine, **way) for way in ways]
    assert len({*map(key_of, places), key_of(places[0], more={"suite": b"1"})}) == 5


KEY, OTHER = key_of(more={"question": b"1"}), key_of(more={"question": b"2"})


def test_complete_answers_are_cached(tmp_path: Path) -> None:
    made: list[int] = []

    def make() -> tuple[int, ...]:
        made.append(1)
        return (len(made),)

    kept = AnswerCache(tmp_path)
    kind = tuple[int, ...]
    assert [kept.answer("x", KEY, kind, make) for _ in range(2)] == [(1,), (1,)]
    assert kept.answer("x", OTHER, kind, make) == (2,)
    assert kept.answer("y", KEY, kind, make, lambda _: False) == (3,)
    assert kept.answer("y", KEY, kind, make) == (4,)
    kept.put("y", KEY, "nonsense")  # of another version
    assert kept.answer("y", KEY, kind, make) == (5,)
    assert AnswerCache(tmp_path, fresh=True).answer("y", KEY, kind, make) == (6,)


def packed(content: bytes) -> str:
    return base64.b64encode(content).decode()


SAVED: dict[str, Any] = {"SavedModel": {"variables/v.index": packed(b"1")}, "Keras .h5": {"m.h5": packed(b"2")}}


@dataclass
class Models:
    """Two images: what the old one saves, what each answers to loading (by who saved it), and what they were given.

    None is no answer.
    """

    saves: Mapping[str, Any] = field(default_factory=lambda: SAVED)
    loads: Mapping[tuple[str, str], dict[str, str | None]] = field(default_factory=dict)
    given: list[tuple[str, str, dict[str, bytes]]] = field(default_factory=list)
    reader: Script | None = None
    writer: str = ""

    def __post_init__(self) -> None:
        self.engine = engine_with(self.answer)

    def answer(self, spec: ContainerSpec) -> Script:
        order = json.loads(spec.command[3])
        if self.reader is not None and spec.image == "new":
            return self.reader
        if "folder" not in order:
            self.writer = spec.image
            return Script(stdout=json.dumps({"saved": self.saves if spec.image == "old" else SAVED}).encode())
        models = {path: data for path, data in spec.files.items() if path.startswith("models/")}
        self.given.append((self.writer, spec.image, models))
        answers = {**dict.fromkeys(order["formats"], ""), **self.loads.get((self.writer, spec.image), {})}
        loaded = {name: wrong for name, wrong in answers.items() if wrong is not None}
        return Script(stdout=json.dumps({"loaded": loaded}).encode())

    def exchange(self) -> tuple[tuple[ModelExchange, ...] | None, tuple[str, ...]]:
        return exchange(ProbeTarget(self.engine, "old"), ProbeTarget(self.engine, "new"))


def test_models_of_each_image_are_loaded_by_the_other_next_to_the_probes() -> None:
    sides = Models()
    rows, gaps = sides.exchange()
    assert gaps == ()
    assert [(row.name, row.saved_by, row.wrong) for row in rows or ()] == [
        (name, side, "") for side in ("old", "new") for name in SAVED
    ]
    wanted = {"models/0/variables/v.index": b"1", "models/1/m.h5": b"2"}
    assert [(by, to) for by, to, _ in sides.given] == [("old", "old"), ("old", "new"), ("new", "new"), ("new", "old")]
    assert all(models == wanted for *_, models in sides.given)
    for spec in sides.engine.runs:
        assert {path: spec.files[path] for path in probe_files()} == dict(probe_files())


@rows
def test_format_is_wrong_if_only_the_other_image_cannot_read_it(
    loads: list[tuple[str, str, dict[str, str | None]]], expected: list[tuple[str, str]]
) -> None:
    found, _ = Models(loads={(saver, loader): answers for saver, loader, answers in loads}).exchange()
    assert [(row.name, row.wrong) for row in found or () if row.saved_by == "old"] == expected


def test_image_without_answer_is_a_gap() -> None:
    assert Models(reader=Script()).exchange() == (None, ("models saved by the old image: it printed no answer",))


@pytest.mark.parametrize(
    "path", ["../../probes/upgrade/models.py", "/etc/passwd", "a/../../x", "..", "", "a//b", "./x", "not base64"]
)
def test_file_outside_the_folder_or_not_base64_is_not_copied(path: str) -> None:
    content = "%%%" if path == "not base64" else packed(b"print('{}')")
    sides = Models(saves={"SavedModel": {path: content}})
    rows, (gap,) = sides.exchange()
    assert rows is None
    assert ("not base64" if content == "%%%" else "leads out of its folder") in gap
    assert sides.given == []
