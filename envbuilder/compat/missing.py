"""UNKNOWN: what was named and has no row in the catalogue, with the near names that have one."""

from __future__ import annotations

import difflib
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from datetime import date

from envbuilder import versions
from envbuilder.catalog import gpu_names
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import Gpu, TensorflowRelease
from envbuilder.compat import phrases
from envbuilder.compat.candidate import Candidate, Device
from envbuilder.finding import Code, Finding, Severity
from envbuilder.support import decoding


def no_release(version: str, package: str | None, catalog: Catalog) -> Finding:
    """Say that a version is not in the catalogue, and which near ones are."""
    if package == NIGHTLY or versions.is_development(version):
        return _nightly(version)
    name = f"{package or 'tensorflow'} {version}"
    if "+" in version:
        return _local(name)
    known = [row.version for row in catalog.releases(package or "tensorflow")]
    line = [text for text in known if versions.minor(text) == versions.minor(version)]
    hint = f"; near it are {phrases.words(line or _beside(version, known))}" if known else ""
    if known and not versions.at_least(known[-1], version):
        hint = f"; the newest is {known[-1]}"
    fix = "Run `envbuilder catalog refresh` if it is on the index, or take one that `envbuilder catalog list` names."
    return phrases.unknown(name, f"The catalogue has no row for {name}{hint}.", fix=fix)


NIGHTLY = "tf-nightly"


def _nightly(version: str) -> Finding:
    return phrases.unknown(
        f"{NIGHTLY} {version}",
        f"{version} is a build of {NIGHTLY}, of which there is a new one each day; the catalogue has rows of releases.",
        fix=f"`envbuilder catalog refresh {version} --package {NIGHTLY}` reads what this build says of itself, "
        "while the index has it; or take a release.",
    )


def _local(name: str) -> Finding:
    return phrases.unknown(
        name,
        f"{name} is a build of somebody's own: the index takes no local versions, and what another build holds may "
        "differ in all that matters here.",
        fix="Ask about the release that it is made of, or run `envbuilder validate IMAGE` on an image that holds it.",
    )


def _beside(version: str, known: list[str]) -> list[str]:
    """Return the versions just below and above one, of a list from the oldest to the newest."""
    place = bisect_left(known, versions.key(version), key=versions.key)
    return known[max(place - 1, 0) : place + 1]


def not_yet(release: TensorflowRelease, day: str) -> Finding:
    """Say that a release came after a day."""
    return phrases.error(
        Code.NOT_INSTALLABLE,
        phrases.name(release),
        f"{phrases.name(release)} was uploaded on {release.released}: on {day} no index had it.",
        requires=f"a day from {release.released} on",
        found=day,
        fix="Take a release that existed then, or a later day.",
        rows=(release,),
    )


def no_gpu(name: str, catalog: Catalog) -> Finding:
    """Say that a GPU is not in the catalogue, and which ones are called alike."""
    near = [row.name for row in near_gpus(name, catalog)]
    hint = f" Did you mean {phrases.words(near, 'or')}?" if near else ""
    return phrases.unknown(
        name,
        f"The catalogue has no GPU called {name}.{hint}",
        fix="Write the model as nvidia-smi prints it, or give its compute capability with --compute-capability.",
    )


def near_gpus(name: str, catalog: Catalog) -> tuple[Gpu, ...]:
    """Return the GPUs that are called alike, the most alike first."""
    known = {_core(row.name): row for row in reversed(catalog.gpus)}
    return tuple(known[text] for text in difflib.get_close_matches(_core(name), known, n=3, cutoff=0.6))


def _core(name: str) -> str:
    """Leave the vendor's and the brands' words out, and spaces, so that the model's letters and digits decide."""
    return re.sub(r"nvidia|geforce|tesla|quadro|[^a-z0-9]", "", name.lower())


def no_image(name: str, catalog: Catalog) -> Finding:
    """Say that a base image is not in the catalogue."""
    near = difflib.get_close_matches(name, [row.name for row in catalog.images], n=2)
    hint = f" Did you mean {phrases.words(near, 'or')}?" if near else ""
    return phrases.unknown(
        name,
        f"The catalogue has no image {name}, so what it holds is not known.{hint}",
        fix="Say what it holds with --os, --python, --cuda and --cudnn instead, or look into it with "
        "`envbuilder validate IMAGE`.",
    )


