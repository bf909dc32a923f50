"""Code on Python's or the loader's path that no distribution and no system package accounts for."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from envbuilder.finding import Code, Finding, Severity
from envbuilder.probes.suite.loader import parse_cache
from envbuilder.validation.file_records import Distribution, site_of
from envbuilder.validation.outside import OF_CUDA, Outside, either, error, listed
from envbuilder.validation.python_home import python_homes

_FIX = "install it as a package of the lock, or leave it out"
_CODE = re.compile(r"\.(?:py|pth|egg-link)\Z|\.so(?:\.[\d.]+)?\Z|\.(?:pyc|egg|zip)\Z")
_STARTED = re.compile(r"(?:^|/)(?:site|user)customize(?:\.py|\.pyc|/__init__\.py|\.[\w-]+\.so)\Z")
_STDLIB = re.compile(r"\A(?:(?:usr/)?(?:local/)?lib|etc)/python3(?:\.\d+)?/(?!(?:site|dist)-packages/)")
_ZIPPED = re.compile(r"(?:^|/)lib/python3\d+\.zip\Z")
"""What Python looks into before its own library, where it is there."""

_LOADER = re.compile(r"\A(?:usr/)?(?:local/)?lib(?:64)?/(?:(?:x86_64|aarch64)-linux-gnu/)?[^/]+\.so(?:\.[\w.]+)?\Z")
_INTERPRETER = re.compile(r"\A(?:usr/)?(?:local/)?bin/python3(?:\.\d+)?\Z")
_STARTS = re.compile(r"\A(?:(?:usr/)?(?:local/)?s?bin/[^/]+|etc/ssl/openssl\.cnf)\Z")
"""Programs of the system, and what its libraries load code by: nobody changes them in a layer above their package's."""

_HWCAPS = re.compile(r"/(?:glibc-hwcaps/[^/]+|(?:tls/)?(?:haswell|xeon_phi|avx512_1|x86_64)(?:/[^/]+)?|tls)\Z")
"""Folders below one of the loader's that it looks into first, by the processor: of today's, and until glibc 2.36."""

_OTHERS = re.compile(rf"(?:^|/)lib(?:{OF_CUDA})[\w-]*\.so")
"""Libraries of CUDA: which of them is loaded, and from where, other checks say under codes of their own."""

_BYTE_CODE = re.compile(r"\A(?P<folder>.*?)/?__pycache__/(?P<stem>[^/]+)\.cpython-\d+(?:\.opt-\d)?\.pyc\Z")


def strays(subject: Outside, there: tuple[Distribution, ...], owned: set[str]) -> Iterator[Finding]:
    """Name what Python or the loader would take and nothing accounts for."""
    weight = Severity.ERROR if subject.is_ours else Severity.WARNING
    sites = {one.site for one in there}
    groups = (
        ("code of no package on Python's path", list(_unowned(subject, sites, owned))),
        ("byte code that Python runs in place of the source, written by a later layer", list(_byte_code(subject))),
        ("files of the system that a later layer replaced", list(_system(subject, deleted=False))),
        ("libraries of no package on the loader's path", list(_libraries(subject, owned))),
        ("programs of no package in front of the system's", list(_programs(subject, sites, owned))),
    )
    for what, paths in groups:
        if paths:
            yield either(weight, Code.FILES_DIFFER, what, f"{what}: {listed(paths)}", found=listed(paths), fix=_FIX)
    gone = missing_of_the_system(subject)
    if gone:
        text = f"files of the system are gone: {listed(gone)}"
        yield error(Code.FILES_DIFFER, "system packages", text, found=listed(gone), fix="leave the base as it is")
    yield from _in_front(subject, sites)
    yield from _interpreters(subject, sites)
    yield from python_homes(subject, sites)


