"""Find code on Python's or the loader's path that belongs to no distribution and no system package."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from functools import lru_cache

from envbuilder.finding import Code, Finding
from envbuilder.probes.suite.loader import DEFAULTS, parse_cache
from envbuilder.validation.additions import hidden_modules
from envbuilder.validation.file_areas import areas
from envbuilder.validation.file_records import InstalledPackage, site_of
from envbuilder.validation.image_context import OBJECT, OF_CUDA, ImageContext, error, finding, listed
from envbuilder.validation.image_files import ImageFiles, StackedFile, is_same
from envbuilder.validation.python_environment import STDLIB, entries, hiding_modules, interpreters, wrong_homes

_FIX = "install it as a package of the lock, or leave it out"
_CODE = re.compile(r"\.(?:py|pth|egg-link)\Z|\.so(?:\.[\d.]+)?\Z|\.(?:pyc|egg|zip)\Z")
_STARTED = re.compile(r"(?:^|/)(?:site|user)customize(?:/__init__)?\.(?:py|pyc|(?:[\w-]+\.)?so)\Z")
_ZIPPED = re.compile(r"(?:^|/)lib(?:64)?/python3\d+\.zip\Z")
"""An archive that Python searches before its own library."""

_LOADER = re.compile(r"\A(?:usr/)?(?:local/)?lib(?:64)?/(?:(?:x86_64|aarch64)-linux-gnu/)?[^/]+\.so(?:\.[\w.]+)?\Z")
_INTERPRETER = re.compile(r"\A(?:usr/)?(?:local/)?bin/python3(?:\.\d+)?\Z")
_LIB = r"\A(?:usr/)?(?:local/)?lib(?:64)?/(?:(?:x86_64|aarch64)-linux-gnu/)?"
_SETTINGS = r"\A(?:(?:etc|usr/lib)/ssl|etc/pki/tls)/openssl\.cnf\Z"
_CHARSETS = r"gconv/gconv-modules(?:\.d/.+)?\Z"
_STARTS = re.compile(rf"\A(?:usr/)?(?:local/)?s?bin/[^/]+\Z|{_SETTINGS}|{_LIB}{_CHARSETS}|{_LIB}.+\.so(?:\.[\w.]+)?\Z")
"""Programs of the system, and files by which its libraries load code: no layer above their package's changes them."""

_USED = re.compile(
    r"(?:site|dist)-packages/.+\.(?:py|pth|so(?:\.[\w.]+)?)\Z|(?:^|/)(?:ptxas|nvlink|fatbinary|cicc)\Z|/nvvm/.+"
)
"""Python modules of system packages, and the compilers of CUDA, in any folder."""

_PLUGGED = re.compile(rf"{_SETTINGS}|{_LIB}{_CHARSETS}|{_LIB}(?:gconv|ossl-modules|engines-[\d.]+)/.+\.so\Z")
"""Files that the C library and OpenSSL load by a name in a locale or setting, and these settings."""

_PRELOADED = "etc/ld.so.preload"
_HWCAPS = re.compile(r"/(?:glibc-hwcaps/[^/]+|(?:tls/)?(?:haswell|xeon_phi|avx512_1|x86_64)(?:/[^/]+)?|tls)\Z")
"""Folders that the loader searches first, by processor: those of today, and those until glibc 2.36."""

_OTHERS = re.compile(rf"(?:^|/)lib(?:{OF_CUDA})[\w-]*\.so")
"""Libraries of CUDA: other checks report which of them is loaded."""

_BYTE_CODE = re.compile(r"\A(?P<folder>.*?)/?__pycache__/(?P<stem>[^/]+)\.cpython-\d+(?:\.opt-\d)?\.pyc\Z")


