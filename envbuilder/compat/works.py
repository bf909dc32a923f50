"""What "works" may mean of a wish: it can be installed and will use the GPU, or envbuilder can build it here."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import BaseImage
from envbuilder.compat.binding import bind
from envbuilder.compat.candidate import Candidate, candidate
from envbuilder.compat.question import Question
from envbuilder.compat.resolver import Resolver
from envbuilder.compat.rule import Side
from envbuilder.compat.rules import judge
from envbuilder.environment import Combination, Predicate
from envbuilder.finding import Code, compatible

Wish = TypeVar("Wish", bound=Question | Combination)


IMAGES = 3
"""So many other images are tried before a base image is left away."""


class Frame(NamedTuple):
    """The axes that both sides read and that are given up; ``image`` is the place of the image that is tried instead.

    None is no image.
    """

    axes: tuple[str, ...] = ()
    image: int | None = None


class Works(Protocol[Wish]):
    """A predicate over wishes. No rule reads both sides of a candidate, so a wish works where both of its sides do."""

    predicate: Predicate
    catalog: Catalog
    reads: Mapping[Side, tuple[str, ...]]
    """The fields of a wish, beside the version, that a side depends on."""

    def holds(self, wish: Wish, side: Side) -> bool:
        """Tell whether nothing is wrong on a side."""
        ...

    def framed(self, wish: Wish, frame: Frame, version: str) -> Wish | None:
        """Give a frame's axes up for a version; None where there is no such image."""
        ...

    def stands(self, wish: Wish) -> Candidate:
        """Return what a wish that works comes to."""
        ...


def _but(*names: str) -> tuple[str, ...]:
    return tuple(name for name in Question.__struct_fields__ if name not in {"tensorflow", *names})


class Installable:
    """The plain question of ``check``: can it be installed, and will it use the GPU.

    ``without`` are findings that must not be there either, although they are no errors: then it is ``unhindered``.
    """

    reads: Mapping[Side, tuple[str, ...]] = {"host": _but("cuda", "cudnn"), "gpu": _but("python", "packages")}

    def __init__(self, catalog: Catalog, without: frozenset[Code] = frozenset()) -> None:
        self.catalog = catalog
        self.without = without
        self.predicate: Predicate = "unhindered" if without else "installable"
        # Both sides of a question are asked for, one after the other.
        self._bind = lru_cache(maxsize=4096)(lambda question: bind(question, catalog))

    def holds(self, wish: Question, side: Side) -> bool:
        """Tell whether the rules of a side find nothing wrong, and everything that was named is known."""
        bound = self._bind(wish)
        if bound.candidate is None or bound.unknown:
            return False
        found = judge(bound.candidate, self.catalog, (side,))
        return compatible(found) is True and not any(finding.code in self.without for finding in found)

    def framed(self, wish: Question, frame: Frame, version: str) -> Question | None:
        """Give a frame's axes up; a base image is first replaced by another of its system, then left away."""
        opened: dict[str, str | None] = dict.fromkeys(frame.axes)
        if frame.image is not None:
            beside = images_beside(wish.base_image, version, self.catalog)
            if frame.image >= len(beside):
                return None
            opened["base_image"] = beside[frame.image].name
        return msgspec.structs.replace(wish, tensorflow=version, **opened)

    def stands(self, wish: Question) -> Candidate:
        """Return what the question is bound to."""
        found: Candidate | None = self._bind(wish).candidate
        assert found is not None  # noqa: S101 - it works, so it has rows
        return found


def images_beside(name: str | None, version: str, catalog: Catalog) -> list[BaseImage]:
    """List the nearest other images of the same system with the CUDA and cuDNN majors that a version was built with."""
    image = catalog.image(name) if name is not None else None
    release = next((row for row in catalog.distributions(version) if row.cuda and row.cudnn), None)
    if image is None or release is None:
        return []
    alike = [
        row
        for row in catalog.images
        if row.os == image.os
        and row != image
        and versions.same_major(row.cuda, release.cuda)
        and versions.same_major(row.cudnn, release.cudnn)
    ]
    return sorted(alike, key=lambda row: (versions.distance(row.cuda, image.cuda), row.name))[:IMAGES]


class Buildable:
    """The question of ``plan``: can envbuilder build it here, for every driver and GPU that it has to serve."""

    predicate: Predicate = "buildable"
    reads: Mapping[Side, tuple[str, ...]] = {
        "host": ("package", "flavor", "arch", "python", "os", "packages"),
        "gpu": ("package", "flavor", "arch", "os", "cuda", "cudnn"),
    }

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.catalog = resolver.catalog

    def holds(self, wish: Combination, side: Side) -> bool:
        """Tell whether the resolver finds nothing wrong on a side."""
        parts = self.resolver.parts(wish)
        if parts.release is None:
            return False
        return not (parts.host.fails if side == "host" else parts.side.fails)

    def framed(self, wish: Combination, frame: Frame, version: str) -> Combination | None:
        """Give a frame's axes up for a version."""
        return msgspec.structs.replace(wish, tensorflow=version, **dict.fromkeys(frame.axes))

    def stands(self, wish: Combination) -> Candidate:
        """Return what the resolver chooses; a cuDNN by its line, as matrices write it."""
        parts = self.resolver.parts(wish)
        assert parts.release is not None  # noqa: S101 - it works, so it has a row
        stack = parts.side.stack
        return candidate(
            parts.release,
            self.catalog,
            arch=wish.arch,
            python=parts.host.python,
            cuda=stack.cuda if stack else None,
            cudnn=versions.minor(stack.cudnn) if stack and stack.cudnn else None,
        )
