"""Find the nearest question that is answered with yes: the fewest changes; the same driver, GPUs and system."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.compat.question import Candidate, Question
from envbuilder.compat.requirement import exact_pin
from envbuilder.compat.rules import judge
from envbuilder.compat.settle import settle
from envbuilder.compat.software import bounds_on
from envbuilder.finding import compatible

_AXES = ("packages", "cudnn", "cuda", "python", "install", "package", "base_image")
"""What may be left to be chosen instead of being as asked, the cheapest to change first."""

_OPEN: dict[str, str | tuple[str, ...] | None] = {**dict.fromkeys(_AXES), "packages": ()}


def nearest(
    question: Question, catalog: Catalog, *, compat: bool | None = None
) -> tuple[Question, tuple[str, ...]] | None:
    """Return what works near a question, and what differs: ``("cudnn 8.1.0 → 8.0",)``.

    Nothing differs where the question itself is answered with yes. Fewest changes first; among equals the same
    TensorFlow, then the version nearest to it, then the newer. None where no change but of driver, GPU or system helps.
    ``compat`` False asks for what works without CUDA's forward-compatibility package, as in the images built here.
    """
    known = catalog
    works = partial(_works, known=known, compat=compat)
    if works(question):
        return question, ()
    given = tuple(axis for axis in _AXES if getattr(question, axis))
    # What the build was made with is the most that can be left open: a version that fails so, fails with less open.
    usable = [
        version
        for version in _by_distance(question.tensorflow, known)
        if any(works(near) for near in _leave(question, given, version, known))
    ]
    for count in range(1, len(given) + 2) if usable else ():
        for near in _candidates(question, given, count, usable, known):
            if works(near):
                return _told(question, near, known)
    return None


def _works(question: Question, *, known: Catalog, compat: bool | None) -> bool:
    settled = settle(question, known)
    candidate = settled.candidate
    if candidate is None:
        return False
    if candidate.compat is None:
        candidate = msgspec.structs.replace(candidate, compat=compat)
    return compatible((*settled.unknown, *judge(candidate, known))) is True


def _candidates(
    question: Question, given: tuple[str, ...], count: int, usable: list[str], known: Catalog
) -> Iterator[Question]:
    """Give every question with so many changes: first those that keep the version, then by its distance."""
    own = known.version(question.tensorflow)
    if own in usable:
        for axes in itertools.combinations(given, count):
            yield from _leave(question, axes, question.tensorflow, known)
    for version in usable:
        if version == own:
            continue
        for axes in itertools.combinations(given, count - 1):
            yield from _leave(question, axes, version, known)


def _leave(question: Question, axes: tuple[str, ...], version: str, known: Catalog) -> Iterator[Question]:
    """Leave axes open; a base image is first replaced by another of its system, then left away."""
    opened = {axis: _OPEN[axis] for axis in axes}
    for image in _images_beside(question, version, known) if "base_image" in axes else ():
        yield msgspec.structs.replace(question, tensorflow=version, **{**opened, "base_image": image})
    yield msgspec.structs.replace(question, tensorflow=version, **opened)


_IMAGES = 3
"""So many of the nearest images are tried before the image is left away."""


def _images_beside(question: Question, version: str, known: Catalog) -> list[str]:
    """Name the nearest other images of the same system with the CUDA and cuDNN majors that a version was built with."""
    image = known.image(question.base_image) if question.base_image else None
    release = next(
        (row for row in known.distributions(known.version(version) or version) if row.cuda and row.cudnn), None
    )
    if image is None or release is None:
        return []
    alike = [
        row
        for row in known.images
        if row.os == image.os and row != image and _majors(row.cuda, row.cudnn) == _majors(release.cuda, release.cudnn)
    ]
    return [row.name for row in sorted(alike, key=lambda row: (_gap(row.cuda, image.cuda), row.name))[:_IMAGES]]


def _majors(cuda: str | None, cudnn: str | None) -> tuple[int, int]:
    return versions.major(cuda or "0"), versions.major(cudnn or "0")


def _gap(version: str, other: str) -> tuple[int, ...]:
    return tuple(abs(a - b) for a, b in zip(versions.numbers(version), versions.numbers(other), strict=False))


def _by_distance(version: str, known: Catalog) -> list[str]:
    final = [text for text in known.versions if versions.key(text)[1] >= 0]
    own = known.version(version)
    here = sum(versions.key(text) < versions.key(own or version) for text in final)
    places = sorted(range(len(final)), key=lambda place: (abs(place - here), -place))
    ordered = [final[place] for place in places if final[place] != own]
    return [own, *ordered] if own is not None else ordered


def _told(question: Question, near: Question, known: Catalog) -> tuple[Question, tuple[str, ...]]:
    """Write out what was chosen in place of what was asked."""
    before, after = settle(question, known).candidate, settle(near, known).candidate
    assert after is not None  # noqa: S101 - it works, so it has rows
    found: list[str] = []
    filled: dict[str, str | tuple[str, ...] | None] = {}
    for axis in ("tensorflow", *_AXES):
        old, new = getattr(question, axis), getattr(near, axis)
        if old == new:
            continue
        if axis == "packages":
            filled[axis], lines = _packages(after, question)
            found += lines
            continue
        was, now = _value(axis, before) or old, _value(axis, after) or new
        filled[axis] = now
        found.append(f"{axis} {old if axis in _WITHOUT else was} → {now or _WITHOUT.get(axis, 'left open')}")
    return msgspec.structs.replace(near, **filled), tuple(found)


_WITHOUT = {"install": "pinned CUDA wheels", "base_image": "none (pinned CUDA wheels)"}


def _value(axis: str, candidate: Candidate | None) -> str | None:
    if candidate is None or axis in _WITHOUT:
        return None
    if axis == "tensorflow":
        return candidate.release.version
    if axis == "package":
        return candidate.release.package
    value: str | None = getattr(candidate, axis)
    return value


def _packages(after: Candidate, question: Question) -> tuple[tuple[str, ...], list[str]]:
    """Replace each pin by the bounds that the build sets on that package."""
    kept: list[str] = []
    lines: list[str] = []
    for text in question.packages:
        pin = exact_pin(text)
        bounds = [bound for bound, _ in bounds_on(after, pin[0])] if pin is not None else []
        bounds = next(([bound] for bound in bounds if "<" in bound.text), bounds)
        if pin is None or not bounds:
            kept.append(text)
            continue
        wanted = ",".join(dict.fromkeys(bound.text for bound in bounds))
        kept.append(f"{pin[0]}{wanted}")
        lines.append(f"{pin[0]} {pin[1]} → {wanted}")
    return tuple(kept), lines
