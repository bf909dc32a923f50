"""CUDA's libraries by file name: the product, the releases that open the name, and one command that installs it."""

from __future__ import annotations

import re

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import TensorflowRelease
from envbuilder.compat.findings import finding, listed, name_of, span
from envbuilder.finding import Code, Finding
from envbuilder.reproduce.messages.catalog import MessageMatch
from envbuilder.reproduce.question import Case

FILE = re.compile(r"lib(?P<name>[A-Za-z]+)\.so\.?[0-9.]*\Z", re.ASCII)
_DLL = re.compile(r"(?P<name>cudart|cublas|cudnn)64_(?P<digits>[0-9]{1,3})\.dll\Z", re.ASCII)
PUBLISHED_TAGS = {
    "1.13": "1.13.1-gpu-py3", "1.14": "1.14.0-gpu-py3", "1.15": "1.15.0-gpu-py3", "2.0": "2.0.0-gpu-py3",
    "2.1": "2.1.0-gpu-py3", "2.2": "2.2.0-gpu", "2.3": "2.3.0-gpu", "2.4": "2.4.1-gpu",
}  # fmt: skip
"""A tag of the published image for each release line without CUDA wheels; public Dockerfiles start from each."""
_CONDA_TOOLKIT_ENDS = 12
_CUDNN_PER_CUDA_ENDS = 9


def published_tag(version: str) -> str:
    """Return the tag of a release's published image with CUDA."""
    return PUBLISHED_TAGS.get(versions.minor(version), f"{version}-gpu")


def missing_libraries(rows: list[MessageMatch], case: Case) -> Finding | None:
    """Name the product and the command of libraries that were not found; None if one of them is unknown."""
    names = tuple(dict.fromkeys(row.values.get("library", "") for row in rows))
    openers = _openers(names, case.catalog)
    if not openers:
        return None
    release = case.release if case.release in openers else None
    cudnn = [name for name in names if "cudnn" in name]
    cuda = [name for name in names if name not in cudnn]
    said = {"line": rows[0].line, "libraries": listed(names), "found": rows[0].text[:200]}
    if release is None:
        parts = [*_span("CUDA", openers, wanted=bool(cuda)), *_span("cuDNN", openers, wanted=bool(cudnn))]
        lines = span(list(dict.fromkeys(versions.minor(row.version) for row in openers)))
        return finding(Code.MISSING_LIBRARY, "of_releases", **said, product=listed(parts), releases=lines)
    named = f"CUDA {release.cuda}"
    product = listed([*[named] * bool(cuda), *[f"cuDNN {release.cudnn}" + f" for {named}" * (not cuda)] * bool(cudnn)])
    command = _command(release, case, cuda=bool(cuda), cudnn=bool(cudnn))
    variant = "of_release" if command else "of_windows"
    return finding(
        Code.MISSING_LIBRARY, variant, (release,), **said, product=product, release=name_of(release), command=command
    )


def _openers(names: tuple[str, ...], catalog: Catalog) -> list[TensorflowRelease]:
    """List the releases with GPU support that open all these names, oldest first."""
    rows = [*catalog.releases("tensorflow-gpu"), *catalog.releases("tensorflow")]
    found = [row for row in rows if row.gpu and all(_opens(row, name) for name in names)]
    return sorted(found, key=lambda row: versions.key(row.version))


def _opens(release: TensorflowRelease, name: str) -> bool:
    dll = _DLL.match(name)
    if dll is None:
        return name != "" and any(own == name or own.startswith(f"{name}.") for own in release.libraries)
    built = release.cudnn if dll["name"] == "cudnn" else release.cuda
    if built is None:
        return False
    major, digits = str(versions.major(built)), dll["digits"]
    return digits in {major, versions.minor(built).replace(".", "")} or (digits, major) == ("110", "11")


def _span(product: str, openers: list[TensorflowRelease], *, wanted: bool) -> list[str]:
    """Write the versions with which these releases were built: ``CUDA 11.2 or 11.8``."""
    built = {row.cuda if product == "CUDA" else row.cudnn for row in openers}
    known = sorted(filter(None, built), key=versions.key)
    return [f"{product} {listed(known, 'or')}"] if wanted and known else []


def _command(release: TensorflowRelease, case: Case, *, cuda: bool, cudnn: bool) -> str:
    """Write the command that installs them the way the reporter installs; '' for Windows, which has none."""
    reported, toolkit, library = case.reported, release.cuda or "", release.cudnn or ""
    python = versions.minor(reported.python) if reported.python else None
    if reported.platform == "windows":
        return ""
    if reported.install == "docker":
        return f"docker run --rm --gpus all -it tensorflow/tensorflow:{published_tag(release.version)}"
    if reported.install == "conda" and versions.major(toolkit) < _CONDA_TOOLKIT_ENDS:
        return f"conda install -c conda-forge cudatoolkit={toolkit} cudnn={library}"
    if release.and_cuda and python not in release.extra_fails_on:
        return f"pip install '{release.package}[and-cuda]=={release.version}'"
    major = versions.major(library)
    apart = major < _CUDNN_PER_CUDA_ENDS
    package = f"libcudnn{major}={library}.*-1+cuda{toolkit}" if apart else f"libcudnn9-cuda-{versions.major(toolkit)}"
    wanted = [f"cuda-libraries-{toolkit.replace('.', '-')}"] * cuda + [f"'{package}'"] * cudnn
    return f"sudo apt-get install {' '.join(wanted)}"