def unowned_code(subject: ImageContext, there: tuple[InstalledPackage, ...], owned: set[str]) -> Iterator[Finding]:
    """Find files that Python or the loader would use and that belong to no package."""
    weight = subject.severity
    sites = {one.site for one in there}
    groups = (
        ("modules of added packages that hide those of the lock", hidden_modules(subject)),
        ("code of no package on Python's path", sorted({*_unowned(subject, sites, owned), *added(subject, owned)})),
        (
            "byte code that Python runs in place of the source, written by a later layer",
            list(_byte_code(subject, there)),
        ),
        ("files of the system that a later layer replaced", [*_system(subject, deleted=False), *_own_library(subject)]),
        ("libraries of no package on the loader's path", list(_libraries(subject, owned))),
        ("programs of no package before the system's in PATH", list(_programs(subject, sites, owned))),
        ("files of Python's own library that a later layer deleted", list(deleted(subject))),
    )
    for what, paths in groups:
        if paths:
            yield finding(weight, Code.FILES_DIFFER, what, f"{what}: {listed(paths)}", found=listed(paths), fix=_FIX)
    gone = missing_system_files(subject)
    if gone:
        text = f"files of the system are gone: {listed(gone)}"
        yield error(Code.FILES_DIFFER, "system packages", text, found=listed(gone), fix="leave the base as it is")
    programs = {posixpath.normpath(f"{one.site}/../../../bin/{name}") for one in there for name in one.scripts}
    yield from areas(subject, ("added", "changed", "removed"), owned | programs)
    yield from hiding_modules(subject, sites)
    yield from interpreters(subject, sites)
    yield from wrong_homes(subject, sites)


def missing_system_files(subject: ImageContext) -> list[str]:
    """Return files of system packages, on Python's or the loader's path, that a later layer deleted."""
    return list(_system(subject, deleted=True))


def _unowned(subject: ImageContext, sites: set[str], owned: set[str]) -> Iterator[str]:
    for path, entry in subject.files.paths.items():
        is_package = entry.row.kind == "link" and _leads_to_package(subject, path, owned)
        if entry.row.kind == "folder" or not (is_package or _CODE.search(path)):
            continue
        if path in owned or subject.is_of_system(path):
            continue
        if entry.layer < subject.of_base:
            continue  # the base's own: files of rpm packages are not recorded
        site = site_of(path)
        if "/__pycache__/" in path:
            continue  # checked with its source
        if (site and (site in sites or _STARTED.search(path) or subject.is_managed)) or (
            _ZIPPED.search(path)
            or (STDLIB.match(path) and (is_package or _STARTED.search(path) or subject.files.system.owns_below(path)))
        ):
            yield path


def _leads_to_package(subject: ImageContext, path: str, owned: set[str]) -> bool:
    """Return True for a link to a folder that Python would import; a moved package is still its distribution's."""
    if not (site_of(path) or STDLIB.match(path)):
        return False
    target = subject.files.paths.get(subject.files.resolve(path))
    is_folder = target is not None and target.row.kind == "folder" and "." not in posixpath.basename(path)
    return is_folder and not any(one.startswith(f"{path}/") for one in owned)


def _byte_code(subject: ImageContext, there: tuple[InstalledPackage, ...]) -> Iterator[str]:
    """Find .pyc files that Python would load although a later layer wrote them.

    The header holds time and size, or a hash, of the source. If they fit, or the header disables the comparison, Python
    runs the byte code: the hash is the source's and says nothing about the code. A build writes byte code in the layer
    of its sources. A layer that writes the same source again counts only if it installs the package of that source.
    """
    files, paths = subject.files, subject.files.paths
    for path, entry in paths.items():
        match = _BYTE_CODE.match(path) if entry.row.kind == "file" else None
        if match is None:
            continue
        source = paths.get(posixpath.join(match["folder"], match["stem"] + ".py"))
        if source is None or subject.is_added(source.row.path) or len(entry.row.head) < 16:  # noqa: PLR2004 - PEP 552
            continue
        came = files.since(path)
        if came <= files.since(source.row.path) or _is_installed_in(subject, source, there, came):
            continue
        if entry.layer < subject.of_base:
            continue  # a build step of the base ran its Python
        flags, modified, size = (int.from_bytes(entry.row.head[at : at + 4], "little") for at in (4, 8, 12))
        current = (source.row.modified & 0xFFFFFFFF, source.row.size & 0xFFFFFFFF)
        if flags & 1 or (flags == 0 and (modified, size) == current):
            yield path


def _is_installed_in(
    subject: ImageContext, source: StackedFile, there: tuple[InstalledPackage, ...], layer: int
) -> bool:
    """Return True if the package of a source was installed, or reinstalled, in the layer of its byte code."""
    path = source.row.path
    brought = subject.files.system.layer(path)
    if source.layer < layer:
        return False
    if brought is not None:
        return brought >= layer
    records = (f"{one.site}/{one.folder}/RECORD" for one in there if path in (one.rows or {}))
    found = [subject.files.paths[record] for record in records if record in subject.files.paths]
    return any(entry.layer >= layer for entry in found) or not found