def _interpreters(subject: Outside, sites: set[str]) -> Iterator[Finding]:
    """Name a python beside the packages that is a script, or is not what the environment was made with.

    A virtual environment's python leads to the system's, which is in a layer below it or the same one.
    """
    weight = Severity.ERROR if subject.is_ours else Severity.WARNING
    for site in sorted(sites):
        folder = posixpath.normpath(f"{site}/../../../bin")
        made = subject.files.paths.get(posixpath.normpath(f"{site}/../../../pyvenv.cfg"))
        for path in (f"{folder}/python", f"{folder}/python3"):
            found = subject.files.file(path)
            if found is not None and found.row.binary is None:
                text = f"{listed([path])} is no interpreter: whatever it is runs in the place of every program"
                yield error(Code.FILES_DIFFER, "python", text, found=f"/{path}", fix=_FIX)
            elif found is not None and made is not None and found.layer > made.layer:
                real = subject.files.resolve(path)
                if not subject.files.system.owns(real):
                    text = f"{listed([real])} was put in the place of the Python that the environment was made with"
                    yield either(weight, Code.FILES_DIFFER, "python", text, found=f"/{real}", fix=_FIX)
                    return


def missing_of_the_system(subject: Outside) -> list[str]:
    """List files of the system's packages, on Python's or the loader's path, that a later layer deleted."""
    return list(_system(subject, deleted=True))


def _unowned(subject: Outside, sites: set[str], owned: set[str]) -> Iterator[str]:
    system = subject.files.system
    for path, seen in subject.files.paths.items():
        if seen.row.kind == "folder" or not _CODE.search(path) or path in owned or system.owns(path):
            continue
        if seen.layer < subject.of_base:
            continue  # the base's own; what packages of rpm bring is not told apart
        site = site_of(path)
        if "/__pycache__/" in path:
            continue  # judged beside its source
        if (site and (site in sites or _STARTED.search(path) or subject.is_ours)) or (
            _ZIPPED.search(path) or (_STDLIB.match(path) and (_STARTED.search(path) or system.owns_below(path)))
        ):
            yield path


def _byte_code(subject: Outside) -> Iterator[str]:
    """Name byte code that Python takes without a look at the source, and that was not written with the source.

    Its header holds the time and size of the source that it was made from; where these are still the source's, or
    the header says not to look, Python runs it. What a build writes beside its sources lies in the layer of these.
    """
    paths = subject.files.paths
    for path, seen in paths.items():
        match = _BYTE_CODE.match(path) if seen.row.kind == "file" else None
        if match is None:
            continue
        source = paths.get(posixpath.join(match["folder"], match["stem"] + ".py"))
        if source is None or source.layer >= seen.layer or len(seen.row.head) < 16:  # noqa: PLR2004 - PEP 552
            continue
        if seen.layer < subject.of_base:
            continue  # whoever made the base ran its Python in a step of theirs
        flags, modified, size = (int.from_bytes(seen.row.head[at : at + 4], "little") for at in (4, 8, 12))
        current = (source.row.modified & 0xFFFFFFFF, source.row.size & 0xFFFFFFFF)
        if flags == 1 or (flags == 0 and (modified, size) == current):
            yield path


def _system(subject: Outside, *, deleted: bool) -> Iterator[str]:
    """Name files of the system's packages, on either path, that came and were changed after their package was."""
    files = subject.files
    for path, layer in files.system.files():
        needed = _STDLIB.match(path) or _LOADER.match(path) or _INTERPRETER.match(path)
        if not (needed or (not deleted and _STARTS.match(path))) or path.endswith(".pyc"):
            continue
        now = files.paths.get(path)
        if deleted and now is None and path in files.hidden:
            yield path
        if not needed and now is not None and now.layer < subject.of_base:
            continue
        if not deleted and now is not None and now.layer > layer and now.row.kind in ("file", "link"):
            before = files.hidden.get(path)
            if before is None or before.row.digest != now.row.digest:
                yield path


def _libraries(subject: Outside, owned: set[str]) -> Iterator[str]:
    """Name libraries in the loader's usual folders, and in those that it was told of, that nothing brings."""
    if not subject.is_ours:
        return
    files = subject.files
    told = _told_folders(subject)
    if "etc/ld.so.preload" in files.paths:
        yield "etc/ld.so.preload"
    for path, seen in files.paths.items():
        if seen.row.kind != "file" or path in owned or files.system.owns(path) or _OTHERS.search(path):
            continue
        if seen.layer < subject.of_base:
            continue
        in_told = _HWCAPS.sub("", path.rpartition("/")[0]) in told and re.search(r"\.so(?:\.[\w.]+)?\Z", path)
        if _LOADER.match(path) or in_told:
            yield path


