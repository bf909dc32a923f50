"""Find the nearest combination that works: the fewest changes, the nearest version, the same hosts and system."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from functools import cache
from typing import Any, Literal

import msgspec

from envbuilder import versions
from envbuilder.environment import Combination, Flavor
from envbuilder.resolve.resolver import Resolver

_NEVER = 99

Axes = tuple[str, ...]


class Nearest:
    """Searches for what works near a wish.

    The host's side and the GPU's side are searched apart, each once for all wishes that share it; their costs add up,
    because no rule reads both.
    """

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.versions = tuple(text for text in resolver.facts.versions if versions.key(text)[1] >= 0)
        self._place = {text: place for place, text in enumerate(self.versions)}
        self._host_axes = cache(self._free_host)
        self._side_axes = cache(self._free_side)
        self._costs = cache(self._add_up)

    def to(self, wish: Combination) -> Combination | None:
        """Return the nearest combination that resolves; None where no change of version, Python or CUDA helps.

        Fewest changed axes first; among equals the same TensorFlow, then the version nearest to it, then the newer.
        The driver, the GPUs, the system and the machine stay.
        """
        host = (wish.package, wish.flavor, wish.arch, wish.python, wish.os, wish.packages)
        side = (wish.package, wish.flavor, wish.arch, wish.cuda, wish.cudnn)
        costs, cheapest, places = self._costs(host, side)
        own = self._place.get(wish.tensorflow)
        if own is not None and costs[own] < _NEVER and costs[own] <= cheapest + 1:
            return self._without(wish, own, (*self._host_axes(*host)[own], *self._side_axes(*side)[own]))
        if cheapest >= _NEVER:
            return None
        here = own if own is not None else self._beside(wish.tensorflow)
        after = bisect_left(places, here)
        best = min(places[max(after - 1, 0) : after + 1], key=lambda place: (abs(place - here), -place))
        return self._without(wish, best, (*self._host_axes(*host)[best], *self._side_axes(*side)[best]))

    def _beside(self, version: str) -> int:
        return bisect_left(self.versions, versions.key(version), key=versions.key)

    def _add_up(self, host: tuple[Any, ...], side: tuple[Any, ...]) -> tuple[list[int], int, list[int]]:
        """Count, for every version, the axes that have to be given up; and say where they are fewest."""
        costs = [
            min(len(ours) + len(theirs), _NEVER)
            for ours, theirs in zip(self._host_axes(*host), self._side_axes(*side), strict=True)
        ]
        cheapest = min(costs, default=_NEVER)
        return costs, cheapest, [place for place, cost in enumerate(costs) if cost == cheapest]

    def _free_host(  # noqa: PLR0913, PLR0917 - the axes of one side
        self, package: str | None, flavor: Flavor, arch: str, python: str | None, os: str | None, packages: Axes
    ) -> list[Axes]:
        wish = Combination(
            tensorflow="", package=package, flavor=flavor, arch=arch, python=python, os=os, packages=packages
        )
        return [self._fewest(wish, version, ("python", "packages"), "host") for version in self.versions]

    def _free_side(
        self, package: str | None, flavor: Flavor, arch: str, cuda: str | None, cudnn: str | None
    ) -> list[Axes]:
        wish = Combination(tensorflow="", package=package, flavor=flavor, arch=arch, cuda=cuda, cudnn=cudnn)
        return [self._fewest(wish, version, ("cuda", "cudnn"), "side") for version in self.versions]

    def _fewest(self, wish: Combination, version: str, axes: Axes, side: Literal["host", "side"]) -> Axes:
        """Find the smallest set of axes without which one side of a version works; as many as never where none does."""
        given = [axis for axis in axes if getattr(wish, axis)]
        for count in range(len(given) + 1):
            for free in itertools.combinations(given, count):
                parts = self.resolver.parts(_leave(wish, version, free))
                if parts.release is not None and not getattr(parts, side).fails:
                    return free
        return ("never",) * _NEVER

    def _without(self, wish: Combination, place: int, free: Axes) -> Combination:
        """Fill what was given up with what the resolver chooses, so that the change can be read."""
        version, package, arch, flavor = self.versions[place], wish.package, wish.arch, wish.flavor
        python, packages, cuda, cudnn = wish.python, wish.packages, wish.cuda, wish.cudnn
        if free:
            packages = () if "packages" in free else packages
            near = _leave(wish, version, free)
            _, host, side = self.resolver.parts(near)
            python = host.python if "python" in free else python
            if side.stack is not None:
                cuda = side.stack.cuda if "cuda" in free else cuda
                cudnn = versions.minor(side.stack.cudnn) if "cudnn" in free else cudnn
        return Combination(
            tensorflow=version,
            package=package,
            python=python,
            os=wish.os,
            arch=arch,
            flavor=flavor,
            cuda=cuda,
            cudnn=cudnn,
            packages=packages,
        )


_OPEN: dict[str, str | tuple[str, ...] | None] = {"python": None, "packages": (), "cuda": None, "cudnn": None}


def _leave(wish: Combination, version: str, axes: Axes) -> Combination:
    return msgspec.structs.replace(wish, tensorflow=version, controls=(), **{axis: _OPEN[axis] for axis in axes})


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
