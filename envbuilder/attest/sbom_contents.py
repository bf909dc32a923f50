"""Find the packages in an image by reading its archive as a stream: nothing of the image is run or unpacked."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, Literal

import msgspec

from envbuilder.engine.layer_files import reading
from envbuilder.errors import InfrastructureError, decode
from envbuilder.image.lockfile import normalised

MAX_FILE = 32 << 20
"""Bytes above which a package's record is not read: Debian's list of 400 packages has 0.4 MB."""

_BUFFER = 1 << 20
_WANTED = re.compile(
    r"(?:var/lib/dpkg/status|var/lib/dpkg/status\.d/[^/]+|(?:etc|usr/lib)/os-release|"
    r"(?:.+/)?[^/]+\.(?:dist-info/METADATA|egg-info/PKG-INFO|egg-info))\Z"
)
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"

Files = dict[str, bytes]


@dataclass(frozen=True, order=True)
class Package:
    """One installed package; ``licence`` as its metadata states it, ``spdx`` where that is an SPDX expression.

    ``source`` is the Debian source package that it was built from (``name`` or ``name version``), where it has another
    name or version: vulnerabilities are listed by it.
    """

    kind: Literal["deb", "pypi"]
    name: str
    version: str
    arch: str = ""
    licence: str = ""
    spdx: bool = False
    source: str = ""


@dataclass(frozen=True)
class Contents:
    """What was found: the packages, sorted, and the distribution (``debian``, ``bookworm``, ``12``)."""

    packages: tuple[Package, ...]
    distribution: str = ""
    release: str = ""
    version: str = ""


@dataclass
class _Layer:
    """The wanted files of one layer, and what it deletes from the layers below."""

    files: Files
    deleted: set[str]
    emptied: set[str]


def read(archive: Iterable[bytes]) -> Contents:
    """Read an image archive (as ``docker save`` writes it) to its end.

    Raises InfrastructureError where the stream is no such archive.
    """
    layers: dict[str, _Layer] = {}
    aliases: dict[str, str] = {}
    order: tuple[str, ...] | None = None
    with reading(), tarfile.open(fileobj=_Stream(archive), mode="r|", bufsize=_BUFFER) as outer:
        for member in outer:
            if member.issym() or member.islnk():
                aliases[member.name] = _target(member)
            elif member.name == "manifest.json":
                order = _order(_small(outer, member))
            elif (member.isfile() and member.name.startswith(("blobs/", "./blobs/"))) or _is_layer(member.name):
                layer = _scan(outer, member)
                if layer is not None:
                    layers[member.name] = layer
    if order is None:
        raise InfrastructureError("the engine's archive of the image has no manifest")
    unread = [name for name in order if aliases.get(name, name) not in layers]
    if unread:  # a bill of materials that leaves a layer out would be a lie
        raise InfrastructureError(
            f"the engine's archive holds {len(unread)} layers of an unknown form, such as {unread[0]}",
            hint="an engine with the containerd image store packs layers by zstd: use the classic store",
        )
    return _contents(_merge([layers[aliases.get(name, name)] for name in order]))


class _Stream(io.RawIOBase):
    """Chunks of bytes as a file that can be read once, forwards."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks: Iterator[bytes] = iter(chunks)
        self._rest = b""

    def read(self, size: int = -1) -> bytes:
        """Read up to ``size`` bytes; empty at the end."""
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return b""
            self._rest = chunk
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken


class _SaveManifest(msgspec.Struct, frozen=True, rename="pascal"):
    layers: tuple[str, ...]


def _order(manifest: bytes) -> tuple[str, ...]:
    saved = decode.from_json(manifest, tuple[_SaveManifest, ...], "no manifest")
    if len(saved) != 1:
        raise decode.DamagedError(f"a manifest of {len(saved)} images")
    return saved[0].layers


def _is_layer(name: str) -> bool:
    return name.endswith("/layer.tar")


