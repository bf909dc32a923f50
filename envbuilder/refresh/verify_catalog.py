"""Check the catalogue's rows against the real artefacts on the package index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import msgspec
from packaging.requirements import Requirement

from envbuilder import versions
from envbuilder.catalog.library_search import finds_cuda
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import CudnnWheel, PackageRelease, TensorflowRelease
from envbuilder.errors import NoClaimError, UsageError
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.package_index import DistFile, IndexUnavailableError, PackageIndex
from envbuilder.refresh import agreement, artefact, new_lines
from envbuilder.refresh.agreement import Comparison, Reading, VerifyDocument
from envbuilder.refresh.evidence import Reader
from envbuilder.refresh.holdings import JOBS, Holdings, newest_python
from envbuilder.support.console import Console, Task

Progress = Callable[[str], None]
"""Called with the name of each completed row."""


def verify(
    catalog: Catalog,
    index: PackageIndex,
    rows: tuple[TensorflowRelease, ...] | None = None,
    progress: Progress = lambda _: None,
) -> tuple[Comparison, ...]:
    """Compare TensorFlow rows and their CUDA wheels with the index, in the given order.

    Without ``rows`` all are compared, and the lists of CUDA wheels' versions. A failed request is an ``unchecked``
    comparison; only an index without TensorFlow itself raises IndexUnavailableError.
    """
    chosen = catalog.tensorflow if rows is None else rows
    held = Holdings(index, sorted({row.package for row in chosen}))

    def one(row: TensorflowRelease) -> tuple[Comparison, ...]:
        found = tuple(_release(row, index, held))
        progress(agreement.name_of(row))
        return found

    with ThreadPoolExecutor(JOBS) as pool:
        wheels, packages = (catalog.cudnn_wheels, catalog.package_releases) if rows is None else ((), ())
        lines = tuple(each for found in pool.map(lambda row: _cudnn_line(row, held), wheels) for each in found)
        beyond = tuple(_package_days(packages, held))
        return (*(each for found in pool.map(one, chosen) for each in found), *lines, *beyond)


def run(
    catalog: Catalog,
    index: PackageIndex,
    wanted: tuple[str, ...],
    console: Console,
    *,
    binary: bool = False,
    kept: Cache | None = None,
) -> VerifyDocument:
    """Run ``catalog verify`` for the wanted versions (default: all), with ``binary`` by their libraries.

    Readings of wheels are cached in ``kept``, so that an interrupted run continues. Raises UsageError for a version
    without a row.
    """
    rows = _rows(catalog, wanted)
    if not binary:
        with console.live(), console.task("catalog verify") as task:
            count = _Count(task, len(rows))
            return VerifyDocument(comparisons=verify(catalog, index, rows if wanted else None, count.done))
    builds = [row for row in rows if row.gpu]  # tensorflow-gpu too: only its wheel shows that it is the same build
    return _by_binaries(builds, index, Reader(index, kept, console.say), named=bool(wanted))


class _Count:
    """Counts completed rows for a task; several threads complete them."""

    def __init__(self, task: Task, total: int) -> None:
        self._task, self._total, self._done, self._lock = task, total, 0, Lock()

    def done(self, _name: str) -> None:
        """Count one row."""
        with self._lock:
            self._done += 1
            if self._done % _EVERY == 0:
                self._task.update(f"{self._done} of {self._total} rows")


_EVERY = 50


def _rows(catalog: Catalog, wanted: tuple[str, ...]) -> tuple[TensorflowRelease, ...]:
    unknown = [text for text in wanted if not any(versions.same(row.version, text) for row in catalog.tensorflow)]
    if unknown:
        raise UsageError(
            f"the catalogue has no row for {', '.join(unknown)}", hint="envbuilder catalog list tensorflow"
        )
    keys = {versions.key_or_none(text) for text in wanted}
    return tuple(row for row in catalog.tensorflow if not wanted or versions.key(row.version) in keys)


def read_build_info(index: PackageIndex, file: DistFile) -> artefact.BuildInfo | None:
    """Read the ``build_info.py`` of a TensorFlow wheel, or None."""
    for name in artefact.build_info_names(file.filename):
        content = index.member(file, name)
        if content is not None:
            return artefact.build_info(content.decode("utf-8", "replace"))
    return None


def _release(row: TensorflowRelease, index: PackageIndex, held: Holdings) -> Iterator[Comparison]:
    wheels = held.wheels(row.package, row.version)
    yield _release_day(row, held)
    yield agreement.with_wheels(row, artefact.wheel_sets(name for name, _ in wheels))
    file = newest_python(wheels)
    if file is None:
        if row.wheels:
            yield agreement.unchecked(row, "requires", "the index has no x86-64 Linux wheel of it")
        return
    yield from _guarded(row, "requires", lambda: agreement.with_metadata(row, artefact.metadata(index.metadata(file))))
    yield from _guarded(row, "cuda", lambda: _built(row, index, file))
    if row.and_cuda or row.cuda_wheels:
        yield from _guarded(row, "cuda_wheels", lambda: _cuda_wheels(row, index, held))
        yield from _guarded(row, "extra_fails_on", lambda: _extra(row, held))


def _guarded(row: TensorflowRelease, field: str, check: Callable[[], Iterator[Comparison]]) -> Iterator[Comparison]:
    try:
        found = tuple(check())
    except (IndexUnavailableError, SyntaxError) as error:
        found = (agreement.unchecked(row, field, str(error)),)
    yield from found


def _built(row: TensorflowRelease, index: PackageIndex, file: DistFile) -> Iterator[Comparison]:
    said = read_build_info(index, file)
    if said is None:
        yield agreement.unchecked(row, "cuda", f"{file.filename} holds no build_info.py")
    else:
        yield from agreement.with_build_info(row, said)


def _cuda_wheels(row: TensorflowRelease, index: PackageIndex, held: Holdings) -> Iterator[Comparison]:
    """Compare each pinned CUDA wheel with the index (is it there, how large is it) and with the extra's own bounds."""
    bounds = {found.name: found.specifier for text in row.and_cuda if (found := Requirement(text))}
    total, bad, pinned = 0, [], versions.pins(row.cuda_wheels)
    for pin in row.cuda_wheels:
        name, version = versions.pin(pin)
        if name in bounds and not bounds[name].contains(version, prereleases=True):
            bad.append(f"{pin} is outside of the extra's {name}{bounds[name]}")
        file = newest_python(held.wheels(name, version))
        if file is None:
            bad.append(f"{pin} is not on the index")
        else:
            total += index.size(file)
    bad += [f"{name} has no pin" for name in bounds if name.startswith("nvidia-") and name not in pinned]
    fine = f"{len(row.cuda_wheels)} wheels, {total / 1e9:.2f} GB"
    yield agreement.judge(
        row, "cuda_wheels", fine if not bad else "", fine if not bad else "; ".join(bad), agrees=not bad
    )


