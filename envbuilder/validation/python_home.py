"""What decides which Python an environment is: its note of its home, and what stands beside the interpreter."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from envbuilder.finding import Code, Finding, Severity
from envbuilder.probes.suite import closure
from envbuilder.validation.image_loader import ImageSearch
from envbuilder.validation.outside import Outside, either, error, listed

_NOTE, _BUILD = "pyvenv.cfg", "pybuilddir.txt"
_LOCAL = "usr/local"
_HOME = re.compile(rb"(?m)^home\s*=\s*(\S.*?)\s*$")
_FIX = "build the image anew from its lock, and change nothing in it afterwards"


def python_homes(subject: Outside, sites: set[str]) -> Iterator[Finding]:
    """Name what sends the Python of an environment elsewhere for its library, or keeps it from starting.

    A Python looks for ``pyvenv.cfg`` beside itself, then one folder up; ``home`` there is where its library is looked
    for. With ``pybuilddir.txt`` beside it, it takes itself for one that is being built.
    """
    weight = Severity.ERROR if subject.is_ours else Severity.WARNING
    owners: dict[str, bool] = {}
    for site in sites:
        prefix = posixpath.normpath(f"{site}/../../..")
        # A system's Python looks into dist-packages, and below /usr/local, with no note of an environment.
        is_noted = posixpath.basename(site) == "site-packages" and prefix != _LOCAL
        owners[prefix] = owners.get(prefix, False) or is_noted
    for prefix, is_noted in sorted(owners.items()):
        python = next(
            (path for path in (f"{prefix}/bin/python", f"{prefix}/bin/python3") if _is_there(subject, path)), ""
        )
        if python:
            real = posixpath.dirname(subject.files.resolve(python))
            wrong = _astray(subject, prefix, real, is_noted=is_noted)
            if wrong and not _is_of_base(subject, prefix, real, python):
                yield either(weight, Code.FILES_DIFFER, "python", wrong, found=f"/{prefix}", fix=_FIX)
            yield from _unmet(subject, python)


def _is_there(subject: Outside, path: str) -> bool:
    return subject.files.file(path) is not None


def _beside(prefix: str, real: str) -> list[str]:
    return [f"{folder}/{name}" for folder in (f"{prefix}/bin", real) for name in (_NOTE, _BUILD)]


def _is_of_base(subject: Outside, prefix: str, real: str, python: str) -> bool:
    """Tell whether all that decides which Python this is comes from a registry's base, and nothing above changed it."""
    files = subject.files
    for path in (f"{prefix}/{_NOTE}", *_beside(prefix, real), python, files.resolve(python)):
        seen = files.paths.get(path)
        if path in files.hidden if seen is None else seen.layer >= subject.of_base:
            return False
    return True


def _astray(subject: Outside, prefix: str, real: str, *, is_noted: bool) -> str:
    """Say what is wrong with where a Python thinks that it is; '' where nothing is. ``real`` is where it lies.

    ``is_noted`` says that its packages lie where only an environment's are: it has a note of its home.
    """
    for path in _beside(prefix, real):
        if _is_there(subject, path):
            return f"{listed([path])} beside the interpreter sends Python elsewhere for its own library"
    note = f"{prefix}/{_NOTE}"
    if (real == f"{prefix}/bin" or not is_noted) and not _is_there(subject, note):
        return ""  # it is no environment: its library lies beside it, or where its system has it
    found = _HOME.search(subject.files.content(note) or b"")
    if found is None:
        return f"{listed([note])} is gone, or names no home: Python does not find the packages of this environment"
    home = subject.files.resolve(found[1].decode("utf-8", "replace"))
    copied = real == f"{prefix}/bin" and any(path.startswith(f"{home}/python3") for path in subject.files.paths)
    if home != real and not copied:
        return f"{listed([note])} sends Python to {listed([home])} for its own library, and it lies in {listed([real])}"
    return ""


def _unmet(subject: Outside, python: str) -> Iterator[Finding]:
    """Name libraries that the interpreter itself needs and that are not there: it starts with none of them missing."""
    search = ImageSearch(subject.files, subject.image)
    for name, _, tried in closure.unmet(search, f"/{subject.files.resolve(python)}"):
        text = f"{name}, which the interpreter needs, is not where the loader looks: Python does not start"
        yield error(Code.MISSING_LIBRARY, name, text, requires=name, found=", ".join(tried[:6]), fix=_FIX)
