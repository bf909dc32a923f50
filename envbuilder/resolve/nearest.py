"""Find the nearest combination that works: the fewest changes, the nearest version, the same hosts and system."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from functools import cache

import msgspec

from envbuilder import versions
from envbuilder.environment import Combination, Environment
from envbuilder.resolve.resolver import Resolver

_FREE = ("python", "packages", "cuda", "cudnn")
"""The axes that may be given up, beside the version of TensorFlow: where it stays, that is preferred."""

_NONE: dict[str, str | tuple[str, ...] | None] = {"python": None, "packages": (), "cuda": None, "cudnn": None}
_NEVER = 99


class Nearest:
    """Searches for what works near a wish, remembering the search for all wishes that differ in the version alone."""

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.versions = tuple(text for text in resolver.facts.versions if versions.key(text)[1] >= 0)
        self.costs = cache(self._costs)
        self.completed = cache(self._completed)

    def to(self, wish: Combination) -> Combination | None:
        """Return the nearest combination that resolves; None where no change of version, Python or CUDA helps.

        Fewest changed axes first; among equals the same TensorFlow, then the version nearest to it, then the newer.
        """
        rest = msgspec.structs.replace(wish, tensorflow="", controls=())
        costs, cheapest, places = self.costs(rest)
        own = self.resolver.facts.version(wish.tensorflow) or wish.tensorflow
        here = self._place(own)
        if here < len(costs) and self.versions[here] == own and costs[here] <= cheapest + 1 and costs[here] < _NEVER:
            return self.completed(rest, own)
        if cheapest >= _NEVER:
            return None
        after = bisect_left(places, here)
        around = places[max(after - 1, 0) : after + 1]
        return self.completed(rest, self.versions[min(around, key=lambda place: (abs(place - here), -place))])

    def _place(self, version: str) -> int:
        return bisect_left(self.versions, versions.key(version), key=versions.key)

    def _costs(self, rest: Combination) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
        """Count, for every version, the axes of ``rest`` that have to be given up; and where the fewest are."""
        costs = tuple(
            len(free) if (free := self._given_up(rest, version)) is not None else _NEVER for version in self.versions
        )
        cheapest = min(costs, default=_NEVER)
        return costs, cheapest, tuple(place for place, cost in enumerate(costs) if cost == cheapest)

    def _given_up(self, rest: Combination, version: str) -> tuple[str, ...] | None:
        """Find the smallest set of axes without which a version works."""
        given = [axis for axis in _FREE if getattr(rest, axis)]
        for count in range(len(given) + 1):
            for axes in itertools.combinations(given, count):
                wish = _without(rest, axes, version)
                if isinstance(self.resolver.resolve(wish), Environment):
                    return axes
        return None

    def _completed(self, rest: Combination, version: str) -> Combination:
        """Fill the axes that were given up with what the resolver chooses, so that the change can be read."""
        axes = self._given_up(rest, version) or ()
        wish = _without(rest, axes, version)
        found = self.resolver.resolve(wish)
        chosen = {axis: getattr(found, axis) for axis in axes if axis != "packages"}
        if "cudnn" in chosen:
            chosen["cudnn"] = versions.minor(chosen["cudnn"])
        return msgspec.structs.replace(wish, **chosen)


def _without(rest: Combination, axes: tuple[str, ...], version: str) -> Combination:
    return msgspec.structs.replace(rest, tensorflow=version, **{axis: _NONE[axis] for axis in axes})


def changes(wish: Combination, near: Combination) -> tuple[str, ...]:
    """Say what differs, an axis a line: ``python 3.8 → 3.11``."""
    found: list[str] = []
    for axis in ("tensorflow", "package", "python", "os", "cuda", "cudnn", "packages"):
        old, new = getattr(wish, axis), getattr(near, axis)
        if old != new:
            found.append(f"{axis} {_text(old)} → {_text(new)}")
    return tuple(found)


def _text(value: str | tuple[str, ...] | None) -> str:
    return " ".join(value) if isinstance(value, tuple) else value or "chosen"
