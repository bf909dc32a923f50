"""What the stages ask of a container engine. The Docker implementation and the fake answer to the same tests."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

FILES_AT = "/envbuilder"
"""Where a container finds its ``files``."""


@dataclass(frozen=True)
class EngineInfo:
    """What answers: ``name`` (docker), its version, its builder (buildkit), and whether it can hand GPUs over.

    ``memory`` is its host's in bytes, 0 where it does not say.
    """

    name: str
    version: str
    builder: str
    gpu_runtime: bool
    storage: str = ""
    root: str = ""
    memory: int = 0


@dataclass(frozen=True)
class Step:
    """One event of a build: a step begins, prints, ends (seconds), comes from the cache or fails (``error``)."""

    kind: Literal["started", "log", "done", "cached", "failed"]
    name: str
    text: str = ""
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class Layer:
    """One layer of an image: its diff id, its size in bytes, and the instruction that made it."""

    diff_id: str
    size: int
    created_by: str = ""


@dataclass(frozen=True)
class Image:
    """An image in the engine's store; ``size`` in bytes, ``digests`` as ``repository@sha256:…``.

    ``history`` are the instructions that made it, newest first, those without a layer among them.
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
    created: str = ""
    workdir: str = ""
    history: tuple[str, ...] = ()

    def pinned(self, name: str) -> str | None:
        """Return the ``repository@sha256:…`` by which it is known in the repository of ``name``, else in any.

        One image may have another digest in each registry that it was pushed to. None where no registry knows it.
        """
        bare = name.partition("@")[0]
        repository = bare if ":" not in bare.rpartition("/")[2] else bare.rpartition(":")[0]
        there = [digest for digest in self.digests if digest.partition("@")[0] == repository]
        return name if name in self.digests else next(iter((*there, *self.digests)), None)

    def digest(self, name: str) -> str | None:
        """Return the digest by which it is known in the repository of ``name``, else in any; None where in none."""
        pinned = self.pinned(name)
        return pinned.rpartition("@")[2] if pinned is not None else None

    def has(self, digest: str) -> bool:
        """Tell whether some registry knows it by this digest."""
        return any(name.rpartition("@")[2] == digest for name in self.digests)


@dataclass(frozen=True)
class BuildRequest:
    """One image to build: a context folder, and files that are added to it (path in the context → content)."""

    context: Path
    tag: str
    extra: Mapping[str, bytes] = field(default_factory=dict)
    dockerfile: str = "Dockerfile"
    build_args: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    target: str = ""
    network: str = "default"
    no_cache: bool = False


OWN_END_S = 30.0
"""Seconds after its limit at which a container's first program of ours ends itself: whoever started it is gone."""


@dataclass(frozen=True)
class ContainerSpec:
    """One container, closed by default: no network, read-only root, no capabilities, an unprivileged user.

    ``files`` (path relative to `FILES_AT` → content) are copied in before the start, readable by all and
    executable. ``mounts`` are host path → container path, read-only. ``scratch`` paths are writable tmpfs.
    ``gpus`` is ``none``, ``all`` or a comma-separated list of indices. Memory in bytes, and never more than three
    quarters of the engine's host's; half of it for the tmpfs together. ``time_limit`` in seconds. Where others want the
    processors too, it gets half of what they get (no quota: that would stop it in slices, which reads like a stall).
    It is killed where it prints more than ``output`` bytes, or ``lines`` lines, on both streams together.
    ``stdin`` is what it reads on its standard input, which then ends. ``overdue`` is asked all the time that it runs:
    where it answers yes, the container is killed. ``user`` may be '' for the image's own, and ``entrypoint`` is whether
    the image's own is put before the command, as its users have it.
    """

    image: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    mounts: Mapping[str, str] = field(default_factory=dict)
    scratch: tuple[str, ...] = ("/tmp",)  # noqa: S108 - a path inside the container
    network: str = "none"
    user: str = "65534:65534"
    read_only: bool = True
    gpus: str = "none"
    memory: int = 8 << 30
    pids: int = 2048
    cpus: float | None = None
    shm_size: int = 64 << 20
    labels: Mapping[str, str] = field(default_factory=dict)
    time_limit: float = 600.0
    output: int = 64 << 20
    lines: int = 1_000_000
    stdin: bytes = b""
    overdue: Callable[[], bool] | None = None
    entrypoint: bool = False


