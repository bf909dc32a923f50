"""The port to a container engine: its protocol and values. Docker and the fake of the tests pass the same tests."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from envbuilder.errors import InfrastructureError
from envbuilder.support.console import Step

Sink = Callable[[bytes], None]
"""Receives pieces of a stream."""

OnBytes = Callable[[int, int], None]
"""Receives the bytes of layers that were moved so far, and of those that are known to move."""

FILES_AT = "/envbuilder"
"""Folder of a container that holds its ``files``."""


@dataclass(frozen=True)
class EngineInfo:
    """An engine: its ``name`` (docker), version, builder (buildkit), and whether it can give GPUs to containers.

    ``memory`` is that of its host in bytes, 0 if unknown.
    """

    name: str
    version: str
    builder: str
    gpu_runtime: bool
    storage: str = ""
    root: str = ""
    memory: int = 0


@dataclass(frozen=True)
class Layer:
    """One layer of an image: its diff id, size in bytes and instruction."""

    diff_id: str
    size: int
    created_by: str = ""


@dataclass(frozen=True)
class Image:
    """An image in the engine's store; ``size`` in bytes, ``digests`` as ``repository@sha256:…``.

    ``history`` are all instructions, newest first; ``tagged`` is when it got its tag; ``settings`` the fields of its
    configuration that are not empty.
    """

    id: str
    tags: tuple[str, ...]
    digests: tuple[str, ...]
    size: int
    labels: Mapping[str, str]
    env: Mapping[str, str]
    user: str
    architecture: str
    layers: tuple[Layer, ...] = ()
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    workdir: str = ""
    history: tuple[str, ...] = ()
    tagged: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)

    def pinned(self, name: str) -> str | None:
        """Return its ``repository@sha256:…`` in the repository of ``name``, else in any; None if it was never pushed.

        An image may have a different digest in each registry.
        """
        bare = name.partition("@")[0]
        repository = bare if ":" not in bare.rpartition("/")[2] else bare.rpartition(":")[0]
        digests = [digest for digest in self.digests if digest.partition("@")[0] == repository]
        return name if name in self.digests else next(iter((*digests, *self.digests)), None)

    def digest(self, name: str) -> str | None:
        pinned = self.pinned(name)
        return pinned.rpartition("@")[2] if pinned is not None else None

    def has(self, digest: str) -> bool:
        return any(name.rpartition("@")[2] == digest for name in self.digests)


@dataclass(frozen=True)
class BuildRequest:
    """An image to build: a context (a folder or its files), and ``extra`` files for it (path in it → content)."""

    context: Path | Mapping[str, bytes]
    tag: str
    extra: Mapping[str, bytes] = field(default_factory=dict)
    dockerfile: str = "Dockerfile"
    build_args: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    target: str = ""
    no_cache: bool = False
    cache_from: tuple[str, ...] = ()  # images with BuildKit's inline cache
    log: str = "build.log"  # the file in which an error finds the complete output


OWN_END_S = 30.0
"""Seconds after ``time_limit`` at which envbuilder's entry process ends by itself: its parent has died."""


@dataclass(frozen=True)
class ContainerSpec:
    """One container: no network, no capabilities, and by default a read-only root and an unprivileged user.

    - ``files`` (path below `FILES_AT` → content) are copied in before the start, readable by all and executable.
    - ``scratch`` paths are writable tmpfs.
    - ``gpus`` is ``none``, ``all`` or a comma-separated list of indices.
    - ``memory`` in bytes, capped at three quarters of the engine host's memory; half of it for all tmpfs together.
    - ``output`` and ``lines`` limit both streams together; above either, the container is killed.
    - ``stdin`` is its standard input, which then ends. ``overdue`` is called repeatedly; True kills the container.
    - ``user`` may be '' for that of the image. ``entrypoint`` keeps the image's own entrypoint before the command.
    """

    image: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    scratch: tuple[str, ...] = ("/tmp",)  # noqa: S108 - a path inside the container
    user: str = "65534:65534"
    read_only: bool = True
    gpus: str = "none"
    memory: int = 8 << 30
    pids: int = 2048
    time_limit: float = 600.0
    output: int = 64 << 20
    lines: int = 1_000_000
    stdin: bytes = b""
    overdue: Callable[[], bool] | None = None
    entrypoint: bool = False


