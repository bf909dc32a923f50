"""Check the shared objects and programs of an image: complete, of its architecture, and true to their names."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from envbuilder.finding import Finding, Severity
from envbuilder.support.architectures import ARCHS
from envbuilder.validation.image_context import OF_CUDA, CheckOutput, ImageContext, found, listed, output
from envbuilder.validation.layer_scan import Binary

_MACHINES = {**ARCHS, "386": "i386", "ppc64le": "ppc64le", "arm": "arm"}
_SOUGHT = re.compile(rf"/?lib(?!cuda\.so)(?:{OF_CUDA})[\w-]*\.so\.[\d.]+\Z")
"""Libraries that TensorFlow, or another of them, opens by name."""

_CODE_PATH = re.compile(
    r"(?:site|dist)-packages/|\A(?:usr/)?(?:local/)?(?:s?bin|lib(?:64)?)/|(?:^|/)(?:venv|cuda[^/]*|conda)/"
)
_MAJOR = re.compile(r"\.so\.(\d+)")
_LIBDEVICE = re.compile(r"(?:^|/)libdevice\.10\.bc\Z")
_BITCODE = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")


def binaries(subject: ImageContext) -> CheckOutput:
    rows = ((path, entry.row.binary) for path, entry in subject.files.paths.items())
    held = {path: binary for path, binary in rows if binary is not None}
    damaged = {path: binary.damaged for path, binary in held.items() if binary.damaged and _CODE_PATH.search(path)}
    findings = [found("damaged", path=f"/{path}"[:200], shown=listed([path]), why=why) for path, why in damaged.items()]
    findings += [*_machines(subject, held), *_names(subject), *_tools(subject)]
    findings += [*build_note(subject), *without_cuda(subject)]
    expected = "complete binaries of the image's architecture, each true to its name"
    result = output(findings, expected, f"{len(held)} binaries", binaries=len(held))
    return replace(result, blamed=frozenset(map(posixpath.basename, damaged)))


def _machines(subject: ImageContext, held: Mapping[str, Binary]) -> Iterator[Finding]:
    wanted = _MACHINES.get(subject.image.architecture, "")
    other: dict[str, list[str]] = {}
    for path, binary in held.items():
        if wanted and binary.machine not in ("", wanted) and re.search(r"(?:site|dist)-packages/|bin/", path):
            other.setdefault(binary.machine, []).append(path)
    for machine, paths in sorted(other.items()):
        severity = Severity.ERROR if len(paths) * 2 > len(held) else subject.severity
        about = f"{len(paths)} files are for {machine}: {listed(paths)}"
        yield found("other_machine", severity, image=subject.image, about=about, wanted=wanted, machine=machine)


def _names(subject: ImageContext) -> Iterator[Finding]:
    for path in filter(_SOUGHT.search, subject.files.paths):
        name, real = posixpath.basename(path), subject.files.file(path)
        soname = real.row.binary.soname if real is not None and real.row.binary is not None else ""
        if soname and not _same(name, soname) and not _is_behind(subject, path):
            yield found("other_soname", name=name, shown=listed([path]), soname=soname)


def _is_behind(subject: ImageContext, path: str) -> bool:
    """Return True if its soname is a link to the file: CUPTI's is named by year, ``libcupti.so.2020.3.1``."""
    binary = subject.files.paths[path].row.binary
    soname = binary.soname if binary is not None else ""
    return bool(soname) and subject.files.resolve(f"{posixpath.dirname(path)}/{soname}") == path


def _same(name: str, soname: str) -> bool:
    majors = {major[1] for text in (name, soname) if (major := _MAJOR.search(text))}
    return name.partition(".so")[0] == soname.partition(".so")[0] and len(majors) <= 1


def _tools(subject: ImageContext) -> Iterator[Finding]:
    for path, entry in subject.files.paths.items():
        if entry.row.kind == "file" and _LIBDEVICE.search(path) and entry.row.head[:4] not in _BITCODE:
            yield found("damaged_tool", name="libdevice.10.bc", shown=listed([path]), what="bitcode")
        elif entry.row.kind == "file" and path.endswith("/bin/ptxas") and entry.row.binary is None:
            yield found("damaged_tool", name="ptxas", shown=listed([path]), what="a program")


def build_note(subject: ImageContext) -> Iterator[Finding]:
    framework = subject.python.framework
    objects, claimed = framework.gpu_objects, framework.build.get("is_cuda_build")
    if framework.package and claimed == ("False" if objects else "True"):
        what = f"hold code for GPUs: {listed(list(objects))}" if objects else "hold no code for GPUs"
        yield found("build_note", says="no CUDA" if objects else "CUDA", what=what)


def without_cuda(subject: ImageContext) -> Iterator[Finding]:
    """Find a CPU build of TensorFlow in a GPU environment: it opens no library of CUDA."""
    framework = subject.python.framework
    if subject.facts.flavor == "gpu" and framework.build.get("is_cuda_build") == "False" and not framework.gpu_objects:
        yield found("cpu_build", name=f"TensorFlow {framework.version}".strip())