def _extra(row: TensorflowRelease, held: Holdings) -> Iterator[Comparison]:
    """Compare the Pythons on which the extra cannot be resolved with what the index holds for its requirements."""
    pythons = next((one.pythons for one in row.wheels if one.arch == "x86_64"), ())
    broken = tuple(python for python in pythons if not all(held.can_install(text, python) for text in row.and_cuda))
    mine, theirs = " ".join(row.extra_fails_on) or "none", " ".join(broken) or "none"
    yield agreement.judge(row, "extra_fails_on", mine, theirs, agrees=set(row.extra_fails_on) == set(broken))


def _cudnn_line(row: CudnnWheel, held: Holdings) -> tuple[Comparison, ...]:
    """Compare the versions of a CUDA wheel line, and the upload days of common ones."""
    try:
        there = [v for v in held.versions(row.package) if not artefact.is_prerelease(v)]
    except IndexUnavailableError as error:
        return (Comparison(row=row.package, field="versions", outcome="unchecked", note=str(error)),)
    gone, new = sorted(set(row.versions) - set(there)), sorted(set(there) - set(row.versions))
    agrees = not gone and not new
    kept = Comparison(
        row=row.package,
        field="versions",
        outcome="agrees" if agrees else "disagrees",
        catalog=f"{len(row.versions)} versions" if agrees else " ".join(gone),
        artefact=f"{len(there)} versions" if agrees else " ".join(new),
    )
    return (kept, _wheel_days(row, held)) if not gone else (kept,)


def _uploaded(held: Holdings, project: str, version: str) -> str:
    return new_lines.first_day(file for _, file in held.wheels(project, version))


