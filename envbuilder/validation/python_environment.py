"""Check the Python of an image: its home, and modules that hide installed ones."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from envbuilder.finding import Finding, Severity
from envbuilder.support import decoding
from envbuilder.validation.file_records import site_of
from envbuilder.validation.image_context import ImageContext, escaped, found, listed
from envbuilder.validation.image_loader import SYSTEM_SITE, unmet

_NOTE = "pyvenv.cfg"
_PYTHON = re.compile(r"python(?:3(?:\.\d+)?)?\Z")
"""File names of a Python interpreter."""


def environments(subject: ImageContext, sites: set[str]) -> Iterator[Finding]:
    """Find settings that send an interpreter elsewhere, and libraries that it lacks.

    A Python looks for ``pyvenv.cfg`` one folder up; ``home`` there names the folder of its library.
    """
    for prefix in sorted({posixpath.normpath(f"{site}/../../..") for site in sites}):
        python = next((path for path in _pythons(subject, prefix) if path.endswith(("/python", "/python3"))), "")
        if not python:
            continue
        # A system's Python searches dist-packages, and below /usr/local, without a pyvenv.cfg.
        is_noted = prefix != "usr/local" and any(
            re.fullmatch(rf"{re.escape(prefix)}/[^/]+/[^/]+/site-packages", one) for one in sites
        )
        if text := _wrong_home(subject, prefix, python, is_noted=is_noted):
            yield found("other_python", subject.severity, text=text, prefix=prefix)
        for name, _, tried in unmet(subject.search, f"/{subject.files.resolve(python)}"):
            yield found("interpreter_needs", name=name, tried=", ".join(tried[:6]))


def _pythons(subject: ImageContext, prefix: str) -> list[str]:
    names = sorted(filter(_PYTHON.match, subject.search.names(f"{prefix}/bin")), key=len)
    return [path for path in (f"{prefix}/bin/{name}" for name in names) if subject.files.file(path) is not None]


def homes(note: bytes) -> list[str]:
    """Return the homes that a ``pyvenv.cfg`` names, each once. Exactly one is right.

    Python versions differ in which of several they use, and in lines without spaces.
    """
    pairs = (line.partition("=") for line in re.split(r"[\r\n]", decoding.lossy(note)))
    named = (value.strip() for key, equals, value in pairs if equals and key.strip().lower() == "home")
    return [home for home in dict.fromkeys(named) if home]


def _wrong_home(subject: ImageContext, prefix: str, python: str, *, is_noted: bool) -> str:
    """Describe a wrong or changed home of a Python; '' if there is none, or if it came so with a registry's base.

    ``is_noted`` is True if its packages are in a folder that only environments have: then it needs a ``pyvenv.cfg``.
    """
    files, note = subject.files, f"{prefix}/{_NOTE}"
    real = posixpath.dirname(files.resolve(python))
    entries = [(files.paths.get(path), path in files.hidden) for path in (note, python, files.resolve(python))]
    if not any(entry.layer >= subject.of_base if entry is not None else was_there for entry, was_there in entries):
        return ""
    if (real == f"{prefix}/bin" or not is_noted) and files.file(note) is None:
        return ""  # not an environment: its library is at its default place
    named = homes(files.content(note) or b"")
    home = files.resolve(named[0]) if len(named) == 1 else ""
    copied = real == f"{prefix}/bin" and any(name.startswith("python3") for name in subject.search.names(home))
    if len(named) != 1 or (home != real and not copied):
        sent = (
            f"sends Python to {', '.join(map(escaped, named)) or 'no folder'} for its own library"
            if files.file(note)
            else "is missing"
        )
        return f"{listed([note])} {sent}: that is in {listed([real])}"
    is_opened = files.is_changed(note) and SYSTEM_SITE.search(files.content(note) or b"")
    return (
        f"{listed([note])} was changed after the environment was made: it lets in system packages" if is_opened else ""
    )


STDLIB = re.compile(r"\A(?:(?:usr/)?(?:local/)?lib(?:64)?|etc)/python3(?:\.\d+)?/(?!(?:site|dist)-packages/)")
"""Python's own library in a system."""

