"""Run one closed container to its end: files in, output streamed, limits enforced, nothing left behind."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self

import msgspec
from docker import APIClient
from docker.errors import APIError, DockerException
from docker.types import DeviceRequest, LogConfig, Mount, Ulimit
from docker.utils import version_gte
from urllib3.exceptions import HTTPError

from envbuilder.engine import archive
from envbuilder.engine.connection import CONNECT_S, Connection, Stream, calling, checked, streamed
from envbuilder.engine.port import FILES_AT, ContainerResult, ContainerSpec, Sink
from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.support import decoding
from envbuilder.support.subprocesses import is_gone, owner

RUN_LABEL = "org.envbuilder.run"
HOST_LABEL = "org.envbuilder.host"
STARTED_LABEL = "org.envbuilder.started"
_ENDING_S = 60
"""Limit for the engine to end a container after its time limit, and to report its end."""

_REFUSALS = ("unable to start container process: exec", "unable to find user", "unable to find group", "chdir to cwd")
"""Texts of the engine if an image's own settings (entrypoint, user, folder) make its start impossible."""

_EVENTS_S = 5.0
"""Limit for an engine to report the events of a container that has ended; it does so in milliseconds."""

_POLL_S = 0.5
_CPU_SHARES = 512
"""Weight of a container if others need the processors too; the engine's default is 1024.

No quota: it stops processes in slices, which a measurement takes for a stall.
"""

_OPEN_FILES = 16_384
"""Limit per process; a run of TensorFlow has some hundreds."""

_BYTES_PER_FILE = 16_384
"""Scratch space per inode: 262,144 files in 4 GB."""


class _Created(msgspec.Struct, rename="pascal"):
    id: str


class _Waited(msgspec.Struct, rename="pascal"):
    status_code: int


class _State(msgspec.Struct):
    out_of_memory: bool | None = msgspec.field(default=None, name="OOMKilled")


class _Inspected(msgspec.Struct, rename="pascal"):
    state: _State


class _Labelled(msgspec.Struct, rename="pascal"):
    id: str = ""
    name: str = ""
    labels: dict[str, str] | None = None


class _Volumes(msgspec.Struct, rename="pascal"):
    volumes: list[_Labelled] | None = None


def _labels() -> dict[str, str]:
    """Return labels that identify this process, so that a later run can remove what this one leaves."""
    pid, _, started = owner().partition("_")
    return {RUN_LABEL: pid, HOST_LABEL: socket.gethostname(), STARTED_LABEL: started}


def _is_abandoned(found: _Labelled) -> bool:
    """Return True if the process that made it does not run any more."""
    labels = found.labels or {}
    return is_gone(f"{labels.get(RUN_LABEL)}_{labels.get(STARTED_LABEL)}")


def run(connection: Connection, spec: ContainerSpec, on_stdout: Sink, on_stderr: Sink) -> ContainerResult:
    """Run a container as `Engine.run` documents."""
    api = connection.api
    with _container(api, spec) as container:
        if spec.files:
            with calling("copy files into the container"):
                api.put_archive(container, FILES_AT, b"".join(archive.stream(dict(spec.files), mode=0o755)))
        with calling("attach to the container"):
            output: Any = api.attach(container, stream=True, demux=True)
        try:
            if refusal := _start(api, container):
                on_stderr(refusal.encode() + b"\n")
                return ContainerResult(exit_code=127, refusal=refusal)
            # The engine ends a container at its limit; the stream's watch notices an engine that does not.
            with (
                Stream(api, "run the container", output._response, spec.time_limit + _ENDING_S),  # noqa: SLF001
                _Limit(api, container, spec.time_limit, spec.overdue) as limit,
                _fed(api, container, spec.stdin),
            ):
                flooded = _follow(spec, output, (on_stdout, on_stderr))
                if flooded:
                    limit.kill()
                return replace(_result(connection, container, limit), flooded=flooded)
        finally:
            with contextlib.suppress(OSError, DockerException, AttributeError):
                output.close()


def sweep(connection: Connection) -> int:
    """Remove the containers and volumes of runs on this host whose process is gone; return how many containers."""
    query = {"filters": json.dumps({"label": [f"{HOST_LABEL}={socket.gethostname()}"]})}
    containers = connection.get("list containers", "/containers/json", list[_Labelled], params={"all": 1, **query})
    volumes = connection.get("list volumes", "/volumes", _Volumes, params=query) or _Volumes()
    abandoned = [container.id for container in containers or () if _is_abandoned(container)]
    for container in abandoned:
        _remove(connection.api, container)
    for volume in volumes.volumes or ():
        if _is_abandoned(volume):
            # It may have gone with its container, or be in use by one that is being removed.
            with calling("remove a volume"), contextlib.suppress(APIError):
                connection.api.remove_volume(volume.name, force=True)
    return len(abandoned)


