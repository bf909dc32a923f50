"""Account for each entry of an image in one pass: its owner, what happened to it, and its place (`file_areas.yaml`)."""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, cached_property
from typing import Any, Literal, NamedTuple

import msgspec

from envbuilder.finding import Code, Finding, Severity
from envbuilder.support import decoding, pem
from envbuilder.support.architectures import ARCHS
from envbuilder.validation.image_context import SUITE_USER, ImageContext, counted, listed, may, one_line
from envbuilder.validation.image_files import StackedFile, is_same
from envbuilder.validation.image_loader import LOADED, STUB_AT_MOST, InstalledPackage, distributions, prefix_of, site_of
from envbuilder.validation.layer_scan import PATHS, FileRow
from envbuilder.workspace import packaged_yaml

Event = Literal[
    "added", "changed", "removed", "compiled", "unread", "brought", "based", "writable", "raised", "closed", "private",
    "differs", "missing", "unhashed", "altered", "damaged", "machine", "renamed", "unlike",
    "stranded", "misled", "capable", "relinked",
]  # fmt: skip
Within = Literal[
    "", "python", "interpreter", "nowhere", "loader", "path", "system", "packages", "sites", "driver", "authorities",
    "started", "commands", "environment", "twin", "preloaded", "lacking", "pointing", "unpackaged",
]  # fmt: skip
Reporter = Literal["files", "configuration", "secrets", "binaries", "no-stub"]

_MACHINES = {**ARCHS, "386": "i386", "ppc64le": "ppc64le", "arm": "arm"}
# Programs in the folder of every Python; the interpreter itself is checked elsewhere.
_OF_PYTHON = ("python", "pip", "pydoc", "idle", "2to3")
_FORMATS = {True: (b"BC\xc0\xde", b"\xde\xc0\x17\x0b"), False: (b"\x7fELF",)}  # of LLVM's bitcode, or an object
_POINTS = re.compile(rb"""(?m)^import[ \t].*['"](?:file:)?/""")
_PACKAGED = "usr/share/ca-certificates/"
_MAJOR = re.compile(r"\.so\.(\d+)")


class Difference(NamedTuple):
    """A file that differs from its row in a RECORD; ``is_own``: of a package of the lock of a managed image."""

    event: Event
    path: str
    package: InstalledPackage
    is_own: bool


