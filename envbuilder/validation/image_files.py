"""An image's files as a container sees them, stacked from its layers, and the record of each layer."""

import hashlib
import posixpath
import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, cached_property
from itertools import takewhile
from typing import NamedTuple

import msgspec

from envbuilder.engine.port import Engine, Image, RefusedLayerError
from envbuilder.errors import InfrastructureError
from envbuilder.pypi.answer_cache import Cache
from envbuilder.support import decoding, dpkg_status
from envbuilder.support.python_source import code_only
from envbuilder.validation.layer_scan import OF_ENTRY, PATHS, Budget, FileRow, LayerRecord, scan
from envbuilder.workspace import cache_dir, packaged

_SCANNER = ("layer_scan.py", "paths.yaml", "secret_patterns.yaml")  # With others, they make a layer's record

KEPT_RECORDS = 512 << 20  # Bytes of layer records in this host's cache: some two hundred images of a few megabytes
_LARGE = 1 << 20  # Bytes from which it pays to skip a layer: small ones often have equal sizes
_MOST_LINKS = 40
_COMPLETE = 1000  # An image with fewer files has no system
ROW = 300  # Bytes of memory for one file of a list
_LINE = re.compile(rb"[^\r\n]+")


class SystemPackages(NamedTuple):
    """The files of system packages by path in the image, with the layer in which their package was last installed.

    ``owners`` are their packages; ``names`` other paths in a package's list: a folder became a link. ``same`` have the
    digest that dpkg recorded, ``altered`` another one.
    """

    layers: dict[str, int]
    owners: dict[str, str]
    names: dict[str, str]
    same: set[str]
    altered: set[str]


class StackedFile(msgspec.Struct, frozen=True):
    layer: int
    row: FileRow


