"""Compare a row of the catalogue with the artefact, field by field."""

from collections.abc import Iterable, Iterator, Sequence
from textwrap import shorten
from typing import Literal

import msgspec
from packaging.requirements import Requirement

from envbuilder import versions
from envbuilder.catalog import gpu_code
from envbuilder.catalog.library_search import finds_cuda
from envbuilder.catalog.rows import CudnnWheel, Kernels, PackageRelease, Search, TensorflowRelease, WheelSet
from envbuilder.refresh.artefact import BuildInfo, Metadata, normal
from envbuilder.refresh.evidence import Evidence

Compared = TensorflowRelease | CudnnWheel | PackageRelease
Outcome = Literal["agrees", "recorded", "disagrees", "unchecked"]

_OUTCOMES: dict[Outcome, str] = {
    "disagrees": "disagree",
    "unchecked": "could not be checked",
    "recorded": "contradictions recorded",
    "agrees": "fields agree",
}
"""Every outcome, the most urgent first, as in the sum."""

_WIDTH = 80
"""Recorded contradictions are shown up to this length."""


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


def name_of(row: Compared) -> str:
    """Name a row: ``tensorflow 2.20.0``, ``nvidia-cudnn-cu12``, ``numpy 2.0.0``."""
    match row:
        case TensorflowRelease():
            return f"{row.package} {row.version}"
        case CudnnWheel():
            return row.package
        case PackageRelease():
            return f"{Requirement(row.bound).name} {row.version}"


def judge(row: Compared, field: str, catalog: str, artefact: str, *, agrees: bool | None = None) -> Comparison:
    """Return the outcome of one comparison; equal texts agree by default. The row's contradictions are ``recorded``."""
    agrees = catalog == artefact if agrees is None else agrees
    recorded = row.contradictions if isinstance(row, TensorflowRelease) else ()
    known = next((one for one in recorded if one.field == field and one.says == artefact), None)
    outcome: Outcome = "agrees" if agrees else "recorded" if known else "disagrees"
    note = known.but if known and not agrees else ""
    return Comparison(row=name_of(row), field=field, outcome=outcome, catalog=catalog, artefact=artefact, note=note)


def differences(
    row: Compared, field: str, mine: Iterable[str], theirs: Iterable[str], same: str, between: str = "; "
) -> Comparison:
    """Compare by what only the catalogue and only the artefact has; without any, both are shown as ``same``."""
    ours, others = between.join(mine), between.join(theirs)
    return judge(row, field, ours, others, agrees=False) if ours or others else judge(row, field, same, same)


def unchecked(row: Compared, field: str, why: str) -> Comparison:
    return Comparison(row=name_of(row), field=field, outcome="unchecked", note=why)


def with_wheels(row: TensorflowRelease, wheels: tuple[WheelSet, ...]) -> Comparison:
    """Compare the Pythons, architectures and glibc of a release with the file names on the index; tags may differ."""
    mine, theirs = ({(one.arch, one.glibc, frozenset(one.pythons)) for one in each} for each in (row.wheels, wheels))
    return judge(row, "wheels", _wheels_text(row.wheels), _wheels_text(wheels), agrees=mine == theirs)


def _wheels_text(wheels: Iterable[WheelSet]) -> str:
    """Write wheel sets in one line: ``x86_64 3.10 3.11 (glibc 2.27)``."""
    return "; ".join(sorted(f"{one.arch} {' '.join(one.pythons)} (glibc {one.glibc})" for one in wheels))


def with_metadata(row: TensorflowRelease, said: Metadata) -> Iterator[Comparison]:
    """Compare the requirements with METADATA; the texts are the differences."""
    yield judge(row, "requires_python", row.requires_python, said.requires_python)
    for field, mine, theirs in (("requires", row.requires, said.requires), ("and_cuda", row.and_cuda, said.and_cuda)):
        ours, artefacts = set(map(normal, mine)), set(theirs)
        both = f"{len(ours)} requirements"
        yield differences(row, field, sorted(ours - artefacts), sorted(artefacts - ours), both)


def with_build_info(row: TensorflowRelease, said: BuildInfo) -> Iterator[Comparison]:
    """Compare the build. A shorter cuDNN (``8`` for ``8.1``) agrees; a CUDA without its minor does not."""
    if said.gpu is None:
        yield unchecked(row, "gpu", "build_info does not state it")
    else:
        yield judge(row, "gpu", str(row.gpu).lower(), str(said.gpu).lower())
    if not row.gpu:
        return
    yield _version(row, "cuda", row.cuda, said.cuda, vague=False)
    yield _version(row, "cudnn", row.cudnn, said.cudnn, vague=True)
    if said.cubins:
        yield from _capabilities(row, said.cubins, said.ptx)
    else:
        why = "build_info does not state capabilities; --binary reads them from the library"
        yield from (unchecked(row, field, why) for field in ("cubins", "ptx"))


