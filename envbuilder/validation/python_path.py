"""Where an image's variables and its folder of start send Python for modules, before it looks at what is installed."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from envbuilder.finding import Code, Finding, Severity
from envbuilder.validation.image_loader import ImagePython
from envbuilder.validation.outside import Outside, either, listed

STDLIB = re.compile(r"\A(?:(?:usr/)?(?:local/)?lib(?:64)?|etc)/python3(?:\.\d+)?/(?!(?:site|dist)-packages/)")
"""Where a system has its Python's own library."""

_AT_THE_START = frozenset({"sitecustomize", "usercustomize"})
"""Modules that every Python looks for when it starts, installed or not."""

_EXTENSIONS = "lib-dynload/"
_MODULE = re.compile(r"\.(?:py|pyc|so)\Z")
_PACKAGE = re.compile(r"\A[^/]+/__init__\.(?:py|pyc|(?:[\w-]+\.)?so)\Z")


def entries(subject: Outside, variable: str) -> list[str]:
    """List the folders of a variable; what is relative, or left empty, is looked for where the image starts."""
    value, start = subject.image.env.get(variable, ""), subject.image.workdir or "/"
    parts = re.split(r"[:;]", value) if value else []
    return [posixpath.normpath(posixpath.join(start, part)).strip("/") for part in parts]


def modules_in_front(subject: Outside, sites: set[str]) -> Iterator[Finding]:
    """Name modules in PYTHONPATH, or where the image starts, that stand in front of an installed one's name."""
    files = subject.files
    told = entries(subject, "PYTHONPATH")
    archives = [path for path in told if files.file(path) is not None]
    weight = Severity.ERROR if subject.is_ours else Severity.WARNING
    if archives:
        text = f"PYTHONPATH puts archives in front of what is installed: {listed(archives)}"
        fix = "install it as a package of the lock, or leave it out"
        yield either(weight, Code.FILES_DIFFER, "PYTHONPATH", text, found=listed(archives), fix=fix)
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
            yield either(how, Code.FILES_DIFFER, what, text, found=listed(shadowing), fix=fix)


def _installed(subject: Outside, sites: set[str]) -> set[str]:
    """Name the modules and packages that are installed, Python's own and its extensions among them."""
    inside = [path[len(site) + 1 :] for site in sites for path in subject.files.paths if path.startswith(site + "/")]
    own = [found.string[found.end() :] for found in map(STDLIB.match, subject.files.paths) if found]
    tops = (path.removeprefix(_EXTENSIONS).partition("/")[0] for path in (*inside, *own))
    return {top.partition(".")[0] for top in tops}


def _modules(subject: Outside, folder: str) -> set[str]:
    """Name what a folder holds that Python would import: modules and packages."""
    inside = [path[len(folder) + 1 :] for path in subject.files.paths if path.startswith(folder + "/")]
    loose = {path for path in inside if "/" not in path and _MODULE.search(path)}
    return loose | {path.partition("/")[0] for path in inside if _PACKAGE.match(path)}
