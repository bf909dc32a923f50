"""Compare a row of the catalogue with the artefact, field by field."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import shorten
from typing import Literal

import msgspec

from envbuilder import versions
from envbuilder.catalog import gpu_code
from envbuilder.catalog.rows import Kernels, Search, TensorflowRelease, WheelSet
from envbuilder.refresh.artefact import BuildInfo, Metadata, normal

Outcome = Literal["agrees", "recorded", "disagrees", "unchecked"]

OUTCOMES: tuple[Outcome, ...] = ("disagrees", "unchecked", "recorded", "agrees")
"""Every outcome, the most urgent first."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One field of one row in the catalogue and in the artefact, and the outcome.

    ``recorded`` is a disagreement that the row has as a contradiction; the ``note`` of ``unchecked`` is the reason.
    """

    row: str
    field: str
    outcome: Outcome
    catalog: str = ""
    artefact: str = ""
    note: str = ""


def name_of(row: TensorflowRelease) -> str:
    """Name a release's row: ``tensorflow 2.20.0``."""
    return f"{row.package} {row.version}"


def judge(row: TensorflowRelease, field: str, catalog: str, artefact: str, *, agrees: bool) -> Comparison:
    """Return the outcome of one comparison; contradictions in the row are ``recorded``."""
    known = next((one for one in row.contradictions if one.field == field and one.says == artefact), None)
    outcome: Outcome = "agrees" if agrees else "recorded" if known else "disagrees"
    note = known.but if known and not agrees else ""
    return Comparison(row=name_of(row), field=field, outcome=outcome, catalog=catalog, artefact=artefact, note=note)


def unchecked(row: TensorflowRelease, field: str, why: str) -> Comparison:
    """Report why a field could not be compared."""
    return Comparison(row=name_of(row), field=field, outcome="unchecked", note=why)


def with_wheels(row: TensorflowRelease, wheels: tuple[WheelSet, ...]) -> Comparison:
    """Compare the Pythons, architectures and glibc of a release with the file names on the index."""
    agrees = _wheel_values(row.wheels) == _wheel_values(wheels)
    return judge(row, "wheels", wheels_text(row.wheels), wheels_text(wheels), agrees=agrees)


def _wheel_values(wheels: Iterable[WheelSet]) -> set[tuple[str, str, frozenset[str]]]:
    """Return the values that have to agree; a tag may name them differently."""
    return {(one.arch, one.glibc, frozenset(one.pythons)) for one in wheels}


def wheels_text(wheels: Iterable[WheelSet]) -> str:
    """Write wheel sets in one line: ``x86_64 3.10 3.11 (glibc 2.27)``."""
    return "; ".join(sorted(f"{one.arch} {' '.join(one.pythons)} (glibc {one.glibc})" for one in wheels))


def with_metadata(row: TensorflowRelease, said: Metadata) -> Iterator[Comparison]:
    """Compare the requirements with METADATA; the texts are the differences."""
    same = row.requires_python == said.requires_python
    yield judge(row, "requires_python", row.requires_python, said.requires_python, agrees=same)
    for field, mine, theirs in (("requires", row.requires, said.requires), ("and_cuda", row.and_cuda, said.and_cuda)):
        ours, artefacts = set(map(normal, mine)), set(theirs)
        only_ours, only_theirs = sorted(ours - artefacts), sorted(artefacts - ours)
        agrees = not only_ours and not only_theirs
        both = f"{len(ours)} requirements"
        yield judge(
            row,
            field,
            both if agrees else "; ".join(only_ours),
            both if agrees else "; ".join(only_theirs),
            agrees=agrees,
        )


def with_build_info(row: TensorflowRelease, said: BuildInfo) -> Iterator[Comparison]:
    """Compare the build. A shorter cuDNN (``8`` for ``8.1``) agrees; a CUDA without its minor does not."""
    if said.gpu is None:
        yield unchecked(row, "gpu", "build_info does not state it")
    else:
        yield judge(row, "gpu", _yes(value=row.gpu), _yes(value=said.gpu), agrees=row.gpu is said.gpu)
    if not row.gpu:
        return
    yield _version(row, "cuda", row.cuda, said.cuda, vague=False)
    yield _version(row, "cudnn", row.cudnn, said.cudnn, vague=True)
    for field, mine, theirs in (("cubins", row.cubins, said.cubins), ("ptx", row.ptx, said.ptx)):
        if said.cubins:
            yield judge(row, field, " ".join(mine), " ".join(theirs), agrees=set(mine) == set(theirs))
        else:
            yield unchecked(row, field, "build_info does not state capabilities; --binary reads them from the library")


