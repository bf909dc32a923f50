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
_HOME = re.compile(rb"(?m)^home\s*=\s*(\S.*?)\s*$")
_FIX = "build the image anew from its lock, and change nothing in it afterwards"


def python_homes(subject: Outside, sites: set[str]) -> Iterator[Finding]:
    """Name what sends the Python of an environment elsewhere for its library, or keeps it from starting.

    A Python looks for ``pyvenv.cfg`` beside itself, then one folder up; ``home`` there is where its library is looked
    for. With ``pybuilddir.txt`` beside it, it takes itself for one that is being built.
    """
    weight = Severity.ERROR if subject.is_ours else Severity.WARNING
    for prefix in sorted({posixpath.normpath(f"{site}/../../..") for site in sites}):
        python = next(
            (path for path in (f"{prefix}/bin/python", f"{prefix}/bin/python3") if _is_there(subject, path)), ""
        )
        if python:
            wrong = _astray(subject, prefix, posixpath.dirname(subject.files.resolve(python)))
            if wrong:
                yield either(weight, Code.FILES_DIFFER, "python", wrong, found=f"/{prefix}", fix=_FIX)
            yield from _unmet(subject, python)


def _is_there(subject: Outside, path: str) -> bool:
    return subject.files.file(path) is not None


def _astray(subject: Outside, prefix: str, real: str) -> str:
    """Say what is wrong with where a Python thinks that it is; '' where nothing is. ``real`` is where it lies."""
    for folder in (f"{prefix}/bin", real):
        for path in (f"{folder}/{_NOTE}", f"{folder}/{_BUILD}"):
            if _is_there(subject, path):
                return f"{listed([path])} beside the interpreter sends Python elsewhere for its own library"
    note = f"{prefix}/{_NOTE}"
    if real == f"{prefix}/bin" and not _is_there(subject, note):
        return ""  # it is no environment: its library lies beside it
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
