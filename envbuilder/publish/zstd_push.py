"""Push an image with its layers in zstd: read from the engine, compressed, decompressed again and compared."""

import gzip
import hashlib
import io
import os
import posixpath
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from envbuilder.engine.layers import reading
from envbuilder.engine.port import Engine, Image
from envbuilder.errors import PublishError, Reason, UsageError
from envbuilder.registry.client import Repository
from envbuilder.registry.errors import RegistryRefusedError
from envbuilder.registry.manifests import MAX_DOCUMENT, OCI_MANIFEST, Artifact, Descriptor, digest_of
from envbuilder.support import decoding
from envbuilder.workspace import temporary_folder, writing

try:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
except ImportError:  # the extra `zstd`
    zstd = None  # type: ignore[assignment]

LEVEL = 12  # about as long as gzip, and GPU images a quarter smaller than that (docs/explanation/image-design.md)

ZSTD_LAYER = "application/vnd.oci.image.layer.v1.tar+zstd"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_PIECE = 1 << 20
_GZIP = "if the engine's archives or the registry cannot hold layers in zstd: --compression gzip"
_GZIP_MAGIC = b"\x1f\x8b"
_MAX_WORKERS = 4  # threads: each holds some windows of the level; their number does not change the output


class _Saved(msgspec.Struct, frozen=True, rename="pascal"):
    """One image in the archive's `manifest.json`: the names of its configuration and of its layers, lowest first."""

    config: str
    layers: tuple[str, ...]


class _ImageConfig(msgspec.Struct, frozen=True):
    rootfs: dict[str, Any]


@dataclass
class ZstdPusher:
    """Pushes images to one repository. A layer that several images share is compressed once."""

    repository: Repository
    folder: Path
    say: Callable[[str], None] = field(default=lambda _: None)
    _layers: dict[str, tuple[str, Descriptor]] = field(default_factory=dict)
    """The diff id and blob of each uploaded layer by its name in the engine's archive, which is made of its digest."""

    def __post_init__(self) -> None:
        if zstd is None:
            raise UsageError("--compression zstd needs backports.zstd", hint="pip install 'tf-envbuilder[zstd]'")

    def push(self, engine: Engine, image: Image, tag: str) -> str:
        """Push an image under a tag and return its manifest's digest; the same image gives the same digest.

        Raises PublishError if the archive's layers are not those of the image's configuration.
        """
        saved, documents, links = self._read(engine, image)
        config = _found(documents, saved.config)
        if image.id not in (digest_of(config), *map(digest_of, documents.values())):
            text = f"the engine's archive of {image.id} holds another image ({digest_of(config)})"
            raise PublishError(text, hint=_GZIP)
        layers = []
        for name in (posixpath.normpath(links.get(name, name)) for name in saved.layers):
            if name not in self._layers:
                self._upload(name, io.BytesIO(_found(documents, name)))
            layers.append(self._layers[name])
        with reading():
            expected = decoding.from_json(config, _ImageConfig).rootfs.get("diff_ids")
        if [diff_id for diff_id, _ in layers] != expected:
            text = f"the layers in the engine's archive of {image.id} are not those of its configuration"
            raise PublishError(text, hint="build the image again: envbuilder build")
        return self._put(tag, config, tuple(blob for _, blob in layers))

    def _put(self, tag: str, config: bytes, layers: tuple[Descriptor, ...]) -> str:
        described = self.repository.put_blob(config, _CONFIG)
        manifest = Artifact(schema_version=2, media_type=OCI_MANIFEST, config=described, layers=layers)
        content = msgspec.json.encode(manifest)
        try:
            self.repository.put_manifest(tag, content, OCI_MANIFEST)
        except RegistryRefusedError as error:
            error.hint = _GZIP if error.fault is Reason.REJECTED else error.hint
            raise
        return digest_of(content)

    def _read(self, engine: Engine, image: Image) -> tuple[_Saved, dict[str, bytes], dict[str, str]]:
        """Upload the large files of `docker save`; return its index, its small files and its links."""
        documents: dict[str, bytes] = {}
        links: dict[str, str] = {}
        with (
            engine.export(image.id) as pieces,
            reading(),
            tarfile.open(fileobj=decoding.ByteStream(pieces), mode="r|") as archive,
        ):
            for member in archive:
                file = archive.extractfile(member) if member.isreg() else None
                if member.issym():  # older engines link to the first copy of a layer that an image has twice
                    links[member.name] = posixpath.join(posixpath.dirname(member.name), member.linkname)
                elif member.islnk():
                    links[member.name] = member.linkname
                elif file is not None and member.size <= MAX_DOCUMENT:
                    documents[member.name] = file.read()
                elif file is not None and member.name not in self._layers:
                    self._upload(member.name, file)
            images = decoding.from_json(_found(documents, "manifest.json"), tuple[_Saved, ...])
        if len(images) != 1:
            text = f"the engine's archive of {image.id} holds {len(images)} images instead of one"
            raise PublishError(text, hint=_GZIP)
        return images[0], documents, links

    def _upload(self, name: str, source: IO[bytes]) -> None:
        """Compress one layer and upload it."""
        with (
            temporary_folder("zstd", within=self.folder) as place,
            writing(place / "layer"),
            (place / "layer").open("w+b") as packed,
        ):
            diff_id, size = _compress(source, packed)
            size_packed = packed.tell()
            with zstd.ZstdFile(packed) as plain:
                if _digest_of(packed, plain) != diff_id:
                    text = f"the layer {diff_id} does not survive compression"
                    raise PublishError(text, hint="reinstall backports.zstd")
            blob = Descriptor(media_type=ZSTD_LAYER, size=size_packed, digest=_digest_of(packed, packed))
            self.repository.upload(blob.digest, packed)
        self._layers[name] = (diff_id, blob)
        self.say(f"layer {diff_id[:19]}: {size / 1e6:,.1f} MB, {blob.size / 1e6:,.1f} MB in zstd")


def _found(documents: dict[str, bytes], name: str) -> bytes:
    if name not in documents:
        raise PublishError(f"the engine's archive has no file {name[:200]}", hint=_GZIP)
    return documents[name]


def _compress(source: IO[bytes], packed: IO[bytes]) -> tuple[str, int]:
    """Write a layer as one frame of zstd with a checksum; return its diff id and its size in bytes.

    Engines with a containerd store save layers in gzip.
    """
    parameter = zstd.CompressionParameter
    workers = min(len(os.sched_getaffinity(0)), _MAX_WORKERS, parameter.nb_workers.bounds()[1])
    options = {parameter.compression_level: LEVEL, parameter.checksum_flag: 1, parameter.nb_workers: workers}
    compressor = zstd.ZstdCompressor(options={int(name): value for name, value in options.items()})
    hashed, size = hashlib.sha256(), 0
    buffered = io.BufferedReader(cast("io.RawIOBase", source), _PIECE)
    plain = gzip.GzipFile(fileobj=buffered) if buffered.peek(2)[:2] == _GZIP_MAGIC else buffered
    while piece := plain.read(_PIECE):
        hashed.update(piece)
        size += len(piece)
        packed.write(compressor.compress(piece))
    packed.write(compressor.flush())
    return f"sha256:{hashed.hexdigest()}", size


def _digest_of(packed: IO[bytes], content: Any) -> str:  # noqa: ANN401 - a file, or what it decompresses to
    packed.seek(0)
    return f"sha256:{hashlib.file_digest(content, 'sha256').hexdigest()}"
