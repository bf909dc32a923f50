"""Find lines of CUDA and cuDNN on the index without a row, and newer wheels.

The index shows a toolkit's libraries and upload days. Drivers and supported GPUs come from the vendor's release
notes: a person adds them.
"""

from collections.abc import Iterable, Iterator

import msgspec
from packaging.metadata import parse_email
from packaging.requirements import Requirement

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import CudaToolkit, Cudnn, CudnnWheel
from envbuilder.pypi.client import PackageIndex
from envbuilder.refresh.indexed_wheels import IndexedWheels

RUNTIMES = ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime-cu11")
"""The run time's wheels: without a suffix since CUDA 13."""

TOOLKIT = "cuda-toolkit"
"""An empty distribution; its METADATA pins the wheels of a toolkit's libraries."""


def wheel_lists(catalog: Catalog, indexed: IndexedWheels, today: str) -> Iterator[CudnnWheel]:
    """Yield the changed lists of CUDA wheels."""
    for row in catalog.cudnn_wheels:
        there = indexed.finals(row.package)
        if indexed.versions(row.package) and there != row.versions:
            days = tuple(indexed.first_day(row.package, text) for text in there)
            read = {"versions": there, "uploaded": days if all(days) else ()}
            yield msgspec.structs.replace(row, **read, verified=f"{today} catalog refresh")


def toolkits(catalog: Catalog, indexed: IndexedWheels, today: str) -> tuple[tuple[CudaToolkit, ...], tuple[str, ...]]:
    """Make a row for each line of toolkits with a final run time on the index and without a row.

    Also list the lines for which none can be made: the first of a major has no older row as a model.
    """
    there = {versions.minor(text) for name in RUNTIMES for text in indexed.finals(name)}
    made: dict[str, CudaToolkit | None] = {}
    for line in sorted((line for line in there if catalog.toolkit(line) is None), key=versions.key):
        alike = [row for row in catalog.cuda if versions.same_major(row.version, line)]
        before = max(alike, key=lambda row: versions.key(row.version), default=None)
        made[line] = _toolkit(line, before, indexed, today) if before is not None else None
    return tuple(filter(None, made.values())), tuple(line for line, row in made.items() if row is None)


def _toolkit(line: str, before: CudaToolkit, indexed: IndexedWheels, today: str) -> CudaToolkit:
    pins = _pins(line, indexed.index)
    sonames = _sonames(pins, before.sonames, indexed)
    return msgspec.structs.replace(
        before,
        version=line,
        driver=None,
        ptx_isa="",
        forward_compat=(),
        sonames=tuple(sonames.get(stem(name), name) for name in before.sonames),
        source=(f"the wheels that {TOOLKIT} {line} pins",) if pins else (f"{RUNTIMES[0]} {line}",),
        verified=f"{today} machine-made from the wheels, not reviewed",
        note=f"capabilities and minimum driver as CUDA {before.version}; no index names its own driver and PTX ISA",
    )


def _pins(line: str, index: PackageIndex) -> tuple[Requirement, ...]:
    """Return the pins of the newest toolkit of a line, if there is such a distribution."""
    wheels = {file.filename.split("-")[1]: file for file in index.files(TOOLKIT) if file.filename.endswith(".whl")}
    newest = max((text for text in wheels if versions.minor(text) == line), key=versions.key, default=None)
    if newest is None:
        return ()
    raw, _ = parse_email(index.metadata(wheels[newest]))
    return tuple({one.name: one for one in map(Requirement, raw.get("requires_dist", []))}.values())


def _sonames(pins: Iterable[Requirement], known: tuple[str, ...], indexed: IndexedWheels) -> dict[str, str]:
    """Read the names of the libraries in pinned wheels, by their names without a number."""
    wanted = {stem(name) for name in known}
    brought = {word for name in wanted for word in (name.removeprefix("lib").lower(), "cuda-runtime")}
    names: dict[str, str] = {}
    for pin in pins:
        short = pin.name.removeprefix("nvidia-")
        if short not in brought and short.removeprefix("cuda-") not in brought:
            continue
        fitting = list(pin.specifier.filter(indexed.versions(pin.name)))
        file = indexed.newest_python(pin.name, fitting[-1]) if fitting else None
        members = indexed.index.members(file) if file is not None else ()
        found = (one.filename.rpartition("/")[2] for one in members if ".so." in one.filename)
        names.update({stem(name): name for name in found if stem(name) in wanted})
    return names


def stem(soname: str) -> str:
    """Return a library's name without its number: ``libcudart.so.13`` is ``libcudart``."""
    return soname.partition(".so")[0]


def cudnn_lines(catalog: Catalog, indexed: IndexedWheels, today: str) -> Iterator[Cudnn]:
    """Yield a row for each line of cuDNN with wheels on the index and without a row."""
    majors: dict[str, set[int]] = {}
    for package in (row.package for row in catalog.cudnn_wheels if row.package.startswith("nvidia-cudnn-cu")):
        for text in indexed.finals(package):
            majors.setdefault(versions.minor(text), set()).add(int(package.removeprefix("nvidia-cudnn-cu")))
    for line in sorted(majors, key=versions.key):
        if catalog.cudnn_row(f"{line}.0") is not None:
            continue
        older = [row for row in catalog.cudnn if versions.key(row.version) < versions.key(line)]
        served = older[-1].cuda if older else ()
        yield Cudnn(
            version=line,
            cuda=tuple(text for text in served if versions.major(text) in majors[line]),
            source=tuple(f"nvidia-cudnn-cu{major} {line}" for major in sorted(majors[line])),
            verified=f"{today} machine-made from the names of the wheels, not reviewed",
            note="the GPUs that it has kernels for, and its minimum driver, are not known",
        )
