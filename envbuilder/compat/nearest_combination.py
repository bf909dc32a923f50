"""Find the nearest combination that works: the fewest changes, the nearest version, the same hosts and system."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from functools import cache
from typing import Any, Literal, NamedTuple

import msgspec

from envbuilder import versions
from envbuilder.compat.resolver import Parts, Resolver
from envbuilder.environment import Combination, Flavor

_NEVER = 99
_OPEN: dict[str, str | tuple[str, ...] | None] = {"python": None, "packages": (), "cuda": None, "cudnn": None}

Packages = tuple[str, ...]


class HostNear(NamedTuple):
    """How many axes of the host's side have to be given up for a version, and what the resolver puts there."""

    cost: int
    python: str | None
    packages: Packages


class SideNear(NamedTuple):
    """Likewise for the GPU's side."""

    cost: int
    cuda: str | None
    cudnn: str | None


class Nearest:
    """Searches for what works near a wish.

    The host's side and the GPU's side are searched apart, each once for all wishes that share it; their costs add up,
    because no rule reads both.
    """

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.versions = tuple(text for text in resolver.catalog.versions if versions.key(text)[1] >= 0)
        self._place = {text: place for place, text in enumerate(self.versions)}
        self._hosts = cache(self._near_host)
        self._sides = cache(self._near_side)
        self._costs = cache(self._add_up)

    def to(self, wish: Combination) -> Combination | None:
        """Return the nearest combination that resolves; None where no change of version, Python or CUDA helps.

        Fewest changed axes first; among equals the same TensorFlow, then the version nearest to it, then the newer.
        The driver, the GPUs, the system and the machine stay; what is given up is filled with what the resolver
        chooses, so that the change can be read.
        """
        host = (wish.package, wish.flavor, wish.arch, wish.python, wish.os, wish.packages)
        side = (wish.package, wish.flavor, wish.arch, wish.cuda, wish.cudnn)
        hosts, sides = self._hosts(*host), self._sides(*side)
        place = self._place.get(wish.tensorflow)
        if place is None or hosts[place].cost + sides[place].cost > 1:  # nothing changes less than one axis
            place = self._nearest_place(wish.tensorflow, place, *self._costs(host, side))
        if place is None:
            return None
        ours, theirs = hosts[place], sides[place]
        return Combination(
            tensorflow=self.versions[place],
            package=wish.package,
            python=ours.python,
            os=wish.os,
            arch=wish.arch,
            flavor=wish.flavor,
            cuda=theirs.cuda,
            cudnn=theirs.cudnn,
            packages=ours.packages,
        )

    def _nearest_place(
        self, version: str, own: int | None, costs: list[int], cheapest: int, places: list[int]
    ) -> int | None:
        """Choose between keeping the version at ``own`` and the cheapest other one, which costs one change more."""
        if own is not None and costs[own] < _NEVER and costs[own] <= cheapest + 1:
            return own
        if cheapest >= _NEVER:
            return None
        here = own if own is not None else bisect_left(self.versions, versions.key(version), key=versions.key)
        after = bisect_left(places, here)
        return min(places[max(after - 1, 0) : after + 1], key=lambda place: (abs(place - here), -place))

    def _add_up(self, host: tuple[Any, ...], side: tuple[Any, ...]) -> tuple[list[int], int, list[int]]:
        """Count, for every version, the axes that have to be given up; and say where they are fewest."""
        pairs = zip(self._hosts(*host), self._sides(*side), strict=True)
        costs = [min(ours.cost + theirs.cost, _NEVER) for ours, theirs in pairs]
        cheapest = min(costs, default=_NEVER)
        return costs, cheapest, [place for place, cost in enumerate(costs) if cost == cheapest]

    def _near_host(  # noqa: PLR0913, PLR0917 - the axes of one side are the key
        self, package: str | None, flavor: Flavor, arch: str, python: str | None, os: str | None, packages: Packages
    ) -> list[HostNear]:
        wish = Combination(
            tensorflow="", package=package, flavor=flavor, arch=arch, python=python, os=os, packages=packages
        )
        found: list[HostNear] = []
        for version in self.versions:
            cost, near, parts = self._fewest(wish, version, ("python", "packages"), "host")
            chosen = parts.host.python if parts is not None and python is not None else python
            found.append(HostNear(cost, chosen, near.packages))
        return found

    def _near_side(
        self, package: str | None, flavor: Flavor, arch: str, cuda: str | None, cudnn: str | None
    ) -> list[SideNear]:
        wish = Combination(tensorflow="", package=package, flavor=flavor, arch=arch, cuda=cuda, cudnn=cudnn)
        found: list[SideNear] = []
        for version in self.versions:
            cost, near, parts = self._fewest(wish, version, ("cuda", "cudnn"), "side")
            stack = parts.side.stack if parts is not None else None
            filled = near.cuda or (stack.cuda if stack is not None and cuda is not None else None)
            minor = near.cudnn or (versions.minor(stack.cudnn) if stack is not None and cudnn is not None else None)
            found.append(SideNear(cost, filled, minor))
        return found

    def _fewest(
        self, wish: Combination, version: str, axes: tuple[str, ...], side: Literal["host", "side"]
    ) -> tuple[int, Combination, Parts | None]:
        """Find the smallest set of axes without which one side of a version works: their number, and the rest."""
        given = [axis for axis in axes if getattr(wish, axis)]
        for count in range(len(given) + 1):
            for free in itertools.combinations(given, count):
                opened = {axis: _OPEN[axis] for axis in free}
                near = msgspec.structs.replace(wish, tensorflow=version, **opened)
                parts = self.resolver.parts(near)
                if parts.release is not None and not getattr(parts, side).fails:
                    return count, near, parts
        return _NEVER, wish, None


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
