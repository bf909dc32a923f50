"""Check libraries as the loader finds them: missing, too old, twice, or a stub in place of the driver."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence

import msgspec

from envbuilder.finding import Code, Finding, Severity
from envbuilder.probes.suite import tensorflow_install
from envbuilder.probes.suite.elf import Elf
from envbuilder.probes.suite.loader import Search
from envbuilder.probes.suite.runtime_libraries import FIX, cudnn_conflict
from envbuilder.validation.image_context import CheckOutput, ImageContext, error, finding
from envbuilder.validation.image_loader import LocalSearch
from envbuilder.validation.suite_session import plain_finding
from envbuilder.verdict import Measurement

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

LOADED = ("libcuda.so.1", "libnvidia-ml.so.1")
"""The driver libraries that TensorFlow and NVML load by name."""

FROM_DRIVER = re.compile(r"lib(cuda|nvidia-[\w-]+|nvcuvid|nvoptix)\.so")
"""Libraries of the host's driver: an image that holds them is wrong, one that lacks them is right."""

LINUX_ITSELF = ("ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "linux-vdso.so.1")
VERSIONED = ("libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1")

Unmet = tuple[str, str, list[str]]
"""A need that is not found: its name, who needs it, the paths tried."""


def output(
    findings: Iterable[Finding], expected: str, observed: str, measurements: Iterable[tuple[str, Measurement]] = ()
) -> CheckOutput:
    """Return the output of a check; its findings, if there are any, are what was observed."""
    found = tuple(map(plain_finding, findings))
    return CheckOutput(found, expected, "; ".join(one.message for one in found) or observed, tuple(measurements))


def only_one(subject: ImageContext) -> CheckOutput:
    """Find a second CUDA or cuDNN on the loader's path: the first copy is used, often the wrong one.

    An older cuDNN in front has a check of its own, which names the cause.
    """
    search = subject.search
    folders = tensorflow_install.search_path(search, subject.python.own(search))
    seen = {family: copies_of(search, family, folders) for family in FAMILIES}
    twice = {family: copies for family, copies in seen.items() if len(copies) > 1}
    if copies := twice.get("libcudnn"):
        built = msgspec.to_builtins(subject.facts)
        if cudnn_conflict(copies[0], search.cudnn_version(copies[0]), built) is not None:
            del twice["libcudnn"]
    observed = "; ".join(f"{family} in {', '.join(copies)}" for family, copies in seen.items() if copies)
    found = [_twice(search, twice)] if twice else []
    expected = "each library once"
    return CheckOutput(tuple(map(plain_finding, found)), expected, observed or "no CUDA libraries on the loader's path")


def copies_of(search: Search, family: str, folders: Iterable[str]) -> list[str]:
    """Return the different files of one library on the path; links to one file count once."""
    pattern = re.compile(re.escape(family) + r"\.so\.[0-9][0-9.]*\Z")
    found = [f"{folder}/{name}" for folder in folders for name in search.names(folder) if pattern.match(name)]
    return list(dict.fromkeys(search.real(path) for path in found if search.exists(path)))


def _twice(search: Search, twice: dict[str, list[str]]) -> Finding:
    """Describe a second CUDA, all of its libraries in one finding."""
    differ = any(len({search.size(path) for path in copies}) > 1 for copies in twice.values())
    texts = (
        f"{len(copies)} copies of {family} on the loader's path; {copies[0]} comes first"
        for family, copies in twice.items()
    )
    return finding(
        Severity.ERROR if differ else Severity.WARNING,
        Code.TWO_CUDA_STACKS,
        ", ".join(twice),
        "; ".join(texts),
        requires="each library once" if len(twice) > 1 else f"one {next(iter(twice))}",
        found="; ".join(", ".join(copies) for copies in twice.values()),
        fix="remove all but one CUDA (system packages, nvidia-* wheels, conda), or take one off LD_LIBRARY_PATH",
    )


def stubs(subject: ImageContext) -> list[Finding]:
    """Find the toolkit's link-time stub where the loader looks for the driver."""
    search = subject.search
    own = subject.python.own(search)
    ends = ((name, tensorflow_install.find(search, name, own)[0]) for name in LOADED)
    findings = [_stub(name, path) for name, path in ends if path and search.is_stub(path)]
    for folder in search.library_path:
        is_named = posixpath.basename(posixpath.normpath(folder)) == "stubs"
        if is_named and any(name.startswith("libcuda.so") for name in search.names(folder)):
            findings += [] if any(folder in one.found for one in findings) else [_stub("libcuda.so", folder)]
    return findings


def _stub(name: str, place: str) -> Finding:
    return error(
        Code.STUB_LIBCUDA,
        name,
        f"{name} on the loader's path is the toolkit's link-time stub: {place}",
        requires="the driver's library, put there by the container runtime",
        found=place,
        fix="take the stubs folder off LD_LIBRARY_PATH and out of ld.so.conf; it is for linking only",
    )


def complete(subject: ImageContext) -> CheckOutput:
    """Find missing needs of each shared object that no other one needs, in the loader's order."""
    search, python = subject.search, subject.python
    paths, own = python.objects(search), python.own(search)
    read = {path: search.read(path) for path in paths}
    named = {path: (one and one.soname) or posixpath.basename(path) for path, one in read.items()}
    needed = {name for one in read.values() if one is not None for name in one.needed}
    missing: dict[str, list[Unmet]] = {}
    for root in (path for path, name in named.items() if name not in needed):
        for name, user, tried in unmet(search, root, tensorflow_install.loaded_before(search, root, own)):
            missing.setdefault(name, []).append((root, user, tried))
    brought = set(named.values())
    findings = [_missing(name, places, brought=name in brought) for name, places in sorted(missing.items())]
    counted = (("objects", Measurement(value=len(paths), unit="1")),)
    return output(findings, "every need found", f"all needs of {len(paths)} objects are found", counted)


def unmet(search: Search, root: str, before: Iterable[str] = ()) -> list[Unmet]:
    """Go through the needs of an object breadth first; return those that are not found.

    A name that is loaded already (``before``) is not searched again. An RPATH also counts for the needs of needs, as it
    does for the loader (a RUNPATH does not).
    """
    first = search.read(root)
    if first is None or not first.dynamic:
        return []
    loaded = set(before)
    found: list[Unmet] = []
    queue: list[tuple[Elf, tuple[Elf, ...]]] = [(first, ())]
    while queue:
        user, chain = queue.pop(0)
        for name in user.needed:
            if name in loaded or FROM_DRIVER.match(name) or name in LINUX_ITSELF:
                continue
            loaded.add(name)
            where, tried = search.find(name, user, chain)
            read = search.read(where) if where is not None else None
            if read is None:
                found.append((name, user.path, tried))
            else:
                queue.append((read, (*chain, user)))
    return found


def _is_core(path: str) -> bool:
    """Return True for an object that Python or TensorFlow always opens, False for an optional plug-in."""
    name = posixpath.basename(path)
    return ".cpython-" in name or ".abi3." in name or "/tensorflow" in path


def _missing(name: str, places: Sequence[Unmet], *, brought: bool) -> Finding:
    """Describe a need that is not found.

    A library that another package brings under that name counts as found once that package has loaded it: extension
    modules and the CUDA wheels are made so. That is not enough for a need of a core object.
    """
    users = sorted({user for _, user, _ in places})
    text = f"{name}, which {posixpath.basename(users[0])} needs, is not on the loader's path"
    severity = Severity.ERROR if not brought and any(_is_core(root) for root, _, _ in places) else Severity.WARNING
    tried = f"needed by {', '.join(users[:4])}; tried: {', '.join(places[0][2][:12])}"
    return finding(severity, Code.MISSING_LIBRARY, name, text, requires=name, found=tried, fix=FIX)


def versions(subject: ImageContext) -> CheckOutput:
    """Find symbol versions that the packages need and the C and C++ libraries lack."""
    search = subject.search
    newest: dict[str, str] = {}
    lacking: dict[tuple[str, str], list[str]] = {}
    for path in subject.python.objects(search):
        read = search.read(path)
        for library, names in read.versions.items() if read is not None else ():
            where = search.find(library, read)[0] if library in VERSIONED else None
            there = search.read(where) if where is not None else None
            if where is None or there is None or not there.dynamic:
                continue  # absent or damaged: other checks report it
            for name in names:
                prefix = name.rpartition("_")[0]
                newest[prefix] = max(newest.get(prefix, ""), name, key=_number)
                if name not in there.defines:
                    lacking.setdefault((name, where), []).append(path)
    findings = [_older(name, where, users) for (name, where), users in sorted(lacking.items())]
    needed = ", ".join(sorted(newest.values())) or "no versioned symbols"
    return CheckOutput(tuple(map(plain_finding, findings)), f"a C library with {needed}", _c_library(search))


def _c_library(search: LocalSearch) -> str:
    path, _ = search.find("libc.so.6")
    libc = search.read(path) if path else None
    named = [name for name in (libc.defines if libc is not None else ()) if re.match(r"GLIBC_\d", name)]
    return max(named, key=_number, default="no C library that can be read")


def _older(name: str, where: str, users: list[str]) -> Finding:
    text = f"{posixpath.basename(users[0])} needs {name}, which {where} lacks"
    fix = "use a newer base image, or an older release"
    return error(Code.GLIBC_TOO_OLD, name, text, requires=name, found=where, fix=fix)


def _number(name: str) -> list[int]:
    return [int(part) for part in re.findall(r"[0-9]+", name)]