def _release_day(row: TensorflowRelease, held: Holdings) -> Comparison:
    return _day(agreement.name_of(row), "released", row.released, _uploaded(held, row.package, row.version))


def _wheel_days(row: CudnnWheel, held: Holdings) -> Comparison:
    """Compare the upload days of a CUDA wheel line, version by version."""
    there = [_uploaded(held, row.package, version) for version in row.versions]
    if not any(there):
        return _day(row.package, "uploaded", " ".join(row.uploaded), "")
    pairs = list(zip(row.versions, row.uploaded or ("",) * len(row.versions), there, strict=True))
    wrong = [(version, mine, theirs) for version, mine, theirs in pairs if mine != theirs]
    return Comparison(
        row=row.package,
        field="uploaded",
        outcome="disagrees" if wrong else "agrees",
        catalog="; ".join(f"{version} {mine}" for version, mine, _ in wrong) or f"{len(pairs)} days",
        artefact="; ".join(f"{version} {theirs}" for version, _, theirs in wrong) or f"{len(pairs)} days",
    )


def _package_days(rows: Iterable[PackageRelease], held: Holdings) -> Iterator[Comparison]:
    """Compare the first releases beyond the bounds that wheels lack."""
    for row in rows:
        name = Requirement(row.bound).name
        try:
            yield _day(f"{name} {row.version}", "released", row.released, _uploaded(held, name, row.version))
        except IndexUnavailableError as error:
            yield Comparison(row=f"{name} {row.version}", field="released", outcome="unchecked", note=str(error))


def _day(row: str, field: str, mine: str, theirs: str) -> Comparison:
    if not theirs:
        return Comparison(
            row=row,
            field=field,
            outcome="unchecked",
            note="the index has no wheel of it now, or states no day of upload",
        )
    same = mine == theirs
    return Comparison(row=row, field=field, outcome="agrees" if same else "disagrees", catalog=mine, artefact=theirs)


def verify_binary(row: TensorflowRelease, held: Holdings, reader: Reader) -> tuple[tuple[Comparison, ...], Reading]:
    """Compare a row's GPU code, and the folders that it searches for CUDA, with the wheel's shared objects.

    Raises NoClaimError for a missing wheel or one without GPU code, IndexUnavailableError if the index fails.
    """
    file = newest_python(held.wheels(row.package, row.version))
    if file is None:
        raise NoClaimError(
            f"the index has no x86-64 Linux wheel of {agreement.name_of(row)}", hint="envbuilder catalog list"
        )
    seen, kept = reader.read(file)
    if not seen.libraries:
        raise NoClaimError(f"{file.filename} holds no GPU code", hint="it may be a CPU build")
    note = f"{seen.fat_binaries} fat binaries in {seen.libraries} shared objects"
    code = agreement.with_binary(row, seen.kernels)
    told = (one if one.note else msgspec.structs.replace(one, note=note) for one in code)
    searched = agreement.with_searches(row, seen.searches, finds_cuda(row.libraries, seen.searches))
    opening, kept_too = reader.openers(file)
    reading = Reading(
        row=agreement.name_of(row),
        wheel=file.filename,
        sha256=file.sha256,
        bytes_read=seen.bytes_read + opening.bytes_read,
        seconds=round(seen.seconds + opening.seconds, 1),
        kept=kept and kept_too,
    )
    return (*told, *searched, agreement.with_openers(row, opening.names)), reading


def _by_binaries(
    rows: Sequence[TensorflowRelease], index: PackageIndex, reader: Reader, *, named: bool
) -> VerifyDocument:
    """Compare one release after another; failed requests are unchecked.

    Raises NoClaimError or IndexUnavailableError for a ``named`` release, or if none could be read.
    """
    held = Holdings(index, sorted({row.package for row in rows}))
    comparisons: list[Comparison] = []
    readings: list[Reading] = []
    for row in rows:
        try:
            found, reading = verify_binary(row, held, reader)
        except (IndexUnavailableError, NoClaimError) as error:
            if named:
                raise
            comparisons.append(agreement.unchecked(row, "kernels", str(error)))
        else:
            comparisons += found
            readings.append(reading)
    if not readings:
        raise NoClaimError("the index has a wheel with GPU code of no release", hint="check which index is set")
    return VerifyDocument(comparisons=tuple(comparisons), readings=tuple(readings))
