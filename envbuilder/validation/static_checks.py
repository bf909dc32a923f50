"""Checks of packages and libraries, made of an image's files by the rules of the probes."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec

from envbuilder.finding import Code, Finding, Severity
from envbuilder.matrix import ARCHS
from envbuilder.probes.suite import library_conflicts, library_dependencies, packages, xlatools
from envbuilder.probes.suite.library_conflicts import LOADED, STUB_AT_MOST
from envbuilder.probes.suite.result import Answer
from envbuilder.support import decoding
from envbuilder.validation.file_records import distributions
from envbuilder.validation.image_context import CheckOutput, ImageContext, finding, listed
from envbuilder.validation.image_files import ImageFiles
from envbuilder.validation.image_loader import ImagePython, ImageSearch
from envbuilder.validation.suite_session import plain_finding
from envbuilder.validation.system_locks import unlocked
from envbuilder.validation.unowned_files import loader_folders
from envbuilder.verdict import Measurement
from envbuilder.versions import key_or_none, minor, order

_GLIBC = "GLIBC_"


def locked(subject: ImageContext) -> CheckOutput:
    """Compare every installed version with the lock, including system packages."""
    python = ImagePython(subject.files, subject.image)
    added = {one.name for one in subject.added}
    found = [(one.name, one.version) for one in python.distributions() if one.name not in added]
    output = _converted(packages.as_locked_in(list(subject.facts.locked), found))
    return _with(output, tuple(plain_finding(one) for one in unlocked(subject)))


def consistent(subject: ImageContext) -> CheckOutput:
    python = ImagePython(subject.files, subject.image)
    output = _converted(packages.consistent_in(python.distributions(), _markers(subject, python)))
    wrong = tuple(for_another_python(subject))
    if not wrong:
        return output
    messages = (*((output.observed,) if output.findings else ()), *(one.message for one in wrong))
    return replace(output, findings=(*output.findings, *wrong), observed="; ".join(messages))


def _markers(subject: ImageContext, python: ImagePython) -> dict[str, str]:
    """Return the values for requirement markers of the image's Python, as far as the files tell."""
    version = python.version(subject.facts.python)
    return {
        "python_version": minor(version) if key_or_none(version) else version,
        "python_full_version": version,
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": ARCHS.get(subject.image.architecture, subject.image.architecture),
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }


def complete(subject: ImageContext) -> CheckOutput:
    """Find missing dependencies of the packages' shared objects."""
    search, python = _searched(subject)
    return _converted(library_dependencies.complete_in(search, python.objects(search), python.own(search)))


def versions(subject: ImageContext) -> CheckOutput:
    """Find symbol versions that the packages need and the system lacks."""
    search, python = _searched(subject)
    path, _ = search.find("libc.so.6")
    libc = search.read(path) if path else None
    named = [name.removeprefix(_GLIBC) for name in libc.defines if name.startswith(_GLIBC)] if libc is not None else []
    known = [name for name in named if key_or_none(name)]
    newest = _GLIBC + max(known, key=order) if known else "no C library that can be read"
    return _converted(library_dependencies.versions_in(search, python.objects(search), newest))


def only_one(subject: ImageContext) -> CheckOutput:
    """Find a second CUDA or cuDNN on the loader's path."""
    search, python = _searched(subject)

    def version_of(path: str) -> str | None:
        return cudnn_version(subject.files, path)

    return _converted(library_conflicts.only_one_in(search, python.own(search), _facts(subject), version_of))


def cudnn_version(files: ImageFiles, path: str) -> str | None:
    """Return the version of a cuDNN: since 8 only the parts next to the main library have one."""
    folder = posixpath.dirname(files.resolve(path))
    beside = [one for one in files.paths if posixpath.dirname(one) == folder and "/libcudnn" in one]
    found = (files.file(one) for one in sorted(beside))
    binaries = (entry.row.binary for entry in found if entry is not None)
    return next((binary.version for binary in binaries if binary is not None and binary.version), None)


def no_stub(subject: ImageContext) -> CheckOutput:
    """Find a stub of the driver's library, and driver libraries of another host."""
    search, python = _searched(subject)

    def is_stub(path: str) -> bool:
        real = search.real(path)
        return "/stubs/" in real or search.size(real) < library_conflicts.STUB_AT_MOST

    return _with(
        _converted(library_conflicts.no_stub_in(search, python.own(search), is_stub)), tuple(driver_libraries(subject))
    )