def _target(member: tarfile.TarInfo) -> str:
    """Resolve a layer that is a link to another one (``../<id>/layer.tar``)."""
    if member.islnk():
        return member.linkname
    parts: list[str] = []
    for part in (PurePosixPath(member.name).parent / member.linkname).parts:
        if part == "..":
            parts = parts[:-1]
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _small(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member) if member.isfile() and member.size <= MAX_FILE else None
    return file.read() if file is not None else b""


def _scan(outer: tarfile.TarFile, member: tarfile.TarInfo) -> _Layer | None:
    """Collect the wanted files of a layer; None for a blob that is not a layer."""
    source: IO[bytes] | None = outer.extractfile(member)
    layer = _Layer({}, set(), set())
    with reading():
        try:
            with tarfile.open(fileobj=source, mode="r|*", bufsize=_BUFFER) as inner:
                for item in inner:
                    name = item.name.removeprefix("./").lstrip("/")
                    path = PurePosixPath(name)
                    if path.name == _OPAQUE:
                        layer.emptied.add(f"{path.parent}/")
                    elif path.name.startswith(_WHITEOUT):
                        layer.deleted.add(str(path.parent / path.name.removeprefix(_WHITEOUT)))
                    elif _WANTED.match(name) and item.isfile():
                        layer.files[name] = _small(inner, item)
        except tarfile.ReadError:
            return None
    return layer


def _merge(layers: list[_Layer]) -> Files:
    """Stack layers, lowest first: a layer's deletions apply to what is below it."""
    merged: Files = {}
    for layer in layers:
        gone = tuple(f"{path}/" for path in layer.deleted) + tuple(layer.emptied)
        merged = {
            name: data for name, data in merged.items() if name not in layer.deleted and not name.startswith(gone)
        }
        merged |= layer.files
    return merged


def _contents(files: Files) -> Contents:
    found: set[Package] = set()
    for name, data in files.items():
        for suffix, parse in _PARSERS:
            if suffix in name:
                found |= set(parse(decode.lossy(data)))
    told = _os_release(decode.lossy(files.get("etc/os-release") or files.get("usr/lib/os-release") or b""))
    return Contents(
        tuple(sorted(found)),
        told.get("ID", ""),
        told.get("VERSION_CODENAME") or told.get("VERSION_ID", ""),
        told.get("VERSION_ID", ""),
    )


def _debian(text: str) -> Iterator[Package]:
    for paragraph in re.split(r"\n\s*\n", text):
        fields = _fields(paragraph)
        if fields.get("Status", "install ok installed").endswith(" installed") and "Package" in fields:
            source = fields.get("Source", "").replace("(", "").replace(")", "")
            name, version, arch = fields["Package"], fields.get("Version", ""), fields.get("Architecture", "")
            yield Package("deb", name, version, arch, source=source)


def _python(text: str) -> Iterator[Package]:
    fields = _fields(text.partition("\n\n")[0])
    if "Name" not in fields or "Version" not in fields:
        return
    expression = fields.get("License-Expression", "")
    stated = expression or fields.get("License", "").strip().splitlines()[:1]
    licence = stated if isinstance(stated, str) else "".join(stated)
    yield Package("pypi", normalised(fields["Name"]), fields["Version"], "", licence[:120], bool(expression))


def _fields(paragraph: str) -> dict[str, str]:
    """Read ``Key: value`` lines; of a key that comes twice, the first counts."""
    fields: dict[str, str] = {}
    for line in paragraph.splitlines():
        key, colon, value = line.partition(":")
        if colon and key and not key[0].isspace():
            fields.setdefault(key, value.strip())
    return fields


def _os_release(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key: value.strip().strip('"') for key, _, value in pairs}


_PARSERS: tuple[tuple[str, Callable[[str], Iterator[Package]]], ...] = (
    ("var/lib/dpkg/status", _debian),
    (".dist-info/METADATA", _python),
    (".egg-info", _python),
)
