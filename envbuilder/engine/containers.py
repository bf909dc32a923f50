"""Run one closed container to its end: files in, output streamed, limits kept, nothing left behind."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import msgspec
from docker import APIClient
from docker.errors import APIError, DockerException
from docker.types import DeviceRequest, LogConfig, Mount, Ulimit
from docker.utils import version_gte
from urllib3.exceptions import HTTPError

from envbuilder.engine import archive
from envbuilder.engine.calls import CONNECT_S, answers, ask, asking, checked, records, url
from envbuilder.engine.meter import Meter
from envbuilder.engine.port import FILES_AT, ContainerSpec, Ended
from envbuilder.engine.watch import watched
from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.support import decoding, subprocesses

RUN_LABEL = "org.envbuilder.run"
HOST_LABEL = "org.envbuilder.host"
STARTED_LABEL = "org.envbuilder.started"
_NOT_FOUND = 127
_PATIENCE = 60
"""Seconds for the engine to end a container whose limit is reached, and to say how it ended."""

_REFUSALS = ("unable to start container process: exec:", "unable to find user", "unable to find group", "chdir to cwd")
"""What the engine says where an image's own words (entrypoint, user, folder) make its start impossible."""

_TOLD_S = 5.0
"""Within which an engine tells how a container ended that it saw end; it does so in milliseconds."""

_LOOK_S = 0.5
"""How often a running container is looked at."""

_CPU_WEIGHT = 512
"""Of the processors, where others want them too; what is not said to the engine weighs 1024."""

_FILES = 16_384
"""Files that a process of a container may hold open; a run of TensorFlow holds some hundreds."""

_NO_GPUS = "install the NVIDIA Container Toolkit on the engine's host, or ask for no GPUs (gpus: none)"


def run(
    api: APIClient, spec: ContainerSpec, on_stdout: Callable[[bytes], None], on_stderr: Callable[[bytes], None]
) -> Ended:
    """Run a container as `Engine.run` says."""
    with _container(api, spec) as container:
        if spec.files:
            entries = dict(spec.files)
            with asking("copy files into the container"):
                api.put_archive(container, FILES_AT, b"".join(archive.stream(entries, mode=0o755)))
        with asking("attach to the container"):
            output: Any = api.attach(container, stream=True, demux=True)
        try:
            if refusal := _start(api, container):
                on_stderr(refusal.encode() + b"\n")
                return Ended(exit_code=_NOT_FOUND, refusal=refusal)
            # The engine's own end of it is the limit; that the engine keeps it, is seen to from beside the stream.
            with (
                watched(api, "run the container", output._response, spec.time_limit + _PATIENCE),  # noqa: SLF001
                _Limit(api, container, spec.time_limit, spec.overdue) as limit,
                _fed(api, container, spec.stdin),
            ):
                flooded = _follow(spec, output, on_stdout, on_stderr)
                if flooded:
                    limit.kill()
                return replace(_ended(api, container, limit), flooded=flooded)
        finally:
            with contextlib.suppress(OSError, DockerException, AttributeError):
                output.close()


def _follow(
    spec: ContainerSpec,
    output: Iterable[tuple[bytes | None, bytes | None]],
    on_stdout: Callable[[bytes], None],
    on_stderr: Callable[[bytes], None],
) -> bool:
    """Pass on what a container prints, up to its bounds; return whether it went over one."""
    meter = Meter(spec)
    for pieces in answers("stream the container's output", output):
        for piece, take in zip(pieces, (on_stdout, on_stderr), strict=True):
            if piece and (taken := meter.take(piece)):
                take(taken)
        if meter.full:
            return True
    return False


class _Left(msgspec.Struct, rename="pascal"):
    """A container or a volume that was found."""

    id: str = ""
    name: str = ""
    labels: dict[str, str] | None = None


class _Volumes(msgspec.Struct, rename="pascal"):
    volumes: list[_Left] | None = None


def sweep(api: APIClient) -> int:
    """Remove the containers and volumes of runs on this host whose process is gone; return how many containers."""
    mine = {"filters": json.dumps({"label": [f"{HOST_LABEL}={socket.gethostname()}"]})}
    containers = ask(api, "/containers/json", "list containers", list[_Left], params={"all": 1, **mine}) or []
    volumes = ask(api, "/volumes", "list volumes", _Volumes, params=mine) or _Volumes()
    left = [item.id for item in containers if not _alive(item.labels or {})]
    for container in left:
        _remove(api, container)
    for volume in volumes.volumes or ():
        if not _alive(volume.labels or {}):
            # Gone with its container already, or still held by one that is going.
            with asking("remove a volume"), contextlib.suppress(APIError):
                api.remove_volume(volume.name, force=True)
    return len(left)


