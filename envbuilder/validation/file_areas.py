"""Report entries of an image by their place and by what happened to them; the rows are in ``file_areas.yaml``."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Literal

import msgspec

from envbuilder.finding import Code, Finding, Severity
from envbuilder.validation.image_context import ImageContext, finding, listed
from envbuilder.validation.image_files import StackedFile
from envbuilder.workspace import packaged_yaml

Event = Literal["added", "changed", "removed", "writable", "raised"]


class Area(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of the table; its first lines explain the fields."""

    event: Event
    area: str
    paths: str
    code: Code
    text: str
    fix: str
    kinds: tuple[str, ...] = ("file", "link")
    severity: Severity = Severity.WARNING


@cache
def _table() -> tuple[tuple[Area, re.Pattern[str]], ...]:
    rows = packaged_yaml(resources.files("envbuilder.validation") / "file_areas.yaml", tuple[Area, ...])
    return tuple((row, re.compile(row.paths)) for row in rows)


_PRIVILEGED = re.compile(r"\A(?:usr/)?(?:s?bin|lib/(?:openssh|dbus-1\.0|policykit-1|polkit-1)|libexec)/[^/]+\Z")
_OF_ENVIRONMENT = re.compile(r"/bin/(?:[Aa]ctivate[^/]*|python[\d.]*)\Z")
"""Files that every virtual environment has; checks of the interpreter compare those of Python."""


def areas(subject: ImageContext, events: Collection[Event], owned: Collection[str] = ()) -> Iterator[Finding]:
    """Find entries of the areas of some events; ``owned`` are the files that packages of Python brought."""
    rows = [(row, pattern, _HAPPENED[row.event]) for row, pattern in _table() if row.event in events]
    found: dict[Area, list[str]] = {}
    gone = ((path, before[0]) for path, before in subject.files.hidden.items() if path not in subject.files.paths)
    for path, entry in (*subject.files.paths.items(), *gone):
        for row, pattern, happened in rows:
            if entry.row.kind in row.kinds and happened(subject, path, entry) and pattern.search(path):
                if path not in owned:
                    found.setdefault(row, []).append(path)
                break
    for row, paths in found.items():
        shown = listed(paths)
        yield finding(row.severity, row.code, row.area, row.text.format(paths=shown), found=shown, fix=row.fix)


def _is_added(subject: ImageContext, path: str, entry: StackedFile) -> bool:
    if not subject.is_managed or entry.layer < subject.of_base or path not in subject.files.paths:
        return False
    return not (subject.is_of_system(path) or subject.files.hidden.get(path) or _OF_ENVIRONMENT.search(path))


def _is_changed(subject: ImageContext, path: str, entry: StackedFile) -> bool:
    return subject.is_managed and entry.layer >= subject.of_base and subject.files.is_changed(path)


def _is_removed(subject: ImageContext, path: str, entry: StackedFile) -> bool:
    before = subject.files.hidden.get(path)
    return bool(before) and subject.is_managed and (path not in subject.files.paths or not entry.row.size)


def _is_writable(subject: ImageContext, path: str, entry: StackedFile) -> bool:
    row = entry.row
    return bool(row.mode & 0o002) and row.kind != "link" and not row.mode & 0o1000 and path in subject.files.paths


def _is_raised(subject: ImageContext, path: str, entry: StackedFile) -> bool:
    """Return True for a program with other rights than its user's, unless it is as its system package brought it."""
    row = entry.row
    if not (row.mode & 0o6000 or row.has_capabilities) or row.kind != "file" or path not in subject.files.paths:
        return False
    brought = subject.files.system.layer(path)
    as_packaged = brought is None or entry.layer <= brought
    is_library = row.has_capabilities and row.binary is not None
    return bool(row.mode & 0o111 or is_library) and not (_PRIVILEGED.match(path) and as_packaged)


_HAPPENED: Mapping[Event, Callable[[ImageContext, str, StackedFile], bool]] = {
    "added": _is_added,
    "changed": _is_changed,
    "removed": _is_removed,
    "writable": _is_writable,
    "raised": _is_raised,
}
