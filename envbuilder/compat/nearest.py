"""The nearest wish that works: the fewest changes, then the nearest version; the same hosts, system and machine.

One search serves every command. What it is asked for is a `Works`: the predicate, in a form that can be searched.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from functools import cache
from operator import attrgetter
from typing import Any, Generic, NamedTuple

import msgspec

from envbuilder import versions
from envbuilder.compat.nearest_side import AXES, NEVER, Filled, Line, fill, joined
from envbuilder.compat.rule import Side
from envbuilder.compat.works import IMAGES, Frame, Wish, Works
from envbuilder.environment import Change, Predicate

_SHARED = ("install", "package", "base_image")
_PLACE = {axis: place for place, axis in enumerate(AXES)}


class Near(NamedTuple, Generic[Wish]):
    """The nearest wish that works, every difference, and what "works" means."""

    wish: Wish
    changes: tuple[Change, ...]
    predicate: Predicate


def nearest(wish: Wish, works: Works[Wish]) -> Near[Wish] | None:
    """Return what works near a wish, and what differs: nothing where the wish itself works.

    Fewest changes first; among equals the same TensorFlow, then the version nearest to it, then the newer. None where
    no change helps but one of driver, GPU, system or machine.
    """
    return Search(works).nearest(wish)


class Search(Generic[Wish]):
    """Searches by one predicate, and remembers what it found out about either side of a wish."""

    def __init__(self, works: Works[Wish]) -> None:
        self.works = works
        self.versions = works.catalog.final_versions
        self._place = {version: place for place, version in enumerate(self.versions)}
        self._lines: dict[tuple[Side, Frame, Any], Line[Wish]] = {}
        self._asked: dict[tuple[Any, Any], _Asked[Wish]] = {}
        self._host, self._gpu = attrgetter(*works.reads["host"]), attrgetter(*works.reads["gpu"])

    def nearest(self, wish: Wish) -> Near[Wish] | None:
        """Return what works near a wish, as `nearest` does."""
        key = self._host(wish), self._gpu(wish)
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = self._ask(wish, *key)
        own = self.works.catalog.version(wish.tensorflow)
        cost = asked.cost(own) if own is not None else NEVER
        # Another version is a change too: it has to spare two for being nearer.
        other = self._other(wish, own, asked, min(cost - 2, len(AXES))) if cost > 1 else None
        if other is not None:
            filled = asked.filled(other)
            near = msgspec.structs.replace(wish, tensorflow=other, **filled.values)
            change = Change("tensorflow", own or wish.tensorflow, other)
            return Near(near, (change, *filled.changes), self.works.predicate)
        if own is None or cost >= NEVER:
            return None
        filled = asked.filled(own)
        return Near(msgspec.structs.replace(wish, **filled.values), filled.changes, self.works.predicate)

    def _ask(self, wish: Wish, host: Any, gpu: Any) -> _Asked[Wish]:  # noqa: ANN401 - whatever a wish's fields hold
        given = tuple(axis for axis in _SHARED if getattr(wish, axis, None))
        frames = tuple(
            (frame, self._line("host", wish, frame, host), self._line("gpu", wish, frame, gpu))
            for frame in _frames(given)
        )
        return _Asked(self.works, self.versions, wish, frames)

    def _line(self, side: Side, wish: Wish, frame: Frame, key: Any) -> Line[Wish]:  # noqa: ANN401 - likewise
        line = self._lines.get((side, frame, key))
        if line is None:
            line = self._lines[side, frame, key] = Line(self.works, side, wish, frame)
        return line

    def _other(self, wish: Wish, own: str | None, asked: _Asked[Wish], limit: int) -> str | None:
        """Choose the version nearest to a wish's own among those for which fewest axes have to be given up."""
        here = self._place.get(own) if own is not None else None
        mask = asked.cheapest(limit, but=0 if here is None else 1 << here)
        if not mask:
            return None
        if here is None:
            here = bisect_left(self.versions, versions.key(own or wish.tensorflow), key=versions.key)
        above, below = mask >> here, mask & ((1 << here) - 1)
        newer, older = (above & -above).bit_length() - 1, here - below.bit_length() + 1
        return self.versions[here - older if not above or (below and older < newer) else here + newer]


class _Asked(Generic[Wish]):
    """All that a wish asks for beside its version."""

    def __init__(
        self,
        works: Works[Wish],
        names: tuple[str, ...],
        wish: Wish,
        frames: tuple[_Framed[Wish], ...],
    ) -> None:
        self._works, self._names, self._wish, self._frames = works, names, wish, frames
        self._most = max(len(frame.axes) + len(host.given) + len(gpu.given) for frame, host, gpu in frames)
        self._masks: list[int] = []
        self._first = 0
        self._filled: dict[str, Filled] = {}

    def cost(self, version: str) -> int:
        """Count the axes that have to be given up for a version."""
        if len(self._frames) == 1:
            _, host, gpu = self._frames[0]
            return host[version] + gpu[version]
        return min(len(frame.axes) + host[version] + gpu[version] for frame, host, gpu in self._frames)

    def cheapest(self, limit: int, but: int) -> int:
        """Return the versions, a bit each, for which fewest axes have to be given up, but for one and up to a limit."""
        cost = self._first
        while cost <= limit and cost <= self._most:
            if cost == len(self._masks):
                self._masks.append(self._within(cost))
            if mask := self._masks[cost] & ~but:
                return mask
            if not self._masks[cost]:
                self._first = cost + 1
            cost += 1
        return 0

    def _within(self, cost: int) -> int:
        found, every = 0, (1 << len(self._names)) - 1
        for frame, host, gpu in self._frames:
            for count in range(min(cost - len(frame.axes), len(host.given)) + 1):
                mask = host.mask(count, every, self._names)
                found |= gpu.mask(cost - len(frame.axes) - count, mask, self._names) if mask else 0
        return found

    def filled(self, version: str) -> Filled:
        """Fill what is given up for a version that works with what is chosen then."""
        found = self._filled.get(version)
        if found is None:
            frame, host, gpu = self._frames[0] if len(self._frames) == 1 else self._frame(version)
            found = joined(host.filled(version), gpu.filled(version))
            if frame.axes:
                bare = msgspec.structs.replace(self._wish, **found.values)
                near = self._works.framed(bare, frame, version)
                assert near is not None  # noqa: S101 - it works, so it exists
                found = joined(found, fill(bare, near, frame.axes, self._works))
            self._filled[version] = found
        return found

    def _frame(self, version: str) -> _Framed[Wish]:
        """Choose how few axes are given up: of several ways, the one with the axes that are the cheapest to change."""
        cost = self.cost(version)
        every = [row for row in self._frames if len(row[0].axes) + row[1][version] + row[2][version] == cost]
        return min(every, key=lambda row: sorted(map(_PLACE.__getitem__, _given_up(row, version))))


_Framed = tuple[Frame, Line[Wish], Line[Wish]]
"""A frame, and both sides of a wish in it."""


def _given_up(framed: _Framed[Wish], version: str) -> tuple[str, ...]:
    frame, host, gpu = framed
    return (*frame.axes, *host.given_up(version), *gpu.given_up(version))


@cache
def _frames(given: tuple[str, ...]) -> tuple[Frame, ...]:
    """List what may be given up of the axes that both sides read: the fewest first, an image for an image first."""
    every = (axes for count in range(len(given) + 1) for axes in itertools.combinations(given, count))
    return tuple(
        Frame(axes, image) for axes in every for image in ((*range(IMAGES), None) if "base_image" in axes else (None,))
    )