@dataclass(frozen=True)
class ContainerResult:
    """How a container ended. ``timed_out``: killed at the time limit. ``out_of_memory``: killed by the kernel.

    ``flooded``: killed because it printed too much; the output up to the limit was passed on. ``refusal``: why it could
    not start because of its image, such as a missing program.
    """

    exit_code: int
    timed_out: bool = False
    out_of_memory: bool = False
    seconds: float = 0.0
    refusal: str = ""
    flooded: bool = False


FileKind = Literal["file", "folder", "link", "same", "deleted", "emptied", "other"]
"""Kind of a layer's entry; ``same`` is a hard link to ``target``, ``emptied`` hides the folder in lower layers."""


class LayerEntry(msgspec.Struct, frozen=True):
    """One entry of a layer: its path without a leading slash, permission bits, owner, bytes, and time in seconds.

    ``target`` is that of a link. ``has_capabilities``: the kernel gives the program capabilities when it starts.
    """

    path: str
    kind: FileKind
    mode: int = 0
    uid: int = 0
    size: int = 0
    modified: int = 0
    target: str = ""
    has_capabilities: bool = False


class LayerFile(LayerEntry, frozen=True):
    """``pieces`` yields the content once, before the next entry is read; each piece is valid until the next one."""

    pieces: Callable[[], Iterator[bytes | bytearray]] = lambda: iter(())


class RefusedLayerError(InfrastructureError):
    """A layer that engines may read differently, or not at all."""


@dataclass
class LayerStream:
    """One layer that can be read once: files in no order, size in the archive; diff id, set after the last file."""

    files: Iterator[LayerFile]
    diff_id: str = ""
    size: int = 0


class Engine(Protocol):
    """The port to a container engine. Every method raises InfrastructureError if the engine itself fails."""

    def info(self) -> EngineInfo: ...

    def image(self, reference: str) -> Image | None:
        """Find an image by tag, id or digest; None if the engine does not have it."""

    def build(self, request: BuildRequest, on_step: Callable[[Step], None]) -> Image:
        """Build an image, reporting steps as they happen. Raises BuildFailedError with the failed step's last lines."""

    def import_base(self, tar: Path, tag: str, labels: Mapping[str, str]) -> Image:
        """Make an image of one layer from the tar of a root file system."""

    def reach(self, reference: str) -> None:
        """Query a registry for a manifest, for 20 s at most. Raises InfrastructureError if it does not answer."""

    def pull(self, reference: str, on_bytes: OnBytes | None = None, /) -> Image:
        """Pull an image with the credentials of ``docker login``."""

    def push(self, reference: str, on_bytes: OnBytes | None = None, /) -> str:
        """Push a tag and return the manifest digest in the registry's answer (``sha256:…``)."""

    def tag(self, image: str, reference: str) -> None: ...

    def remove(self, reference: str) -> None:
        """Remove a tag, and the image with its last tag. An unknown reference is not an error."""

    def run(self, spec: ContainerSpec, on_stdout: Sink, on_stderr: Sink) -> ContainerResult:
        """Run a container to its end and stream its output. The container is removed however this returns."""

    def export(self, *references: str) -> AbstractContextManager[Iterable[bytes]]:
        """Stream images as ``docker save`` does (an OCI or Docker archive); a layer that they share comes once."""

    def layer_files(
        self, *references: str, without: Collection[int] = ()
    ) -> AbstractContextManager[Iterator[LayerStream]]:
        """Yield the layers of images, file by file, unpacking nothing; without those of a size in ``without``."""

    def sweep(self) -> int:
        """Remove the containers of interrupted runs; return their number."""

    def names(self, repository: str) -> tuple[str, ...]:
        """List the stored tags of a repository, as ``repository:tag``."""

    def prune(self, label: str) -> int:
        """Remove images that have this label and no tag; return the bytes freed."""

    def trim_cache(self, keep: int) -> int:
        """Remove the least recently used build cache, down to ``keep`` bytes; return the bytes freed."""