def _version(row: TensorflowRelease, field: str, mine: str | None, theirs: str | None, *, vague: bool) -> Comparison:
    if theirs is None:
        return unchecked(row, field, "build_info does not state it")
    agrees = mine is not None and (versions.is_prefix(mine, theirs) or (vague and versions.is_prefix(theirs, mine)))
    return judge(row, field, mine or "", theirs, agrees=agrees)


def _capabilities(row: TensorflowRelease, cubins: tuple[str, ...], ptx: tuple[str, ...]) -> Iterator[Comparison]:
    for field, mine, theirs in (("cubins", row.cubins, cubins), ("ptx", row.ptx, ptx)):
        yield judge(row, field, " ".join(mine), " ".join(theirs), agrees=set(mine) == set(theirs))


def with_binary(row: TensorflowRelease, seen: Evidence) -> Iterator[Comparison]:
    """Compare GPU code, searched folders and the functions that open CUDA with a wheel's shared objects."""
    mine, theirs = _kernels_text(row.kernels), _kernels_text(seen.kernels)
    note = f"{seen.fat_binaries} fat binaries in {seen.libraries} shared objects"
    for one in (
        judge(row, "kernels", mine, theirs, agrees=row.kernels == seen.kernels),
        *_capabilities(row, gpu_code.cubins(seen.kernels), gpu_code.ptx(seen.kernels)),
    ):
        yield one if one.note else msgspec.structs.replace(one, note=note)
    yield judge(row, "searches", _searches_text(row.searches), _searches_text(seen.searches))
    yield judge(row, "finds_cuda", row.finds_cuda or "", finds_cuda(row.libraries, seen.searches) or "")
    yield judge(row, "openers", " ".join(row.openers), " ".join(seen.openers))


def _kernels_text(kernels: Iterable[Kernels]) -> str:
    """Write kernels in one line: ``1149 generated: 8.0 8.9, sm_90a 8.5``."""
    return "; ".join(
        f"{each.fat_binaries} {each.origin}{f' ({each.without_ptx} without PTX)' if each.without_ptx else ''}: "
        + ", ".join([" ".join(each.cubins), *(f"{one.target or 'an unreadable target'} {one.isa}" for one in each.ptx)])
        for each in kernels
    )


def _searches_text(searches: Iterable[Search]) -> str:
    """Write the searched folders in one line: ``libtensorflow_framework.so.2: cublas cudnn``."""
    return "; ".join(sorted(f"{one.object}: {' '.join(sorted(one.folders))}" for one in searches if one.folders))


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


def as_text(document: VerifyDocument, *, everything: bool = False) -> str:
    """Write the comparisons: disagreements first, the sum last; agreements only on request."""
    groups = {name: [one for one in document.comparisons if one.outcome == name] for name in _OUTCOMES}
    lines = [_line(one) for name, group in groups.items() if everything or name != "agrees" for one in group]
    if document.readings:
        lines.append(_read(document.readings))
    total = ", ".join(f"{len(groups[name])} {words}" for name, words in reversed(_OUTCOMES.items()))
    return "\n".join([*lines, f"{len({one.row for one in document.comparisons})} rows: {total}"])


def _read(readings: Sequence[Reading]) -> str:
    """Write the amount of reading: ``81 wheels, 36.1 GB of shared objects, 1290 s (80 of them read before)``."""
    size, time = sum(one.bytes_read for one in readings) / 1e9, sum(one.seconds for one in readings)
    before = sum(one.kept for one in readings)
    told = f" ({before} of them read before)" if before else ""
    return f"{len(readings)} wheels, {size:.1f} GB of shared objects, {time:.0f} s{told}"


def _line(one: Comparison) -> str:
    match one.outcome:
        case "unchecked":
            return f"unchecked  {one.row} {one.field}: {one.note}"
        case "agrees":
            return f"agrees     {one.row} {one.field}: {one.artefact}{f' ({one.note})' if one.note else ''}"
        case "recorded":
            return f"recorded   {one.row} {one.field}: the artefact says {shorten(one.artefact, _WIDTH)!r}: {one.note}"
        case "disagrees":
            return f"DISAGREES  {one.row} {one.field}: the catalogue has {one.catalog!r}, the artefact {one.artefact!r}"
