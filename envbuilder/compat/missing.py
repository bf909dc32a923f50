"""UNKNOWN: what was named and has no row in the catalogue, with the near names that have one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator

from envbuilder import versions
from envbuilder.catalog import gpu_text
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import Gpu
from envbuilder.compat import phrases
from envbuilder.compat.candidate import Candidate, Device
from envbuilder.finding import Code, Finding, Severity


def no_release(version: str, package: str | None, catalog: Catalog) -> Finding:
    """Say that a version is not in the catalogue, and which near ones are."""
    name = f"{package or 'tensorflow'} {version}"
    line = versions.minor(version)
    near = [text for text in catalog.versions if versions.minor(text) == line]
    near = near or difflib.get_close_matches(version, catalog.versions, n=3)
    hint = f"; near it are {phrases.words(near)}" if near else ""
    if not near and catalog.versions:
        hint = f"; the newest is {catalog.versions[-1]}"
    return phrases.unknown(name, f"The catalogue has no row for {name}{hint}.")


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
    return phrases.unknown(name, f"The catalogue has no image {name}.{hint}")


def no_system(name: str, catalog: Catalog) -> Finding:
    """Say that a system is not in the catalogue, and which ones are."""
    known = phrases.words([row.name for row in catalog.systems])
    return phrases.unknown(name, f"The catalogue has no system {name}; it knows {known}.")


def no_system_with(python: str, catalog: Catalog) -> Finding:
    """Say that no system brings a Python."""
    known = phrases.words([f"{row.python} ({row.name})" for row in catalog.systems])
    subject = f"Python {python}"
    return phrases.unknown(subject, f"The catalogue has no system with {subject}; it knows {known}.")


def find_devices(
    names: Iterable[str], capabilities: Iterable[str], catalog: Catalog
) -> tuple[tuple[Device, ...], tuple[Finding, ...]]:
    """Find GPUs by name, and say which have no row, or no CUDA; a compute capability needs none."""
    looked = [_look(name, catalog) for name in names]
    bare = [Device(f"compute capability {text}", versions.minor(text)) for text in capabilities]
    named = (device for device, _ in looked if device is not None)
    return tuple(dict.fromkeys((*named, *bare))), tuple(found for _, found in looked if found is not None)


def _look(name: str, catalog: Catalog) -> tuple[Device | None, Finding | None]:
    """Find one GPU: its row, or what a log line that names it says that it computes as."""
    row, told = catalog.gpu(name), gpu_text.read(name)
    if row is not None:
        return Device(row.name, row.compute_capability, row), no_cuda(row, told.series) if told.series else None
    if vendor := gpu_text.other_vendor(name):
        return None, not_nvidia(name, vendor)
    if told.capability:
        return Device(told.names[-1], told.capability), None
    return None, no_gpu(name, catalog)


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
    if candidate.cuda is not None and candidate.toolkit is None:
        yield phrases.unknown(f"CUDA {candidate.cuda}", f"The catalogue has no toolkit CUDA {candidate.cuda}.")
    told = candidate.cudnn is not None and len(versions.numbers(candidate.cudnn)) > 1
    if told and candidate.cudnn_row is None:
        yield phrases.unknown(f"cuDNN {candidate.cudnn}", f"The catalogue has no cuDNN {candidate.cudnn}.")
    if candidate.driver is not None and candidate.branch is None:
        branch = versions.major(candidate.driver)
        yield phrases.unknown(f"driver {candidate.driver}", f"The catalogue has no driver branch {branch}.")
    if release.cuda is None:
        name = phrases.name(release)
        yield phrases.unknown(name, f"The catalogue does not know which CUDA {name} was built with.")
