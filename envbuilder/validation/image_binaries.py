"""Check the shared objects and programs of an image: complete, of its architecture, and true to their names."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from envbuilder.finding import Code, Finding, Severity
from envbuilder.support.architectures import ARCHS
from envbuilder.validation.image_claims import build_note, without_cuda
from envbuilder.validation.image_context import OF_CUDA, CheckOutput, ImageContext, error, finding, listed
from envbuilder.validation.image_files import StackedFile
from envbuilder.verdict import Measurement

_MACHINES = {**ARCHS, "386": "i386", "ppc64le": "ppc64le", "arm": "arm"}
_SOUGHT = re.compile(rf"/?lib(?!cuda\.so)(?:{OF_CUDA})[\w-]*\.so\.[\d.]+\Z")
"""Libraries that TensorFlow, or another of them, opens by name."""

_CODE_PATH = re.compile(
    r"(?:site|dist)-packages/|\A(?:usr/)?(?:local/)?(?:s?bin|lib(?:64)?)/|(?:^|/)(?:venv|cuda[^/]*|conda)/"
)
_MAJOR = re.compile(r"\.so\.(\d+)")
_LIBDEVICE = re.compile(r"(?:^|/)libdevice\.10\.bc\Z")
_PARTS = ("graph", "ops", "cnn", "adv", "heuristic", "engines_precompiled", "engines_runtime_compiled")
_FIX = "reinstall the package that brings it"


def binaries(subject: ImageContext) -> CheckOutput:
    """Find damaged files, files for another architecture, and libraries that differ from their names."""
    held = [(path, entry) for path, entry in subject.files.paths.items() if entry.row.binary is not None]
    findings = [*_damaged(held), *_machines(subject, held), *_names(subject), *_cudnn(subject), *_tools(subject)]
    findings += [*build_note(subject), *without_cuda(subject)]
    return CheckOutput(
        tuple(findings),
        "complete binaries of the image's architecture, each true to its name",
        "; ".join(one.message for one in findings) or f"{len(held)} binaries",
        (("binaries", Measurement(len(held), "1")),),
        frozenset(posixpath.basename(path) for path, entry in held if _is_damaged(path, entry)),
    )


def _damaged(held: list[tuple[str, StackedFile]]) -> Iterator[Finding]:
    for path, entry in held:
        binary = entry.row.binary
        if binary is not None and _is_damaged(path, entry):
            text = f"{listed([path])} is damaged: {binary.damaged}"
            yield error(Code.FILES_DIFFER, f"/{path}"[:200], text, fix=_FIX)


def _is_damaged(path: str, entry: StackedFile) -> bool:
    return entry.row.binary is not None and bool(entry.row.binary.damaged) and _CODE_PATH.search(path) is not None


def _machines(subject: ImageContext, held: list[tuple[str, StackedFile]]) -> Iterator[Finding]:
    architecture = subject.image.architecture
    wanted = _MACHINES.get(architecture, "")
    other: dict[str, list[str]] = {}
    for path, entry in held:
        machine = entry.row.binary.machine if entry.row.binary else ""
        if wanted and machine and machine != wanted and re.search(r"(?:site|dist)-packages/|bin/", path):
            other.setdefault(machine, []).append(path)
    for machine, paths in sorted(other.items()):
        text = f"the image says {architecture}, and {len(paths)} files are for {machine}: {listed(paths)}"
        severity = Severity.ERROR if len(paths) * 2 > len(held) else subject.severity
        yield finding(severity, Code.IMAGE_CLAIM, "architecture", text, requires=wanted, found=machine)


def _names(subject: ImageContext) -> Iterator[Finding]:
    """Find libraries of CUDA whose soname differs from the name by which they are opened."""
    for path, entry in subject.files.paths.items():
        if entry.row.kind not in ("file", "link", "same") or not _SOUGHT.search(path):
            continue
        name = path.rpartition("/")[2]
        if entry.row.kind == "link" and subject.files.resolve(path) not in subject.files.paths:
            if "site-packages/" in path:
                yield error(Code.MISSING_LIBRARY, name, f"{listed([path])} is a link to nothing", fix=_FIX)
            continue
        real = subject.files.file(path)
        binary = real.row.binary if real is not None else None
        if real is not None and binary is None and real.row.size:
            yield error(Code.MISSING_LIBRARY, name, f"{listed([path])} is not a shared object", fix=_FIX)
        elif binary is not None and binary.soname and not _same(name, binary.soname) and not _is_behind(subject, path):
            text = f"{listed([path])} is {binary.soname} by its own soname"
            yield error(Code.CUDA_MISMATCH, name, text, requires=name, found=binary.soname, fix=_FIX)


def _is_behind(subject: ImageContext, path: str) -> bool:
    """Return True if its soname is a link to the file: CUPTI's is named by year, ``libcupti.so.2020.3.1``."""
    entry = subject.files.paths[path]
    soname = entry.row.binary.soname if entry.row.binary is not None else ""
    return bool(soname) and subject.files.resolve(f"{posixpath.dirname(path)}/{soname}") == path


def _same(name: str, soname: str) -> bool:
    """Compare the stem and the major version: ``libcudart.so.12`` is what ``libcudart.so.12.5.82`` is."""
    stems = (name.partition(".so")[0], soname.partition(".so")[0])
    majors = [found[1] if (found := _MAJOR.search(text)) else "" for text in (name, soname)]
    return stems[0] == stems[1] and (not all(majors) or majors[0] == majors[1])


def _cudnn(subject: ImageContext) -> Iterator[Finding]:
    """Find missing parts of cuDNN: since 9 the main library opens the others by name.

    In a managed image the wheel's RECORD lists the parts.
    """
    if subject.is_managed:
        return
    folders = [path.rpartition("/")[0] for path in subject.files.paths if path.endswith("/libcudnn.so.9")]
    for folder in folders:
        parts = [f"{folder}/libcudnn_{part}.so.9" for part in _PARTS]
        empty = [path for path in parts if subject.files.file(path) is None]
        if empty:
            text = f"parts of cuDNN are missing: {listed(empty)}"
            name = empty[0].rpartition("/")[2]
            yield error(Code.MISSING_LIBRARY, name, text, requires="a complete cuDNN", fix="reinstall cuDNN")


def _tools(subject: ImageContext) -> Iterator[Finding]:
    for path, entry in subject.files.paths.items():
        if (
            entry.row.kind == "file"
            and _LIBDEVICE.search(path)
            and entry.row.head[:4] not in (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")
        ):
            text = f"{listed([path])} is not bitcode: XLA cannot compile for GPUs"
            yield error(Code.XLA_TOOLS_MISSING, "libdevice.10.bc", text, fix=_FIX)
        elif entry.row.kind == "file" and path.endswith("/bin/ptxas") and entry.row.binary is None:
            text = f"{listed([path])} is not a program: XLA cannot compile for GPUs"
            yield error(Code.XLA_TOOLS_MISSING, "ptxas", text, fix=_FIX)