def _programs(subject: Outside, sites: set[str], owned: set[str]) -> Iterator[str]:
    """Name programs that nothing brings and that are found, by the image's PATH, where one of the system's is meant."""
    files = subject.files
    own = {posixpath.normpath(f"{site}/../../../bin") for site in sites}
    folders = [files.resolve(folder) for folder in _entries(subject, "PATH")]
    theirs = {path.rpartition("/")[2] for path, _ in files.system.files() if path.startswith(_OF_THE_SYSTEM)}
    for place in dict.fromkeys(folders):
        for name in sorted(theirs):
            path = f"{place}/{name}"
            seen, started = files.paths.get(path), files.file(path)
            if seen is None or path in owned or files.system.owns(path):
                continue
            if started is None or not started.row.mode & 0o111:
                continue
            if seen.layer < subject.of_base or (place in own and name.startswith(_OF_PYTHON)):
                continue
            if seen.row.kind == "file" or (seen.row.kind == "link" and not _is_system(subject, path)):
                yield path


_OF_PYTHON = ("python", "pip", "pydoc", "idle", "2to3")
"""Programs that every Python has beside itself; what it is itself is judged elsewhere."""

_OF_THE_SYSTEM = ("bin/", "sbin/", "usr/bin/", "usr/sbin/")


def _is_system(subject: Outside, path: str) -> bool:
    """Tell whether a link ends at a file of the system's packages, as the system's own choices among them do."""
    return subject.files.system.owns(subject.files.resolve(path))


def _told_folders(subject: Outside) -> set[str]:
    folders = set(_entries(subject, "LD_LIBRARY_PATH"))
    for path, content in subject.files.kept():
        if path.startswith("etc/ld.so.conf"):
            lines = content.decode("utf-8", "replace").splitlines()
            folders |= {line.strip().strip("/") for line in lines if line.strip().startswith("/")}
    cached = parse_cache(subject.files.content("etc/ld.so.cache") or b"")
    folders |= {posixpath.dirname(path).strip("/") for paths in cached.values() for path in paths}
    return {subject.files.resolve(folder) for folder in folders}


def _entries(subject: Outside, variable: str) -> list[str]:
    """List the folders of a variable; what is relative, or left empty, is looked for where the image starts."""
    value, start = subject.image.env.get(variable, ""), subject.image.workdir or "/"
    parts = re.split(r"[:;]", value) if value else []
    return [posixpath.normpath(posixpath.join(start, part)).strip("/") for part in parts]


def _in_front(subject: Outside, sites: set[str]) -> Iterator[Finding]:
    """Name modules in PYTHONPATH, or where the image starts, that stand in front of an installed one's name."""
    files = subject.files
    folders = [("PYTHONPATH", folder) for folder in _entries(subject, "PYTHONPATH")]
    archives = [path for _, path in folders if files.file(path) is not None]
    if archives:
        weight = Severity.ERROR if subject.is_ours else Severity.WARNING
        text = f"PYTHONPATH puts archives in front of what is installed: {listed(archives)}"
        yield either(weight, Code.FILES_DIFFER, "PYTHONPATH", text, found=listed(archives), fix=_FIX)
    folders.append(("WORKDIR", subject.image.workdir.strip("/")))
    modules = {folder: _modules(subject, folder) for _, folder in folders if folder}
    if not any(modules.values()):
        return
    installed = {
        path[len(site) + 1 :].partition("/")[0] for site in sites for path in files.paths if path.startswith(site + "/")
    }
    stdlib = {found.string[found.end() :].partition("/")[0] for found in map(_STDLIB.match, files.paths) if found}
    names = {name.partition(".")[0] for name in installed | stdlib}
    for what, folder in folders:
        if not folder or files.resolve(folder) in sites:
            continue
        shadowing = [f"{folder}/{top}" for top in modules[folder] if top.partition(".")[0] in names]
        if shadowing:
            text = f"{what} puts modules in front of installed ones: {listed(shadowing)}"
            yield error(Code.FILES_DIFFER, what, text, found=listed(shadowing), fix="leave them out, or rename them")


def _modules(subject: Outside, folder: str) -> set[str]:
    """Name what a folder holds that Python would import: modules and packages."""
    inside = {path[len(folder) + 1 :] for path in subject.files.paths if path.startswith(folder + "/")}
    tops = {path.partition("/")[0] for path in inside}
    return {top for top in tops if top.endswith((".py", ".pyc", ".so")) or f"{top}/__init__.py" in inside}
