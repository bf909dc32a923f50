"""The own library of every Python of an image: what later layers added to it, changed in it, or took away."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from functools import lru_cache

from envbuilder.validation.file_records import site_of
from envbuilder.validation.image_files import ImageFiles
from envbuilder.validation.outside import Outside

_ROOT = re.compile(r"(?:^|/)lib(?:64)?/python3\.\d+/")
_CODE = re.compile(r"\.(?:py|pyc|zip|so(?:\.[\d.]+)?)\Z")
_OTHER_LISTS = re.compile(r"\A(?:var/lib/rpm|usr/lib/sysimage/rpm)/[^/]+\Z|\Alib/apk/db/installed\Z")
"""Where rpm and apk write what they install: which files that is, is not read, and may be any in such a layer."""

_KINDS_GONE = ("deleted", "emptied", "file", "link", "other")


@lru_cache(maxsize=1)
def _roots(files: ImageFiles) -> dict[str, int]:
    """Return every folder that is a Python's own library, wherever it lies, and the layer that brought it."""
    found: dict[str, int] = {}
    for path, seen in files.paths.items():
        root = _ROOT.search(path) if path.endswith("/os.py") else None
        if root is not None and root.end() == len(path) - len("os.py"):
            found[path[: root.end()]] = min(one.layer for one in (*files.hidden.get(path, ()), seen))
    return found


def _root_of(files: ImageFiles, path: str) -> str:
    root = _ROOT.search(path)
    name = path[: root.end()] if root is not None else ""
    return name if name in _roots(files) else ""


def is_of_library(files: ImageFiles, path: str) -> bool:
    """Tell whether a path is that of code in a Python's own library, packages and cached byte code apart."""
    return bool(_root_of(files, path)) and _CODE.search(path) is not None and not site_of(path)


def added(subject: Outside, owned: set[str]) -> Iterator[str]:
    """Name code that is in a Python's own library and that did not come with it: it stands in front of every package.

    Of a library that the system's packages brought, all has to be theirs.
    """
    files = subject.files
    for path, seen in files.paths.items():
        if seen.row.kind == "folder" or "/python3." not in path or "/__pycache__/" in path:
            continue
        if not is_of_library(files, path) or path in owned or subject.is_of_system(path):
            continue
        root = _root_of(files, path)
        since = files.hidden.get(path, (seen,))[0].layer
        if seen.layer < subject.of_base or _is_by_others(files, path, since):
            continue
        if since > _roots(files)[root] or subject.is_of_system(f"{root}os.py"):
            yield path


def _is_by_others(files: ImageFiles, path: str, layer: int) -> bool:
    """Tell whether a layer's rpm or apk may have brought, or taken, a file of the system's Python."""
    of_system = path.startswith("usr/lib")
    return of_system and any(_OTHER_LISTS.match(row.path) for row in files.records[layer].rows)


def deleted(subject: Outside) -> Iterator[str]:
    """Name code of a Python's own library, of one that no package of the system brought, that a later layer deleted."""
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
