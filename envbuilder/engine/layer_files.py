"""Read an image's layers file by file: from the engine's own folders where they can be read, else from its archive."""

from __future__ import annotations

import gzip
import hashlib
import io
import mmap
import os
import stat
import tarfile
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec

from envbuilder.engine import tar_entries
from envbuilder.engine.port import FileKind, LayerFile, LayerStream
from envbuilder.engine.tar_entries import OPAQUE, STRANGE, plain, refuse, unpacked
from envbuilder.errors import InfrastructureError
from envbuilder.support import decoding

_PIECE = 1 << 20
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_CAPABILITY = "security.capability"


class _Overlay(msgspec.Struct):
    upper: str | None = msgspec.field(default=None, name="UpperDir")
    lower: str | None = msgspec.field(default=None, name="LowerDir")


class _Store(msgspec.Struct, rename="pascal"):
    name: str | None = None
    data: Any = None


class _Root(msgspec.Struct, rename="pascal"):
    layers: tuple[str, ...] | None = None


class _Inspected(msgspec.Struct, rename="pascal"):
    graph_driver: _Store | None = None
    root: _Root | None = msgspec.field(default=None, name="RootFS")


def overlay_folders(inspected: object) -> tuple[tuple[str, Path], ...] | None:
    """Pair an inspected image's diff ids with overlay2's folders, oldest first; None where they cannot be read here.

    The engine may be remote, or keep its layers otherwise: then its archive is the only way. Raises DamagedError where
    the answer is of another shape.
    """
    told = decoding.converted(inspected, _Inspected)
    store = told.graph_driver or _Store()
    if store.name != "overlay2":  # what another store keeps there has another shape
        return None
    data = decoding.converted(store.data or {}, _Overlay)
    diff_ids = (told.root.layers if told.root else None) or ()
    if not data.upper:
        return None
    lower = [part for part in (data.lower or "").split(":") if part]
    folders = [Path(part) for part in (*reversed(lower), data.upper)]
    if len(folders) != len(diff_ids) or not all(_readable(folder) for folder in folders):
        return None
    return tuple(zip(diff_ids, folders, strict=True))


def _readable(folder: Path) -> bool:
    """Tell whether a layer's folder is here, and everything in it readable whatever its mode: as root alone."""
    try:
        return os.geteuid() == 0 and folder.is_dir()
    except OSError:
        return False


def from_folders(layers: Iterable[tuple[str, Path]], known: Container[str]) -> Iterator[LayerStream]:
    """Yield the layers of overlay2's folders that are not ``known``. No link is followed."""
    for diff_id, folder in layers:
        if diff_id not in known:
            stream = LayerStream(_walk(folder), in_any_order=True)
            stream.diff_id = diff_id
            yield stream


def _walk(folder: Path) -> Iterator[LayerFile]:
    first: dict[int, str] = {}
    waiting = [""]
    while waiting:
        for path, file in _listed(folder, waiting.pop(), first):
            yield file
            if file.kind == "folder":
                waiting.append(path)


def _listed(folder: Path, place: str, first: dict[int, str]) -> list[tuple[str, LayerFile]]:
    """List what a folder of a layer holds, sorted, each by its path; one that hides what is below is there twice."""
    found: list[tuple[str, LayerFile]] = []
    with _reached(folder, place) as here, os.scandir(here) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            path = f"{place}/{entry.name}" if place else entry.name
            file = _on_disk(folder, path, Path(entry.path), entry.stat(follow_symlinks=False), first)
            found.append((path, file))
            if any(_attribute(entry.path, name) for name in STRANGE.get(file.kind, ())):
                refuse(path, "it leads elsewhere by an attribute of the engine's own")
            if file.kind == "folder" and any(_attribute(entry.path, name) == b"y" for name in OPAQUE):
                found.append((path, LayerFile(plain(path), "emptied")))
    return found


_LONG, _LONGEST = 2000, 1 << 15
"""Characters of a path that are given to the system at once (it takes 4095 bytes), and that a path may have at all."""


