"""Check the catalogue's rows against the real artefacts on the package index."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from packaging.requirements import Requirement

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import CudnnWheel, PackageRelease, TensorflowRelease
from envbuilder.errors import NoClaimError, UsageError
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.client import IndexUnavailableError, PackageIndex
from envbuilder.pypi.pages import DistFile
from envbuilder.refresh import agreement, artefact
from envbuilder.refresh.agreement import Compared, Comparison, Reading, VerifyDocument
from envbuilder.refresh.evidence import Evidence, read
from envbuilder.refresh.indexed_wheels import IndexedWheels
from envbuilder.support.console import Console
from envbuilder.support.threads import WORKERS

_EVERY = 50
"""Rows between two reports of the progress."""

ReadWheel = Callable[[DistFile], tuple[Evidence, bool]]
"""`evidence.read` with its other arguments."""


def verify(
    catalog: Catalog,
    index: PackageIndex,
    rows: tuple[TensorflowRelease, ...] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Comparison, ...]:
    """Compare TensorFlow rows and their CUDA wheels with the index, in the given order.

    Without ``rows`` all are compared, and the lists of CUDA wheels' versions. A failed request is an ``unchecked``
    comparison; only an index without TensorFlow itself raises IndexUnavailableError.
    """
    chosen = catalog.tensorflow if rows is None else rows
    indexed = IndexedWheels(index, sorted({row.package for row in chosen}))
    checks: list[Callable[[], Iterable[Comparison]]] = [partial(_release, row, indexed) for row in chosen]
    if rows is None:
        checks += [
            partial(_guarded, row, "versions", partial(_wheel_line, row, indexed)) for row in catalog.cudnn_wheels
        ]
        checks += [partial(_package_day, row, indexed) for row in catalog.package_releases]
    found: list[Comparison] = []
    with ThreadPoolExecutor(WORKERS) as pool:
        for done, comparisons in enumerate(pool.map(lambda check: tuple(check()), checks), 1):
            found += comparisons
            if done % _EVERY == 0:
                progress(f"{done} of {len(checks)} rows")
    return tuple(found)


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
            return VerifyDocument(comparisons=verify(catalog, index, rows if wanted else None, task.update))
    builds = [row for row in rows if row.gpu]  # tensorflow-gpu too: only its wheel shows that it is the same build
    indexed = IndexedWheels(index, sorted({row.package for row in builds}))
    return _by_binaries(builds, indexed, partial(read, index, kept=kept, progress=console.say), named=bool(wanted))


def _rows(catalog: Catalog, wanted: tuple[str, ...]) -> tuple[TensorflowRelease, ...]:
    every = catalog.tensorflow
    unknown = [text for text in wanted if not any(versions.same(row.version, text) for row in every)]
    if unknown:
        raise UsageError(
            f"the catalogue has no row for {', '.join(unknown)}", hint="envbuilder catalog list tensorflow"
        )
    return tuple(row for row in every if not wanted or any(versions.same(row.version, text) for text in wanted))


def _release(row: TensorflowRelease, indexed: IndexedWheels) -> Iterator[Comparison]:
    yield _day(row, "released", row.released, indexed.first_day(row.package, row.version))
    yield agreement.with_wheels(row, artefact.wheel_sets(name for name, _ in indexed.wheels(row.package, row.version)))
    file = indexed.newest_python(row.package, row.version)
    if file is None:
        if row.wheels:
            yield agreement.unchecked(row, "requires", "the index has no x86-64 Linux wheel of it")
        return
    yield from _guarded(
        row, "requires", lambda: agreement.with_metadata(row, artefact.metadata(indexed.index.metadata(file)))
    )
    yield from _guarded(row, "cuda", lambda: _built(row, indexed.index, file))
    if row.and_cuda or row.cuda_wheels:
        yield from _guarded(row, "cuda_wheels", lambda: _cuda_wheels(row, indexed))
        yield from _guarded(row, "extra_fails_on", lambda: _extra(row, indexed))


def _guarded(row: Compared, field: str, check: Callable[[], Iterable[Comparison]]) -> tuple[Comparison, ...]:
    """Return the comparisons, or one that says why the index could not be read."""
    try:
        return tuple(check())
    except IndexUnavailableError as error:
        return (agreement.unchecked(row, field, str(error)),)


def _built(row: TensorflowRelease, index: PackageIndex, file: DistFile) -> Iterator[Comparison]:
    said = artefact.read_build_info(index, file)
    if said is None:
        yield agreement.unchecked(row, "cuda", f"{file.filename} holds no build_info.py")
    else:
        yield from agreement.with_build_info(row, said)


def _cuda_wheels(row: TensorflowRelease, indexed: IndexedWheels) -> Iterator[Comparison]:
    """Compare each pinned CUDA wheel with the index (is it there, how large is it) and with the extra's own bounds."""
    bounds = {found.name: found.specifier for text in row.and_cuda if (found := Requirement(text))}
    total, bad, pinned = 0, [], versions.pins(row.cuda_wheels)
    for pin in row.cuda_wheels:
        name, version = versions.pin(pin)
        if name in bounds and not bounds[name].contains(version, prereleases=True):
            bad.append(f"{pin} is outside of the extra's {name}{bounds[name]}")
        file = indexed.newest_python(name, version)
        if file is None:
            bad.append(f"{pin} is not on the index")
        else:
            total += indexed.index.size(file)
    bad += [f"{name} has no pin" for name in bounds if name.startswith("nvidia-") and name not in pinned]
    fine = f"{len(row.cuda_wheels)} wheels, {total / 1e9:.2f} GB"
    yield agreement.differences(row, "cuda_wheels", (), bad, fine)