class ImageFiles:
    """The stacked files, folders and links by path (no leading slash); ``records`` are the layers.

    ``hidden`` are the files and links that later layers deleted or replaced, lowest layer first; ``gone``: the layer
    that deleted a path; ``contents``: of files that checks read. If ``budget`` is reached, the rest is missing.
    """

    def __init__(self, records: tuple[LayerRecord, ...], budget: Budget | None = None) -> None:
        self.records = records
        self.budget = budget or Budget()
        self.paths: dict[str, StackedFile] = {}
        self.hidden: dict[str, list[StackedFile]] = {}
        self.gone: dict[str, int] = {}
        self.contents: dict[str, bytes] = {}
        self._folders: set[str] = set()
        self._places: dict[str, str] = {}
        for number, record in enumerate(records):
            self._places.clear()
            self._stack(number, record)

    @cached_property
    def system(self) -> SystemPackages:
        # Lists of other packages do not count; those of a removed one name its settings, which dpkg leaves.
        known = set(re.findall(r"(?m)^Package: *(\S+)", decoding.lossy(self.content(dpkg_status.PATH) or b"")))
        every = [(self.paths[path].layer, path, text) for path, text in self.contents.items()]
        lists = [one for one in every if _is_list(one[1], known)]
        if not (has_lists := any(path.endswith(".list") for _, path, _ in lists)):
            # A layer that deletes all lists to save space deletes none of their files: lower lists still hold.
            below = ((number, *pair) for number, one in enumerate(self.records) for pair in one.contents.items())
            lists += [one for one in below if _is_list(one[1], known)]
        # No system package installs files into a virtual environment, whatever a list says.
        environments = tuple(path.removesuffix("pyvenv.cfg") for path in self.paths if path.endswith("/pyvenv.cfg"))
        found = SystemPackages({}, {}, {}, set(), set())
        resolved = cache(self.resolve)
        for last, path, content in lists:
            package, has_digests = _package(path), path.endswith(".md5sums")
            layer = self._since(package, last)
            for match in takewhile(lambda _: self.budget.spend(ROW), _LINE.finditer(content)):
                line = match[0].decode("utf-8", "replace")
                digest, _, name = line.partition("  ") if has_digests else ("", "", line)
                folder, _, leaf = name.lstrip("/").rpartition("/")
                placed = f"{resolved(folder)}/{leaf}".lstrip("/")
                if placed.startswith(environments):
                    continue
                if not has_digests:
                    found.layers[placed] = max(layer, found.layers.get(placed, 0))
                    found.owners[placed] = package
                    if placed != (name := name.lstrip("/")):
                        found.names[placed] = name
                elif placed in self.paths and (own := self.paths[placed].row.md5.hex()):
                    (found.same if own == digest else found.altered).add(placed)
        found.altered.difference_update(found.same if has_lists else tuple(found.altered))
        return found

    @property
    def is_complete(self) -> bool:
        return len(self.paths) >= _COMPLETE

    @cached_property
    def of_others(self) -> frozenset[int]:
        """Layers whose packages left no list that is read: any file of a system may be theirs."""
        every = enumerate(self.records)
        found = frozenset(at for at, one in every if any(PATHS["lists-of-others"].match(row.path) for row in one.rows))
        return found if found or self.system.layers or not self.is_complete else frozenset(range(len(self.records)))

    def packages(self, layers: int) -> Mapping[str, str]:
        return next((versions for number, versions in reversed(self._status) if number < layers and versions), {})

    def _since(self, package: str, layer: int) -> int:
        """Return the layer in which a package got its version; writing its list again installs nothing."""
        since, last = layer, ""
        for number, packages in self._status:
            version = packages.get(package, "")
            if version and version != last and number <= layer:
                since, last = number, version
        return since

    @cached_property
    def _status(self) -> tuple[tuple[int, Mapping[str, str]], ...]:
        texts = ((number, one.contents.get(dpkg_status.PATH)) for number, one in enumerate(self.records))
        return tuple((number, dpkg_status.versions(decoding.lossy(one))) for number, one in texts if one is not None)

    def _stack(self, number: int, record: LayerRecord) -> None:
        """Add a layer as an engine unpacks it: entry by entry, through the links of folders."""
        gone = {self._placed(row.path) for row in record.rows if row.kind in ("deleted", "emptied")}
        emptied = {self._placed(row.path) for row in record.rows if row.kind == "emptied"}
        replaced = {self._placed(row.path) for row in record.rows if row.kind in ("file", "link", "same", "other")}
        below = gone | (replaced & self._folders)
        if below:
            folders = {path.rpartition("/")[0] for path in self.paths}
            under = {folder for folder in folders if self.budget.spend() and _is_in(folder, below)}
            gone -= emptied
            for path in [path for path in self.paths if path in gone or path.rpartition("/")[0] in under]:
                self._hide(path, self.paths.pop(path))
                self.gone[path] = number
        own: dict[str, FileRow] = {}
        for row in record.rows:
            path = self._placed(row.path)
            if not self.budget.spend(OF_ENTRY if path != row.path else 0):
                return
            if row.kind == "deleted" and path in own:
                self._hide(path, self.paths.pop(path))
                self.gone[path] = number
                del own[path]
            if row.kind in ("deleted", "emptied"):
                continue
            before = self.paths.get(path)
            if before is not None and not before.row.kind == row.kind == "folder":
                self._hide(path, before)
            first = own.get(self._placed(row.target)) if row.kind == "same" else None
            content = self.contents.get(first.path) if first is not None else record.contents.get(row.path)
            one, is_first = first or row, path not in own
            own[path] = one if one.path == path else msgspec.structs.replace(one, path=path)
            self.paths[path] = StackedFile(number, own[path])
            # Another entry of the path may have been too large to store: its content is not this entry's.
            is_own = content is not None and (is_first or hashlib.sha256(content).digest() == one.digest)
            if content is not None and is_own and one.kind == "file":
                self.contents[path] = content
            if row.kind == "link" and path in self._folders:
                self._places.clear()  # following entries below it are now elsewhere

    def _placed(self, path: str) -> str:
        """Return the path to which an entry is unpacked: its folder may be a link, or have no entry."""
        folder, _, name = path.rpartition("/")
        if folder not in self._places:
            self._places[folder] = real = self.resolve(folder)
            while real and real not in self._folders:
                self._folders.add(real)
                real = real.rpartition("/")[0]
        real = self._places[folder]
        return f"{real}/{name}" if real else name

    def _hide(self, path: str, entry: StackedFile) -> None:
        self.hidden.setdefault(path, []).append(entry)
        self.contents.pop(path, None)

    def was(self, path: str, layer: int) -> StackedFile | None:
        names = (path, self.system.names.get(path, path))
        hidden = (one for name in names for one in reversed(self.hidden.get(name, ())))
        return next((one for one in hidden if one.layer <= layer), None)

    def since(self, path: str) -> int:
        now = self.paths[path]
        layer = now.layer
        for one in reversed(self.hidden.get(path, ())):
            if not is_same(one.row, now.row):
                break
            layer = one.layer
        return layer

    def is_changed(self, path: str) -> bool:
        before, now = self.hidden.get(path, [])[:1], self.paths.get(path)
        return bool(before) and now is not None and not is_same(before[0].row, now.row)

    def resolve(self, path: str) -> str:
        waiting, done, links = [part for part in path.split("/") if part], "", 0
        while waiting:
            part = waiting.pop(0)
            if part in (".", ".."):
                done = posixpath.dirname(done) if part == ".." else done
                continue
            here = f"{done}/{part}" if done else part
            entry = self.paths.get(here)
            if entry is not None and entry.row.kind == "link" and links < _MOST_LINKS:
                links += 1
                target = entry.row.target
                done = "" if target.startswith("/") else done
                waiting = [piece for piece in target.split("/") if piece] + waiting
                if not self.budget.spend():
                    break
                continue
            done = here
        return done

    def file(self, path: str) -> StackedFile | None:
        """Return the regular file to which a path leads; None if there is none."""
        entry = self.paths.get(path)
        if entry is None or entry.row.kind != "file":
            entry = self.paths.get(self.resolve(path))
        return entry if entry is not None and entry.row.kind == "file" else None

    def content(self, path: str) -> bytes | None:
        return self.contents.get(self.resolve(path))


