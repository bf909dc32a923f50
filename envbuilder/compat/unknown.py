"""UNKNOWN: names without a row in the catalogue, with similar names that have one; and GPUs by their names."""

import difflib
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from datetime import date

from envbuilder import versions
from envbuilder.catalog import gpu_names
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import Gpu
from envbuilder.compat.candidate import Candidate, Device
from envbuilder.compat.findings import finding, listed, name_of
from envbuilder.finding import Code, Finding, written
from envbuilder.support import decoding

NIGHTLY = "tf-nightly"

_OLD_DAYS = 90  # an older catalogue surely lacks releases: they come every few weeks
_VIRTUAL_GPUS = ("https://docs.nvidia.com/vgpu/latest/grid-vgpu-user-guide/index.html#cuda-open-cl-support-vgpu",)


def no_release(version: str, package: str | None, catalog: Catalog) -> Finding:
    if package == NIGHTLY or versions.is_development(version):
        return finding(Code.UNKNOWN, "nightly", version=version, package=NIGHTLY)
    name = f"{package or 'tensorflow'} {version}"
    if "+" in version:
        return finding(Code.UNKNOWN, "local_build", name=name)
    known = [row.version for row in catalog.releases(package or "tensorflow")]
    if not known or versions.bounds(version) is not None:
        return finding(Code.UNKNOWN, "release", name=name)
    if not versions.at_least(known[-1], version):
        return finding(Code.UNKNOWN, "release_newer", name=name, newest=known[-1])
    if not versions.at_least(version, known[0]):
        return finding(Code.UNKNOWN, "release_older", name=name, oldest=known[0])
    line = [text for text in known if versions.minor(text) == versions.minor(version)]
    return finding(Code.UNKNOWN, "release_near", name=name, near=listed(line or _neighbours(version, known)))


def _neighbours(version: str, known: list[str]) -> list[str]:
    """Return the versions just below and above one, from a list that begins with the oldest."""
    place = bisect_left(known, versions.key(version), key=versions.key)
    return known[max(place - 1, 0) : place + 1]


def near_gpus(name: str, catalog: Catalog) -> tuple[Gpu, ...]:
    known = {_core(row.name): row for row in reversed(catalog.gpus)}
    return tuple(known[text] for text in difflib.get_close_matches(_core(name), known, n=3, cutoff=0.6))


def _core(name: str) -> str:
    """Remove brands and spaces, so that the model's letters and digits decide."""
    return re.sub(r"nvidia|geforce|tesla|quadro|[^a-z0-9]", "", name.lower())


def no_image(name: str, catalog: Catalog) -> Finding:
    near = difflib.get_close_matches(name, [row.name for row in catalog.images], n=2)
    return finding(Code.UNKNOWN, "image_near" if near else "image", image=name, near=listed(near, "or"))


def no_system(name: str, catalog: Catalog) -> Finding:
    systems = [row.name for row in catalog.systems]
    near = difflib.get_close_matches(name, [*catalog.own_bases, *systems], n=2, cutoff=0.7)
    if near:
        return finding(Code.UNKNOWN, "system_near", system=name, near=listed(near, "or"))
    return finding(Code.UNKNOWN, "system", system=name, known=listed([*catalog.own_bases, *systems]))


ELSEWHERE = frozenset({"windows", "wsl2", "macos"})
"""Systems that no image has: their wheels are other ones, except under WSL2, which is Linux."""

FIRST_WITHOUT_WINDOWS_GPU = "2.11"


def elsewhere(os: str | None, name: str, version: str, shown: str) -> Iterator[Finding]:
    """NOT_A_GPU_BUILD: the wheels for this system have no CUDA; ``version`` '' means any release."""
    since = version == "" or versions.at_least(version, FIRST_WITHOUT_WINDOWS_GPU)
    if os == "macos" or (os == "windows" and since and version):
        yield finding(Code.NOT_A_GPU_BUILD, os, name=name, os=shown)


def side_by_side(held: dict[str, str], catalog: Catalog, *, ordered: bool = False) -> Iterator[Finding]:
    """PACKAGE_CONFLICT: two distributions of which only one has GPU support, or with different versions.

    ``ordered`` means that the last one was installed last: its files are used.
    """
    rows = [catalog.release(catalog.version(version) or version, name) for name, version in held.items()]
    gpu = {name: row.gpu if row is not None else name.endswith("-gpu") for name, row in zip(held, rows, strict=True)}
    if len({(version, gpu[name]) for name, version in held.items()}) < 2:  # noqa: PLR2004 - two
        return
    names = listed([f"{name} {version}".rstrip() for name, version in held.items()])
    known = [row for row in rows if row is not None]
    known += [other for row in known for other in catalog.distributions(row.version)]
    kept = next((row for row in known if row.gpu), None)
    unknown = next((f"{name}=={version}" for name, version in held.items() if version and gpu[name]), "tensorflow")
    wanted = f"{kept.package}=={kept.version}" if kept is not None else unknown
    last = rows[-1]
    variant = "two_distributions_last" if ordered and last is not None and not last.gpu else "two_distributions"
    yield finding(Code.PACKAGE_CONFLICT, variant, names=names, words=" ".join(held), kept=wanted)


