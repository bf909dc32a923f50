"""Check the Python of an image: its interpreter, its home, and modules that hide installed ones."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from envbuilder.finding import Code, Finding, Severity
from envbuilder.probes.suite import library_dependencies
from envbuilder.support import decoding
from envbuilder.validation.image_context import ImageContext, error, finding, listed
from envbuilder.validation.image_files import StackedFile
from envbuilder.validation.image_loader import ImagePython, ImageSearch

_NOTE, _BUILD = "pyvenv.cfg", "pybuilddir.txt"
_LOCAL = "usr/local"
_PYTHON = re.compile(r"python(?:3(?:\.\d+)?)?\Z")
"""The names that a Python is called by."""

_FIX = "build the image anew from its lock, and change nothing in it afterwards"


def wrong_homes(subject: ImageContext, sites: set[str]) -> Iterator[Finding]:
    """Name what sends the Python of an environment elsewhere for its library, or keeps it from starting.

    A Python looks for ``pyvenv.cfg`` beside itself, then one folder up; ``home`` there is where its library is looked
    for. With ``pybuilddir.txt`` beside it, it takes itself for one that is being built.
    """
    weight = subject.severity
    owners: dict[str, bool] = {}
    for site in sites:
        prefix = _prefix(site)
        # A system's Python looks into dist-packages, and below /usr/local, with no note of an environment.
        is_noted = posixpath.basename(site) == "site-packages" and prefix != _LOCAL
        owners[prefix] = owners.get(prefix, False) or is_noted
    for prefix, is_noted in sorted(owners.items()):
        python = next(
            (path for path in (f"{prefix}/bin/python", f"{prefix}/bin/python3") if _is_there(subject, path)), ""
        )
        if python:
            real = posixpath.dirname(subject.files.resolve(python))
            wrong = _wrong_home(subject, prefix, real, is_noted=is_noted) or _edited(subject, prefix)
            if wrong and not _is_of_base(subject, prefix, real, python):
                yield finding(weight, Code.FILES_DIFFER, "python", wrong, found=f"/{prefix}", fix=_FIX)
            yield from _unmet(subject, python)


def interpreters(subject: ImageContext, sites: set[str]) -> Iterator[Finding]:
    """Name a python beside the packages that is a script, or is not what the environment was made with."""
    weight = subject.severity
    for prefix in sorted(set(map(_prefix, sites))):
        there = [path for path in _called(subject, prefix) if _is_there(subject, path)]
        for path in there:
            found = subject.files.file(path)
            if found is not None and found.row.binary is None:
                text = f"{listed([path])} is no interpreter: whatever it is runs in the place of every program"
                yield error(Code.FILES_DIFFER, "python", text, found=f"/{path}", fix=_FIX)
        if f"{prefix}/{_NOTE}" in subject.files.paths:
            wrong = next(filter(None, (_replaced(subject, prefix, path) for path in there)), "")
            if wrong:
                yield finding(weight, Code.FILES_DIFFER, "python", wrong, found=f"/{prefix}", fix=_FIX)


def _prefix(site: str) -> str:
    return posixpath.normpath(f"{site}/../../..")


def _called(subject: ImageContext, prefix: str) -> list[str]:
    """List the names of Pythons in an environment's folder of programs, the shortest first."""
    return sorted(
        (
            path
            for path in subject.files.paths
            if posixpath.dirname(path) == f"{prefix}/bin" and _PYTHON.match(path[len(prefix) + 5 :])
        ),
        key=len,
    )


