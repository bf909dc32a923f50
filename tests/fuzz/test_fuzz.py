"""Every parser of untrusted bytes refuses damaged input with an error of its own, in bounded time and memory."""

import contextlib
import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from strategies import damaged
from target import CORPUS, MEMORY, PROCESSOR_S, Target, fault
from targets import TARGETS

from envbuilder.errors import UsageError

BY_NAME = {target.name: target for target in TARGETS}
FIXED = sorted(path for path in CORPUS.rglob("*") if path.is_file() and not path.name.startswith("seed-"))


def test_corpus_belongs_to_targets() -> None:
    assert {path.name for path in CORPUS.iterdir()} <= BY_NAME.keys()


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_parser_accepts_honest_input(target: Target) -> None:
    """A parser that refuses its seeds would not be fuzzed beyond its first check."""
    seeds = target.seeds()
    assert seeds
    for seed in seeds:
        with contextlib.redirect_stderr(io.StringIO()):
            target.run(seed)


def fuzz(target: Target, examples: int) -> None:
    @settings(max_examples=examples, suppress_health_check=list(HealthCheck), database=None)
    @given(damaged(target.seeds()))
    def case(data: bytes) -> None:
        assert not fault(target, data)

    case()


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_parser_survives_damaged_input(target: Target) -> None:
    fuzz(target, 40)


@pytest.mark.parametrize("path", FIXED, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_input_of_a_fixed_bug_stays_fixed(path: Path) -> None:
    assert not fault(BY_NAME[path.parent.name], path.read_bytes())


def slow(_: bytes) -> None:
    sum(range(int(1e8 * PROCESSOR_S)))


def fail(data: bytes) -> None:
    raise KeyError(data[:1])


def refuse(_: bytes) -> None:
    raise UsageError("no")


def grow(_: bytes) -> None:
    len(b"x" * (MEMORY + (50 << 20)))


@pytest.mark.parametrize(("parser", "expected"), [(slow, "slow"), (fail, "KeyError"), (refuse, ""), (grow, "large")])
def test_fault_names_exceptions_time_and_memory(parser: object, expected: str) -> None:
    found = fault(Target("x", parser), b"a")  # type: ignore[arg-type]
    assert found.startswith(expected)
    assert bool(found) == bool(expected)