def tools(subject: ImageContext) -> CheckOutput:
    """Find ptxas and libdevice in the folders that XLA searches."""
    search, python = _searched(subject)
    env = subject.image.env
    places = xlatools.roots(python.framework_folder or "", subject.facts.built_cuda, env.get("XLA_FLAGS", ""))
    found = _converted(xlatools.found_in(places, env.get("PATH", "").split(":"), search.runs, search.exists))
    if not subject.facts.without_tools:
        return found
    warnings = (msgspec.structs.replace(one, severity=Severity.WARNING) for one in found.findings)
    return replace(found, findings=tuple(warnings), expected=f"{found.expected}, or a base that is known to have none")


def _searched(subject: ImageContext) -> tuple[ImageSearch, ImagePython]:
    return ImageSearch(subject.files, subject.image), ImagePython(subject.files, subject.image)


def _facts(subject: ImageContext) -> dict[str, Any]:
    facts: dict[str, Any] = msgspec.to_builtins(subject.facts)
    return facts


def _with(output: CheckOutput, others: tuple[Finding, ...]) -> CheckOutput:
    """Add further findings to the output of a check."""
    if not others:
        return output
    messages = (*((output.observed,) if output.findings else ()), *(one.message for one in others))
    return replace(output, findings=(*output.findings, *others), observed="; ".join(messages))


def _converted(answer: Answer) -> CheckOutput:
    return CheckOutput(
        tuple(plain_finding(one) for one in decoding.converted(answer["findings"], list[Finding])),
        answer["expected"],
        answer["observed"],
        tuple(decoding.converted(answer["measurements"], dict[str, Measurement]).items()),
    )


_OF_DRIVER = re.compile(
    r"\Alib(?:cuda|cudadebugger|nvidia-(?:ml|ptxjitcompiler|nvvm\d*|gpucomp|compiler|opencl|cfg|fatbinaryloader))"
    r"\.so(?:\.1|\.\d{3,}(?:\.\d+){1,2})\Z"
)
"""Driver libraries of CUDA (README of the driver, "Installed components")."""

_FIX = (
    "leave out packages that bring a driver (libcuda1, nvidia-driver-*), and build from a Dockerfile in place of "
    "committing a container that had GPUs"
)


def driver_libraries(subject: ImageContext) -> Iterator[Finding]:
    """Find files of a driver on the loader's path, also empty ones: a committed container keeps those of its host.

    Forward-compatibility libraries (folder ``compat``) do not count; another check reports stubs.
    """
    files, told = subject.files, loader_folders(subject)
    found: dict[Severity, list[str]] = {}
    for path, entry in files.paths.items():
        folder, name = posixpath.split(path)
        if entry.row.kind not in ("file", "link") or folder not in told or not _OF_DRIVER.match(name):
            continue
        end = files.file(path)
        is_stub = name in LOADED and end is not None and end.row.binary is not None and end.row.size < STUB_AT_MOST
        if is_stub or {"compat", "stubs"} & {*folder.split("/"), *files.resolve(path).split("/")}:
            continue
        own = subject.is_managed and entry.layer >= subject.of_base
        found.setdefault(Severity.ERROR if own else Severity.WARNING, []).append(path)
    for severity, paths in found.items():
        text = (
            f"a driver's libraries are in the image ({listed(paths)}): if the host's driver has another version, every "
            "call fails, and the start of a container may fail at an existing file"
        )
        yield finding(severity, Code.DRIVER_MISMATCH, "driver", text, requires="none", found=listed(paths), fix=_FIX)


_PYTHON = re.compile(r"/python3\.(\d+)/(?:site|dist)-packages\Z")
_TAG = re.compile(r"cp3(\d+)-(cp3\d+[a-z]*|abi3)-")


def for_another_python(subject: ImageContext) -> Iterator[Finding]:
    """Find distributions whose tags do not fit this Python: it cannot import their extension modules."""
    weight = subject.severity
    for one in distributions(subject.files):
        python = _PYTHON.search(f"/{one.site}")
        built = [_TAG.match(tag) for tag in one.tags]
        if python is None or not one.tags or not all(built):
            continue  # no CPython tag: it fits any Python
        minor = int(python[1])
        if not any(_takes(found[2], int(found[1]), minor) for found in built if found):
            tags = ", ".join(sorted(one.tags))[:100]
            text = f"{one.name} {one.version} is built for another Python than 3.{minor}: {tags}"
            fix = "install it with the Python that is to import it"
            yield finding(weight, Code.PACKAGE_CONFLICT, one.name, text, requires=f"3.{minor}", found=tags, fix=fix)


def _takes(abi: str, built: int, minor: int) -> bool:
    """Return True if a Python can import modules of an ABI; the stable ABI fits all later versions."""
    return built <= minor if abi == "abi3" else built == minor