class OutputLimit:
    """Counts bytes and lines of both streams; ``reached`` after the first piece above a limit."""

    def __init__(self, spec: ContainerSpec) -> None:
        self._bytes, self._lines = spec.output, spec.lines
        self.reached = False

    def cut(self, piece: bytes) -> bytes:
        if self.reached:
            return b""
        part = piece[: self._bytes]
        lines = part.count(b"\n")
        if lines > self._lines:
            part = b"".join(line + b"\n" for line in part.split(b"\n", self._lines)[: self._lines])
            lines = self._lines
        self.reached = len(part) < len(piece)
        self._bytes -= len(part)
        self._lines -= lines
        return part


def _follow(spec: ContainerSpec, output: Iterable[tuple[bytes | None, bytes | None]], sinks: tuple[Sink, Sink]) -> bool:
    """Pass the output on, up to its limits; return True if a limit was reached."""
    limit = OutputLimit(spec)
    for pieces in streamed("stream the container's output", output):
        for piece, sink in zip(pieces, sinks, strict=True):
            if piece and (part := limit.cut(piece)):
                sink(part)
        if limit.reached:
            return True
    return False


@dataclass
class _Limit:
    """Kills a container at its time limit (``reached``), or if the caller's ``overdue`` returns True."""

    api: APIClient
    container: str
    seconds: float
    overdue: Callable[[], bool] | None = None
    reached: bool = False
    killed: bool = False
    started: float = field(default_factory=time.monotonic)
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(min(_POLL_S, max(0.0, self.started + self.seconds - time.monotonic()))):
            self.reached = time.monotonic() - self.started >= self.seconds
            if self.reached or (self.overdue is not None and self.overdue()):
                self.kill()
                return

    def kill(self) -> None:
        """Kill the container. It may have ended just now; the stream's watch notices an engine that hangs."""
        self.killed = True
        with contextlib.suppress(DockerException, OSError, HTTPError):
            self.api.kill(self.container)


@contextlib.contextmanager
def _fed(api: APIClient, container: str, data: bytes) -> Iterator[None]:
    """Write the container's standard input while the block runs; it may end without reading it."""
    if not data:
        yield
        return
    with calling("attach to the container's input"):
        stream: Any = api.attach_socket(container, params={"stdin": 1, "stream": 1})

    def feed() -> None:
        connection = getattr(stream, "_sock", stream)  # docker gives a file, or the socket itself
        with contextlib.suppress(OSError, ValueError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)

    threading.Thread(target=feed, daemon=True).start()
    try:
        yield
    finally:
        with contextlib.suppress(OSError, DockerException):
            stream.close()


@contextlib.contextmanager
def _container(api: APIClient, spec: ContainerSpec) -> Iterator[str]:
    """Create a container and remove it, with its volume, however the block ends."""
    with calling(f"create a container of {spec.image}"):
        # Engines before API 1.41 (Docker 20.10) do not know private control groups.
        private: dict[str, Any] = {"cgroupns": "private"} if version_gte(api.api_version, "1.41") else {}
        answer = api.create_container(
            image=spec.image,
            # Without `entrypoint`, the first word of the command replaces the image's own entrypoint.
            entrypoint=[spec.command[0]] if spec.command and not spec.entrypoint else None,
            command=list(spec.command if spec.entrypoint else spec.command[1:]),
            environment=dict(spec.env),
            user=spec.user or None,
            stdin_open=bool(spec.stdin),
            labels=_labels(),
            host_config=api.create_host_config(**_host_config(spec), **private),
        )
        container = decoding.converted(answer, _Created).id
    try:
        yield container
    except BaseException:
        # The first error is reported; if the container cannot be removed either, the next command sweeps it.
        with contextlib.suppress(InfrastructureError):
            _remove(api, container)
        raise
    _remove(api, container)


