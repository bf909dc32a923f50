"""What the layers above envbuilder's own bring: packages, packages of the system, and other files by folder."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Literal

from envbuilder.support import decoding
from envbuilder.validation.file_records import distributions, site_of
from envbuilder.validation.image_context import ImageContext
from envbuilder.validation.image_files import is_list
from envbuilder.verdict import Addition

_Kind = Literal["package", "system package", "files"]
_Owner = tuple[_Kind, str, str]
_ORDER: tuple[_Kind, ...] = ("package", "system package", "files")
_DEEP = 2
"""Number of folders in the name of an area, as in ``/usr/local``."""


def additions(subject: ImageContext) -> tuple[Addition, ...]:
    """List everything that came in a layer above envbuilder's own; nothing if these layers are unknown."""
    if not subject.own_layers:
        return ()
    owner = dict(_owners(subject))
    found: dict[_Owner, list[int]] = {}
    for path, entry in subject.files.paths.items():
        if entry.layer >= subject.own_layers and entry.row.kind in ("file", "link"):
            area = "/" + "/".join(posixpath.dirname(path).split("/")[:_DEEP])
            sizes = found.setdefault(owner.get(path, ("files", area, "")), [])
            sizes.append(entry.row.size)
    return tuple(
        Addition(kind=kind, name=name, version=version, files=len(sizes), size=sum(sizes))
        for (kind, name, version), sizes in sorted(found.items(), key=lambda one: (_ORDER.index(one[0][0]), one[0]))
    )


def _owners(subject: ImageContext) -> Iterator[tuple[str, _Owner]]:
    before, now = (subject.files.packages(layers) for layers in (subject.own_layers, len(subject.files.records)))
    for path, content in subject.files.kept():
        name = posixpath.basename(path).removesuffix(".list").partition(":")[0]
        if is_list(path) and now.get(name, "") != before.get(name, ""):
            lines = (subject.files.resolve(line) for line in decoding.lossy(content).splitlines())
            yield from ((line, ("system package", name, now.get(name, ""))) for line in lines)
    records = (
        path for path, _ in subject.files.kept() if path.endswith(".dist-info/RECORD") and subject.is_later(path)
    )
    apart = {posixpath.dirname(posixpath.dirname(path)) for path in records if not site_of(path)}  # pip's --target
    for one in (*subject.added, *(one for folder in apart for one in distributions(subject.files, folder))):
        yield from ((path, ("package", one.name, one.version)) for path in one.rows or ())


def hidden_modules(subject: ImageContext) -> list[str]:
    """Return code of added packages that Python imports in place of a module next to it, in a lower layer."""
    paths, below = subject.files.paths, subject.own_layers
    files = [
        path for path, entry in paths.items() if subject.added and entry.row.kind != "folder" and entry.layer < below
    ]
    folders = set(map(posixpath.dirname, files))
    for folder in tuple(folders):
        folders.update(map(str, PurePosixPath(folder).parents))
    own = {(posixpath.dirname(path), _module(path, is_folder=path in folders)) for path in (*files, *folders)}
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
