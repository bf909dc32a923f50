"""Report entries of an image by what happened to them and by their place; the rows are in ``file_areas.yaml``."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache, cached_property
from importlib import resources
from types import MappingProxyType
from typing import Literal

import msgspec

from envbuilder.finding import Code, Finding, Severity
from envbuilder.validation.file_records import distributions, site_of
from envbuilder.validation.image_context import OBJECT, OF_CUDA, ImageContext, finding, listed
from envbuilder.validation.image_files import StackedFile, is_same
from envbuilder.validation.layer_scan import KEPT
from envbuilder.workspace import packaged_yaml

Event = Literal["added", "changed", "removed", "compiled", "unread", "writable", "raised"]
Within = Literal["", "python", "loader", "path", "system", "packages"]

Owned = Mapping[str, int]
"""Path of a file of a Python package → the layer in which that package was installed."""


class Area(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of the table; its first lines explain the fields."""

    event: Event
    area: str
    code: Code
    fix: str
    paths: str = ""
    within: Within = ""
    text: str = "{area}: {paths}"
    kinds: tuple[str, ...] = ("file", "link")
    severity: Literal["error", "warning", "managed"] = "warning"
    images: Literal["all", "managed"] = "managed"
    is_cause: bool = False


@cache
def _table() -> tuple[tuple[Area, re.Pattern[str]], ...]:
    rows = packaged_yaml(resources.files("envbuilder.validation") / "file_areas.yaml", tuple[Area, ...])
    return tuple((row, re.compile(row.paths)) for row in rows)


def areas(
    subject: ImageContext, events: Collection[Event], owned: Owned = MappingProxyType({}), known: Collection[str] = ()
) -> Iterator[tuple[Finding, list[str]]]:
    """Find the entries that fit a row of some events, except the ``known`` ones, which are reported already.

    Yield a finding for each area, and the entries from which errors about other files may follow.
    """
    is_asked = {"all", "managed" if subject.is_managed else "all"}
    rows = [(row, pattern) for row, pattern in _table() if row.event in events and row.images in is_asked]
    image, found = _Entries(subject, owned), dict[str, tuple[Area, list[str]]]()
    paths, hidden = subject.files.paths, subject.files.hidden
    gone = ((path, hidden[path][0]) for path in subject.files.gone if path not in paths)
    for path, entry in (*paths.items(), *gone):
        happened = [event for event in events if path not in known and image.happened[event](path, entry)]
        if not happened:
            continue
        name = subject.files.system.name(path)
        for row, pattern in rows:
            fits = row.event in happened and entry.row.kind in row.kinds and pattern.search(name)
            if fits and image.is_within(row.within, path, entry):
                found.setdefault(row.area, (row, []))[1].append(path)
                break
    for area, (row, there) in found.items():
        severity = subject.severity if row.severity == "managed" else Severity(row.severity)
        text = row.text.format(area=area, paths=listed(there)) + subject.origin(there)
        yield finding(severity, row.code, area, text, found=listed(there), fix=row.fix), there if row.is_cause else []


_OF_ENVIRONMENT = re.compile(r"/bin/(?:[Aa]ctivate[^/]*|python[\d.]*)\Z")
"""Files that every virtual environment has; checks of the interpreter compare those of Python."""

_LISTS_OF_OTHERS = re.compile(r"\A(?:var/lib/rpm|usr/lib/sysimage/rpm)/[^/]+\Z|\Alib/apk/db/installed\Z")
"""Databases of rpm and apk. Their file lists are not read: any file of such a layer may belong to a package."""

_CODE = re.compile(r"\.(?:py|pth|egg-link|pyc|egg|zip)\Z|\.so(?:\.[\d.]+)?\Z")
_STARTED = re.compile(
    r"(?:^|/)python3[^/]*/(?:site|user)customize(?:/__init__)?\.(?:py|pyc|(?:[\w-]+\.)?so)\Z|(?:^|/)lib(?:64)?/python3\d+\.zip\Z"
)
"""Modules that every Python imports when it starts, and an archive that it searches before its own library."""

_ROOT = re.compile(r"(?:^|/)lib(?:64)?/python3\.\d+/")
_LOADER = re.compile(
    r"\A(?:usr/)?(?:local/)?lib(?:64)?/(?:(?:x86_64|aarch64)-linux-gnu/)?"
    r"(?:[^/]+\.so(?:\.[\w.]+)?|gconv/gconv-modules(?:\.d/.+)?|(?:gconv|ossl-modules|engines-[\d.]+)/.+\.so)\Z"
    r"|\A(?:(?:etc|usr/lib)/ssl|etc/pki/tls)/openssl\.cnf\Z"
)
"""Libraries in the default folders, and what the C library and OpenSSL load by a name in a locale or setting."""