def no_system(name: str, catalog: Catalog) -> Finding:
    """Say that a system is not in the catalogue, and which ones are."""
    known = phrases.words([row.name for row in catalog.systems])
    fix = "Take one of these, or the one with the same glibc as yours (`ldd --version` prints it)."
    return phrases.unknown(name, f"The catalogue has no system {name}; it knows {known}.", fix=fix)


def no_system_with(python: str, catalog: Catalog) -> Finding:
    """Say that no system brings a Python."""
    known = phrases.words([f"{row.python} ({row.name})" for row in catalog.systems])
    subject = f"Python {python}"
    return phrases.unknown(subject, f"The catalogue has no system with {subject}; it knows {known}.")


_OLD_DAYS = 90
"""A catalogue that is older than this is missing releases for sure: they come every few weeks."""


def newer_than(read_on: str, day: str | None) -> Iterator[Finding]:
    """CATALOG_AGE: the day asked about is later than the one on which the index was read."""
    if day is None or not read_on or day <= read_on:
        return
    with decoding.damaged("not a day"):  # the words of a question were looked at, and the catalogue's day is ours
        days = (date.fromisoformat(day) - date.fromisoformat(read_on)).days
    say_it = phrases.warning if days > _OLD_DAYS else phrases.info
    yield say_it(
        Code.CATALOG_AGE,
        f"the catalogue of {read_on}",
        f"The catalogue was read on {read_on}, {days} days before {day}: what came after it is not in this answer.",
        requires=day,
        found=read_on,
        fix="Update envbuilder, or run `envbuilder catalog refresh` for new TensorFlow releases.",
    )


def find_devices(
    names: Iterable[str], capabilities: Iterable[str], catalog: Catalog
) -> tuple[tuple[Device, ...], tuple[Finding, ...]]:
    """Find GPUs by name, and say which have no row, or no CUDA; a compute capability needs none."""
    looked = [_look(name, catalog) for name in names]
    asked = [versions.minor(text) for text in capabilities]
    bare = [Device(f"compute capability {text}", text) for text in asked if text in catalog.capabilities]
    named = (device for device, _ in looked if device is not None)
    unknown = [found for _, found in looked if found is not None]
    unknown += [_no_capability(text, catalog) for text in asked if text not in catalog.capabilities]
    return tuple(dict.fromkeys((*named, *bare))), tuple(unknown)


def _no_capability(text: str, catalog: Catalog) -> Finding:
    near = phrases.words(_beside(text, list(catalog.capabilities)))
    return phrases.unknown(
        f"compute capability {text}",
        f"No GPU and no toolkit of the catalogue has compute capability {text}; near it are {near}.",
        fix="Ask the driver: `nvidia-smi --query-gpu=name,compute_cap --format=csv`.",
    )


def _look(name: str, catalog: Catalog) -> tuple[Device | None, Finding | None]:
    """Find one GPU: its row, or what a log line that names it says that it computes as."""
    row, rows = catalog.gpu(name), catalog.possible_gpus(name)
    capabilities = {text for one in rows for text in (one.compute_capability, *one.variants)}
    if row is not None and len(capabilities) == 1 and not gpu_names.may_be_virtual(name):
        return Device(row.name, row.compute_capability, row), None
    told = gpu_names.read(name)
    if len(capabilities) > 1:
        return _told_apart(name, told.capability, rows)
    if row is not None:
        return Device(row.name, row.compute_capability, row), no_cuda(row, told.series) if told.series else None
    if vendor := gpu_names.other_vendor(name):
        return None, not_nvidia(name, vendor)
    if told.capability:
        return Device(told.names[-1], told.capability), None
    return None, no_gpu(name, catalog)


