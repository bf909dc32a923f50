"""Measure both images alternately, each sample in a new process in a new container."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from envbuilder.support.console import Task
from envbuilder.upgrade.cache import AnswerCache, Rounds, key_of
from envbuilder.upgrade.observe import Gap, ProbeTarget, ask
from envbuilder.upgrade.observed import TimingSample
from envbuilder.upgrade.statistics import Samples

PROBE = "timing"

Arguments = Mapping[str, object]


def measure(
    old: ProbeTarget,
    new: ProbeTarget,
    rounds: int,
    task: Task,
    arguments: tuple[Arguments, Arguments] = ({}, {}),
    cache: AnswerCache | None = None,
) -> tuple[tuple[Samples, ...], tuple[str, ...]]:
    """Measure both images ``rounds`` times, one directly after the other; return samples and failures.

    A first round, which fills the page cache, does not count. The order alternates. The measurement ends if an image
    does not answer. Cached rounds are reused; a round is cached when both images have answered.
    """
    sides = (old, new)
    key = key_of(old, new, more={"arguments": json.dumps(arguments, sort_keys=True).encode()})
    taken = cache.rounds(key) if cache else Rounds(key=key)
    known = len(taken.old)
    if known:
        task.update(f"{min(known, rounds)} rounds were measured before (--fresh measures again)")
    for round_ in range(known - 1, rounds) if known < rounds else ():
        counted = round_ >= known
        task.update(f"round {round_ + 1} of {rounds}" if counted else "warming up")
        answers: dict[int, TimingSample] = {}
        for side in (0, 1) if round_ % 2 == 0 else (1, 0):
            found = ask(sides[side], PROBE, TimingSample, arguments[side])
            if isinstance(found, Gap):
                return (), (f"measurement of the {('old', 'new')[side]} image: {found.why}",)
            answers[side] = found
        if counted:
            taken = msgspec.structs.replace(taken, old=(*taken.old, answers[0]), new=(*taken.new, answers[1]))
            if cache:
                cache.add(taken)
    return samples(taken.old[:rounds], taken.new[:rounds]), ()


def samples(old: Sequence[TimingSample], new: Sequence[TimingSample]) -> tuple[Samples, ...]:
    """Pair durations and memory peaks of both images by name; incomplete ones are omitted."""
    seconds = _paired("s", [one.seconds for one in old], [one.seconds for one in new])
    return (*seconds, *_paired("B", [one.bytes for one in old], [one.bytes for one in new]))


def _paired(
    unit: Literal["s", "B"], old: Sequence[Mapping[str, float]], new: Sequence[Mapping[str, float]]
) -> Iterator[Samples]:
    every = [*old, *new]
    for name in every[0] if every else ():
        if all(name in values for values in every):
            before, after = (tuple(values[name] for values in side) for side in (old, new))
            yield Samples(name=name, unit=unit, old=before, new=after)
