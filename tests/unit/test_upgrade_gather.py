"""Gathering evidence: everything is asked once, kept at once, and asked again only where something else is meant."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from factories import failed_verdict, verdict
from fake_engine import FakeEngine, Script
from table_rows import beside, rows
from upgrades import options, side

from envbuilder.catalog.store import load
from envbuilder.engine.port import ContainerSpec
from envbuilder.image.build import Built, ImageRecord
from envbuilder.support.console import Console
from envbuilder.upgrade import user_tests
from envbuilder.upgrade.build import ImageBuilder, LockedImage, ValidatedImage
from envbuilder.upgrade.compare import CollectedEvidence
from envbuilder.upgrade.pairs import Pair, UpgradeOptions
from envbuilder.upgrade.text import as_text
from envbuilder.upgrade.upgrade import compare_images, gather
from envbuilder.upgrade.user_tests import UserSuite
from envbuilder.verdict import Verdict
from envbuilder.workspace import Workspace

SUITE = UserSuite({"test_a.py": b"1"}, ("test_a.py",), ())
OBSERVED = {"inventory", "surface", "numerics", "warning_lines"}
ROUNDS = 3

ANSWERS = beside(__file__)["ANSWERS"]


@dataclass
class World:
    """Two images, what each question was asked how often, and a user who interrupts before question ``dies``."""

    folder: Path
    asked: Counter[str] = field(default_factory=Counter)
    dies: int = -1
    ends: Callable[[str, int], str] = lambda image, run: "passed"  # noqa: ARG005 - named as they are called
    skipped: list[str] = field(default_factory=list)

    def answer(self, spec: ContainerSpec) -> Script:
        if self.asked.total() == self.dies:
            raise KeyboardInterrupt
        probe, order = spec.command[2], json.loads(spec.command[3])
        name = "old" if spec.image.endswith("0") else "new"
        self.asked[f"{probe} {name}"] += 1
        if probe == "models":
            answer: Any = {"loaded": {}} if "folder" in order else {"saved": {}}
        elif probe == "user_tests":
            self.skipped = order["skip"]
            tests = {"test_a.py::test_x": self.ends(name, self.asked[f"{probe} {name}"]), "test_a.py::test_y": "passed"}
            lines = [{"name": test, "outcome": tests[test]} for test in tests if test not in self.skipped]
            return Script(stdout="\n".join(map(json.dumps, [*lines, {"end": True}])).encode())
        else:
            answer = ANSWERS[probe]
        return Script(stdout=json.dumps(answer).encode())

    def gather(self, suite: UserSuite | None = SUITE, **more: Any) -> CollectedEvidence:
        made, maker, asked = self.made(("2.19.1", "2.20.0"), **more)
        return gather(maker, made, suite, asked)

    def made(self, sides: tuple[str, str], **more: Any) -> tuple[list[ValidatedImage], ImageBuilder, UpgradeOptions]:
        self.asked.clear()
        engine = FakeEngine(script=self.answer)
        made = []
        for number, version in enumerate(dict.fromkeys(sides)):
            engine.add(f"image-{number}")
            environment = side(version).environment
            record = SimpleNamespace(image=f"image-{number}", size=1, reference="r", base="b", layers=())
            locked = LockedImage(environment, "", "committed")
            made.append(ValidatedImage(locked, Built(environment, cast("ImageRecord", record), ""), verdict()))
        asked = options("2.19.1", "2.20.0", rounds=ROUNDS, **more)
        return made, ImageBuilder(Workspace(self.folder), engine, Console(), load()), asked


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(user_tests, "pytest_files", lambda _: {})
    return World(tmp_path)


WHOLE = (
    {f"{probe} {name}": 1 for probe in OBSERVED for name in ("old", "new")}
    | {f"user_tests {name}": 1 for name in ("old", "new")}
    | {f"models {name}": 3 for name in ("old", "new")}
    | {f"timing {name}": ROUNDS + 1 for name in ("old", "new")}
)
"""A whole comparison: a model is saved once and loaded twice on each image, and a first round is not counted."""


def test_repeated_comparison_uses_cached_answers(world: World) -> None:
    first = world.gather()
    assert world.asked == WHOLE
    again = world.gather()
    assert world.asked == {}
    assert again == first
    world.gather(fresh=True)
    assert world.asked == WHOLE


@pytest.mark.parametrize("dies", range(0, sum(WHOLE.values()), 3))
def test_interrupted_comparison_repeats_at_most_one_question(world: World, dies: int) -> None:
    world.dies = dies
    with pytest.raises(KeyboardInterrupt):
        world.gather()
    before = Counter(world.asked)
    world.dies = -1
    found = world.gather()
    twice = before + world.asked - Counter(WHOLE)
    assert twice.total() <= 6, "an image's observation, an exchange of models, or a round and its warm-up"
    assert len(found.samples[0].old) == ROUNDS
    assert found.gaps == ()
    assert not found.old.observed.gaps


def test_changed_suite_runs_only_its_tests(world: World) -> None:
    world.gather()
    world.gather(UserSuite({"test_a.py": b"2"}, ("test_a.py",), ()))
    assert world.asked == {"user_tests old": 1, "user_tests new": 1}


@rows
def test_only_failing_test_is_repeated(world: World, ends: dict[str, list[str]], old: int, new: int) -> None:
    """The outcomes of a test on each image, run after run; the last two alternate."""
    runs = {image: [*given, *given[-2:] * user_tests.AGAIN] for image, given in ends.items()}
    world = replace(world, ends=lambda image, run: runs[image][run - 1])
    found = world.gather()
    assert [len(one.observed.again) for one in (found.old, found.new)] == [old, new]
    assert [world.asked[f"user_tests {name}"] for name in ("old", "new")] == [1 + old, 1 + new]
    hangs_on_old = ends["old"][0] == "timeout"
    assert world.skipped == ["test_a.py::test_x"] * hangs_on_old
    assert {test.name for test in found.new.observed.tests or ()} == {"test_a.py::test_x", "test_a.py::test_y"}


SIMULATED = msgspec.structs.replace(verdict(), simulated=True, verdict="INCONCLUSIVE")


@pytest.mark.parametrize(
    ("found", "decision"), [(verdict(), "ADOPT"), (failed_verdict(), "REJECT"), (SIMULATED, "UNDECIDED")]
)
def test_equal_images_are_judged_by_validation_and_not_measured(world: World, found: Verdict, decision: str) -> None:
    (one,), maker, asked = world.made(("2.20.0", "2.20.0"))
    one = replace(one, verdict=found)
    both = Pair(one.environment, one.environment, maker.catalog)
    document = compare_images(maker, both, (one, one), SUITE, asked, 0.0)
    assert not world.asked
    assert (document.decision, [clause.clause for clause in document.clauses]) == (decision, ["verdict"])
    assert document.simulated is found.simulated
    simulated = "the driver was simulated; " if found.simulated else ""
    assert as_text(document).startswith(f"{decision}: {simulated}both are the same image")


def test_tests_without_suite_are_none(world: World) -> None:
    found = world.gather(None)
    assert not [name for name in world.asked if name.startswith("user_tests")]
    assert found.new.observed.tests is None