def _replaced(subject: ImageContext, prefix: str, path: str) -> str:
    """Say that a file, which decides which Python an environment is, is not as it was made; '' where it is.

    A virtual environment's python leads to the system's, which is in a layer below it or the same one, or is a copy of
    that. A later layer that touches the note as well makes no difference to that.
    """
    files = subject.files
    real = files.resolve(path)
    for changed in dict.fromkeys((path, real)):
        if files.is_changed(changed) and not subject.is_of_system(changed):
            return f"{listed([changed])} was put in the place of what the environment was made with"
    seen, made = files.paths.get(real), files.paths.get(f"{prefix}/{_NOTE}")
    if seen is None or made is None or seen.row.binary is None:
        return ""
    if not _PYTHON.match(posixpath.basename(real)):
        return f"{listed([path])} leads to {listed([real])}, which is no Python"
    if subject.is_of_system(real) or seen.layer < subject.of_base:
        return ""
    home = homes(files.content(f"{prefix}/{_NOTE}") or b"")[:1]
    if seen.layer > made.layer or (posixpath.dirname(real) == f"{prefix}/bin" and not _is_copy(subject, home, seen)):
        return f"{listed([real])} was put in the place of the Python that the environment was made with"
    return ""


def _is_copy(subject: ImageContext, home: list[str], seen: StackedFile) -> bool:
    """Tell whether an interpreter in an environment is that of its home, byte for byte."""
    folder = subject.files.resolve(home[0]) if home else ""
    if not folder.endswith("/bin") or f"{folder}/" == posixpath.dirname(seen.row.path) + "/":
        return False
    own = (subject.files.file(path) for path in _called(subject, posixpath.dirname(folder)))
    return any(one is not None and one.row.digest == seen.row.digest for one in own)


def _is_there(subject: ImageContext, path: str) -> bool:
    return subject.files.file(path) is not None


def _beside(prefix: str, real: str) -> list[str]:
    return [f"{folder}/{name}" for folder in (f"{prefix}/bin", real) for name in (_NOTE, _BUILD)]


def _is_of_base(subject: ImageContext, prefix: str, real: str, python: str) -> bool:
    """Tell whether all that decides which Python this is comes from a registry's base, and nothing above changed it."""
    files = subject.files
    for path in (f"{prefix}/{_NOTE}", *_beside(prefix, real), python, files.resolve(python)):
        seen = files.paths.get(path)
        if path in files.hidden if seen is None else seen.layer >= subject.of_base:
            return False
    return True


def homes(note: bytes) -> list[str]:
    """List the homes that a ``pyvenv.cfg`` names, each once, as every Python of today reads it; one is as it should be.

    Which of several counts depends on the Python, and so does whether a line without spaces does.
    """
    pairs = (line.partition("=") for line in re.split(r"[\r\n]", decoding.lossy(note)))
    return list(
        dict.fromkeys(value.strip() for key, equals, value in pairs if equals and key.strip().lower() == "home")
    )


def _wrong_home(subject: ImageContext, prefix: str, real: str, *, is_noted: bool) -> str:
    """Say what is wrong with where a Python thinks that it is; '' where nothing is. ``real`` is where it lies.

    ``is_noted`` says that its packages lie where only an environment's are: it has a note of its home.
    """
    for path in _beside(prefix, real):
        if _is_there(subject, path):
            return f"{listed([path])} beside the interpreter sends Python elsewhere for its own library"
    note = f"{prefix}/{_NOTE}"
    if (real == f"{prefix}/bin" or not is_noted) and not _is_there(subject, note):
        return ""  # it is no environment: its library lies beside it, or where its system has it
    found = [one for one in homes(subject.files.content(note) or b"") if one]
    if not found:
        return f"{listed([note])} is gone, or names no home: Python does not find the packages of this environment"
    if len(found) > 1:
        return f"{listed([note])} names {len(found)} homes: which of them counts depends on the Python"
    home = subject.files.resolve(found[0])
    copied = real == f"{prefix}/bin" and any(path.startswith(f"{home}/python3") for path in subject.files.paths)
    if home != real and not copied:
        return f"{listed([note])} sends Python to {listed([home])} for its own library, and it lies in {listed([real])}"
    return ""


def _edited(subject: ImageContext, prefix: str) -> str:
    """Say that a later layer wrote another note than the environment was made with; '' where none did."""
    note = f"{prefix}/{_NOTE}"
    return f"{listed([note])} is not what the environment was made with" if subject.files.is_changed(note) else ""