_HWCAPS = re.compile(r"/(?:glibc-hwcaps/[^/]+|(?:tls/)?(?:haswell|xeon_phi|avx512_1|x86_64)(?:/[^/]+)?|tls)\Z")
"""Folders that the loader searches first, by processor: those of today, and those until glibc 2.36."""

_CUDA = re.compile(rf"(?:^|/)lib(?:{OF_CUDA})[\w-]*\.so")
"""Libraries of CUDA: other checks report which of them is loaded."""

_BYTE_CODE = re.compile(r"\A(?P<folder>.*?)/?__pycache__/(?P<stem>[^/]+)\.cpython-\d+(?:\.opt-\d)?\.pyc\Z")
_PRIVILEGED = re.compile(r"\A(?:usr/)?(?:s?bin|lib/(?:openssh|dbus-1\.0|policykit-1|polkit-1)|libexec)/[^/]+\Z")
_OF_PYTHON = ("python", "pip", "pydoc", "idle", "2to3")
"""Programs in the folder of every Python; the interpreter itself is checked elsewhere."""

_Holds = Callable[[str, StackedFile], bool]


class _Entries:
    """What happened to an entry, and where it is."""

    def __init__(self, subject: ImageContext, owned: Owned) -> None:
        self._subject, self._files, self._owned = subject, subject.files, owned
        self.happened: Mapping[Event, _Holds] = {
            "added": self._is_added,
            "changed": self._is_changed,
            "removed": self._is_removed,
            "compiled": self._is_stale_byte_code,
            "unread": self._is_unread,
            "writable": self._is_writable,
            "raised": self._is_raised,
        }

    def is_within(self, within: Within, path: str, entry: StackedFile) -> bool:
        match within:
            case "python":
                return self._is_python(path, entry)
            case "loader":
                return self._is_loaded(path, entry)
            case "path":
                return path in self._before_system and self._is_started(path)
            case "system":
                return self._brought_by_system(path) is not None
            case "packages":
                return path in self._owned
            case "":
                return True

    def _brought_by_system(self, path: str) -> int | None:
        """Return the layer in which the system package of a file was installed; None for a file of none."""
        real = path if path in self._files.paths else self._files.resolve(path)
        return self._files.system.layer(real) if self._subject.is_of_system(real) else None

    def _brought(self, path: str) -> int | None:
        layer = self._brought_by_system(path)
        return self._owned.get(path) if layer is None else layer

    def _is_added(self, path: str, entry: StackedFile) -> bool:
        if entry.row.kind == "folder" or entry.layer < self._subject.of_base or path not in self._files.paths:
            return False
        if self._brought(path) is not None or _OF_ENVIRONMENT.search(path) or "/__pycache__/" in path:
            return False
        since = self._files.hidden.get(path, (entry,))[0].layer
        return since > self._roots.get(self._root(path), -1) and not self._may_be_of_others(path, since)

    def _is_changed(self, path: str, entry: StackedFile) -> bool:
        if entry.row.kind not in ("file", "link") or entry.layer < self._subject.of_base:
            return False
        layer = self._brought(path)
        if layer is None:
            return self._files.is_changed(path)
        if entry.layer <= layer or path not in self._files.paths:
            return False
        names = (path, self._files.system.name(path))
        before = next((was for one in names if (was := self._files.was(one, layer)) is not None), None)
        return before is None or not is_same(before.row, entry.row)

    def _is_removed(self, path: str, entry: StackedFile) -> bool:
        if path in self._files.paths:  # a file that is emptied
            is_empty = entry.row.kind == "file" and not entry.row.size
            return is_empty and path in self._files.hidden and self._brought(path) is None
        layer = self._files.gone[path]
        is_moved = self._files.resolve(path) in self._files.paths
        return not (is_moved or layer < self._subject.of_base or self._may_be_of_others(path, layer))

    def _may_be_of_others(self, path: str, layer: int) -> bool:
        return path.startswith("usr/lib") and layer in self._of_others

    @cached_property
    def _of_others(self) -> frozenset[int]:
        records = enumerate(self._files.records)
        return frozenset(at for at, record in records if any(_LISTS_OF_OTHERS.match(row.path) for row in record.rows))

    def _is_stale_byte_code(self, path: str, entry: StackedFile) -> bool:
        """Return True for byte code that Python would load although a layer above its source wrote it.

        The header holds time and size, or a hash, of the source. If they fit, or the header disables the comparison,
        Python runs the byte code: the hash is the source's and says nothing about the code. A build writes byte code in
        the layer of its sources; so does a layer that installs the package of the source again.
        """
        match = _BYTE_CODE.match(path) if entry.row.kind == "file" and path in self._files.paths else None
        if match is None:
            return False
        own = posixpath.join(match["folder"], match["stem"] + ".py")
        source = self._files.paths.get(own)
        if source is None or entry.layer < self._subject.of_base or len(entry.row.head) < 16:  # noqa: PLR2004 - PEP 552
            return False
        came, brought = self._files.since(path), self._brought(own)
        is_installed = source.layer >= came and (brought is None or brought >= came)
        if came <= self._files.since(own) or is_installed or self._subject.is_added(own):
            return False
        flags, modified, size = (int.from_bytes(entry.row.head[at : at + 4], "little") for at in (4, 8, 12))
        current = (source.row.modified & 0xFFFFFFFF, source.row.size & 0xFFFFFFFF)
        return bool(flags & 1 or (flags == 0 and (modified, size) == current))

    def _is_unread(self, path: str, entry: StackedFile) -> bool:
        is_kept = entry.row.kind == "file" and path in self._files.paths and KEPT.search(path) is not None
        return is_kept and self._files.content(path) is None

    def _is_writable(self, path: str, entry: StackedFile) -> bool:
        row = entry.row
        return bool(row.mode & 0o002) and row.kind != "link" and not row.mode & 0o1000 and path in self._files.paths

    def _is_raised(self, path: str, entry: StackedFile) -> bool:
        """Return True for a program with other rights than its user's, unless a system package brought it so."""
        row = entry.row
        if not (row.mode & 0o6000 or row.has_capabilities) or row.kind != "file" or path not in self._files.paths:
            return False
        brought = self._files.system.layer(path)
        as_packaged = brought is None or entry.layer <= brought
        is_library = row.has_capabilities and row.binary is not None
        return bool(row.mode & 0o111 or is_library) and not (_PRIVILEGED.match(path) and as_packaged)

    @cached_property
    def _roots(self) -> Mapping[str, int]:
        """Every folder with a Python's own library, and the layer that brought it; -1 if system packages did."""
        found: dict[str, int] = {}
        for path, entry in self._files.paths.items():
            root = self._root(path) if path.endswith("/os.py") else ""
            if root and path == f"{root}os.py":
                since = self._files.hidden.get(path, (entry,))[0].layer
                found[root] = -1 if self._subject.is_of_system(path) else since
        return found

    def _root(self, path: str) -> str:
        root = _ROOT.search(path) if "/python3." in path else None
        return path[: root.end()] if root is not None and not site_of(path) else ""

    def _is_python(self, path: str, entry: StackedFile) -> bool:
        """Return True for a file that Python would import, of no package; also for a link to a package."""
        if path in self._owned or "/__pycache__/" in path:
            return False
        if not (site_of(path) or self._root(path) in self._roots):
            return _STARTED.search(path) is not None
        return _CODE.search(path) is not None or (entry.row.kind == "link" and self._leads_to_package(path))

    def _leads_to_package(self, path: str) -> bool:
        """Return True for a link to a folder that Python would import; a moved package is still its distribution's."""
        target = self._files.paths.get(self._files.resolve(path))
        is_folder = target is not None and target.row.kind == "folder" and "." not in posixpath.basename(path)
        return is_folder and not any(one.startswith(f"{path}/") for one in self._owned)

    def _is_loaded(self, path: str, entry: StackedFile) -> bool:
        """Return True for a library on the loader's path, unless it is CUDA's by name and by soname."""
        in_folder = OBJECT.search(path) and _HWCAPS.sub("", posixpath.dirname(path)) in self._subject.loader_folders
        real = self._files.file(path) if in_folder or _LOADER.match(path) else None
        if real is None or real.row.path in self._owned:
            return False
        if entry.row.kind == "link" and self._subject.is_of_system(real.row.path):
            return False
        binary = real.row.binary
        return not (_CUDA.search(path) and (binary is None or binary.damaged or _CUDA.search(binary.soname)))

    def _is_started(self, path: str) -> bool:
        """Return True for a program that does not lead to one of the system, as Debian's alternatives do."""
        real = self._files.file(path)
        return real is not None and bool(real.row.mode & 0o111) and not self._subject.is_of_system(real.row.path)

    @cached_property
    def _before_system(self) -> frozenset[str]:
        """Paths at which the image's PATH finds a program before the system's."""
        theirs = (path.rpartition("/") for path, _ in self._files.system.files())
        names = {name for folder, _, name in theirs if folder in ("bin", "sbin", "usr/bin", "usr/sbin")}
        own = {posixpath.normpath(f"{one.site}/../../../bin") for one in distributions(self._files)}
        places = {self._files.resolve(folder) for folder in self._subject.entries("PATH")}
        return frozenset(
            f"{place}/{name}"
            for place in places
            for name in names
            if not (place in own and name.startswith(_OF_PYTHON))
        )