def _package(path: str) -> str:
    return posixpath.basename(path).rpartition(".")[0].partition(":")[0]


def _is_list(path: str, known: set[str]) -> bool:
    return PATHS["dpkg-list"].match(path) is not None and (not known or _package(path) in known)


def is_same(before: FileRow, now: FileRow) -> bool:
    return (before.kind, before.digest, before.target) == (now.kind, now.digest, now.target)


def _is_in(folder: str, folders: set[str]) -> bool:
    while folder and folder not in folders:
        folder = folder.rpartition("/")[0]
    return bool(folder)


def read_image(engine: Engine, image: Image, store: Cache | None = None) -> ImageFiles:
    """Read an image's files; known layers come from the cache. There are none if a bound of the budget is reached.

    Raises InfrastructureError if the engine does not provide every layer of the image.
    """
    budget = Budget()
    found = read_layers(engine, (image,), store, budget)
    return ImageFiles(() if budget.reached else tuple(found[layer.diff_id] for layer in image.layers), budget)


def read_layers(
    engine: Engine, images: tuple[Image, ...], store: Cache | None = None, budget: Budget | None = None
) -> dict[str, LayerRecord]:
    """Return the layers of images by diff id; some are missing if a bound of the budget is reached.

    Unknown ones are read from one archive. A large layer that has the size of a known one is skipped; if that was
    wrong, the archive is read again.
    """
    store = store or Cache(cache_dir() / "layers")
    budget = budget or Budget(len(images))
    found: dict[str, LayerRecord] = {}
    for diff_id in dict.fromkeys(layer.diff_id for image in images for layer in image.layers):
        if (record := _unpacked(store.get(diff_id, _scanner()))) is not None:
            contents = {path: content for path, content in record.contents.items() if budget.keeps(len(content))}
            found[diff_id] = msgspec.structs.replace(record, contents=contents)
            store.used(diff_id, _scanner())
            if not budget.spend(record.memory):
                return found
    for known in ({one.size for one in found.values() if one.size >= _LARGE}, ()):
        missing = [image.id for image in images if any(layer.diff_id not in found for layer in image.layers)]
        if not missing:
            return found
        try:
            with engine.layer_files(*missing, without=known) as streams:
                for record in (scan(stream, budget) for stream in streams):
                    if budget.reached:
                        return found
                    found[record.diff_id] = record
                    if not budget.is_full:
                        store.put(record.diff_id, _scanner(), zlib.compress(msgspec.msgpack.encode(record), 1))
        except RefusedLayerError as error:
            budget.reached = str(error)
            return found
        store.trim(KEPT_RECORDS)
    for image in images:
        if count := sum(layer.diff_id not in found for layer in image.layers):
            raise InfrastructureError(
                f"{image.id}: the engine did not provide {count} of its layers", hint="see the engine's log"
            )
    return found


@cache
def _scanner() -> str:
    hashed = hashlib.sha256()
    for name in ("engine/port.py", "probes/suite/elf.py", *(f"validation/{one}" for one in _SCANNER)):
        content = packaged(name)
        hashed.update(code_only(content) if name.endswith(".py") else content)
    return hashed.hexdigest()


def _unpacked(kept: bytes | None) -> LayerRecord | None:
    with suppress(decoding.DamagedError), decoding.damaged("not a kept record"):
        found: LayerRecord = decoding.from_msgpack(zlib.decompress(kept or b""), LayerRecord)
        return found
    return None
