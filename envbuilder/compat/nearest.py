"""The nearest combination that works: the fewest changes, then the nearest version.

GPUs, system and machine stay, and the driver if any versions work with it. One search serves every command. A
`Feasibility` says what "works" means.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import BaseImage
from envbuilder.compat.binding import bind
from envbuilder.compat.candidate import Candidate, Part, with_rows
from envbuilder.compat.question import Question
from envbuilder.compat.requirement import exact_pin
from envbuilder.compat.resolve import Resolver, unsupported_variant
from envbuilder.compat.rules import evaluate
from envbuilder.compat.rules.packages import bounds_instead
from envbuilder.environment import Change, Combination, Predicate
from envbuilder.finding import Code, compatible

Asked = TypeVar("Asked", bound=Question | Combination)

AXES = ("packages", "cudnn", "cuda", "python", "install", "package", "base_image")
"""The fields that may be changed in addition to the version, the cheapest first."""

_SHOWN = ("python", "cudnn", "cuda", "install", "package", "base_image")
"""The order of changes in an answer, after the version and the packages."""

MAX_IMAGES = 3  # the number of other images that are tried before a base image is removed


class Near(NamedTuple, Generic[Asked]):
    combination: Asked
    changes: tuple[Change, ...]
    predicate: Predicate


class Feasibility(Generic[Asked]):
    predicate: Predicate
    catalog: Catalog

    def works(self, asked: Asked) -> bool:
        raise NotImplementedError

    def candidate_of(self, asked: Asked) -> Candidate:
        raise NotImplementedError

    def relaxed(self, asked: Asked, axes: tuple[str, ...], version: str) -> Iterator[Asked]:
        """Yield a combination with another version and with these axes open, in each possible way."""
        yield msgspec.structs.replace(asked, tensorflow=version, **_opened(axes))


def _opened(axes: tuple[str, ...]) -> dict[str, Any]:
    return {axis: () if axis == "packages" else None for axis in axes}


def nearest(asked: Asked, feasibility: Feasibility[Asked]) -> Near[Asked] | None:
    """Return the nearest combination that works: the same one, without changes, if it works itself.

    Fewest changes first; then the same TensorFlow, the version nearest to it, and the newer one. None if only another
    driver, GPU, system or machine helps.
    """
    meant, known = feasibility.catalog.version(asked.tensorflow), feasibility.catalog.final_versions
    # Of a private build the index has only the release that it is named after.
    own = None if "+" in asked.tensorflow else meant
    here = bisect_left(known, versions.key(meant or asked.tensorflow), key=versions.key)
    others = [known[at] for at in sorted(range(len(known)), key=lambda at: (abs(at - here), -at))]
    given = [axis for axis in AXES if getattr(asked, axis, None)]
    for count in range(len(given) + 2):
        attempts = [(own, count)] if own is not None else []
        if count:  # another version is a change too
            attempts += [(version, count - 1) for version in others if version != own]
        for version, number in attempts:
            for axes in itertools.combinations(given, number):
                for relaxed in feasibility.relaxed(asked, axes, version):
                    if feasibility.works(relaxed):
                        return _near(asked, relaxed, axes, own, feasibility)
    return None


def nearest_with_driver(question: Question, works: Installable) -> Near[Question] | None:
    """Return the nearest that works with another driver: the next newer branch, else the next older one.

    None if the driver is all that has to change, or if no driver helps.
    """
    drivers, own = works.catalog.drivers, works.catalog.branch(question.driver)
    found = nearest(msgspec.structs.replace(question, driver=None), works) if own is not None else None
    if own is None or found is None or not found.changes:
        return None
    at = drivers.index(own)
    for branch in (*drivers[at + 1 :], *reversed(drivers[:at])):
        near = msgspec.structs.replace(found.combination, driver=branch.branch)
        if branch.production and works.works(near):
            change = Change("driver", question.driver or "", branch.branch)
            return found._replace(combination=near, changes=(change, *found.changes))
    return None


def _near(
    asked: Asked, relaxed: Asked, axes: tuple[str, ...], own: str | None, feasibility: Feasibility[Asked]
) -> Near[Asked]:
    """Fill in the opened axes, and keep every pin that works. Raises AssertionError if the result does not work."""
    found = feasibility.candidate_of(relaxed)
    changes: list[Change] = []
    values: dict[str, Any] = {"packages": relaxed.packages}
    if relaxed.tensorflow != own:
        values["tensorflow"] = relaxed.tensorflow
        changes.append(Change("tensorflow", own or asked.tensorflow, relaxed.tensorflow))
    for axis in filter(axes.__contains__, _SHOWN):
        holder = found.release if axis == "package" else relaxed if axis in {"install", "base_image"} else found
        values[axis] = getattr(holder, axis)
    near = msgspec.structs.replace(asked, **values)
    for text in asked.packages if "packages" in axes else ():
        pin, kept = exact_pin(text), msgspec.structs.replace(near, packages=(*near.packages, text))
        if pin is None or feasibility.works(kept):
            near = kept
            continue
        bounds = bounds_instead(*pin, found)
        changes.append(Change(*pin, bounds))
        if bounds is not None:
            near = msgspec.structs.replace(near, packages=(*near.packages, f"{pin[0]}{bounds}"))
    changes += [Change(axis, getattr(asked, axis), values[axis]) for axis in _SHOWN if axis in axes]
    if not feasibility.works(near):
        raise AssertionError(f"the nearest to {asked} does not work: {near}")
    return Near(near, tuple(changes), feasibility.predicate)


class Installable(Feasibility[Question]):
    """The question of ``check``: can it be installed, and will it use the GPU.

    ``without`` are findings that must not be there although they are not errors; the predicate is then ``unhindered``.
    """

    def __init__(self, catalog: Catalog, without: frozenset[Code] = frozenset()) -> None:
        self.catalog = catalog
        self.without = without
        self.predicate: Predicate = "unhindered" if without else "installable"
        self._part_works = lru_cache(maxsize=65_536)(self._evaluate_part)

    def works(self, asked: Question) -> bool:
        """Return True if the rules find nothing wrong, and every name is known."""
        # Each part is evaluated without the fields that only the other part reads, so that its result is reused.
        python = msgspec.structs.replace(asked, cuda=None, cudnn=None)
        cuda = msgspec.structs.replace(asked, python=None, packages=())
        return self._part_works(python, "python") and self._part_works(cuda, "cuda")

    def _evaluate_part(self, asked: Question, part: Part) -> bool:
        bound = bind(asked, self.catalog)
        if bound.candidate is None or bound.unknown:
            return False
        found = evaluate(bound.candidate, self.catalog, (part,))
        return compatible(found) is True and not any(row.code in self.without for row in found)

    def relaxed(self, asked: Question, axes: tuple[str, ...], version: str) -> Iterator[Question]:
        """Open axes; a base image is first replaced by another one of its system, then removed."""
        for image in other_images(asked.base_image, version, self.catalog) if "base_image" in axes else ():
            opened = {**_opened(axes), "base_image": image.name}
            yield msgspec.structs.replace(asked, tensorflow=version, **opened)
        yield from super().relaxed(asked, axes, version)

    def candidate_of(self, asked: Question) -> Candidate:
        found = bind(asked, self.catalog).candidate
        assert found is not None  # noqa: S101 - it works, so it has rows
        return found


def other_images(name: str | None, version: str, catalog: Catalog) -> list[BaseImage]:
    """List the nearest other images of the same system with the CUDA and cuDNN majors of a version."""
    image = catalog.image(name) if name is not None else None
    release = next((row for row in catalog.distributions(version) if row.cuda and row.cudnn), None)
    if image is None or release is None:
        return []
    others = [row for row in catalog.images if row.os == image.os and row != image]
    similar = [row for row in others if versions.same_major(row.cuda, release.cuda)]
    similar = [row for row in similar if versions.same_major(row.cudnn, release.cudnn)]
    return sorted(similar, key=lambda row: (versions.distance(row.cuda, image.cuda), row.name))[:MAX_IMAGES]


class Buildable(Feasibility[Combination]):
    """The question of ``plan``: can envbuilder build it, for all target drivers and GPUs."""

    predicate: Predicate = "buildable"

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.catalog = resolver.catalog

    def works(self, asked: Combination) -> bool:
        parts = self.resolver.parts(asked)
        fails = parts.python.fails or parts.cuda.fails or bool(unsupported_variant(asked, parts.python))
        return parts.release is not None and not fails

    def candidate_of(self, asked: Combination) -> Candidate:
        """Return the resolver's choices, with the line of a cuDNN as in matrices."""
        parts = self.resolver.parts(asked)
        assert parts.release is not None  # noqa: S101 - it works, so it has a row
        installed = parts.cuda.installed
        given = Candidate(
            release=parts.release,
            arch=asked.arch,
            python=parts.python.python,
            cuda=installed.cuda if installed else None,
            cudnn=versions.minor(installed.cudnn) if installed and installed.cudnn else None,
        )
        return with_rows(given, self.catalog)
