"""Check the packages of a Python, the place of the driver's libraries, and XLA's tools."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from envbuilder.finding import Code, Finding, Severity
from envbuilder.probes.suite import xlatools
from envbuilder.probes.suite.installed import normalise
from envbuilder.support.architectures import ARCHS
from envbuilder.validation.file_records import distributions
from envbuilder.validation.image_context import CheckOutput, ImageContext, error, finding, listed
from envbuilder.validation.image_loader import STUB_AT_MOST
from envbuilder.validation.library_checks import LOADED, output, stubs
from envbuilder.validation.suite_session import plain_finding
from envbuilder.validation.system_locks import unlocked
from envbuilder.validation.unowned_files import loader_folders
from envbuilder.verdict import Measurement
from envbuilder.versions import key_or_none, minor

UNLOCKED = {"pip", "setuptools", "wheel", "distribute"}
"""Part of every virtual environment; a lock need not name them."""

_BY_PACKAGE = {"numpy": Code.NUMPY_ABI, "protobuf": Code.PROTOBUF_ABI, "keras": Code.KERAS_MISMATCH}


def locked(subject: ImageContext) -> CheckOutput:
    """Compare every installed version with the lock, including system packages."""
    wanted = {normalise(name): version for name, version in subject.facts.locked}
    added = {one.name for one in subject.added}
    there: dict[str, set[str]] = {}
    for one in subject.python.distributions():
        if one.name not in added:
            there.setdefault(one.name, set()).add(one.version)
    findings = []
    for name in sorted({*wanted, *(there.keys() - UNLOCKED)}):
        found = sorted(there.get(name, ()))
        if name not in wanted:
            findings.append(_unlike(name, "not in the lock", ", ".join(found)))
        elif found != [wanted[name]]:
            findings.append(_unlike(name, wanted[name], ", ".join(found) or "absent"))
    count = len(subject.facts.locked)
    counted = (("packages", Measurement(value=sum(map(len, there.values())), unit="1")),)
    return output([*findings, *unlocked(subject)], f"{count} packages as locked", f"the same {count} packages", counted)


def _unlike(name: str, wanted: str, there: str) -> Finding:
    fix = "install from the lock with hashes, and nothing besides"
    text = f"{name}: locked {wanted}, installed {there}"
    return error(Code.LOCK_MISMATCH, name, text, requires=wanted, found=there, fix=fix)


def consistent(subject: ImageContext) -> CheckOutput:
    """Check every package's requirements, as ``pip check`` would, and that this Python can import it."""
    every = subject.python.distributions()
    there, markers = {one.name: one.version for one in every}, _markers(subject)
    findings = []
    for one in every:
        for text in one.requires:
            name, problem = unmet_requirement(text, there, markers)
            if problem:
                code = _BY_PACKAGE.get(name, Code.PACKAGE_CONFLICT)
                message = f"{one.name} {one.version} requires {text}, and {problem}"
                fix = "lock again with both in one solution"
                findings.append(error(code, one.name, message, requires=text, found=problem, fix=fix))
    findings += for_another_python(subject)
    return output(findings, "every requirement met", f"{len(every)} packages fit together")


def unmet_requirement(text: str, there: Mapping[str, str], markers: Mapping[str, str]) -> tuple[str, str]:
    """Return the package of a requirement, and why it is not met; '' if it is, or if it cannot be read."""
    try:
        needed = Requirement(text)
        applies = needed.marker is None or needed.marker.evaluate({**markers, "extra": ""})
        name = normalise(needed.name)
        if not applies or (name in there and needed.specifier.contains(Version(there[name]), prereleases=True)):
            return name, ""
    except (InvalidRequirement, InvalidVersion, UndefinedComparison, UndefinedEnvironmentName):
        return "", ""
    return name, f"{name} {there[name]} is installed" if name in there else f"{name} is not installed"


def _markers(subject: ImageContext) -> dict[str, str]:
    """Return the values for requirement markers of the image's Python, as far as the files tell."""
    version = subject.python.version(subject.facts.python)
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


def no_stub(subject: ImageContext) -> CheckOutput:
    """Find a stub of the driver's library, and driver libraries of another host."""
    findings = [*stubs(subject), *driver_libraries(subject)]
    return output(findings, "the driver's own library, or none", "no stub where the driver belongs")


def tools(subject: ImageContext) -> CheckOutput:
    """Find ptxas and libdevice in the folders that XLA searches."""
    search, env, facts = subject.search, subject.image.env, subject.facts
    places = xlatools.roots(subject.python.framework_folder or "", facts.built_cuda, env.get("XLA_FLAGS", ""))
    ptxas = xlatools.tool("ptxas", places, env.get("PATH", "").split(":"), search.runs)
    devices = (*(f"{place}/{xlatools.LIBDEVICE}" for place in places), "libdevice.10.bc")
    device = next((path for path in devices if search.exists(path)), None)
    severity = Severity.WARNING if facts.without_tools else Severity.ERROR
    fix = "install the nvidia-cuda-nvcc wheel of this CUDA, or give XLA_FLAGS=--xla_gpu_cuda_data_dir"
    findings = []
    for name in (name for name, path in (("ptxas", ptxas), ("libdevice.10.bc", device)) if path is None):
        text = f"XLA does not find {name}: compiled functions will fail or wait for the driver"
        looked = "looked in: " + ", ".join(places)
        findings.append(finding(severity, Code.XLA_TOOLS_MISSING, name, text, requires=name, found=looked, fix=fix))
    expected = "ptxas and libdevice" + (", or a base that is known to have none" if facts.without_tools else "")
    return CheckOutput(tuple(map(plain_finding, findings)), expected, f"ptxas {ptxas}, libdevice {device}")


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