_AT_THE_START = frozenset({"sitecustomize", "usercustomize"})
"""Modules that every Python imports when it starts, if they exist."""

_EXTENSIONS = "lib-dynload/"
_MODULE = re.compile(r"\.(?:py|pyc|so)\Z")
_PACKAGE = re.compile(r"\A[^/]+/__init__\.(?:py|pyc|(?:[\w-]+\.)?so)\Z")


def hiding_modules(subject: ImageContext, sites: set[str]) -> Iterator[Finding]:
    """Find modules that hide installed ones: in PYTHONPATH, the working folder, or added next to those of the lock."""
    files, told = subject.files, subject.entries("PYTHONPATH")
    if archives := [path for path in told if files.file(path) is not None]:
        yield found("archives_in_path", subject.severity, paths=listed(archives))
    asked = [("PYTHONPATH", folder) for folder in told] + [("WORKDIR", subject.image.workdir.strip("/"))]
    own, names = set(subject.python.sites) or sites, None
    for what, folder in asked:
        real = files.resolve(folder)
        modules = _modules(subject, real) if folder and real not in own else {}
        if modules and names is None:
            names = _installed(subject, sites)
        meant = (names or set()) | (_AT_THE_START if what == "PYTHONPATH" else set())  # no folder yet at the start
        if shadowing := [f"{folder}/{top}" for name, top in modules.items() if name in meant]:
            # A foreign image may do so on purpose, with a folder into which packages were installed.
            how = subject.severity if real in sites else Severity.ERROR
            yield found("hides_modules", how, what=what, paths=listed(shadowing))
    if hidden := _hidden_modules(subject):
        yield found("hidden_modules", subject.severity, paths=listed(hidden))


def _installed(subject: ImageContext, sites: set[str]) -> set[str]:
    inside = [path[len(site) + 1 :] for site in sites for path in subject.files.paths if path.startswith(site + "/")]
    own = [found.string[found.end() :] for found in map(STDLIB.match, subject.files.paths) if found]
    tops = (path.removeprefix(_EXTENSIONS).partition("/")[0] for path in (*inside, *own))
    return {top.partition(".")[0] for top in tops}


def _modules(subject: ImageContext, folder: str) -> dict[str, str]:
    """Return what Python would import from a folder: the name of a module, and its file or folder there."""
    start, paths = len(folder) + 1, subject.files.paths
    inside = [path[start:] for path in paths if path.startswith(folder + "/")]
    tops = {path.partition("/")[0] for path in inside if _PACKAGE.match(path)}
    for path in (path for path in inside if "/" not in path):
        is_linked = f"{subject.files.resolve(f'{folder}/{path}')}/__init__.py" in paths
        tops |= {path} if is_linked or _MODULE.search(path) else set()
    return {top.partition(".")[0]: top for top in tops}


def _hidden_modules(subject: ImageContext) -> list[str]:
    """Return code of added packages that Python imports in place of a module next to it, in a lower layer."""
    below = {path for path, entry in subject.files.paths.items() if subject.added and entry.layer < subject.own_layers}
    folders = {str(folder) for path in below for folder in PurePosixPath(path).parents}
    own = {(posixpath.dirname(path), _module(path, is_folder=path in folders)) for path in below | folders}
    found = set[str]()
    for path in (path for one in subject.added for path in one.rows or () if subject.is_added(path)):
        top = path
        while top and posixpath.dirname(top) not in folders:
            top = posixpath.dirname(top)
        name = _module(top, is_folder=top != path)
        if site_of(top) and name and (posixpath.dirname(top), name) in own:
            found.add(top)
    return sorted(found)


def _module(path: str, *, is_folder: bool) -> str:
    name, dot, end = posixpath.basename(path).partition(".")
    if is_folder:
        return "" if dot else name
    return name if end.endswith(("py", "pyc", "so")) else ""