@dataclass(frozen=True)
class Ended:
    """How a container ended; ``timed_out`` where the time limit killed it, ``out_of_memory`` where the kernel did.

    ``flooded`` where it was killed because it printed too much; what came before was passed on. ``refusal`` is why it
    could not begin, where its image lacks the program; '' where it began.
    """

    exit_code: int
    timed_out: bool = False
    out_of_memory: bool = False
    seconds: float = 0.0
    refusal: str = ""
    flooded: bool = False


FileKind = Literal["file", "folder", "link", "same", "deleted", "emptied", "other"]
"""What an entry of a layer is; ``same`` is a further name of ``target``, ``emptied`` one that hides what is below."""


def _nothing() -> Iterator[bytes | bytearray]:
    yield from ()


@dataclass(frozen=True)
class LayerFile:
    """One entry of a layer: its path without a slash in front, permission bits, owner, bytes, and time in seconds.

    ``target`` is where a link leads; ``has_capabilities`` is of a program that the kernel gives capabilities when it
    starts. ``pieces`` gives the content once, before the next entry is asked for (unless the
    stream says otherwise); each piece stands until the next is read, and may be the same buffer. ``mapped``, where the
    file lies on this host, lays it out in memory to be read anywhere.
    """

    path: str
    kind: FileKind
    mode: int = 0
    uid: int = 0
    size: int = 0
    modified: int = 0
    target: str = ""
    has_capabilities: bool = False
    pieces: Callable[[], Iterator[bytes | bytearray]] = _nothing
    mapped: Callable[[], AbstractContextManager[mmap.mmap]] | None = None


@dataclass
class LayerStream:
    """One layer, read once: its files in no order, and its diff id, which is sure to be there after them.

    ``in_any_order`` says that a file may be read later than it is named, and beside others.
    """

    files: Iterator[LayerFile]
    diff_id: str = ""
    in_any_order: bool = False


class Engine(Protocol):
    """The port. Every method raises InfrastructureError where the engine itself fails."""

    def info(self) -> EngineInfo:
        """Describe the engine; the cheapest question that proves that it answers."""

    def image(self, reference: str) -> Image | None:
        """Look an image up by tag, id or digest; None where the store lacks it."""

    def build(self, request: BuildRequest, on_step: Callable[[Step], None]) -> Image:
        """Build an image, reporting steps as they happen. Raises BuildFailedError with the failed step's last lines."""

    def import_base(self, tar: Path, tag: str, labels: Mapping[str, str]) -> Image:
        """Make an image of one layer from a root file system's tar."""

    def reach(self, reference: str) -> None:
        """Ask a registry for a manifest alone, for 20 s at most. InfrastructureError where it has no answer."""

    def pull(self, reference: str) -> Image:
        """Fetch an image from its registry."""

    def push(self, reference: str) -> str:
        """Push a tag and return the manifest digest that the registry answered (``sha256:…``)."""

    def tag(self, image: str, reference: str) -> None:
        """Give an image a further name."""

    def remove(self, reference: str) -> None:
        """Take a tag (and the image with its last tag) out of the store; nothing where there is none."""

    def run(self, spec: ContainerSpec, on_stdout: Callable[[bytes], None], on_stderr: Callable[[bytes], None]) -> Ended:
        """Run a container to its end, streaming what it prints; the container is removed however this returns."""

    def export(self, reference: str) -> AbstractContextManager[Iterable[bytes]]:
        """Stream an image as ``docker save`` would (an OCI or Docker archive)."""

    def layer_files(self, reference: str, known: Container[str]) -> AbstractContextManager[Iterator[LayerStream]]:
        """Yield an image's layers, oldest first, file by file. Those of a diff id in ``known`` may be left out.

        Nothing is unpacked, and memory does not grow with the image.
        """

    def sweep(self) -> int:
        """Remove containers that an interrupted run of ours left behind; return how many."""

    def names(self, repository: str) -> tuple[str, ...]:
        """List the tags of a repository that the store holds, as ``repository:tag``."""

    def prune(self, label: str) -> int:
        """Remove the images with a label that have no tag any more; return the bytes that this freed."""

    def trim_cache(self, keep: int) -> int:
        """Remove of the builder's cache what was used least recently, down to ``keep`` bytes; return those freed."""
