"""A second manifest of a published image: the same configuration, its layers in zstd, each read back and unpacked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from envbuilder.errors import PublishError, UsageError
from envbuilder.publish import packing
from envbuilder.publish.layer_manifest import (
    DIFF_ID,
    PACKER,
    ZSTD_LAYER,
    LayerBlob,
    LayeredImage,
    read_judged,
    written,
    zstd_layers,
)
from envbuilder.registry.client import OCI_MANIFEST, Manifest, Repository, digest_of, digest_of_file
from envbuilder.registry.faults import Fault, RegistryRefusedError
from envbuilder.support import decoding
from envbuilder.workspace import temporary_folder, writing

SUFFIX = "-zstd"
"""What the tags of the second manifest end with."""

LEVEL = 12
"""Takes about as long as gzip, and makes GPU images a quarter smaller than that (docs/size.md)."""

_LOOKED_AT = 64
"""How many tags are asked which layers were packed already."""

_QUIET_S = 30.0
"""Seconds after which long work says how far it is."""


@dataclass(frozen=True)
class Work:
    """One image's repacking: where it is, what was judged, and who hears of progress.

    ``pin`` is the tag that the second manifest gets for ever. ``earlier`` are digests of manifests that may be it.
    ``folder`` takes what is temporary, one layer twice; ``most`` is what a layer may have of bytes, packed or unpacked.
    """

    repository: Repository
    judged: Manifest
    pin: str
    folder: Path
    most: int
    say: Callable[[str], None]
    earlier: tuple[str, ...] = ()


@dataclass
class Repacker:
    """Packs layers in zstd at a level, each once a run, whatever image it is of; all images are in one repository."""

    level: int = LEVEL
    _read_back: dict[str, LayerBlob] = field(default_factory=dict)
    _named: dict[str, LayerBlob] | None = None

    def __post_init__(self) -> None:
        """Refuse a level that is none, and a host without the library, before anything is done."""
        packing.check_installed()
        least, most = packing.LEVELS
        if not least <= self.level <= most:
            raise UsageError(f"{self.level} is no level of zstd", hint=f"from {least} to {most}")

    def repacked(self, work: Work) -> Manifest:
        """Have the second manifest in the registry, under its digest alone, every layer of it read back.

        What the immutable tag names already stays what it is, at whatever level it was packed, once it was read back.
        Raises PublishError where a layer is not what the configuration says, or the registry has not what it took.
        """
        image, diff_ids = read_judged(work.repository, work.judged)
        there = work.repository.manifest(work.pin)
        if there is not None:
            return self._kept(work, there, image, diff_ids)
        named = self._names(work)
        layers = []
        for number, (layer, diff_id) in enumerate(zip(image.layers, diff_ids, strict=True), 1):
            which = f"layer {number} of {len(diff_ids)}"
            layers.append(self._layer(work, layer, diff_id, named.get(diff_id), which))
        content = written(image.config, tuple(layers))
        return _stored(work.repository, content)

    def _kept(self, work: Work, there: Manifest, image: LayeredImage, diff_ids: tuple[str, ...]) -> Manifest:
        """Take what the immutable tag names, where that is this very image. Raises PublishError where it is not."""
        name = work.repository.reference.at(work.pin)
        layers = zstd_layers(there) or ()
        same = [layer.annotations[DIFF_ID] for layer in layers] == list(diff_ids)
        if not same or there.content != written(image.config, layers):
            raise PublishError(
                f"{name} exists ({there.digest}), and is not this image in zstd; it is never overwritten",
                hint="remove that tag in the registry if it is nobody's, then run again",
            )
        work.say(f"already packed: {there.digest}")
        for number, (layer, diff_id) in enumerate(zip(layers, diff_ids, strict=True), 1):
            self._check(work, layer, diff_id, f"layer {number} of {len(diff_ids)}")
        return there

    def _layer(self, work: Work, layer: LayerBlob, diff_id: str, found: LayerBlob | None, which: str) -> LayerBlob:
        """Return a layer in zstd that was read back: of this run, found by its name and checked, or packed now."""
        if known := self._read_back.get(diff_id):
            work.say(f"{which}: packed already in this run")
            return known
        if found is not None:
            try:
                self._check(work, found, diff_id, which)
            except PublishError as error:
                work.say(f"{which}: {error.message}: it is packed again")
            else:
                work.say(f"{which}: packed already")
                return found
        made = self._packed(work, layer, diff_id, which)
        self._check(work, made, diff_id, which)
        work.say(f"{which}: {layer.size / 1e6:,.1f} MB in gzip, {made.size / 1e6:,.1f} MB in zstd")
        return made

    def _packed(self, work: Work, layer: LayerBlob, diff_id: str, which: str) -> LayerBlob:
        """Read a layer from the registry, hold it to its digest and its diff id, pack it, and store it."""
        with _file(work.folder) as source, _file(work.folder) as target:
            work.repository.download(layer.digest, _bounded(layer.size, work.most, which), source)
            tally = packing.Tally(work.most, _Pulse(work.say, f"{which}: packing"))
            with _damaged(f"{which} ({layer.digest})"):
                packing.pack(tally.of(packing.gunzipped(source)), self.level, target)
            if tally.digest != diff_id:
                raise PublishError(
                    f"{which} ({layer.digest}) unpacks to {tally.digest}, and the image's configuration says {diff_id}",
                    hint="do not use this image: build and publish it again",
                )
            size = target.tell()
            digest = digest_of_file(target)
            work.repository.upload(digest, target)
        annotations = {DIFF_ID: diff_id, PACKER: packing.packer_name(self.level)}
        return LayerBlob(media_type=ZSTD_LAYER, digest=digest, size=size, annotations=annotations)

    def _check(self, work: Work, layer: LayerBlob, diff_id: str, which: str) -> None:
        """Read a layer in zstd back from the registry and unpack it. Raises PublishError where it is not the layer."""
        if self._read_back.get(diff_id) == layer:
            return
        with _file(work.folder) as back:
            work.repository.download(layer.digest, _bounded(layer.size, work.most, which), back)
            tally = packing.Tally(work.most, _Pulse(work.say, f"{which}: reading back"))
            with _damaged(f"{which} ({layer.digest})"):
                for _ in tally.of(packing.unpacked(back)):
                    pass
        if tally.digest != diff_id:
            raise PublishError(
                f"{which} ({layer.digest}) unpacks to {tally.digest}, and not to {diff_id}",
                hint="it is not the layer that was judged: remove the tag that names it",
            )
        self._read_back[diff_id] = layer

    def _names(self, work: Work) -> dict[str, LayerBlob]:
        """Return layers that the repository's manifests name as packed alike, by diff id; none of it is believed."""
        if self._named is None:
            self._named = {}
            with suppress(RegistryRefusedError):  # who may not list tags packs again
                tags = [tag for tag in work.repository.tags() if tag.endswith(SUFFIX)]
                self._learn(work.repository, tags[-_LOOKED_AT:])
        self._learn(work.repository, work.earlier)
        return self._named

    def _learn(self, repository: Repository, targets: Iterable[str]) -> None:
        named = self._named if self._named is not None else {}
        for manifest in map(repository.manifest, targets):
            for layer in (zstd_layers(manifest) or ()) if manifest is not None else ():
                if layer.annotations.get(PACKER) == packing.packer_name(self.level):
                    named.setdefault(layer.annotations[DIFF_ID], layer)


