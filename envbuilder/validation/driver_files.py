"""The driver's own libraries in an image: they belong to the host, and are brought by the container's runtime."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from envbuilder.finding import Code, Finding, Severity
from envbuilder.probes.suite.stacks import LOADED, STUB_AT_MOST
from envbuilder.validation.outside import Outside, either, listed
from envbuilder.validation.stray_files import told_folders

_OF_DRIVER = re.compile(
    r"\Alib(?:cuda|cudadebugger|nvidia-(?:ml|ptxjitcompiler|nvvm\d*|gpucomp|compiler|opencl|cfg|fatbinaryloader))"
    r"\.so(?:\.1|\.\d{3,}(?:\.\d+){1,2})\Z"
)
"""What CUDA takes of a driver, by the names that its installer gives (README of the driver, "Installed components")."""

_FIX = (
    "leave out packages that bring a driver (libcuda1, nvidia-driver-*), and build from a Dockerfile in place of "
    "committing a container that had GPUs"
)


def baked_in(subject: Outside) -> Iterator[Finding]:
    """Name files of a driver on the loader's path, empty ones too: what a committed container keeps of a host's.

    The libraries for newer CUDA on older drivers have a folder of their own (``compat``), stubs are another finding's.
    """
    files, told = subject.files, told_folders(subject)
    found: dict[Severity, list[str]] = {}
    for path, seen in files.paths.items():
        folder, name = posixpath.split(path)
        if seen.row.kind not in ("file", "link") or folder not in told or not _OF_DRIVER.match(name):
            continue
        end = files.file(path)
        is_stub = name in LOADED and end is not None and end.row.binary is not None and end.row.size < STUB_AT_MOST
        if is_stub or {"compat", "stubs"} & {*folder.split("/"), *files.resolve(path).split("/")}:
            continue
        own = subject.is_ours and seen.layer >= subject.of_base
        found.setdefault(Severity.ERROR if own else Severity.WARNING, []).append(path)
    for severity, paths in found.items():
        text = (
            f"a driver's libraries are in the image ({listed(paths)}): beside those of the host that its runtime "
            "brings, one of another version fails at every call, and a start may end at a file that exists"
        )
        yield either(severity, Code.DRIVER_MISMATCH, "driver", text, requires="none", found=listed(paths), fix=_FIX)