def _version(row: TensorflowRelease, field: str, mine: str | None, theirs: str | None, *, vague: bool) -> Comparison:
    if theirs is None:
        return unchecked(row, field, "build_info does not state it")
    agrees = mine is not None and (versions.is_prefix(mine, theirs) or (vague and versions.is_prefix(theirs, mine)))
    return judge(row, field, mine or "", theirs, agrees=agrees)


def with_binary(row: TensorflowRelease, kernels: tuple[Kernels, ...]) -> Iterator[Comparison]:
    """Compare the kernels of each origin, and the sums of their capabilities, with the wheel's libraries."""
    mine_told, theirs_told = gpu_code.in_words(row.kernels), gpu_code.in_words(kernels)
    yield judge(row, "kernels", mine_told, theirs_told, agrees=row.kernels == kernels)
    held = (("cubins", row.cubins, gpu_code.cubins(kernels)), ("ptx", row.ptx, gpu_code.ptx(kernels)))
    for field, mine, theirs in held:
        yield judge(row, field, " ".join(mine), " ".join(theirs), agrees=set(mine) == set(theirs))


def with_searches(row: TensorflowRelease, searches: tuple[Search, ...], follows: str | None) -> Iterator[Comparison]:
    """Compare the folders that the libraries search, and the ``finds_cuda`` that follows."""
    mine, theirs = searches_text(row.searches), searches_text(searches)
    yield judge(row, "searches", mine, theirs, agrees=mine == theirs)
    yield judge(row, "finds_cuda", row.finds_cuda or "", follows or "", agrees=row.finds_cuda == follows)


def with_openers(row: TensorflowRelease, names: tuple[str, ...]) -> Comparison:
    """Compare the functions of the library that opens CUDA."""
    return judge(row, "openers", " ".join(row.openers), " ".join(names), agrees=row.openers == names)


def searches_text(searches: Iterable[Search]) -> str:
    """Write the searched folders in one line: ``libtensorflow_framework.so.2: cublas cudnn``."""
    return "; ".join(sorted(f"{one.object}: {' '.join(sorted(one.folders))}" for one in searches if one.folders))


def _yes(*, value: bool) -> str:
    return "true" if value else "false"


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A wheel with its packed bytes and the seconds of reading; ``kept`` means that it was read in an earlier run."""

    row: str
    wheel: str
    sha256: str
    bytes_read: int
    seconds: float
    kept: bool


class VerifyDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The comparisons of ``catalog verify`` in the catalogue's order; with ``--binary`` the wheels that it read."""

    schema: str = "envbuilder/catalog-verify/v1"
    comparisons: tuple[Comparison, ...]
    readings: tuple[Reading, ...] = ()

    @property
    def disagreements(self) -> tuple[Comparison, ...]:
        """The comparisons to fix or to record."""
        return tuple(one for one in self.comparisons if one.outcome == "disagrees")

    def count(self, outcome: Outcome) -> int:
        return sum(one.outcome == outcome for one in self.comparisons)


def as_text(document: VerifyDocument, *, everything: bool = False) -> str:
    """Write the comparisons: disagreements first, the sum last; agreements only on request."""
    shown = [outcome for outcome in OUTCOMES if everything or outcome != "agrees"]
    lines = [_line(one) for outcome in shown for one in document.comparisons if one.outcome == outcome]
    total = ", ".join(f"{document.count(outcome)} {_SAID[outcome]}" for outcome in reversed(OUTCOMES))
    rows = f"{len({one.row for one in document.comparisons})} rows: {total}"
    return "\n".join([*lines, *([_read(document.readings)] if document.readings else []), rows])


def _read(readings: Sequence[Reading]) -> str:
    """Write the amount of reading: ``81 wheels, 36.1 GB of shared objects, 1290 s (80 of them read before)``."""
    size, time = sum(one.bytes_read for one in readings) / 1e9, sum(one.seconds for one in readings)
    before = sum(one.kept for one in readings)
    told = f" ({before} of them read before)" if before else ""
    return f"{len(readings)} wheels, {size:.1f} GB of shared objects, {time:.0f} s{told}"


_SAID: dict[Outcome, str] = {
    "agrees": "fields agree",
    "recorded": "contradictions recorded",
    "unchecked": "could not be checked",
    "disagrees": "disagree",
}


def _line(one: Comparison) -> str:
    if one.outcome == "unchecked":
        return f"unchecked  {one.row} {one.field}: {one.note}"
    if one.outcome == "agrees":
        return f"agrees     {one.row} {one.field}: {one.artefact}{f' ({one.note})' if one.note else ''}"
    if one.outcome == "recorded":
        return f"recorded   {one.row} {one.field}: the artefact says {shorten(one.artefact, _WIDTH)!r}: {one.note}"
    return f"DISAGREES  {one.row} {one.field}: the catalogue has {one.catalog!r}, the artefact {one.artefact!r}"


_WIDTH = 80
"""Recorded contradictions are shown up to this length."""