def _told_apart(name: str, stated: str, rows: tuple[Gpu, ...]) -> tuple[Device | None, Finding | None]:
    """Choose between GPUs of one name by what a log states beside it; where nothing does, ask."""
    row = next((row for row in rows if versions.same(row.compute_capability, stated)), None)
    if stated and (row is not None or any(stated in row.variants for row in rows)):
        return Device(name if row is None else row.name, stated, row), None
    if len(rows) == 1:
        sold = phrases.words(sorted((rows[0].compute_capability, *rows[0].variants), key=versions.key))
        return None, phrases.unknown(
            name,
            f"{rows[0].name} was sold with the compute capabilities {sold}, and its name does not tell which.",
            fix="Give the compute capability alone with --compute-capability "
            "(`nvidia-smi --query-gpu=compute_cap --format=csv` prints it).",
        )
    kinds = [f"{row.name} ({' or '.join((row.compute_capability, *row.variants))})" for row in rows]
    return None, phrases.unknown(
        name,
        f"{name} does not tell apart GPUs that compute differently: it may be {phrases.words(kinds, 'or')}.",
        fix="Write the whole name as nvidia-smi prints it, or give the compute capability alone with "
        "--compute-capability (`nvidia-smi --query-gpu=name,compute_cap --format=csv` prints both).",
    )


def not_nvidia(name: str, vendor: str) -> Finding:
    """Say that a GPU is another vendor's, which no CUDA build uses."""
    return phrases.error(
        Code.GPU_UNSUPPORTED_BY_CUDA,
        name,
        f"{name} is a GPU of {vendor}; CUDA, and with it every GPU build of TensorFlow here, is for NVIDIA's alone.",
        requires="an NVIDIA GPU",
        found=vendor,
        fix=_ELSEWHERE.get(vendor, "Use a CPU environment, or a host with an NVIDIA GPU."),
    )


_ELSEWHERE = {
    "AMD": "Use AMD's own build (tensorflow-rocm), a CPU environment, or a host with an NVIDIA GPU.",
    "Apple": "Use Apple's plug-in (tensorflow-metal) on macOS itself, a CPU environment, or a host with an NVIDIA GPU.",
}
"""Where TensorFlow uses a vendor's GPUs: other distributions, of which this catalogue makes no claim."""


def no_cuda(row: Gpu, series: str) -> Finding:
    """Say that a virtual GPU is of a type without CUDA."""
    return Finding(
        code=Code.GPU_NOT_VISIBLE,
        severity=Severity.ERROR,
        subject=row.name,
        message=f"This is a virtual GPU of the {series} series on {row.name}: its type has no CUDA, so that TensorFlow "
        "finds no GPU although nvidia-smi lists one.",
        requires="a type of the C or Q series (on M6, M10 and M60: 8Q)",
        found=f"{series} series",
        fix="Ask whoever runs the virtual machine for a type of the C or Q series.",
        sources=("https://docs.nvidia.com/vgpu/latest/grid-vgpu-user-guide/index.html#cuda-open-cl-support-vgpu",),
    )


def without_row(candidate: Candidate) -> Iterator[Finding]:
    """List the versions on the GPU's side of a candidate that have no row."""
    release = candidate.release
    if not (candidate.gpu and release.gpu):
        return
    if candidate.cuda is not None and candidate.toolkit is None and _same_major(candidate.cuda, release.cuda):
        yield phrases.unknown(
            f"CUDA {candidate.cuda}",
            f"The catalogue has no toolkit CUDA {candidate.cuda}.",
            fix="`nvcc --version` prints the toolkit's; take one that `envbuilder catalog list cuda` names.",
        )
    told = candidate.cudnn is not None and len(versions.numbers(candidate.cudnn)) > 1
    if told and candidate.cudnn_row is None and _same_major(candidate.cudnn, release.cudnn):
        yield phrases.unknown(
            f"cuDNN {candidate.cudnn}",
            f"The catalogue has no cuDNN {candidate.cudnn}.",
            fix="Take one that `envbuilder catalog list cudnn` names.",
        )
    if candidate.driver is not None and candidate.branch is None:
        branch = versions.major(candidate.driver)
        yield phrases.unknown(
            f"driver {candidate.driver}",
            f"The catalogue has no driver branch {branch}.",
            fix="Give the driver as nvidia-smi prints it, of a branch that `envbuilder catalog list drivers` names.",
        )
    if release.cuda is None:
        name = phrases.name(release)
        yield phrases.unknown(name, f"The catalogue does not know which CUDA {name} was built with.")


def _same_major(asked: str | None, built: str | None) -> bool:
    """Tell whether a version without a row could be loaded: another major than the build's is refused without one."""
    return built is None or versions.same_major(asked, built)