def no_system_with(python: str, catalog: Catalog) -> Finding:
    known = listed([f"{row.python} ({row.name})" for row in catalog.systems])
    return finding(Code.UNKNOWN, "system_with_python", python=python, known=known)


def newer_than(read_on: str, day: str | None) -> Iterator[Finding]:
    """CATALOG_AGE: the day of the question is later than the day on which the index was read."""
    if day is None or not read_on or day <= read_on:
        return
    with decoding.damaged("not a day"):  # the question's day was checked; the catalogue's is its own
        days = (date.fromisoformat(day) - date.fromisoformat(read_on)).days
    yield written(Code.CATALOG_AGE, "old" if days > _OLD_DAYS else "recent", read_on=read_on, day=day, days=days)


def find_devices(
    names: Iterable[str], capabilities: Iterable[str], catalog: Catalog
) -> tuple[tuple[Device, ...], tuple[Finding, ...]]:
    """Find GPUs by name or compute capability, and report those without a row or without CUDA."""
    found = [_find_device(name, catalog) for name in names]
    for text in map(versions.minor, capabilities):
        if text in catalog.capabilities:
            found.append((Device(f"compute capability {text}", text), None))
        else:
            near = listed(_neighbours(text, list(catalog.capabilities)))
            found.append((None, finding(Code.UNKNOWN, "capability", capability=text, near=near)))
    devices = dict.fromkeys(device for device, _ in found if device is not None)
    return tuple(devices), tuple(unknown for _, unknown in found if unknown is not None)


def required_arch(devices: Iterable[Device], catalog: Catalog) -> str | None:
    """Return the CPU architecture that one of these GPUs requires, by name or capability; None if any fits."""
    archs = (device.row.arch if device.row else catalog.capabilities.get(device.capability, "") for device in devices)
    return next(filter(None, archs), None)


def _find_device(name: str, catalog: Catalog) -> tuple[Device | None, Finding | None]:
    """Find one GPU: its row, or the compute capability in a log line that names it."""
    row, rows = catalog.gpu(name), catalog.possible_gpus(name)
    capabilities = {text for one in rows for text in (one.compute_capability, *one.variants)}
    if row is not None and len(capabilities) == 1 and "-" not in name:  # a virtual GPU's name has a dash
        return Device(row.name, row.compute_capability, row), None
    text = gpu_names.read(name)
    if len(capabilities) > 1:
        return _find_among(name, text.capability, rows)
    if row is not None:
        virtual = written(Code.GPU_NOT_VISIBLE, "virtual_gpu", _VIRTUAL_GPUS, gpu=row.name, series=text.series)
        return Device(row.name, row.compute_capability, row), virtual if text.series else None
    if vendor := gpu_names.other_vendor(name):
        variant = {"AMD": "amd", "Apple": "apple"}.get(vendor, "other_vendor")
        return None, finding(Code.GPU_UNSUPPORTED_BY_CUDA, variant, gpu=name, vendor=vendor)
    if text.capability:
        return Device(text.names[-1], text.capability), None
    near = [row.name for row in near_gpus(name, catalog)]
    return None, finding(Code.UNKNOWN, "gpu_near" if near else "gpu", gpu=name, near=listed(near, "or"))


def _find_among(name: str, stated: str, rows: tuple[Gpu, ...]) -> tuple[Device | None, Finding | None]:
    """Choose between GPUs of one name by the compute capability in a log line; without one, ask."""
    row = next((row for row in rows if versions.same(row.compute_capability, stated)), None)
    if stated and (row is not None or any(stated in row.variants for row in rows)):
        return Device(name if row is None else row.name, stated, row), None
    if len(rows) == 1:
        sold = listed(sorted((rows[0].compute_capability, *rows[0].variants), key=versions.key))
        return None, finding(Code.UNKNOWN, "capability_of_gpu", gpu=name, model=rows[0].name, capabilities=sold)
    models = [f"{row.name} ({' or '.join((row.compute_capability, *row.variants))})" for row in rows]
    return None, finding(Code.UNKNOWN, "ambiguous_gpu", gpu=name, models=listed(models, "or"))


def without_row(candidate: Candidate) -> Iterator[Finding]:
    release, cuda, cudnn = candidate.release, candidate.cuda, candidate.cudnn
    if not (candidate.gpu and release.gpu):
        return
    if cuda is not None and candidate.toolkit is None and _loadable(cuda, release.cuda):
        yield finding(Code.UNKNOWN, "toolkit", cuda=cuda)
    is_exact = cudnn is not None and len(versions.numbers(cudnn)) > 1
    if is_exact and candidate.cudnn_row is None and _loadable(cudnn, release.cudnn):
        yield finding(Code.UNKNOWN, "cudnn", cudnn=cudnn)
    if candidate.driver is not None and candidate.branch is None:
        yield finding(Code.UNKNOWN, "driver", driver=candidate.driver, branch=versions.major(candidate.driver))
    if release.cuda is None:
        yield finding(Code.UNKNOWN, "built_cuda", name=name_of(release))


def _loadable(given: str | None, built: str | None) -> bool:
    """Return True if a version without a row may be loadable; another major than the build's is not."""
    return built is None or versions.same_major(given, built)