class Area(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    event: Event
    area: str
    code: Code = Code.FILES_DIFFER
    fix: str = ""
    check: Reporter = "files"
    paths: str = ""
    within: Within = ""
    target: str = ""
    text: str = "{area}: {paths}"
    kinds: tuple[str, ...] = ("file", "link")
    severity: Literal["error", "warning", "managed", "info", "none"] = "warning"
    images: Literal["all", "managed", "others"] = "managed"
    of_additions: bool = True
    is_cause: bool = False
    decides: bool = False  # in a foreign image: it was compared with nothing, and is loaded
    follow: frozenset[Code] = frozenset()  # what a probe gives if this is its cause, even as a warning


class _Found(NamedTuple):
    area: Area
    package: InstalledPackage | None
    paths: dict[str, str]
    entry: FileRow | None = None


class Reported(NamedTuple):
    area: Area
    finding: Finding
    paths: tuple[str, ...]


@cache
def _rows_of(events: tuple[Event, ...], *, is_own: bool) -> tuple[tuple[Area, re.Pattern[str]], ...]:
    images = ("all", "managed" if is_own else "others")
    table = packaged_yaml("validation/file_areas.yaml", tuple[Area, ...])
    return tuple((row, re.compile(row.paths)) for row in table if row.event in events and row.images in images)


def report(
    subject: ImageContext, packages: Mapping[str, int], differences: Iterable[Difference]
) -> tuple[Reported, ...]:
    """Return a finding for each row that something fits; ``packages``: path → the layer that installed it."""
    image, found, files = _Entries(subject, packages), dict[tuple[str, ...], _Found](), subject.files
    differing = set[str]()
    for event, path, package, is_own in differences:
        differing.add(path)
        row = next(_rows((event,), path, is_own=is_own), None)
        if row is not None:
            found.setdefault((f"{event} {row.area}", package.folder), _Found(row, package, {})).paths[path] = path
    gone = {path: files.hidden[path][0] for path in files.gone if path not in files.paths}
    for path, entry in {**files.paths, **gone}.items():
        events = tuple(image.happened(path, entry))
        reporters = {"files"} if path in differing else set[str]()
        for row in _rows(events, files.system.names.get(path, path), is_own=subject.is_managed):
            if row.check not in reporters and image.fits(row, path, entry):
                reporters.add(row.check)
                shown = image.closed(path, entry.row, image.users[row.event]) if row.event in image.users else path
                key = (row.area, row.text, path if "{first}" in row.area else "")
                found.setdefault(key, _Found(row, None, {}, (files.file(path) or entry).row)).paths[path] = shown
    return tuple(_reported(subject, one) for one in found.values() if one.area.severity != "none")


def _rows(events: tuple[Event, ...], path: str, *, is_own: bool) -> Iterator[Area]:
    return (row for row, paths in _rows_of(events, is_own=is_own) if paths.search(path))


def _reported(subject: ImageContext, one: _Found) -> Reported:
    row, paths = one.area, sorted(set(one.paths.values()))
    severity = subject.severity if row.severity == "managed" else Severity(row.severity)
    real = subject.files.resolve(paths[0])
    is_moved = real != paths[0] and (one.package is not None or row.within == "interpreter")
    named = _preloaded(subject, paths[0]) if "{named}" in row.text else []
    absent = any(path not in subject.files.paths for path in named)
    about = {
        "one": one.package,
        "files": counted(len(paths), "file"),
        "programs": counted(len(paths), "program"),
        "are": "is" if len(paths) == 1 else "are",
        "event": row.event,
        "paths": listed(paths) + (f", now {listed([real])}" if is_moved else ""),
        "named": listed(named) + (", not in the image," if absent else ""),
        "by": f" (by {by})" if (by := subject.loader_folders.get(posixpath.dirname(paths[0]), "")) else "",
        "first": posixpath.basename(paths[0]),
        "origin": subject.origin(paths),
        "user": (subject.image.user or "root")[:80],
        "image": subject.image,
        "entry": one.entry,
    }
    area = row.area.format_map(about)
    text = row.text.format_map({**about, "area": area}) + ("" if "{origin}" in row.text else str(about["origin"]))
    wanted: dict[str, Any] = {"requires" if row.event == "missing" else "found": listed(paths)}
    finding = one_line(Finding(code=row.code, severity=severity, subject=area, message=text, fix=row.fix, **wanted))
    return Reported(row, finding, tuple(one.paths))


def _preloaded(subject: ImageContext, path: str) -> list[str]:
    names = re.split(r"[\s:]+", decoding.lossy(subject.files.content(path) or b"").strip())
    found = (name if "/" in name else subject.search.find(name)[0] or name for name in names if name)
    return [subject.files.resolve(one) for one in found]


class _Entries:
    def __init__(self, subject: ImageContext, packages: Mapping[str, int]) -> None:
        self._subject, self._files, self._packages = subject, subject.files, packages
        self.users: Mapping[Event, int | None] = {"closed": subject.user, "private": SUITE_USER}
        self._outermost_closed = cache(self._closed_folder)
        sites = tuple(f"{site}/" for site in (*subject.python.sites, *subject.entries("PYTHONPATH")))
        prefixes = tuple(f"{prefix_of(site)}/" for site in subject.python.sites)
        self._places: Mapping[Within, Callable[[str, StackedFile], object]] = {
            "": lambda *_: True,
            "python": self._is_python,
            "interpreter": lambda path, _: self._is_other_interpreter(path),
            "loader": self._is_loaded,
            "nowhere": lambda path, _: self._files.resolve(path) not in self._files.paths,
            "path": lambda path, _: path in self._before_system and self._is_started(path),
            "system": lambda path, _: subject.is_of_system(self._real(path)),
            "packages": lambda path, _: path in packages,
            "sites": lambda path, _: path.startswith(sites),
            "started": lambda path, _: path in self._started_pythons,
            "commands": lambda path, _: path in subject.commands,
            "environment": lambda path, _: path in packages and path.startswith(prefixes),
            "driver": lambda path, _: self._is_of_driver(path),
            "preloaded": lambda path, _: (found := _preloaded(subject, path)) and all(map(subject.is_of_system, found)),
            "twin": lambda path, _: (
                (real := self._files.resolve(path)) in packages and posixpath.dirname(real) == posixpath.dirname(path)
            ),
            "authorities": lambda path, entry: (
                entry.row.size and not frozenset() < self._certificates(path) <= subject.authorities
            ),
            "pointing": lambda path, _: _POINTS.search(self._files.content(path) or b""),
            "unpackaged": lambda path, _: not subject.is_later(path) and self._unpackaged(path),
            "lacking": lambda path, _: not self._of_system(path) <= self._certificates(path),
        }

    def _real(self, path: str) -> str:
        return path if path in self._files.paths else self._files.resolve(path)

    def installed(self, path: str) -> int | None:
        real = self._real(path)
        return self._files.system.layers[real] if self._subject.is_of_system(real) else self._packages.get(path)

    def is_owned(self, path: str) -> bool:
        entry = self._files.paths.get(path)
        if self.installed(path) is not None or (entry is not None and entry.layer < self._subject.of_base):
            return True
        since = self._files.hidden[path][0].layer if path in self._files.hidden else entry.layer if entry else 0
        return since <= self._roots.get(self._root(path), -1) or self._may_be_of_others(path, since)

    def happened(self, path: str, entry: StackedFile) -> Iterator[Event]:
        """Yield what happened to an entry. What the image's record proves is as it was then."""
        if path not in self._files.paths:
            layer, is_moved = self._files.gone[path], self._files.resolve(path) in self._files.paths
            if not (is_moved or layer < self._subject.of_base or self._may_be_of_others(path, layer)):
                yield "removed"
            return
        for event, user in self.users.items():
            if self.closed(path, entry.row, user):
                yield event
                break
        if entry.layer < self._subject.proven:
            return
        row, installed = entry.row, self.installed(path)
        if row.kind == "file" and not row.size and path in self._files.hidden and installed is None:
            yield "removed"
        yield "brought" if entry.layer >= self._subject.of_base else "based"
        yield from self._is_wrong(path, row)
        if row.kind != "link" and row.mode & 0o1002 == 0o002:  # noqa: PLR2004 - writable, not sticky
            yield "writable"
        if (row.mode & 0o6000 or row.has_capabilities) and self._is_raised(path, entry):
            yield "raised"
        if row.has_capabilities:
            yield "capable"
        if row.kind == "folder":
            return
        if installed is None and not self.is_owned(path):
            yield "added"
        if entry.layer >= self._subject.of_base and self._is_changed(path, entry, installed):
            yield "relinked" if row.kind == "link" and self._is_program(path) else "changed"
        if path.endswith(".pyc") and self._is_stale_byte_code(path, entry):
            yield "compiled"
        if row.kind == "file" and PATHS["kept"].search(path) and self._files.content(path) is None:
            yield "unread"

    def fits(self, row: Area, path: str, entry: StackedFile) -> bool:
        """Return True if an entry is of the kind and at the place of a row, and in a layer to which that applies."""
        subject = self._subject
        is_other = subject.is_later(path) or entry.layer < subject.base_layers or path in subject.declared
        is_of_row = entry.row.kind in row.kinds and (row.of_additions or not is_other)
        return is_of_row and row.target in ("", entry.row.target) and bool(self._places[row.within](path, entry))

    def _is_wrong(self, path: str, row: FileRow) -> Iterator[Event]:
        if row.binary is not None:
            if row.binary.damaged:
                yield "damaged"
            if row.binary.machine not in ("", _MACHINES.get(self._subject.image.architecture, row.binary.machine)):
                yield "machine"
        is_text, heads = bool(row.mode & 0o111) and row.binary is None, _FORMATS[path.endswith(".bc")]
        if row.kind == "file" and (row.head not in heads if PATHS["of-format"].search(path) else is_text):
            yield "unlike"
        is_of_package = self._subject.is_of_system(path) or self._may_be_of_others(path, self._files.paths[path].layer)
        if row.interpreter and not is_of_package and not self._may_start(row.interpreter):
            yield "stranded"
        elif PATHS["interpreter"].search(row.interpreter) and path in self._packages:
            folder, own = (self._files.resolve(posixpath.dirname(one)) for one in (row.interpreter, path))
            if folder != own and self._files.file(f"{own}/python") is not None:
                yield "misled"
        if path in self._files.system.altered and self._files.paths[path].layer >= self._subject.of_base:
            yield "altered"
        if PATHS["of-tensorflow"].search(path):
            real = self._files.file(path)
            soname = real.row.binary.soname if real is not None and real.row.binary is not None else ""
            # CUPTI's file is named by year, ``libcupti.so.2020.3.1``: its soname is a link to it.
            is_behind = row.kind == "file" and self._files.resolve(f"{posixpath.dirname(path)}/{soname}") == path
            stems = {name.partition(".so")[0] for name in (posixpath.basename(path), soname)}
            majors = {major[1] for name in (posixpath.basename(path), soname) if (major := _MAJOR.search(name))}
            if soname and not is_behind and max(len(stems), len(majors)) > 1:
                yield "renamed"

    def _may_start(self, interpreter: str) -> bool:
        program = self._files.file(interpreter.strip("/")) if interpreter.startswith("/") else None
        user = self._subject.user
        if program is None or not may(program.row, user, "x"):
            return False
        return not self.closed(program.row.path, program.row, user)

    @cached_property
    def _started_pythons(self) -> frozenset[str]:
        """Programs of no package that users start as Python: by PATH, or with the folder of TensorFlow's packages."""
        own = [f"{prefix_of(site)}/bin" for site in self._subject.python.sites]
        names = ((folder, name) for folder in {*own, *self._subject.entries("PATH")} for name in ("python", "python3"))
        real = (self._files.resolve(f"{folder}/{name}") for folder, name in names)
        return frozenset(path for path in real if not self._subject.is_of_system(path))

    def _is_of_driver(self, path: str) -> bool:
        """Return True for a driver's file on the loader's path, also an empty one of a commit; not in ``compat``."""
        folder, real = posixpath.dirname(path), self._files.file(path)
        if folder not in self._subject.loader_folders:
            return False
        is_elf = real is not None and real.row.binary is not None and real.row.size < STUB_AT_MOST
        is_stub = is_elf and posixpath.basename(path) in LOADED
        return not (is_stub or {"compat", "stubs"} & {*folder.split("/"), *self._files.resolve(path).split("/")})

    def _certificates(self, path: str) -> frozenset[bytes]:
        return pem.certificates(self._files.content(path) or b"")

    def _of_system(self, bundle: str) -> frozenset[bytes]:
        """Return the certificates of the system's package, or those of the bundle below if their files were deleted."""
        files, below = self._files, self._files.hidden.get(bundle, [])[-1:]
        told = [text for path, text in files.contents.items() if path.startswith(_PACKAGED)]
        return _certificates(told or [files.records[one.layer].contents.get(bundle, b"") for one in below])

    def _unpackaged(self, bundle: str) -> frozenset[bytes]:
        """Return certificates of no package, base or matrix; a later layer may have deleted the files of a package."""
        told = [(at, *pair) for at, one in enumerate(self._files.records) for pair in one.contents.items()]
        of_base = ((path, text) for at, path, text in told if at < self._subject.of_base)
        own = _certificates(text for path, text in of_base if path == bundle or PATHS["authorities"].match(path))
        packaged = _certificates(text for _, path, text in told if path.startswith(_PACKAGED))
        return self._certificates(bundle) - packaged - own - self._subject.authorities if packaged else packaged

    def closed(self, path: str, row: FileRow, user: int | None) -> str:
        """Return the outermost folder or file on a path that a user, of whatever group, may not read; '' for none."""
        return self._outermost_closed(path.rpartition("/")[0], user) or (path if _is_closed(row, user) else "")

    def _closed_folder(self, folder: str, user: int | None) -> str:
        above = self._outermost_closed(folder.rpartition("/")[0], user) if folder else ""
        entry = self._files.paths.get(folder)
        return above or (folder if entry is not None and _is_closed(entry.row, user) else "")

    def _is_changed(self, path: str, entry: StackedFile, installed: int | None) -> bool:
        """Return True if an entry differs from what its package brought, or else from its first layer's."""
        if installed is None or entry.layer <= installed:
            return installed is None and self._files.is_changed(path)
        before = self._files.was(path, installed)
        return before is None or not is_same(before.row, entry.row)

    def _is_program(self, path: str) -> bool:
        """Return True for a program's name that leads to an unchanged program of a system package."""
        real = self._files.file(path)
        names = (path, real.row.path) if real is not None and self._subject.is_of_system(real.row.path) else ("",)
        is_changed = real is not None and self._is_changed(real.row.path, real, self.installed(real.row.path))
        return all(PATHS["program"].search(name) for name in names) and not is_changed

    def _may_be_of_others(self, path: str, layer: int) -> bool:
        return PATHS["of-others"].match(path) is not None and layer in self._files.of_others

    def _is_stale_byte_code(self, path: str, entry: StackedFile) -> bool:
        """Return True for byte code that a layer above its source wrote, whatever its header says of that."""
        match = PATHS["byte-code"].match(path) if entry.row.kind == "file" else None
        if match is None or not (site_of(path) or self._root(path)):
            return False
        own = posixpath.join(match["folder"], match["stem"] + ".py")
        source = self._files.paths.get(own)
        if source is None or entry.layer < self._subject.of_base or self._subject.is_added(own):
            return False
        came, installed = self._files.since(path), self.installed(own)
        is_installed = source.layer >= came and (installed is None or installed >= came)
        return came > self._files.since(own) and not is_installed

    def _is_raised(self, path: str, entry: StackedFile) -> bool:
        row, brought = entry.row, self._files.system.layers.get(path, -1)
        is_program = row.kind == "file" and (row.mode & 0o111 or (row.has_capabilities and row.binary is not None))
        return bool(is_program) and entry.layer > brought and entry.layer not in self._files.of_others

    @cached_property
    def _roots(self) -> Mapping[str, int]:
        """Every folder of a Python, and the layer that brought its own library; -1 if system packages did."""
        found: dict[str, int] = {}
        for path, entry in self._files.paths.items():
            root = self._root(path) if path.endswith("/os.py") else ""
            if root and path == f"{root}os.py":
                since = self._files.hidden.get(path, (entry,))[0].layer
                found[root] = -1 if self._subject.is_of_system(path) else since
                programs = posixpath.normpath(f"{root}/../../bin") + "/"
                found[programs] = max(found[root], found.get(programs, -1))
        return found

    def _root(self, path: str) -> str:
        root = PATHS["root"].search(path) if "/python" in path else None
        return path[: root.end()] if root is not None and not site_of(path) else ""

    def _is_other_interpreter(self, path: str) -> bool:
        """Return True if it changed, or if an environment's is neither a link to a known Python nor a copy of one."""
        real = self._files.file(path)
        if real is None or self._files.is_changed(path):
            return real is not None
        is_known = self.is_owned(real.row.path) or real.row.digest in self._interpreters
        is_python = is_known and PATHS["interpreter"].search(real.row.path) is not None
        return posixpath.normpath(f"{path}/../../pyvenv.cfg") in self._files.paths and not is_python

    @cached_property
    def _interpreters(self) -> frozenset[bytes]:
        paths = (path for path in self._files.paths if PATHS["interpreter"].search(path) and self.is_owned(path))
        return frozenset(self._files.paths[path].row.digest for path in paths) - {b""}

    def _is_python(self, path: str, entry: StackedFile) -> bool:
        if path in self._packages or "/__pycache__/" in path:
            return False
        site, sites = site_of(path), self._subject.python.sites
        if site and site not in sites and self._subject.is_added(path):
            return False  # another Python searches it
        if not (site or self._root(path) in self._roots):
            return PATHS["started"].search(path) is not None
        return PATHS["code"].search(path) is not None or (entry.row.kind == "link" and self._leads_to_package(path))

    def _leads_to_package(self, path: str) -> bool:
        """Return True for a link to a folder that Python would import; a moved package is still its distribution's."""
        target = self._files.paths.get(self._files.resolve(path))
        is_folder = target is not None and target.row.kind == "folder" and "." not in posixpath.basename(path)
        return is_folder and not any(one.startswith(f"{path}/") for one in self._packages)

    def _is_loaded(self, path: str, entry: StackedFile) -> bool:
        """Return True for a library on the loader's path, unless it is CUDA's by name and by soname."""
        folder = PATHS["hwcaps"].sub("", posixpath.dirname(path))
        in_folder = PATHS["object"].search(path) and folder in self._subject.loader_folders
        real = self._files.file(path) if in_folder or PATHS["loader"].match(path) else None
        if real is None or real.row.path in self._packages:
            return False
        if entry.row.kind == "link" and self._subject.is_of_system(real.row.path):
            return False
        if self._subject.is_added(path) and not (PATHS["by-settings"].search(path) or path in self._hiding):
            return False
        binary = real.row.binary
        cuda = PATHS["cuda"].search  # other checks report which of these is loaded
        return not (cuda(path) and (binary is None or binary.damaged or cuda(binary.soname)))

    @cached_property
    def _hiding(self) -> frozenset[str]:
        """Libraries of additions with the name of one below them, also by the loader's cache."""
        below, own = set[str](), list[str]()
        for path, entry in self._files.paths.items():
            if PATHS["object"].search(path):
                below.update([posixpath.basename(path)] if entry.layer < self._subject.own_layers else [])
                own += [path] if self._subject.is_added(path) else []
        named = (path.strip("/") for name in below for path in self._subject.search.cache.get(name, ()))
        return frozenset((*named, *(path for path in own if posixpath.basename(path) in below)))

    def _is_started(self, path: str) -> bool:
        """Return True for a program that does not lead to one of the system, as Debian's alternatives do."""
        real = self._files.file(path)
        return real is not None and bool(real.row.mode & 0o111) and not self._subject.is_of_system(real.row.path)

    @cached_property
    def _before_system(self) -> frozenset[str]:
        theirs = (path.rpartition("/") for path in self._files.system.layers)
        names = {name for folder, _, name in theirs if folder in ("bin", "sbin", "usr/bin", "usr/sbin")}
        own = {f"{prefix_of(one.site)}/bin" for one in distributions(self._files)}
        places = {self._files.resolve(folder) for folder in self._subject.entries("PATH")}
        return frozenset(
            f"{place}/{name}"
            for place in places
            for name in names
            if not (place in own and name.startswith(_OF_PYTHON))
        )


def _certificates(texts: Iterable[bytes]) -> frozenset[bytes]:
    return frozenset().union(*map(pem.certificates, texts))


def _is_closed(row: FileRow, user: int | None) -> bool:
    runs = row.kind == "folder" or ("/bin/" in row.path and row.mode & 0o100)
    return row.kind in ("file", "folder") and not may(row, user, "rx" if runs else "r")