def _extra(row: TensorflowRelease, indexed: IndexedWheels) -> Iterator[Comparison]:
    """Compare the Pythons on which the extra cannot be resolved with what the index holds for its requirements."""
    pythons = next((one.pythons for one in row.wheels if one.arch == "x86_64"), ())
    broken = tuple(python for python in pythons if not all(indexed.can_install(text, python) for text in row.and_cuda))
    mine, theirs = " ".join(row.extra_fails_on) or "none", " ".join(broken) or "none"
    yield agreement.judge(row, "extra_fails_on", mine, theirs, agrees=set(row.extra_fails_on) == set(broken))


def _wheel_line(row: CudnnWheel, indexed: IndexedWheels) -> Iterator[Comparison]:
    """Compare the versions of a CUDA wheel line, and if none is gone, their upload days."""
    there = indexed.finals(row.package)
    gone, new = sorted(set(row.versions) - set(there)), sorted(set(there) - set(row.versions))
    yield agreement.differences(row, "versions", gone, new, f"{len(there)} versions", " ")
    days = [indexed.first_day(row.package, version) for version in row.versions]
    if gone:
        return
    if not any(days):
        yield _day(row, "uploaded", " ".join(row.uploaded), "")
        return
    pairs = list(zip(row.versions, row.uploaded or ("",) * len(row.versions), days, strict=True))
    wrong = [(version, mine, theirs) for version, mine, theirs in pairs if mine != theirs]
    yield agreement.differences(
        row,
        "uploaded",
        [f"{version} {mine}" for version, mine, _ in wrong],
        [f"{version} {theirs}" for version, _, theirs in wrong],
        f"{len(pairs)} days",
    )


def _package_day(row: PackageRelease, indexed: IndexedWheels) -> tuple[Comparison, ...]:
    """Compare the upload day of the first release beyond a bound that wheels lack."""
    project = Requirement(row.bound).name
    return _guarded(
        row, "released", lambda: [_day(row, "released", row.released, indexed.first_day(project, row.version))]
    )


def _day(row: Compared, field: str, mine: str, theirs: str) -> Comparison:
    if not theirs:
        return agreement.unchecked(row, field, "the index has no wheel of it now, or states no day of upload")
    return agreement.judge(row, field, mine, theirs)


def verify_binary(
    row: TensorflowRelease, indexed: IndexedWheels, read_wheel: ReadWheel
) -> tuple[tuple[Comparison, ...], Reading]:
    """Compare a row's GPU code, and the folders that it searches for CUDA, with the wheel's shared objects.

    Raises NoClaimError for a missing wheel or one without GPU code, IndexUnavailableError if the index fails.
    """
    file = indexed.newest_python(row.package, row.version)
    if file is None:
        raise NoClaimError(
            f"the index has no x86-64 Linux wheel of {agreement.name_of(row)}", hint="envbuilder catalog list"
        )
    seen, kept = read_wheel(file)
    if not seen.libraries:
        raise NoClaimError(f"{file.filename} holds no GPU code", hint="it may be a CPU build")
    reading = Reading(
        row=agreement.name_of(row),
        wheel=file.filename,
        sha256=file.sha256,
        bytes_read=seen.bytes_read,
        seconds=seen.seconds,
        kept=kept,
    )
    return tuple(agreement.with_binary(row, seen)), reading


def _by_binaries(
    rows: Sequence[TensorflowRelease], indexed: IndexedWheels, read_wheel: ReadWheel, *, named: bool
) -> VerifyDocument:
    """Compare one release after another; failed requests are unchecked.

    Raises NoClaimError or IndexUnavailableError for a ``named`` release, or if none could be read.
    """
    comparisons: list[Comparison] = []
    readings: list[Reading] = []
    for row in rows:
        try:
            found, reading = verify_binary(row, indexed, read_wheel)
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