@dataclass
class _Limit:
    """Kills a container when its time is up (``reached``), or the caller says that it is overdue.

    ``killed`` says that it was killed here, for whatever reason.
    """

    api: APIClient
    container: str
    seconds: float
    overdue: Callable[[], bool] | None = None
    reached: bool = False
    killed: bool = False
    began: float = field(default_factory=time.monotonic)
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(min(_LOOK_S, max(0.0, self.began + self.seconds - time.monotonic()))):
            self.reached = time.monotonic() - self.began >= self.seconds
            if self.reached or (self.overdue is not None and self.overdue()):
                self.kill()
                return

    def kill(self) -> None:
        """Kill the container. It may have ended in this very moment; an engine that hangs is the watch's matter."""
        self.killed = True
        with contextlib.suppress(DockerException, OSError, HTTPError):
            self.api.kill(self.container)


@contextlib.contextmanager
def _fed(api: APIClient, container: str, data: bytes) -> Iterator[None]:
    """Hand a container its standard input while the block runs; it may read none of it and end."""
    if not data:
        yield
        return
    with asking("attach to the container's input"):
        stream = api.attach_socket(container, params={"stdin": 1, "stream": 1})
    feeder = threading.Thread(target=_feed, args=(stream, data), daemon=True)
    feeder.start()
    try:
        yield
    finally:
        with contextlib.suppress(OSError, DockerException):
            stream.close()


def _feed(stream: Any, data: bytes) -> None:  # noqa: ANN401 - docker gives a file, or the socket itself
    """Write all of it and end the input; a container that has ended, or never reads, is none of our errors."""
    connection = getattr(stream, "_sock", stream)
    with contextlib.suppress(OSError, ValueError):
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def _container(api: APIClient, spec: ContainerSpec) -> Iterator[str]:
    """Create a container and remove it, with its volume, however the block ends."""
    with asking(f"create a container of {spec.image}"):
        host_config = api.create_host_config(**_limits(spec), **_apart(api))
        made = api.create_container(
            image=spec.image,
            # The image's own entrypoint is part of what is published, not of the command that is asked for here.
            entrypoint=[spec.command[0]] if spec.command and not spec.entrypoint else None,
            command=list(spec.command if spec.entrypoint else spec.command[1:]),
            environment=dict(spec.env),
            user=spec.user or None,
            stdin_open=bool(spec.stdin),
            labels={**spec.labels, **_marks()},
            host_config=host_config,
        )
        container = decoding.converted(made, _Created).id
    try:
        yield container
    except BaseException:
        # What went wrong first is what is told; where the engine cannot remove it either, the next command sweeps it.
        with contextlib.suppress(InfrastructureError):
            _remove(api, container)
        raise
    _remove(api, container)


class _Created(msgspec.Struct, rename="pascal"):
    id: str


class _Waited(msgspec.Struct, rename="pascal"):
    status_code: int


class _State(msgspec.Struct):
    killed: bool | None = msgspec.field(default=None, name="OOMKilled")


class _Inspected(msgspec.Struct, rename="pascal"):
    state: _State


def _limits(spec: ContainerSpec) -> dict[str, Any]:
    """Translate a specification into the engine's host configuration."""
    return {
        "network_mode": spec.network,
        "read_only": spec.read_only,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "pids_limit": spec.pids,
        "mem_limit": spec.memory,
        "memswap_limit": spec.memory,
        "nano_cpus": int(spec.cpus * 1e9) if spec.cpus else None,
        "cpu_shares": _CPU_WEIGHT,
        "ulimits": [
            Ulimit(name="core", soft=0, hard=0),  # a crash of TensorFlow would hand gigabytes to the host's collector
            Ulimit(name="fsize", soft=spec.memory, hard=spec.memory),
            Ulimit(name="nofile", soft=_FILES, hard=_FILES),
        ],
        "shm_size": spec.shm_size,
        # exec: TensorFlow and XLA write programs to their scratch space and load them.
        "tmpfs": dict.fromkeys(spec.scratch, _scratch_options(spec)),
        "mounts": [*_binds(spec.mounts), *_files_volume(spec)],
        "device_requests": _gpus(spec.gpus),
        # What it prints is read from the attached stream; a copy on the engine's disk would have no reader.
        "log_config": LogConfig(type="none"),
    }


