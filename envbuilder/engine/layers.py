"""Read the layers of an image's archive, as ``docker save`` writes it, file by file. Nothing is unpacked.

Engines unpack layers with Go's ``archive/tar``; this is Python's ``tarfile``. If the two read an entry differently, a
layer could show one file here and another in a container: such an entry is refused, or read as Go reads it.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import posixpath
import sys
import tarfile
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import IO, Any, NoReturn

from envbuilder.engine.port import FileKind, LayerFile, LayerStream, RefusedLayerError
from envbuilder.errors import InfrastructureError
from envbuilder.support import decoding

_PIECE = 1 << 20
_LONGEST_HEADER = 4 << 20
"""Bytes that may come before an entry's content: Go's reader takes names and headers of 1 MiB."""

_KINDS: dict[bytes, FileKind] = {tarfile.DIRTYPE: "folder", tarfile.SYMTYPE: "link", tarfile.LNKTYPE: "same"}
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_XATTR = "SCHILY.xattr."
"""Prefix of the name of an extended attribute in a pax header."""

_OPAQUE_FOLDER = ("trusted.overlay.opaque", "user.overlay.opaque")
"""Attributes of a folder that hides its contents in lower layers."""

_ELSEWHERE = frozenset(f"{place}.overlay.{name}" for place in ("trusted", "user") for name in ("redirect", "metacopy"))
"""Attributes of a folder or a file whose content is in another place."""


def layers(archive: Iterable[bytes], without: Collection[int] = ()) -> Iterator[LayerStream]:
    """Yield each layer of an archive, which is read once from start to end; none of a size in ``without``.

    The diff id of a layer is its digest, so it is known once its files have been read. Raises InfrastructureError if
    the stream is not such an archive.
    """
    has_manifest = False
    with reading(), tarfile.open(fileobj=decoding.ByteStream(archive), mode="r|", bufsize=_PIECE) as outer:
        for member in outer:
            has_manifest = has_manifest or member.name == "manifest.json"
            name = member.name.removeprefix("./")
            may_be_layer = member.isfile() and (name.endswith("/layer.tar") or name.startswith("blobs/"))
            if may_be_layer and member.size not in without:
                source = outer.extractfile(member)
                stream = _layer(source) if source is not None else None
                if stream is not None:
                    stream.size = member.size
                    yield stream
                    for _ in stream.files:
                        pass  # the caller left them; the digest covers them too
    if not has_manifest:
        raise InfrastructureError("the engine's archive of the image has no manifest")


@contextmanager
def reading() -> Iterator[None]:
    """Turn every failure on a damaged or truncated archive into InfrastructureError."""
    try:
        with decoding.damaged("it is cut or damaged"):
            yield
    except (tarfile.TarError, OSError, decoding.DamagedError) as error:
        raise InfrastructureError(f"the engine's archive of the image cannot be read: {error}") from error


def _layer(source: IO[bytes]) -> LayerStream | None:
    """Open a blob as a layer. None for a configuration, a manifest, or a layer of unknown form: no diff id then."""
    with reading():
        hashed = _Hashed(source)
        settings: dict[str, Any] = {"tarinfo": type("_Entry", (_Header,), {"before": []}), "pax_headers": _Ignored()}
        try:
            inner = tarfile.open(fileobj=hashed, mode="r|", bufsize=_PIECE, **settings)  # noqa: SIM115 - closed below
        except tarfile.ReadError:
            return None
    stream = LayerStream(iter(()))
    stream.files = _members(inner, hashed, stream)
    return stream


def _members(inner: tarfile.TarFile, hashed: _Hashed, stream: LayerStream) -> Iterator[LayerFile]:
    with reading():
        with inner:
            while (member := inner.next()) is not None:
                inner.members = []  # type: ignore[attr-defined]  # it keeps every one
                hashed.until = inner.offset + _LONGEST_HEADER
                _check(member)
                yield from _file(inner, member)
        hashed.until = sys.maxsize
        while hashed.read(_PIECE):
            pass
    stream.diff_id = f"sha256:{hashed.hash.hexdigest()}"


def _file(inner: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[LayerFile]:
    path = path_in_image(member.name)
    folder, _, name = path.rpartition("/")
    if name == _OPAQUE:
        yield LayerFile(folder, "emptied")
        return
    if name.startswith(_WHITEOUT):
        yield LayerFile(path_in_image(f"{folder}/{name.removeprefix(_WHITEOUT)}"), "deleted")
        return
    kind = "file" if member.isreg() else _KINDS.get(member.type, "other")
    yield LayerFile(
        path,
        kind,
        mode=member.mode & 0o7777,
        uid=member.uid,
        size=member.size if kind == "file" else 0,
        modified=int(member.mtime),
        target=path_in_image(member.linkname) if kind == "same" else as_text(member.linkname),
        has_capabilities=bool(member.pax_headers.get(f"{_XATTR}security.capability")),
        pieces=lambda: _pieces(inner, member),
    )
    if kind == "folder" and any(member.pax_headers.get(f"{_XATTR}{name}") == "y" for name in _OPAQUE_FOLDER):
        yield LayerFile(path, "emptied")


def _pieces(inner: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    with reading():
        file = inner.extractfile(member)
        while file is not None and (piece := file.read(_PIECE)):
            yield piece


def as_text(path: str) -> str:
    r"""Return a path as text: a byte that is not UTF-8 becomes ``\xNN``."""
    if path.isascii():
        return path
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def path_in_image(name: str) -> str:
    """Return where an engine unpacks an entry of this name: always in the image, and one spelling per place."""
    return posixpath.normpath(f"/{as_text(name)}").lstrip("/")


class _Ignored(dict[str, str]):
    """Settings of a global header: engines ignore them."""

    def __setitem__(self, keyword: str, value: str) -> None:
        pass


_EXTENSIONS = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_USTAR, _OF_STAR = b"ustar\0", b"tar\0"


class _Header(tarfile.TarInfo):
    """A header that has one reading only. ``before`` holds the types of the headers that extend the next entry."""

    before: list[bytes]

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        """Read a header. Refuses one that engines refuse, or read differently."""
        try:
            header = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if any(buf):  # an archive that does not end in zeros hides the rest of it
                raise tarfile.ReadError(str(error)) from error
            raise
        is_long = cls.before and set(cls.before) | {header.type} <= set(_EXTENSIONS[2:])
        if cls.before and (
            header.type in cls.before or (header.type in (*_EXTENSIONS, tarfile.XGLTYPE) and not is_long)
        ):
            _refuse("an entry has two headers with its name")
        if cls.before and header.type in (tarfile.AREGTYPE, tarfile.DIRTYPE) and buf[156:157] == tarfile.AREGTYPE:
            _refuse("only the name of an entry tells if it is a file or a folder")
        if buf[345] and header.type not in tarfile.GNU_TYPES and (buf[257:263] != _USTAR or buf[508:512] == _OF_STAR):
            _refuse("the name of an entry depends on the tar format")
        if header.type in _EXTENSIONS:
            cls.before.append(header.type)
        elif header.type != tarfile.XGLTYPE:
            cls.before.clear()
        return header


def _check(member: tarfile.TarInfo) -> None:
    """Refuse an entry whose extended headers programs read differently."""
    name = repr(as_text(member.name)[:200])
    for keyword, value in member.pax_headers.items():
        if keyword.removeprefix(_XATTR) in _ELSEWHERE:
            _refuse(f"{name}: an attribute of the engine says that its content is elsewhere")
        is_number = value.isascii() and value.isdigit()
        if (keyword in ("path", "linkpath") and not value) or (keyword == "size" and not is_number):
            _refuse(f"{name}: its extended header has no valid {keyword}")


def _refuse(why: str) -> NoReturn:
    raise RefusedLayerError(f"a layer of the image cannot be read: {why}")


class _Hashed(io.RawIOBase):
    """The bytes of a layer, decompressed if needed, with the digest of everything that was read."""

    def __init__(self, source: IO[bytes]) -> None:
        head = source.read(2)
        file = decoding.ByteStream(chain([head], iter(lambda: source.read(_PIECE), b"")))
        self._source: Callable[[int], bytes] = gzip.GzipFile(fileobj=file).read if head == b"\x1f\x8b" else file.read
        self.hash = hashlib.sha256()
        self.until = _LONGEST_HEADER
        self._at = 0

    def read(self, size: int = -1) -> bytes:
        if self._at > self.until:
            _refuse("the header of an entry is too long")
        data = self._source(size)
        self.hash.update(data)
        self._at += len(data)
        return data
