"""Image references, and the published CUDA image or the system that each one means."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from envbuilder import versions
from envbuilder.catalog.rows import BaseImage, OperatingSystem, OtherSystem

_VARIANT = re.compile(
    r"(?P<cuda>nvidia/cuda:[\d.]+)(?P<cudnn>-cudnn\d*)?-(?P<flavor>base|runtime|devel)-(?P<os>ubuntu[\d.]+)"
)
_DATED = re.compile(r"\d{8}(?:\.\d+)?")
"""The build day in a tag: ``bookworm-20260112-slim``."""
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?")


class PlainImage(msgspec.Struct, frozen=True):
    """An image without CUDA: its system, or the system on which no wheel loads, and its Python."""

    system: OperatingSystem | None = None
    other: OtherSystem | None = None
    python: str | None = None


def published(images: Iterable[BaseImage], name: str) -> BaseImage | None:
    """Return a published image with CUDA; a registry's host, ``library/`` and a digest are ignored.

    The catalogue has the ``runtime`` images with cuDNN. Their siblings (``base``, ``runtime``, ``devel``) are built
    from the same base image, which sets the start-up requirement; only flavour and cuDNN differ.
    """
    bare = _bare(name)
    known = {row.name: row for row in images}
    asked = _VARIANT.fullmatch(bare)
    if bare in known or asked is None:
        return known.get(bare)
    start, end = f"{asked['cuda']}{asked['cudnn'] or '-cudnn'}", f"-runtime-{asked['os']}"
    row = next((row for name, row in known.items() if name.startswith(start) and name.endswith(end)), None)
    if row is None:
        return None
    cudnn = row.cudnn if asked["cudnn"] else None
    return msgspec.structs.replace(row, name=bare, flavor=asked["flavor"], cudnn=cudnn)


def plain(systems: Iterable[OperatingSystem], others: Iterable[OtherSystem], name: str) -> PlainImage | None:
    """Return the system and Python of an official image; None if its tag does not determine them.

    A tag of Python without a suite means that Python's own row, although later builds are on newer systems.
    """
    repository, _, tag = _bare(name).removeprefix("library/").partition(":")
    pieces = [piece for piece in tag.split("-") if piece and piece != "slim" and not _DATED.fullmatch(piece)]
    if repository == "python":
        return _python(systems, others, pieces)
    other = next((row for row in others if row.name == repository), None)
    if other is not None:
        return PlainImage(other=other)
    if len(pieces) != 1:
        return None
    found = _tagged(systems, repository, pieces[0]) or _tagged(systems, repository, pieces[0].partition(".")[0])
    return PlainImage(system=found) if found is not None else None


def _python(systems: Iterable[OperatingSystem], others: Iterable[OtherSystem], pieces: list[str]) -> PlainImage | None:
    if not pieces or not _VERSION.fullmatch(pieces[0]):
        return None
    python, suite = versions.minor(pieces[0]), "-".join(pieces[1:])
    other = next((row for row in others if suite.startswith(row.name)), None)
    if other is not None:
        return PlainImage(other=other, python=python)
    row = next((row for row in systems if row.python == python and row.image.startswith("python:")), None)
    debian = _tagged(systems, "debian", suite)
    if row is None or (suite and debian is None):
        return None
    if debian is not None and suite not in row.image:
        row = msgspec.structs.replace(row, glibc=debian.glibc)
    return PlainImage(system=row, python=python)


def _tagged(systems: Iterable[OperatingSystem], repository: str, tag: str) -> OperatingSystem | None:
    for row in systems:
        name, _, own = row.image.partition(":")
        if name == repository and tag in (own.removesuffix("-slim"), *row.tags):
            return row
    return None


def _bare(name: str) -> str:
    """Remove a registry's host and a digest."""
    reference = name.strip().split("@")[0]
    head, _, rest = reference.partition("/")
    return rest if rest and ("." in head or ":" in head) else reference
