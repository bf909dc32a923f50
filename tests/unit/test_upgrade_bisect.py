"""Bisection: the right version, few images, the same reason, and going on after being killed."""

import itertools
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from table_rows import rows

from envbuilder.catalog.store import load
from envbuilder.cli import exit_codes
from envbuilder.environment import Combination
from envbuilder.errors import InfrastructureError, UnsatisfiableError, UsageError
from envbuilder.upgrade.bisect import (
    Answer,
    BisectDocument,
    BisectParameters,
    CommandResult,
    Result,
    advance,
    as_text,
    bisect,
    candidates,
    most_images,
    normalised,
    ordered,
    resolved,
    result_of_check,
)
from envbuilder.verdict import CheckResult, Outcome

CATALOG = load()
GONE = "AttributeError: module 'tensorflow' has no attribute 'estimator'"


def asked(count: int) -> BisectParameters:
    names = tuple(f"2.{i}.0" for i in range(count))
    return BisectParameters(axis="tensorflow", candidates=names, row=Combination(tensorflow="2.0.0"), command=("x",))


@dataclass
class World:
    """Versions from ``first_bad`` on fail; some are unbuildable, some fail otherwise; it dies before trial ``dies``.

    ``unsteady`` versions fail only every other time, beginning with a success.
    """

    question: BisectParameters
    first_bad: int
    unbuildable: Collection[int] = ()
    other: Collection[int] = ()
    unsteady: Collection[int] = ()
    dies: int | None = None
    tried: list[str] = field(default_factory=list)

    def __call__(self, candidate: str) -> CommandResult:
        if self.dies is not None and len(self.tried) == self.dies:
            raise InfrastructureError("killed")
        self.tried.append(candidate)
        place = self.question.candidates.index(candidate)
        if place in self.unbuildable:
            raise UnsatisfiableError("no wheel")
        if place in self.other:
            return CommandResult(1, "ImportError: something else")
        if place < self.first_bad or (place in self.unsteady and self.tried.count(candidate) % 2):
            return CommandResult(0, "")
        return CommandResult(1, f"{GONE}. Did you mean: 'random{place}'?")


def search(world: World, folder: Path) -> BisectDocument:
    return bisect(world.question, world, folder, lambda _: None)


def test_bisect_finds_every_boundary_with_few_images(tmp_path: Path) -> None:
    for count in range(2, 18):
        for first_bad in range(1, count):
            world = World(asked(count), first_bad)
            found = search(world, tmp_path / f"{count}-{first_bad}")
            assert found.result == Result(last_good=f"2.{first_bad - 1}.0", first_bad=f"2.{first_bad}.0")
            assert found.images == len(world.tried) <= most_images(count)
            assert exit_codes.of(found) == 0


def test_killed_bisect_resumes_without_repeating(tmp_path: Path) -> None:
    for first_bad in range(1, 17):
        whole = World(asked(17), first_bad)
        expected = search(whole, tmp_path / f"whole-{first_bad}")
        for dies in range(len(whole.tried)):
            folder = tmp_path / f"{first_bad}-{dies}"
            killed = World(asked(17), first_bad, dies=dies)
            with pytest.raises(InfrastructureError):
                search(killed, folder)
            again = World(asked(17), first_bad)
            assert search(again, folder) == expected
            assert killed.tried + again.tried == whole.tried
        finished = World(asked(17), first_bad)
        assert search(finished, tmp_path / f"whole-{first_bad}") == expected
        assert not finished.tried


def test_unbuildable_versions_are_skipped(tmp_path: Path) -> None:
    count = 9
    for first_bad in range(1, count):
        for gaps in itertools.combinations(range(1, count - 1), 2):
            world = World(asked(count), first_bad, unbuildable=gaps)
            found = search(world, tmp_path / f"{first_bad}-{gaps}")
            low = world.question.candidates.index(found.result.last_good)
            assert low < first_bad <= world.question.candidates.index(found.result.first_bad)
            assert {world.question.candidates.index(name) for name in found.result.between} <= set(gaps)
            assert found.images <= most_images(count)
            assert exit_codes.of(found) == (8 if found.result.between else 0)


def test_another_reason_is_not_the_same_failure(tmp_path: Path) -> None:
    found = search(World(asked(6), 3, unbuildable={2}, other={3}), tmp_path)
    assert found.result == Result(last_good="2.1.0", first_bad="2.4.0", between=("2.2.0", "2.3.0"))
    assert {answer.candidate: answer.outcome for answer in found.answers}["2.3.0"] == "other"
    text = as_text(found)
    assert "2.2.0: it cannot be built: no wheel" in text
    assert "2.3.0: the command fails there in another way (exit code 1): ImportError: something else" in text


