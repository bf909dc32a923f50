"""Check the Python of an image: its interpreter, its home, and modules that hide installed ones."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from envbuilder.finding import Code, Finding, Severity
from envbuilder.support import decoding
from envbuilder.validation.image_context import ImageContext, error, finding, listed
from envbuilder.validation.image_files import StackedFile
from envbuilder.validation.image_loader import unmet

_NOTE, _BUILD = "pyvenv.cfg", "pybuilddir.txt"
_LOCAL = "usr/local"
_PYTHON = re.compile(r"python(?:3(?:\.\d+)?)?\Z")
"""File names of a Python interpreter."""

_FIX = "rebuild the image from its lock, and change nothing in it afterwards"


def wrong_homes(subject: ImageContext, sites: set[str]) -> Iterator[Finding]:
    """Find settings that send the Python of an environment elsewhere for its library, or keep it from starting.

    A Python looks for ``pyvenv.cfg`` in its own folder, then one folder up; ``home`` there names the folder of its
    library. With ``pybuilddir.txt`` in its folder it takes itself for a Python under construction.
    """
    weight = subject.severity
    owners: dict[str, bool] = {}
    for site in sites:
        prefix = _prefix(site)
        # A system's Python searches dist-packages, and below /usr/local, without a pyvenv.cfg.
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
    """Find an interpreter of the packages that is a script, or not the one that the environment was made with."""
    weight = subject.severity
    for prefix in sorted(set(map(_prefix, sites))):
        there = [path for path in _called(subject, prefix) if _is_there(subject, path)]
        for path in there:
            found = subject.files.file(path)
            if found is not None and found.row.binary is None:
                text = f"{listed([path])} is not an interpreter: it runs instead of every Python program"
                yield error(Code.FILES_DIFFER, "python", text, found=f"/{path}", fix=_FIX)
        if f"{prefix}/{_NOTE}" in subject.files.paths:
            wrong = next(filter(None, (_replaced(subject, prefix, path) for path in there)), "")
            if wrong:
                yield finding(weight, Code.FILES_DIFFER, "python", wrong, found=f"/{prefix}", fix=_FIX)


def _prefix(site: str) -> str:
    return posixpath.normpath(f"{site}/../../..")


def _called(subject: ImageContext, prefix: str) -> list[str]:
    """Return the interpreters in an environment's bin folder, the shortest name first."""
    return sorted(
        (
            path
            for path in subject.files.paths
            if posixpath.dirname(path) == f"{prefix}/bin" and _PYTHON.match(path[len(prefix) + 5 :])
        ),
        key=len,
    )


def _replaced(subject: ImageContext, prefix: str, path: str) -> str:
    """Describe an interpreter that replaced the original one; '' if none did.

    The python of a virtual environment is a link to the system's Python in the same or a lower layer, or a copy of it.
    """
    files = subject.files
    real = files.resolve(path)
    for changed in dict.fromkeys((path, real)):
        if files.is_changed(changed) and not subject.is_of_system(changed):
            return f"{listed([changed])} replaced the file that the environment was made with"
    entry, made = files.paths.get(real), files.paths.get(f"{prefix}/{_NOTE}")
    if entry is None or made is None or entry.row.binary is None:
        return ""
    if not _PYTHON.match(posixpath.basename(real)):
        return f"{listed([path])} leads to {listed([real])}, which is not a Python"
    if subject.is_of_system(real) or entry.layer < subject.of_base:
        return ""
    home = homes(files.content(f"{prefix}/{_NOTE}") or b"")[:1]
    if entry.layer > made.layer or (posixpath.dirname(real) == f"{prefix}/bin" and not _is_copy(subject, home, entry)):
        return f"{listed([real])} replaced the Python that the environment was made with"
    return ""


def _is_copy(subject: ImageContext, home: list[str], entry: StackedFile) -> bool:
    """Return True if an interpreter in an environment equals that of its home, byte for byte."""
    folder = subject.files.resolve(home[0]) if home else ""
    if not folder.endswith("/bin") or f"{folder}/" == posixpath.dirname(entry.row.path) + "/":
        return False
    own = (subject.files.file(path) for path in _called(subject, posixpath.dirname(folder)))
    return any(one is not None and one.row.digest == entry.row.digest for one in own)


def _is_there(subject: ImageContext, path: str) -> bool:
    return subject.files.file(path) is not None


def _beside(prefix: str, real: str) -> list[str]:
    return [f"{folder}/{name}" for folder in (f"{prefix}/bin", real) for name in (_NOTE, _BUILD)]


def _is_of_base(subject: ImageContext, prefix: str, real: str, python: str) -> bool:
    """Return True if the interpreter and its settings come from a registry's base, unchanged above it."""
    files = subject.files
    for path in (f"{prefix}/{_NOTE}", *_beside(prefix, real), python, files.resolve(python)):
        entry = files.paths.get(path)
        if path in files.hidden if entry is None else entry.layer >= subject.of_base:
            return False
    return True


def homes(note: bytes) -> list[str]:
    """Return the homes that a ``pyvenv.cfg`` names, each once. Exactly one is right.

    Python versions differ in which of several they use, and in lines without spaces.
    """
    pairs = (line.partition("=") for line in re.split(r"[\r\n]", decoding.lossy(note)))
    return list(
        dict.fromkeys(value.strip() for key, equals, value in pairs if equals and key.strip().lower() == "home")
    )