def _unmet(subject: ImageContext, python: str) -> Iterator[Finding]:
    """Name libraries that the interpreter itself needs and that are not there: it starts with none of them missing."""
    search = ImageSearch(subject.files, subject.image)
    for name, _, tried in library_dependencies.unmet(search, f"/{subject.files.resolve(python)}"):
        text = f"{name}, which the interpreter needs, is not where the loader looks: Python does not start"
        yield error(Code.MISSING_LIBRARY, name, text, requires=name, found=", ".join(tried[:6]), fix=_FIX)


STDLIB = re.compile(r"\A(?:(?:usr/)?(?:local/)?lib(?:64)?|etc)/python3(?:\.\d+)?/(?!(?:site|dist)-packages/)")
"""Where a system has its Python's own library."""

_AT_THE_START = frozenset({"sitecustomize", "usercustomize"})
"""Modules that every Python looks for when it starts, installed or not."""

_EXTENSIONS = "lib-dynload/"
_MODULE = re.compile(r"\.(?:py|pyc|so)\Z")
_PACKAGE = re.compile(r"\A[^/]+/__init__\.(?:py|pyc|(?:[\w-]+\.)?so)\Z")


def entries(subject: ImageContext, variable: str) -> list[str]:
    """List the folders of a variable; what is relative, or left empty, is looked for where the image starts."""
    value, start = subject.image.env.get(variable, ""), subject.image.workdir or "/"
    parts = re.split(r"[:;]", value) if value else []
    return [posixpath.normpath(posixpath.join(start, part)).strip("/") for part in parts]


def hiding_modules(subject: ImageContext, sites: set[str]) -> Iterator[Finding]:
    """Name modules in PYTHONPATH, or where the image starts, that stand in front of an installed one's name."""
    files = subject.files
    told = entries(subject, "PYTHONPATH")
    archives = [path for path in told if files.file(path) is not None]
    weight = subject.severity
    if archives:
        text = f"PYTHONPATH puts archives in front of what is installed: {listed(archives)}"
        fix = "install it as a package of the lock, or leave it out"
        yield finding(weight, Code.FILES_DIFFER, "PYTHONPATH", text, found=listed(archives), fix=fix)
    asked = [("PYTHONPATH", folder) for folder in told] + [("WORKDIR", subject.image.workdir.strip("/"))]
    modules = {folder: _modules(subject, files.resolve(folder)) for _, folder in asked if folder}
    if not any(modules.values()):
        return
    names = _installed(subject, sites)
    own = set(ImagePython(files, subject.image).sites) or sites
    for what, folder in asked:
        if not folder or files.resolve(folder) in own:
            continue
        meant = names | _AT_THE_START if what == "PYTHONPATH" else names  # a Python has no folder yet when it starts
        shadowing = [f"{folder}/{top}" for top in modules[folder] if top.partition(".")[0] in meant]
        if shadowing:
            text = f"{what} puts modules in front of installed ones: {listed(shadowing)}"
            # What of others is laid out so may be meant to be: a folder that packages were installed in.
            how = weight if files.resolve(folder) in sites else Severity.ERROR
            fix = "leave them out, or rename them"
            yield finding(how, Code.FILES_DIFFER, what, text, found=listed(shadowing), fix=fix)


def _installed(subject: ImageContext, sites: set[str]) -> set[str]:
    """Name the modules and packages that are installed, Python's own and its extensions among them."""
    inside = [path[len(site) + 1 :] for site in sites for path in subject.files.paths if path.startswith(site + "/")]
    own = [found.string[found.end() :] for found in map(STDLIB.match, subject.files.paths) if found]
    tops = (path.removeprefix(_EXTENSIONS).partition("/")[0] for path in (*inside, *own))
    return {top.partition(".")[0] for top in tops}


def _modules(subject: ImageContext, folder: str) -> set[str]:
    """Name what a folder holds that Python would import: modules and packages."""
    inside = [path[len(folder) + 1 :] for path in subject.files.paths if path.startswith(folder + "/")]
    loose = {path for path in inside if "/" not in path and _MODULE.search(path)}
    return loose | {path.partition("/")[0] for path in inside if _PACKAGE.match(path)}