def _system(subject: ImageContext, *, deleted: bool) -> Iterator[str]:
    """Find files of system packages, on either path, that a layer above their package changed or deleted.

    If a later layer moved the folder of a file, its original name counts as well.
    """
    files, told = subject.files, loader_folders(subject)
    for path, layer in files.system.files():
        names = {path, files.system.name(path)}
        needed = any(STDLIB.match(one) or _LOADER.match(one) or _INTERPRETER.match(one) for one in names)
        needed = needed or is_of_library(files, path)
        needed = needed or (posixpath.dirname(path) in told and OBJECT.search(path) is not None)
        starts = needed or (not deleted and (any(map(_STARTS.match, names)) or _USED.search(path) is not None))
        if not starts or path.endswith(".pyc"):
            continue
        now = files.paths.get(path)
        if deleted and now is None and any(one in files.hidden for one in names):
            yield path
        if not needed and now is not None and now.layer < subject.of_base:
            continue
        if not deleted and now is not None and now.layer > layer and now.row.kind in ("file", "link"):
            before = next(filter(None, (files.was(one, layer) for one in names)), None)
            if before is None or not is_same(before.row, now.row):
                yield path


def _own_library(subject: ImageContext) -> Iterator[str]:
    """Find files of a Python without a system package, on either path, that a later layer changed."""
    files = subject.files
    for path in files.hidden:
        is_code = STDLIB.match(path) or _LOADER.match(path) or is_of_library(files, path)
        if not is_code or path.endswith(".pyc") or _OTHERS.search(path):
            continue
        if files.is_changed(path) and not subject.is_of_system(path) and files.paths[path].layer >= subject.of_base:
            yield path


def _libraries(subject: ImageContext, owned: set[str]) -> Iterator[str]:
    """Find libraries of no package in the loader's default and configured folders."""
    if not subject.is_managed:
        return
    files = subject.files
    told = loader_folders(subject)
    if files.paths.keys() & {_PRELOADED, files.resolve(_PRELOADED)}:
        yield _PRELOADED
    yield from _wrong_cache_entries(subject)
    for path, entry in files.paths.items():
        if entry.row.kind not in ("file", "link") or path in owned or subject.is_of_system(path):
            continue
        real = files.file(path)
        if real is None or entry.layer < subject.of_base or _is_cuda_library(path, real):
            continue
        if real.row.path in owned or (entry.row.kind == "link" and subject.is_of_system(real.row.path)):
            continue
        in_told = _HWCAPS.sub("", path.rpartition("/")[0]) in told and OBJECT.search(path)
        if _LOADER.match(path) or _PLUGGED.match(path) or in_told:
            yield path


def _is_cuda_library(path: str, entry: StackedFile) -> bool:
    """Return True for a library of CUDA by name and, if it has one, by soname: a file name alone proves nothing."""
    soname = entry.row.binary.soname if entry.row.binary is not None else ""
    return _OTHERS.search(path) is not None and (not soname or _OTHERS.search(soname) is not None)


def _wrong_cache_entries(subject: ImageContext) -> Iterator[str]:
    """Find files that the loader's cache gives for another library, by name and soname."""
    for name, paths in _cached(subject).items():
        for path in paths:
            entry = subject.files.file(path)
            if entry is None or posixpath.basename(path) == name or entry.row.binary is None:
                continue
            if entry.row.binary.soname != name:
                yield entry.row.path


def _cached(subject: ImageContext) -> dict[str, list[str]]:
    return parse_cache(subject.files.content("etc/ld.so.cache") or b"")


def _programs(subject: ImageContext, sites: set[str], owned: set[str]) -> Iterator[str]:
    """Find programs of no package that the image's PATH finds before a program of the system."""
    files = subject.files
    own = {posixpath.normpath(f"{site}/../../../bin") for site in sites}
    folders = [files.resolve(folder) for folder in entries(subject, "PATH")]
    theirs = {path.rpartition("/")[2] for path, _ in files.system.files() if path.startswith(_OF_THE_SYSTEM)}
    for place in dict.fromkeys(folders):
        for name in sorted(theirs):
            path = f"{place}/{name}"
            entry, started = files.paths.get(path), files.file(path)
            if entry is None or path in owned or subject.is_of_system(path):
                continue
            if started is None or not started.row.mode & 0o111:
                continue
            if entry.layer < subject.of_base or (place in own and name.startswith(_OF_PYTHON)):
                continue
            if entry.row.kind == "file" or (entry.row.kind == "link" and not _is_system(subject, path)):
                yield path