def _scratch_options(spec: ContainerSpec) -> str:
    """Say how a tmpfs is mounted: half of the memory for all of them, since the memory is what they are made of.

    So are files without content, which nothing else counts on a host whose kernel leaves its own memory out.
    """
    size = spec.memory // 2 // max(1, len(spec.scratch))
    return f"rw,exec,nosuid,nodev,mode=1777,size={size},nr_inodes={max(1024, size // _BYTES_A_FILE)}"


_BYTES_A_FILE = 16_384
"""Of scratch space, for each file that it may hold: 262,144 files in 4 GB."""


def _apart(api: APIClient) -> dict[str, Any]:
    """Keep the host's control groups out of sight, where the engine knows how (20.10)."""
    return {"cgroupns": "private"} if version_gte(api.api_version, "1.41") else {}


def _binds(mounts: Mapping[str, str]) -> list[Mount]:
    return [Mount(target, source, type="bind", read_only=True) for source, target in mounts.items()]


def _files_volume(spec: ContainerSpec) -> list[Mount]:
    """Mount a volume for a container's files, because nothing can be copied into a read-only root."""
    return [Mount(FILES_AT, None, type="volume", no_copy=True, labels=_marks())] if spec.files else []


def _gpus(wish: str) -> list[DeviceRequest] | None:
    """Read ``none``, ``all`` or ``0,2``. Raises UsageError on anything else."""
    if wish == "none":
        return None
    capabilities = [["gpu", "compute", "utility"]]
    if wish == "all":
        return [DeviceRequest(count=-1, capabilities=capabilities)]
    indices = wish.split(",")
    if not all(index.isdigit() for index in indices):
        raise UsageError(f"gpus is {wish!r}; it must be none, all or indices such as 0,1")
    return [DeviceRequest(device_ids=indices, capabilities=capabilities)]


def _start(api: APIClient, container: str) -> str:
    """Start a container; answer why where its image lacks the program, which says something about the image alone."""
    with asking("start the container"):
        try:
            api.start(container)
        except APIError as error:
            reason = error.explanation or ""
            if "could not select device driver" in reason:
                raise InfrastructureError(f"this engine cannot hand GPUs over: {reason}", hint=_NO_GPUS) from error
            if not any(text in reason for text in _REFUSALS):
                raise
            return reason
    return ""


def _ended(api: APIClient, container: str, limit: _Limit) -> Ended:
    with asking("wait for the container's end"):
        # It may have closed its output and gone on; then the limit ends it.
        left = max(0.0, limit.seconds - (time.monotonic() - limit.began))
        code = decoding.converted(api.wait(container, timeout=int(left) + _PATIENCE), _Waited).status_code
    found = ask(api, "/containers/{}/json", "describe the container", _Inspected, names=(container,))
    if code and not limit.killed and not (found and found.state.killed):
        _refuse_others_end(api, container)
    return Ended(
        exit_code=code,
        timed_out=limit.reached,
        out_of_memory=bool(found and found.state.killed),
        seconds=time.monotonic() - limit.began,
    )


def _refuse_others_end(api: APIClient, container: str) -> None:
    """Raise InfrastructureError where somebody else had the engine end a container: that says nothing of its image.

    It may have been an operator, or the engine itself, which ends what runs when it is stopped. One that was started
    since has seen neither.
    """
    what, seen = "say how the container ended", set[str | None]()
    told: dict[str, str] = {"since": "1", "filters": json.dumps({"container": [container], "event": ["kill", "die"]})}
    with asking(what):
        response = api.get(url(api, "/events"), params=told, stream=True, timeout=(CONNECT_S, _TOLD_S))
    with contextlib.closing(checked(what, response)):
        for record in records(what, response):
            seen.add(record.action)
            if record.action == "die":
                break
    if seen != {"die"}:
        raise InfrastructureError(
            "the container was ended from outside: by somebody, or by the engine's own end", hint=_AGAIN
        )


_AGAIN = "run the same command again; the engine's log (journalctl -u docker) says who stopped it"


def _remove(api: APIClient, container: str) -> None:
    """Remove a container with its anonymous volume; one that is gone or going already is as good."""
    with asking("remove a container"):
        try:
            api.remove_container(container, v=True, force=True)
        except APIError as error:
            if error.status_code not in {404, 409}:
                raise


def _marks() -> dict[str, str]:
    """Label what a run makes with its process, so that a later one knows whether it is still alive."""
    pid = os.getpid()
    return {RUN_LABEL: str(pid), HOST_LABEL: socket.gethostname(), STARTED_LABEL: subprocesses.process_start(pid)}


def _alive(labels: Mapping[str, str]) -> bool:
    pid = labels.get(RUN_LABEL, "")
    return pid.isdigit() and subprocesses.process_start(int(pid)) == labels.get(STARTED_LABEL, "") != ""
