"""Static checks for libraries that may exist only once: CUDA, cuDNN, and the driver instead of its link-time stub."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence

from . import runtime_libraries, tensorflow_install
from .elf import Elf
from .loader import Search
from .result import Answer, Facts, Finding, finding, judged

FAMILIES = (
    "libcudart",
    "libcublas",
    "libcublasLt",
    "libcufft",
    "libcurand",
    "libcusolver",
    "libcusparse",
    "libcudnn",
    "libnccl",
)
CUDNN = "libcudnn"
STUB_AT_MOST = 512 * 1024

LOADED = ("libcuda.so.1", "libnvidia-ml.so.1")
"""What TensorFlow and NVML load of a driver, by name."""


def only_one(facts: Facts) -> Answer:
    """Look for a second CUDA or cuDNN on the loader's path: the first copy is used, often the wrong one."""
    search = tensorflow_install.new_search()
    return only_one_in(search, tensorflow_install.callers(search), facts, runtime_libraries.cudnn_version)


def only_one_in(search: Search, own: Sequence[Elf], facts: Facts, version_of: Callable[[str], str | None]) -> Answer:
    """Do the same on another search path; ``own`` are TensorFlow's large objects, ``version_of`` is for cuDNN.

    An older cuDNN in front has a check of its own, which names the cause.
    """
    folders = tensorflow_install.search_path(search, own)
    findings = []
    seen = {}
    for family in FAMILIES:
        copies = copies_of(search, family, folders)
        seen[family] = copies
        wrong = (
            family == CUDNN
            and len(copies) > 1
            and runtime_libraries.cudnn_conflict(copies[0], version_of(copies[0]), facts)
        )
        if len(copies) > 1 and not wrong:
            findings.append(_two(search, family, copies))
    findings = _one_per_stack(findings)
    observed = "; ".join("{0} in {1}".format(family, ", ".join(copies)) for family, copies in seen.items() if copies)
    return judged(findings, "each library once", observed or "no CUDA libraries on the loader's path")


def copies_of(search: Search, family: str, folders: Iterable[str]) -> list[str]:
    """Return the different files of one library on the path; links to one file count once."""
    pattern = re.compile(re.escape(family) + r"\.so\.[0-9][0-9.]*\Z")
    found = [os.path.join(folder, name) for folder in folders for name in search.names(folder) if pattern.match(name)]
    return list(dict.fromkeys(search.real(path) for path in found if search.exists(path)))


def _two(search: Search, family: str, copies: Sequence[str]) -> Finding:
    same = len({search.size(path) for path in copies}) == 1
    text = "{0} copies of {1} on the loader's path; {2} comes first".format(len(copies), family, copies[0])
    return finding(
        "TWO_CUDA_STACKS",
        family,
        text,
        requires="one {0}".format(family),
        found=", ".join(copies),
        fix="remove all but one CUDA (system packages, nvidia-* wheels, conda), or take one off LD_LIBRARY_PATH",
        severity="warning" if same else "error",
    )


def _one_per_stack(findings: list[Finding]) -> list[Finding]:
    """Combine the libraries of a second CUDA into one finding."""
    if len(findings) < 2:
        return findings
    severity = "error" if any(one["severity"] == "error" for one in findings) else "warning"
    names = ", ".join(one["subject"] for one in findings)
    return [
        finding(
            "TWO_CUDA_STACKS",
            names,
            "; ".join(one["message"] for one in findings),
            requires="each library once",
            found="; ".join(one["found"] for one in findings),
            fix=findings[0]["fix"],
            severity=severity,
        )
    ]


def no_stub(facts: Facts) -> Answer:
    """Check that the loader finds the driver and not the toolkit's link-time stub."""
    search = tensorflow_install.new_search()
    return no_stub_in(search, tensorflow_install.callers(search), is_stub)


def no_stub_in(search: Search, own: Sequence[Elf], is_one: Callable[[str], bool]) -> Answer:
    """Do the same on another search path; ``own`` are TensorFlow's large objects, ``is_one`` recognises a stub."""
    findings = []
    for name in LOADED:
        path, _ = tensorflow_install.find(search, name, own)
        if path and is_one(path):
            findings.append(_stub(name, path))
    on_path = [folder for folder in search.library_path if _holds_stub(search, folder)]
    for folder in on_path:
        if not any(folder in one["found"] for one in findings):
            findings.append(_stub("libcuda.so", folder))
    observed = "; ".join(one["message"] for one in findings) or "no stub where the driver belongs"
    return judged(findings, "the driver's own library, or none", observed)


def is_stub(path: str) -> bool:
    """Recognise a stub by its folder (``stubs/``) or its size: drivers have megabytes, stubs some kilobytes.

    A file on another file system than the image was mounted, as container runtimes do with the driver.
    """
    real = os.path.realpath(path)
    if os.path.basename(os.path.dirname(real)) == "stubs":
        return True
    status = os.stat(real)
    return status.st_size < STUB_AT_MOST and status.st_dev == os.stat("/").st_dev


def _holds_stub(search: Search, folder: str) -> bool:
    named = os.path.basename(os.path.normpath(folder)) == "stubs"
    return named and any(name.startswith("libcuda.so") for name in search.names(folder))


def _stub(name: str, place: str) -> Finding:
    return finding(
        "STUB_LIBCUDA",
        name,
        "{0} on the loader's path is the toolkit's link-time stub: {1}".format(name, place),
        requires="the driver's library, put there by the container runtime",
        found=place,
        fix="take the stubs folder off LD_LIBRARY_PATH and out of ld.so.conf; it is for linking only",
    )
