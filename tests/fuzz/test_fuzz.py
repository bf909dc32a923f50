"""A few thousand hostile inputs for each parser, and every input that once ended wrong; `make fuzz` tries a million."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from fuzz import MOST_BYTES, TRACED, run, tried
from fuzz_target import CORPUS, Target
from fuzz_targets import TARGETS
from mutations import LARGEST, case

from envbuilder.errors import UsageError

CASES, SECONDS = 3000, 1.0
"""How many cases of each parser are tried in every run of the tests, within how many seconds each."""

KEPT = sorted(path for path in CORPUS.rglob("*") if path.is_file())
BY_NAME = {target.name: target for target in TARGETS}


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_hostile_input_ends_well(target: Target) -> None:
    """No input ends in anything but an error of ours, in a second of the processor and 300 MB."""
    count, wrong = run(target, 0, CASES, SECONDS)
    assert count > 0
    assert not [one.why for one in wrong]


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_once_ended_wrong_ends_well(path: Path) -> None:
    """Every input of the corpus, which holds what was mended, each in its parser's folder."""
    assert tried(BY_NAME[path.parent.name], path.read_bytes()) == ""


def test_a_case_is_the_same_everywhere() -> None:
    """A number names an input: who reads one in a report can make it again. No case is larger than its bound."""
    seeds = [b'{"a": [1, 2]}', b"- x: y\n"]
    made = [case("a", number, seeds) for number in range(500)]
    assert made == [case("a", number, seeds) for number in range(500)]
    assert len(set(made)) > 400
    assert max(map(len, made)) <= LARGEST


def slow(_: bytes) -> None:
    """Take more than a case may of the processor, measured or not."""
    until = time.process_time() + 1.2 * (TRACED if sys.gettrace() else 1)
    while time.process_time() < until:
        pass


def fail(data: bytes) -> None:
    """Raise what no parser may."""
    raise KeyError(data[:1])


def refuse(_: bytes) -> None:
    """Raise what a parser should."""
    raise UsageError("no")


def grow(_: bytes) -> None:
    """Take more memory than a case may."""
    len(b"x" * (MOST_BYTES + (50 << 20)))


@pytest.mark.parametrize(("parser", "why"), [(slow, "slow"), (fail, "KeyError"), (refuse, ""), (grow, "large")])
def test_what_is_wrong_is_seen(parser: object, why: str) -> None:
    """The measure itself: another exception, too much time and too much memory are each told."""
    found = tried(Target("x", lambda: [b"a"], parser), b"a")  # type: ignore[arg-type]
    assert found.startswith(why)
    assert bool(found) == bool(why)