@rows
def test_wrong_ends_are_refused_at_once(first_bad: int, more: dict[str, Any], message: str, tmp_path: Path) -> None:
    world = World(replace(asked(4), repeat=2 if "unsteady" in more else 1), first_bad, **more)
    with pytest.raises(UsageError, match=message):
        search(world, tmp_path)
    assert len(world.tried) <= 2
    assert not list(tmp_path.glob("*.json"))


def test_advance_depends_on_the_answers_not_on_their_order() -> None:
    names = tuple(str(i) for i in range(9))
    answers = (
        Answer(candidate="8", outcome="bad"),
        Answer(candidate="0", outcome="good"),
        Answer(candidate="4", outcome="good"),
    )
    assert {advance(names, order) for order in itertools.permutations(answers)} == {"6"}


@rows
def test_lines_are_the_same_reason(one: str, other: str, *, same: bool) -> None:
    assert (normalised(one) == normalised(other)) is same


def test_ends_may_be_given_in_either_direction() -> None:
    every = ("2.10.0", "2.9.0", "2.12.0", "2.11.0")
    assert ordered(every, "2.9.0", "2.11.0") == ("2.9.0", "2.10.0", "2.11.0")
    assert ordered(every, "2.12.0", "2.10.0") == ("2.12.0", "2.11.0", "2.10.0")
    with pytest.raises(UsageError, match="same version"):
        ordered(every, "2.9", "2.9.0")


def test_command_that_is_not_stable_decides_nothing(tmp_path: Path) -> None:
    question = replace(asked(5), repeat=4)
    found = search(World(question, 3, unsteady={3}), tmp_path)
    assert found.result == Result(last_good="2.2.0", first_bad="2.4.0", between=("2.3.0",))
    answer = {answer.candidate: answer for answer in found.answers}["2.3.0"]
    assert (answer.outcome, answer.runs, answer.failed) == ("unstable", 4, 2)
    assert "2.3.0: the command is not stable there: failed 2 of 4 runs: AttributeError" in as_text(found)
    assert exit_codes.of(found) == 8


def test_bound_with_another_result_in_a_further_run_is_in_doubt(tmp_path: Path) -> None:
    steady = bisect(asked(5), World(asked(5), 3), tmp_path / "steady", lambda _: None, confirm=2)
    assert steady.result == Result(last_good="2.2.0", first_bad="2.3.0")
    world = World(asked(5), 2, unsteady={2})
    found = bisect(asked(5), world, tmp_path / "unsteady", lambda _: None, confirm=2)
    assert found.result.last_good == "2.2.0"
    assert "2.2.0 was good, but not in 1 of 2 further runs" in found.result.doubt
    assert "IN DOUBT" in as_text(found)
    assert exit_codes.of(found) == 8
    tried = len(world.tried)
    assert bisect(asked(5), world, tmp_path / "unsteady", lambda _: None, confirm=2) == found
    assert len(world.tried) == tried


GPU_ROW = Combination(tensorflow="2.20.0", flavor="gpu", os="debian-bookworm", python="3.11")


def test_candidates_are_final_releases_and_catalogue_lines() -> None:
    releases = candidates("tensorflow", GPU_ROW, CATALOG)
    assert {"2.12.1", "2.16.1", "2.20.0"} <= set(releases)
    assert not [version for version in releases if "rc" in version]
    assert {"12.2", "12.5"} <= set(candidates("cuda", GPU_ROW, CATALOG))
    lines = candidates("cudnn", GPU_ROW, CATALOG)
    assert {"8.9", "9.0", "9.1", "9.2", "9.3"} <= set(lines)
    assert all(text.startswith(("8.", "9.")) for text in lines)
    assert len(lines) == len(set(lines))


@rows
def test_bisection_builds_versions_that_do_not_fit(axis: Any, version: str, brings: str) -> None:
    assert brings in resolved(GPU_ROW, axis, version, CATALOG).cuda_wheels


@rows
def test_version_without_wheels_is_not_built(axis: Any, version: str, why: str) -> None:
    with pytest.raises(UnsatisfiableError, match=why):
        resolved(GPU_ROW, axis, version, CATALOG)


def test_check_outcome_becomes_a_command_result() -> None:
    outcomes: tuple[Outcome, ...] = ("passed", "failed", "skipped")
    checks = tuple(CheckResult(name=outcome, level="cpu", outcome=outcome, observed="seen") for outcome in outcomes)
    assert [result_of_check(checks, name).exit_code for name in ("passed", "failed")] == [0, 1]
    with pytest.raises(UnsatisfiableError, match="skipped was not run: seen"):
        result_of_check(checks, "skipped")
    with pytest.raises(UnsatisfiableError, match="nope was not run: it is not for this image"):
        result_of_check(checks, "nope")
