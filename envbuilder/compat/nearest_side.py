"""One side of the search for the nearest: which of a side's axes have to be given up, version by version."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Generic, NamedTuple

import msgspec

from envbuilder.compat.candidate import Candidate
from envbuilder.compat.question import Question
from envbuilder.compat.rule import Side
from envbuilder.compat.software import repinned
from envbuilder.compat.works import Frame, Wish, Works
from envbuilder.environment import Change, Combination

AXES = ("packages", "cudnn", "cuda", "python", "install", "package", "base_image")
"""What may be given up beside the version, the cheapest to change first."""

_OF_SIDE: Mapping[Side, tuple[str, ...]] = {"host": ("packages", "python"), "gpu": ("cudnn", "cuda")}
_OPEN: dict[str, str | tuple[str, ...] | None] = {**dict.fromkeys(AXES), "packages": ()}

NEVER = 99
"""The cost of a version that does not work whatever is given up."""


class Filled(NamedTuple):
    """What stands on axes that were given up, and how that differs from what was asked for."""

    values: dict[str, str | tuple[str, ...] | None]
    changes: tuple[Change, ...]


NOTHING = Filled({}, ())


def joined(one: Filled, other: Filled) -> Filled:
    """Join what stands on different axes."""
    if not one.values or not other.values:
        return one if one.values else other
    return Filled({**one.values, **other.values}, (*one.changes, *other.changes))


class Line(dict[str, int], Generic[Wish]):
    """What one side of a wish asks for: by version, how many of its axes have to be given up.

    Each version is judged once, and only as far as needed.
    """

    def __init__(self, works: Works[Wish], side: Side, wish: Wish, frame: Frame) -> None:
        self._works, self._side, self._wish, self._frame = works, side, wish, frame
        self.given = tuple(axis for axis in _OF_SIDE[side] if getattr(wish, axis))
        self._fixes: dict[str, tuple[str, ...] | None] = {}
        self._tried: dict[str, int] = {}
        self._filled: dict[str, Filled] = {}
        self._working, self._judged = [0] * (len(self.given) + 1), [0] * (len(self.given) + 1)

    def __missing__(self, version: str) -> int:
        """Count this side's axes that have to be given up for a version."""
        fix = self.fix(version, len(self.given))
        self[version] = NEVER if fix is None else len(fix)
        return self[version]

    def fix(self, version: str, limit: int) -> tuple[str, ...] | None:
        """Return the fewest of this side's axes that have to be given up for a version; None where above a limit."""
        if version in self._fixes:
            found = self._fixes[version]
            return found if found is not None and len(found) <= limit else None
        for count in range(self._tried.get(version, 0), min(limit, len(self.given)) + 1):
            self._tried[version] = count + 1
            for axes in itertools.combinations(self.given, count):
                if self._works_without(axes, version):
                    self._fixes[version] = axes
                    return axes
        if limit >= len(self.given):
            self._fixes[version] = None
        return None

    def given_up(self, version: str) -> tuple[str, ...]:
        """Name the axes that are given up for a version that works."""
        return self.fix(version, len(self.given)) or ()

    def _works_without(self, axes: tuple[str, ...], version: str) -> bool:
        near = self._opened(axes, version)
        return near is not None and self._works.holds(near, self._side)

    def _opened(self, axes: tuple[str, ...], version: str) -> Wish | None:
        opened = msgspec.structs.replace(self._wish, **{axis: _OPEN[axis] for axis in axes})
        return self._works.framed(opened, self._frame, version)

    def filled(self, version: str) -> Filled:
        """Fill the axes that are given up for a version; nothing on the other side changes what is chosen."""
        if not self[version]:
            return NOTHING
        found = self._filled.get(version)
        if found is None:
            axes = self.given_up(version)
            near = self._opened(axes, version)
            assert near is not None  # noqa: S101 - it works, so it exists
            found = self._filled[version] = fill(self._wish, near, axes, self._works)
        return found

    def mask(self, limit: int, among: int, names: tuple[str, ...]) -> int:
        """Return the versions among some, a bit each, that need no more than ``limit`` axes given up."""
        limit = min(limit, len(self.given))
        todo = among & ~self._judged[limit]
        self._judged[limit] |= todo
        for place in _bits(todo):
            if self.fix(names[place], limit) is not None:
                self._working[limit] |= 1 << place
        return self._working[limit] & among


def fill(wish: Wish, near: Wish, axes: tuple[str, ...], works: Works[Wish]) -> Filled:
    """Say what stands on the open axes of a wish that works, in place of what another wish asked for."""
    found = works.stands(near)
    values: dict[str, str | tuple[str, ...] | None] = {}
    changes: list[Change] = []
    for axis in axes:
        if axis == "packages":
            values[axis], repins = repinned(wish.packages, found)
            changes += [Change(*repin) for repin in repins]
            continue
        value = _chosen(axis, near, found)
        values[axis] = value
        changes.append(Change(axis, getattr(wish, axis), value))
    return Filled(values, tuple(changes))


def _chosen(axis: str, near: Question | Combination, found: Candidate) -> str | None:
    if axis == "package":
        return found.release.package
    value: str | None = getattr(near if axis in {"install", "base_image"} else found, axis)
    return value


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