def check_ours(repository: Repository, tags: tuple[str, ...]) -> None:
    """Refuse where a tag that would move to a second manifest names something else today: nobody asked to lose that."""
    for tag in tags:
        there = repository.manifest(tag)
        if there is not None and zstd_layers(there) is None:
            raise PublishError(
                f"{repository.reference.at(tag)} exists ({there.digest}), and is no image that was packed here in zstd",
                hint="remove that tag in the registry if it is nobody's, then run again",
            )


def _stored(repository: Repository, content: bytes) -> Manifest:
    """Store a manifest under its digest, and read it back. Raises PublishError where the registry takes no such one."""
    digest = digest_of(content)
    try:
        repository.put_manifest(digest, content, OCI_MANIFEST)
    except RegistryRefusedError as error:
        if error.fault is not Fault.REJECTED:
            raise
        hint = "this registry may take no OCI manifests with layers in zstd: leave --zstd out, or take another"
        raise PublishError(error.message, hint=hint) from error
    found = repository.manifest(digest)
    if found is None or found.media_type != OCI_MANIFEST:
        raise PublishError(f"the registry took {digest}, and has it not as it was", hint="run it again")
    return found


def _bounded(size: int, most: int, which: str) -> int:
    if size > most:
        raise PublishError(f"{which} has {size:,} bytes, more than the {most:,} that a layer of this image can have")
    return size


@contextmanager
def _damaged(what: str) -> Iterator[None]:
    try:
        yield
    except decoding.DamagedError as error:
        raise PublishError(f"{what}: {error}", hint="do not use it: something altered it on the way") from error


@contextmanager
def _file(folder: Path) -> Iterator[BinaryIO]:
    """Open a file that is gone when the block ends, or when a killed process is swept up after."""
    with (
        temporary_folder("zstd", within=folder) as place,
        writing(place / "layer"),
        (place / "layer").open("w+b") as file,
    ):
        yield file


class _Pulse:
    """Says how far long work is, now and then."""

    def __init__(self, say: Callable[[str], None], what: str) -> None:
        self._say, self._what, self._next = say, what, time.monotonic() + _QUIET_S

    def __call__(self, size: int) -> None:
        """Hear how many bytes are done."""
        if time.monotonic() >= self._next:
            self._say(f"{self._what}: {size / 1e6:,.0f} MB so far")
            self._next = time.monotonic() + _QUIET_S