def _host_config(spec: ContainerSpec) -> dict[str, Any]:
    # Scratch space is memory: half of it for all tmpfs together. Empty files take no space, but an inode, which some
    # kernels do not count.
    size = spec.memory // 2 // max(1, len(spec.scratch))
    # exec: TensorFlow and XLA write programs to their scratch space and load them.
    tmpfs = f"rw,exec,nosuid,nodev,mode=1777,size={size},nr_inodes={max(1024, size // _BYTES_PER_FILE)}"
    files = Mount(FILES_AT, None, type="volume", no_copy=True, labels=_labels())
    return {
        "network_mode": "none",
        "read_only": spec.read_only,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "pids_limit": spec.pids,
        "mem_limit": spec.memory,
        "memswap_limit": spec.memory,
        "cpu_shares": _CPU_SHARES,
        "ulimits": [
            Ulimit(name="core", soft=0, hard=0),  # a crash of TensorFlow would give the host a core dump of gigabytes
            Ulimit(name="fsize", soft=spec.memory, hard=spec.memory),
            Ulimit(name="nofile", soft=_OPEN_FILES, hard=_OPEN_FILES),
        ],
        "tmpfs": dict.fromkeys(spec.scratch, tmpfs),
        "mounts": [files] if spec.files else [],  # nothing can be copied into a read-only root
        "device_requests": gpu_requests(spec.gpus),
        # The attached stream is read; nobody would read a copy on the engine's disk.
        "log_config": LogConfig(type="none"),
    }


def gpu_requests(gpus: str) -> list[DeviceRequest] | None:
    """Read ``none``, ``all`` or ``0,2``. Raises UsageError on anything else."""
    if gpus == "none":
        return None
    indices = [] if gpus == "all" else gpus.split(",")
    if not all(index.isdigit() for index in indices):
        raise UsageError(f"gpus is {gpus!r}; it must be none, all or indices such as 0,1")
    capabilities = [["gpu", "compute", "utility"]]
    return [DeviceRequest(count=0 if indices else -1, device_ids=indices, capabilities=capabilities)]


def _start(api: APIClient, container: str) -> str:
    """Start a container; return the reason if its own image makes that impossible, else ''."""
    with calling("start the container"):
        try:
            api.start(container)
        except APIError as error:
            reason = error.explanation or ""
            if "could not select device driver" in reason:
                raise InfrastructureError(
                    f"this engine has no GPUs for containers: {reason}",
                    hint="install the NVIDIA Container Toolkit on the engine's host, or set gpus to none",
                ) from error
            if not any(text in reason for text in _REFUSALS):
                raise
            return reason
    return ""


def _result(connection: Connection, container: str, limit: _Limit) -> ContainerResult:
    with calling("wait for the container's end"):
        # It may have closed its output and continue; then the limit ends it.
        left = max(0.0, limit.seconds - (time.monotonic() - limit.started))
        answer = connection.api.wait(container, timeout=int(left) + _ENDING_S)
        code = decoding.converted(answer, _Waited).status_code
    inspected = connection.get("describe the container", "/containers/{}/json", _Inspected, names=(container,))
    out_of_memory = bool(inspected and inspected.state.out_of_memory)
    if code and not limit.killed and not out_of_memory:
        _check_end(connection, container)
    return ContainerResult(
        exit_code=code, timed_out=limit.reached, out_of_memory=out_of_memory, seconds=time.monotonic() - limit.started
    )


def _check_end(connection: Connection, container: str) -> None:
    """Raise InfrastructureError if the engine ended a container for another reason: that is not about its image.

    An operator may have stopped it, or the engine itself while it was stopped. A restarted engine has no events of it.
    """
    action, events = "report how the container ended", set[str | None]()
    query = {"since": "1", "filters": json.dumps({"container": [container], "event": ["kill", "die"]})}
    with calling(action):
        response = connection.api.get(
            connection.url("/events"), params=query, stream=True, timeout=(CONNECT_S, _EVENTS_S)
        )
    with Stream(connection.api, action, checked(action, response), 2 * _EVENTS_S) as stream:
        for record in stream.records():
            events.add(record.action)
            if record.action == "die":
                break
    if events != {"die"}:
        raise InfrastructureError(
            "the container was ended from outside, by a person or by the engine's own end",
            hint="run the same command again; the engine's log (journalctl -u docker) says who stopped it",
        )


def _remove(api: APIClient, container: str) -> None:
    """Remove a container with its anonymous volume. One that is gone, or is being removed, is not an error."""
    with calling("remove a container"):
        try:
            api.remove_container(container, v=True, force=True)
        except APIError as error:
            if error.status_code not in {404, 409}:
                raise
