"""Measure both sides in turn, each sample from a fresh process in a fresh container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from envbuilder.console import Task
from envbuilder.upgrade.observe import Gap, Place, ask
from envbuilder.upgrade.observed import Timed
from envbuilder.upgrade.statistics import Samples

PROBE = "upgrade_measure"

Arguments = Mapping[str, object]


def measure(
    old: Place, new: Place, rounds: int, task: Task, arguments: tuple[Arguments, Arguments] = ({}, {})
) -> tuple[tuple[Samples, ...], tuple[str, ...]]:
    """Measure ``rounds`` times both sides, one right after the other; return samples and what went wrong.

    One round before the first is not counted: it fills the page cache for both. Who begins alternates, so that being
    second is neither's advantage. A side that gives no answer ends it: half a comparison is none.
    """
    sides = (old, new)
    taken: tuple[list[Timed], list[Timed]] = ([], [])
    for round_ in range(-1, rounds):
        task.update(f"round {round_ + 1} of {rounds}" if round_ >= 0 else "warming up")
        for side in (0, 1) if round_ % 2 == 0 else (1, 0):
            found = ask(sides[side], PROBE, Timed, arguments[side])
            if isinstance(found, Gap):
                return (), (f"measurement of the {('old', 'new')[side]} side: {found.why}",)
            if round_ >= 0:
                taken[side].append(found)
    return samples(taken[0], taken[1]), ()


def samples(old: Sequence[Timed], new: Sequence[Timed]) -> tuple[Samples, ...]:
    """Pair the sides' durations by name; a duration that one process lacks is left out."""
    every = [timed.seconds for timed in (*old, *new)]
    names = [name for name in (every[0] if every else ()) if all(name in seconds for seconds in every)]
    return tuple(
        Samples(name=name, old=tuple(t.seconds[name] for t in old), new=tuple(t.seconds[name] for t in new))
        for name in names
    )