@contextmanager
def _reached(folder: Path, place: str) -> Iterator[Path]:
    """Find a folder of a layer, however long its path is: beyond what the system takes at once, in steps.

    Raises InfrastructureError for a path that is longer than any that is met, and for what fails in the block.
    """
    if len(place) > _LONGEST:
        raise InfrastructureError(f"the image has paths of more than {_LONGEST} characters: it cannot be judged")
    with ExitStack() as opened:
        try:
            while len(place) > _LONG:
                cut = place.rindex("/", 0, _LONG)
                at = os.open(folder / place[:cut], os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                opened.callback(os.close, at)
                folder, place = Path(f"/proc/self/fd/{at}"), place[cut + 1 :]
            yield folder / place
        except OSError as error:
            raise InfrastructureError(f"the engine's layer cannot be read: {error.strerror}") from error


def _on_disk(folder: Path, path: str, place: Path, status: os.stat_result, first: dict[int, str]) -> LayerFile:
    kind, target = _kind(status), ""
    if kind == "link":
        target = plain(_leads(place))
    elif kind == "file" and status.st_nlink > 1:
        target = first.setdefault(status.st_ino, path)
        kind, target = ("file", "") if target == path else ("same", plain(target))
    return LayerFile(
        plain(path),
        kind,
        mode=stat.S_IMODE(status.st_mode),
        uid=status.st_uid,
        size=status.st_size if kind == "file" else 0,
        modified=int(status.st_mtime),
        target=target,
        has_capabilities=kind == "file" and bool(status.st_mode & 0o111) and bool(_attribute(place, _CAPABILITY)),
        pieces=lambda: _pieces_of(folder, path, status.st_size),
        mapped=lambda: _mapped(folder, path),
    )


def _leads(place: Path) -> str:
    try:
        return str(place.readlink())
    except OSError as error:
        raise InfrastructureError(f"the engine's layer cannot be read: {error.strerror}") from error


def _attribute(place: str | Path, name: str) -> bytes:
    """Read an extended attribute; empty where there is none."""
    try:
        return os.getxattr(place, name, follow_symlinks=False)
    except OSError:
        return b""


def _kind(status: os.stat_result) -> FileKind:
    if stat.S_ISREG(status.st_mode):
        return "file"
    if stat.S_ISDIR(status.st_mode):
        return "folder"
    if stat.S_ISLNK(status.st_mode):
        return "link"
    return "deleted" if stat.S_ISCHR(status.st_mode) and status.st_rdev == 0 else "other"


def _pieces_of(folder: Path, path: str, size: int) -> Iterator[bytes | bytearray]:
    """Read a file: a small one at once, a larger one through one buffer, which the next piece is read into."""
    above, _, name = path.rpartition("/")
    try:
        with (
            _reached(folder, above) as here,
            os.fdopen(os.open(here / name, os.O_RDONLY | os.O_NOFOLLOW), "rb", buffering=0) as file,
        ):
            if size < _PIECE:
                if content := file.read(size + 1):
                    yield content
                if len(content) <= size:
                    return
            buffer = bytearray(_PIECE)
            while count := file.readinto(buffer):
                yield buffer if count == _PIECE else buffer[:count]
    except OSError as error:
        raise InfrastructureError(f"the engine's layer cannot be read: {error.strerror}") from error


@contextmanager
def _mapped(folder: Path, path: str) -> Iterator[mmap.mmap]:
    above, _, name = path.rpartition("/")
    with _reached(folder, above) as here, reading():
        descriptor = os.open(here / name, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            window = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        finally:
            os.close(descriptor)
    with window:
        yield window


def from_archive(archive: Iterable[bytes]) -> Iterator[LayerStream]:
    """Yield every layer of an archive (as ``docker save`` writes it), read once from start to end.

    A layer's diff id is its own digest, so it is there once its files have been read. Raises InfrastructureError for
    a stream that is no such archive.
    """
    manifest = False
    with reading(), tarfile.open(fileobj=_Stream(archive), mode="r|", bufsize=_PIECE) as outer:
        for member in outer:
            manifest = manifest or member.name == "manifest.json"
            if _may_be_layer(member):
                source = outer.extractfile(member)
                stream = _layer(source) if source is not None else None
                if stream is not None:
                    yield stream
                    for _ in stream.files:
                        pass  # what its reader left; the digest is over all of it
    if not manifest:
        raise InfrastructureError("the engine's archive of the image has no manifest")


@contextmanager
def reading() -> Iterator[None]:
    """Turn what a damaged or cut archive ends in, packed or not, into InfrastructureError."""
    try:
        with decoding.damaged("it is cut or damaged"):
            yield
    except (tarfile.TarError, OSError, decoding.DamagedError) as error:
        raise InfrastructureError(f"the engine's archive of the image cannot be read: {error}") from error


def _may_be_layer(member: tarfile.TarInfo) -> bool:
    """Tell whether an entry is a layer by its name, or a blob that may be one."""
    name = member.name.removeprefix("./")
    return member.isfile() and (name.endswith("/layer.tar") or name.startswith("blobs/"))


def _layer(source: IO[bytes]) -> LayerStream | None:
    """Open one blob as a layer; None for one that is no tar (a configuration, a manifest)."""
    with reading():
        hashed = _Hashed(source)
        try:
            how = tar_entries.one_way()
            inner = tarfile.open(fileobj=hashed, mode="r|", bufsize=_PIECE, **how)  # noqa: SIM115 - closed by its reader
        except tarfile.ReadError:
            return None  # a configuration, a manifest, or a layer of a form that is not known: its diff id is missing
    stream = LayerStream(iter(()))
    stream.files = _members(inner, hashed, stream)
    return stream


def _members(inner: tarfile.TarFile, hashed: _Hashed, stream: LayerStream) -> Iterator[LayerFile]:
    with reading():
        with inner:
            for member in inner:
                tar_entries.check(member)
                yield from _in_archive(inner, member)
        while hashed.read(_PIECE):
            pass
    stream.diff_id = f"sha256:{hashed.hash.hexdigest()}"


def _in_archive(inner: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[LayerFile]:
    path = unpacked(member.name)
    folder, _, name = path.rpartition("/")
    if name == _OPAQUE:
        yield LayerFile(folder, "emptied")
        return
    if name.startswith(_WHITEOUT):
        yield LayerFile(unpacked(f"{folder}/{name.removeprefix(_WHITEOUT)}"), "deleted")
        return
    kind = _kind_in(member)
    yield LayerFile(
        path,
        kind,
        mode=member.mode & 0o7777,
        uid=member.uid,
        size=member.size if kind == "file" else 0,
        modified=int(member.mtime),
        target=unpacked(member.linkname) if kind == "same" else plain(member.linkname),
        has_capabilities=bool(member.pax_headers.get(f"{tar_entries.XATTR}{_CAPABILITY}")),
        pieces=lambda: _pieces_in(inner, member),
    )
    if kind == "folder" and any(member.pax_headers.get(f"{tar_entries.XATTR}{name}") == "y" for name in OPAQUE):
        yield LayerFile(path, "emptied")


def _kind_in(member: tarfile.TarInfo) -> FileKind:
    if member.isreg():
        return "file"
    if member.isdir():
        return "folder"
    if member.issym():
        return "link"
    return "same" if member.islnk() else "other"


def _pieces_in(inner: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    with reading():
        file = inner.extractfile(member)
        while file is not None and (piece := file.read(_PIECE)):
            yield piece


class _Hashed(io.RawIOBase):
    """A layer's bytes, unpacked where they are packed, with the digest of all that was read."""

    def __init__(self, source: IO[bytes]) -> None:
        head = source.read(2)
        whole = _Stream(_chained(head, source))
        self._source: Callable[[int], bytes] = gzip.GzipFile(fileobj=whole).read if head == b"\x1f\x8b" else whole.read
        self.hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Read up to ``size`` bytes; empty at the end."""
        data = self._source(size)
        self.hash.update(data)
        return data


def _chained(head: bytes, source: IO[bytes]) -> Iterator[bytes]:
    yield head
    while piece := source.read(_PIECE):
        yield piece


class _Stream(io.RawIOBase):
    """Chunks of bytes as a file that can be read once, forwards."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks: Iterator[bytes] = iter(chunks)
        self._rest = memoryview(b"")

    def read(self, size: int = -1) -> bytes:
        """Read up to ``size`` bytes; empty at the end."""
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return b""
            self._rest = memoryview(chunk)
        size = len(self._rest) if size < 0 else size
        taken, self._rest = self._rest[:size], self._rest[size:]
        return bytes(taken)