_OF_PYTHON = ("python", "pip", "pydoc", "idle", "2to3")
"""Programs in the folder of every Python; the interpreter itself is checked elsewhere."""

_OF_THE_SYSTEM = ("bin/", "sbin/", "usr/bin/", "usr/sbin/")


def _is_system(subject: ImageContext, path: str) -> bool:
    """Return True if a link leads to a file of a system package, as Debian's alternatives do."""
    return subject.is_of_system(subject.files.resolve(path))


def loader_folders(subject: ImageContext) -> set[str]:
    """Return every folder on the loader's path: its variable, settings, cache and defaults."""
    folders = {*entries(subject, "LD_LIBRARY_PATH"), *(folder.strip("/") for folder in DEFAULTS)}
    for path, content in subject.files.kept():
        if path.startswith("etc/ld.so.conf"):
            lines = content.decode("utf-8", "replace").splitlines()
            folders |= {line.strip().strip("/") for line in lines if line.strip().startswith("/")}
    folders |= {posixpath.dirname(path).strip("/") for paths in _cached(subject).values() for path in paths}
    return {subject.files.resolve(folder) for folder in folders}


_ROOT = re.compile(r"(?:^|/)lib(?:64)?/python3\.\d+/")
_STANDARD_LIBRARY_CODE = re.compile(r"\.(?:py|pyc|zip|so(?:\.[\d.]+)?)\Z")
_OTHER_LISTS = re.compile(r"\A(?:var/lib/rpm|usr/lib/sysimage/rpm)/[^/]+\Z|\Alib/apk/db/installed\Z")
"""Databases of rpm and apk. Their file lists are not read: any file of such a layer may belong to a package."""

_KINDS_GONE = ("deleted", "emptied", "file", "link", "other")


@lru_cache(maxsize=1)
def _roots(files: ImageFiles) -> dict[str, int]:
    """Return every folder with a Python's own library, and the layer that brought it."""
    found: dict[str, int] = {}
    for path, entry in files.paths.items():
        root = _ROOT.search(path) if path.endswith("/os.py") else None
        if root is not None and root.end() == len(path) - len("os.py"):
            found[path[: root.end()]] = min(one.layer for one in (*files.hidden.get(path, ()), entry))
    return found


def _root_of(files: ImageFiles, path: str) -> str:
    root = _ROOT.search(path)
    name = path[: root.end()] if root is not None else ""
    return name if name in _roots(files) else ""


def is_of_library(files: ImageFiles, path: str) -> bool:
    """Return True for code in a Python's own library; site-packages and cached byte code do not count."""
    return bool(_root_of(files, path)) and _STANDARD_LIBRARY_CODE.search(path) is not None and not site_of(path)


def added(subject: ImageContext, owned: set[str]) -> Iterator[str]:
    """Find code in a Python's own library that did not come with it: Python finds it before every package.

    If system packages brought the library, all of its code must be theirs.
    """
    files = subject.files
    for path, entry in files.paths.items():
        if entry.row.kind == "folder" or "/python3." not in path or "/__pycache__/" in path:
            continue
        if not is_of_library(files, path) or path in owned or subject.is_of_system(path):
            continue
        root = _root_of(files, path)
        since = files.hidden.get(path, (entry,))[0].layer
        if entry.layer < subject.of_base or _is_by_others(files, path, since):
            continue
        if since > _roots(files)[root] or subject.is_of_system(f"{root}os.py"):
            yield path


def _is_by_others(files: ImageFiles, path: str, layer: int) -> bool:
    """Return True if rpm or apk may have added or removed a file of the system's Python in a layer."""
    of_system = path.startswith("usr/lib")
    return of_system and any(_OTHER_LISTS.match(row.path) for row in files.records[layer].rows)


def deleted(subject: ImageContext) -> Iterator[str]:
    """Find code that a later layer deleted from a Python's own library which no system package brought."""
    files = subject.files
    gone = [
        path
        for path in files.hidden
        if path not in files.paths
        and "/__pycache__/" not in path
        and is_of_library(files, path)
        and not subject.is_of_system(path)
    ]
    if not gone:
        return
    above = {
        row.path: number
        for number, one in enumerate(files.records)
        for row in one.rows
        if number >= subject.of_base and row.kind in _KINDS_GONE
    }
    for path in gone:
        layer = next((above[one] for one in _and_above(path) if one in above), None)
        if layer is not None and not _is_by_others(files, path, layer):
            yield path


def _and_above(path: str) -> Iterator[str]:
    while path:
        yield path
        path = posixpath.dirname(path)