def _wrong_home(subject: ImageContext, prefix: str, real: str, *, is_noted: bool) -> str:
    """Describe a wrong home of a Python; '' if there is none. ``real`` is its real folder.

    ``is_noted`` is True if its packages are in a folder that only environments have: then it needs a ``pyvenv.cfg``.
    """
    for path in _beside(prefix, real):
        if _is_there(subject, path):
            return f"{listed([path])} next to the interpreter sends Python elsewhere for its own library"
    note = f"{prefix}/{_NOTE}"
    if (real == f"{prefix}/bin" or not is_noted) and not _is_there(subject, note):
        return ""  # not an environment: its library is at its default place
    found = [one for one in homes(subject.files.content(note) or b"") if one]
    if not found:
        return f"{listed([note])} is missing, or names no home: Python does not find the packages of this environment"
    if len(found) > 1:
        return f"{listed([note])} names {len(found)} homes: Python versions differ in which one they use"
    home = subject.files.resolve(found[0])
    copied = real == f"{prefix}/bin" and any(path.startswith(f"{home}/python3") for path in subject.files.paths)
    if home != real and not copied:
        return f"{listed([note])} sends Python to {listed([home])} for its own library, which is in {listed([real])}"
    return ""


def _edited(subject: ImageContext, prefix: str) -> str:
    """Describe a ``pyvenv.cfg`` that a later layer changed; '' if none did."""
    note = f"{prefix}/{_NOTE}"
    return f"{listed([note])} was changed after the environment was made" if subject.files.is_changed(note) else ""


def _unmet(subject: ImageContext, python: str) -> Iterator[Finding]:
    """Find missing libraries of the interpreter itself."""
    for name, _, tried in unmet(subject.search, f"/{subject.files.resolve(python)}"):
        text = f"{name}, which the interpreter needs, is not where the loader looks: Python does not start"
        yield error(Code.MISSING_LIBRARY, name, text, requires=name, found=", ".join(tried[:6]), fix=_FIX)


STDLIB = re.compile(r"\A(?:(?:usr/)?(?:local/)?lib(?:64)?|etc)/python3(?:\.\d+)?/(?!(?:site|dist)-packages/)")
"""Python's own library in a system."""

_AT_THE_START = frozenset({"sitecustomize", "usercustomize"})
"""Modules that every Python imports when it starts, if they exist."""

_EXTENSIONS = "lib-dynload/"
_MODULE = re.compile(r"\.(?:py|pyc|so)\Z")
_PACKAGE = re.compile(r"\A[^/]+/__init__\.(?:py|pyc|(?:[\w-]+\.)?so)\Z")


def entries(subject: ImageContext, variable: str) -> list[str]:
    """Return the folders of a variable; relative and empty ones are relative to the image's working folder."""
    value, start = subject.image.env.get(variable, ""), subject.image.workdir or "/"
    parts = re.split(r"[:;]", value) if value else []
    return [posixpath.normpath(posixpath.join(start, part)).strip("/") for part in parts]


def hiding_modules(subject: ImageContext, sites: set[str]) -> Iterator[Finding]:
    """Find modules in PYTHONPATH or the working folder that hide installed modules of the same name."""
    files = subject.files
    told = entries(subject, "PYTHONPATH")
    archives = [path for path in told if files.file(path) is not None]
    weight = subject.severity
    if archives:
        text = f"PYTHONPATH puts archives before installed packages: {listed(archives)}"
        fix = "install it as a package of the lock, or leave it out"
        yield finding(weight, Code.FILES_DIFFER, "PYTHONPATH", text, found=listed(archives), fix=fix)
    asked = [("PYTHONPATH", folder) for folder in told] + [("WORKDIR", subject.image.workdir.strip("/"))]
    modules = {folder: _modules(subject, files.resolve(folder)) for _, folder in asked if folder}
    if not any(modules.values()):
        return
    names = _installed(subject, sites)
    own = set(subject.python.sites) or sites
    for what, folder in asked:
        if not folder or files.resolve(folder) in own:
            continue
        meant = names | _AT_THE_START if what == "PYTHONPATH" else names  # a Python has no folder yet when it starts
        shadowing = [f"{folder}/{top}" for top in modules[folder] if top.partition(".")[0] in meant]
        if shadowing:
            text = f"{what} hides installed modules: {listed(shadowing)}"
            # A foreign image may do so on purpose, with a folder into which packages were installed.
            how = weight if files.resolve(folder) in sites else Severity.ERROR
            fix = "leave them out, or rename them"
            yield finding(how, Code.FILES_DIFFER, what, text, found=listed(shadowing), fix=fix)


def _installed(subject: ImageContext, sites: set[str]) -> set[str]:
    """Return the names of installed modules and packages, including Python's own and its extensions."""
    inside = [path[len(site) + 1 :] for site in sites for path in subject.files.paths if path.startswith(site + "/")]
    own = [found.string[found.end() :] for found in map(STDLIB.match, subject.files.paths) if found]
    tops = (path.removeprefix(_EXTENSIONS).partition("/")[0] for path in (*inside, *own))
    return {top.partition(".")[0] for top in tops}


def _modules(subject: ImageContext, folder: str) -> set[str]:
    inside = [path[len(folder) + 1 :] for path in subject.files.paths if path.startswith(folder + "/")]
    loose = {path for path in inside if "/" not in path and _MODULE.search(path)}
    tops = (path for path in inside if "/" not in path)
    linked = {top for top in tops if f"{subject.files.resolve(f'{folder}/{top}')}/__init__.py" in subject.files.paths}
    return loose | linked | {path.partition("/")[0] for path in inside if _PACKAGE.match(path)}
