"""An image's files as a container would see them, stacked from its layers, and every layer's own record below them."""

from __future__ import annotations

import hashlib
import posixpath
import zlib
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from importlib import resources

import msgspec

from envbuilder.engine.port import Engine, Image
from envbuilder.errors import InfrastructureError, decode
from envbuilder.image import dpkg_status
from envbuilder.pypi.answer_cache import Cache
from envbuilder.validation.layer_scan import FileRow, LayerRecord, scan
from envbuilder.validation.system_packages import SystemPackages, is_list
from envbuilder.workspace import cache_dir, packaged

_SCANNER = (
    "validation/layer_scan.py",
    "validation/file_secrets.py",
    "validation/library_versions.py",
    "validation/secret_search.py",
    "probes/suite/elf.py",
)
"""What decides what a layer's record holds: another text of these, another record."""

KEPT_RECORDS = 512 << 20
"""Bytes of layers' records that are kept on this host: those of some two hundred images, a few megabytes each."""

_MOST_LINKS = 40
_DPKG = "var/lib/dpkg/status"


class Seen(msgspec.Struct, frozen=True):
    """A file of the stacked image: the number of the layer that it comes from, and its row there."""

    layer: int
    row: FileRow


class ImageFiles:
    """The stacked files by path (no slash in front), folders and links among them; ``records`` are the layers."""

    def __init__(self, records: tuple[LayerRecord, ...]) -> None:
        self.records = records
        self.paths: dict[str, Seen] = {}
        self.hidden: dict[str, Seen] = {}
        for number, record in enumerate(records):
            self._stack(number, record)

    @cached_property
    def system(self) -> SystemPackages:
        """What the system's package manager brought."""
        lists = [(path, content, self._since(path, self.paths[path].layer)) for path, content in self.kept()]
        if not any(is_list(path) for path, _, _ in lists):
            # A layer that deletes all lists to save room deletes no file of theirs: what lower ones say still holds.
            below = enumerate(self.records)
            lists += [(path, content, number) for number, one in below for path, content in one.contents.items()]
        return SystemPackages(lists, self.resolve)

    def _since(self, path: str, layer: int) -> int:
        """Return the layer in which a list's package got its version: who writes the list again installs nothing."""
        name, since, last = posixpath.basename(path).removesuffix(".list").partition(":")[0], layer, ""
        for number, packages in self._status:
            version = packages.get(name, "")
            if version and version != last and number <= layer:
                since, last = number, version
        return since

    @cached_property
    def _status(self) -> tuple[tuple[int, Mapping[str, str]], ...]:
        """What dpkg says is installed, in every layer that says so, lowest first."""
        told = ((number, one.contents.get(_DPKG)) for number, one in enumerate(self.records))
        return tuple((number, dpkg_status.versions(decode.lossy(text))) for number, text in told if text is not None)

    def _stack(self, number: int, record: LayerRecord) -> None:
        gone = {row.path for row in record.rows if row.kind in ("deleted", "emptied")}
        emptied = {row.path for row in record.rows if row.kind == "emptied"}
        replaced = {row.path for row in record.rows if row.kind in ("file", "link", "same", "other")}
        below = gone | {path for path in replaced if path in self.paths and self.paths[path].row.kind == "folder"}
        if below:
            lost = [path for path in self.paths if (path in gone and path not in emptied) or _under(path, below)]
            for path in lost:
                self.hidden[path] = self.paths.pop(path)
        own = {row.path: row for row in record.rows}
        for row in record.rows:
            if row.kind in ("deleted", "emptied"):
                continue
            if row.kind != "folder" and row.path in self.paths:
                self.hidden[row.path] = self.paths[row.path]
            self.paths[row.path] = Seen(number, _first_name(row, own))

    def resolve(self, path: str) -> str:
        """Follow the links of a path inside the image, to where the last one leads, whether that is there or not."""
        waiting, done, links = [part for part in path.split("/") if part], "", 0
        while waiting:
            part = waiting.pop(0)
            if part in (".", ".."):
                done = posixpath.dirname(done) if part == ".." else done
                continue
            here = f"{done}/{part}" if done else part
            seen = self.paths.get(here)
            if seen is not None and seen.row.kind == "link" and links < _MOST_LINKS:
                links += 1
                target = seen.row.target
                done = "" if target.startswith("/") else done
                waiting = [piece for piece in target.split("/") if piece] + waiting
                continue
            done = here
        return done

    def file(self, path: str) -> Seen | None:
        """Find the regular file that a path leads to; None where none does."""
        seen = self.paths.get(path)
        if seen is None or seen.row.kind != "file":
            seen = self.paths.get(self.resolve(path))
        return seen if seen is not None and seen.row.kind == "file" else None

    def content(self, path: str) -> bytes | None:
        """Return the content of a file that is kept; None of any other."""
        real = self.resolve(path)
        seen = self.paths.get(real)
        if seen is None or seen.row.kind != "file":
            return None
        return self.records[seen.layer].contents.get(real)

    def kept(self) -> Iterator[tuple[str, bytes]]:
        """Yield path and content of every file of the stacked image that is kept."""
        for number, record in enumerate(self.records):
            for path, content in record.contents.items():
                seen = self.paths.get(path)
                if seen is not None and seen.layer == number and seen.row.kind == "file":
                    yield path, content


def _under(path: str, folders: set[str]) -> bool:
    """Tell whether one of the folders is above a path."""
    while "/" in path:
        path = path.rpartition("/")[0]
        if path in folders:
            return True
    return False


def _first_name(row: FileRow, own: dict[str, FileRow]) -> FileRow:
    """Give a further name of a file the file's own row, under that name."""
    first = own.get(row.target) if row.kind == "same" else None
    return msgspec.structs.replace(first, path=row.path) if first is not None else row


def read_image(engine: Engine, image: Image, store: Cache | None = None) -> ImageFiles:
    """Read an image's files; a layer that was read before comes from the cache.

    Raises InfrastructureError where the engine does not give every layer of the image.
    """
    store = store or Cache(cache_dir() / "layers")
    found: dict[str, LayerRecord] = {}
    for layer in image.layers:
        kept = store.get(layer.diff_id, _scanner())
        if kept is not None and (record := _unpacked(kept)) is not None:
            found[layer.diff_id] = record
            store.used(layer.diff_id, _scanner())
    if any(layer.diff_id not in found for layer in image.layers):
        with engine.layer_files(image.id, frozenset(found)) as streams:
            for stream in streams:
                record = scan(stream)
                found[record.diff_id] = record
                store.put(record.diff_id, _scanner(), zlib.compress(msgspec.msgpack.encode(record), 1))
        store.trim(KEPT_RECORDS)
    missing = [layer.diff_id for layer in image.layers if layer.diff_id not in found]
    if missing:
        raise InfrastructureError(
            f"{image.id}: the engine did not give {len(missing)} of its layers", hint="see the engine's log"
        )
    return ImageFiles(tuple(found[layer.diff_id] for layer in image.layers))


@cache
def _scanner() -> str:
    hashed = hashlib.sha256()
    for name in _SCANNER:
        hashed.update(packaged(resources.files("envbuilder").joinpath(name)))
    return hashed.hexdigest()


def _unpacked(kept: bytes) -> LayerRecord | None:
    """Read a kept record; None for one that was spoilt."""
    try:
        with decode.damaged("not a kept record"):
            found: LayerRecord = decode.from_msgpack(zlib.decompress(kept), LayerRecord)
    except decode.DamagedError:
        return None
    return found
