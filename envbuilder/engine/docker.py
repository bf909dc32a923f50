"""The port's implementation for Docker: images, builds by BuildKit, archives, cleaning."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from docker import auth
from docker.errors import ImageNotFound
from docker.utils import parse_repository_tag
from requests.exceptions import ReadTimeout

from envbuilder.engine import archive, connection, containers, layers, port
from envbuilder.engine.buildkit import Trace, Vertex
from envbuilder.errors import BuildFailedError, InfrastructureError, of_system
from envbuilder.support import decoding, terminal_text
from envbuilder.support.console import Step

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")
_LOOPBACK = re.compile(r"^(?:\w+://)?(?:[^/@]*@)?(?:localhost|127\.[\d.]+|\[::1\])(?::|/|$)")
_REACH_S = 20
_LAST_LINES = 20
_STEP_WIDTH = 80  # characters of a step's name in an error: an instruction may have ten lines; build.log has them

_EXECUTOR = re.compile(r"\Aexecutor failed running \[.*\]: ", re.DOTALL)  # BuildKit's prefix of an exit code

# Instructions without a layer, of BuildKit ("ENV A=b") and of the classic builder ("/bin/sh -c #(nop)  ENV A=b").
_METADATA = re.compile(
    r"^(?:/bin/sh -c #\(nop\)\s+)?"
    r"(?:ARG|CMD|ENTRYPOINT|ENV|EXPOSE|HEALTHCHECK|LABEL|MAINTAINER|ONBUILD|SHELL|STOPSIGNAL|USER|VOLUME)\b"
)

_Aux = TypeVar("_Aux")


class _Device(msgspec.Struct, rename="pascal"):
    id: str | None = msgspec.field(default=None, name="ID")


class _Info(msgspec.Struct, rename="pascal"):
    server_version: str | None = None
    driver: str | None = None
    docker_root_dir: str | None = None
    mem_total: int | None = None
    runtimes: dict[str, Any] | None = None
    discovered_devices: list[_Device] | None = None


class _Config(msgspec.Struct, rename="pascal"):
    labels: dict[str, str] | None = None
    env: tuple[str, ...] | None = None
    user: str | None = None
    entrypoint: tuple[str, ...] | str | None = None
    cmd: tuple[str, ...] | str | None = None
    working_dir: str | None = None
    exposed_ports: dict[str, object] | None = None
    volumes: dict[str, object] | None = None
    healthcheck: dict[str, object] | None = None
    on_build: tuple[str, ...] | None = None
    stop_signal: str | None = None
    shell: tuple[str, ...] | None = None


class _RootFs(msgspec.Struct, rename="pascal"):
    layers: tuple[str, ...] | None = None


class _Metadata(msgspec.Struct, rename="pascal"):
    last_tag_time: str | None = None


class Inspected(msgspec.Struct, rename="pascal"):
    id: str
    repo_tags: tuple[str, ...] | None = None
    repo_digests: tuple[str, ...] | None = None
    size: int | None = None
    config: _Config | None = None
    root_fs: _RootFs | None = msgspec.field(default=None, name="RootFS")
    architecture: str | None = None
    metadata: _Metadata | None = None


class HistoryEntry(msgspec.Struct, rename="pascal"):
    size: int | None = None
    created_by: str | None = None


class _BuiltImage(msgspec.Struct):
    id: str = msgspec.field(name="ID")


class _Outcome(msgspec.Struct, rename="pascal"):
    """What a push (its digest) or a cleaning (its bytes) ends with."""

    digest: str | None = None
    space_reclaimed: int | None = None


def connect(environment: Mapping[str, str] | None = None) -> DockerEngine:
    environment = os.environ if environment is None else environment
    return DockerEngine(connection.open_connection(environment), environment)


class DockerEngine:
    """`Engine` for Docker 20.10 or newer. Threads may share it."""

    def __init__(self, connection: connection.Connection, environment: Mapping[str, str]) -> None:
        self._connection, self._api = connection, connection.api
        self._swept = False
        self._proxies = {key: value for key, value in environment.items() if key.upper() in _PROXIES and value}

    def info(self) -> port.EngineInfo:
        info = self._connection.get("describe itself", "/info", _Info)
        if info is None:
            raise InfrastructureError("the engine does not describe itself", hint=connection.NO_ENGINE)
        return port.EngineInfo(
            name="docker",
            version=info.server_version or "",
            builder="buildkit",
            gpu_runtime="nvidia" in (info.runtimes or {})
            or any((device.id or "").startswith("nvidia.com/gpu") for device in info.discovered_devices or ())
            or shutil.which("nvidia-container-runtime-hook") is not None,  # on the host of a local engine
            storage=info.driver or "",
            root=info.docker_root_dir or "",
            memory=max(0, info.mem_total or 0),
        )

    def image(self, reference: str) -> port.Image | None:
        action = f"describe {reference}"
        inspected = self._connection.get(action, "/images/{}/json", Inspected, names=(reference,))
        history = self._connection.get(action, "/images/{}/history", list[HistoryEntry], names=(reference,))
        return to_image(inspected, history) if inspected is not None and history is not None else None

    def build(self, request: port.BuildRequest, on_step: Callable[[Step], None]) -> port.Image:
        """Build from a streamed context. Closing the connection, as any exception does, cancels the build."""
        action, trace, built, refusal = f"build {request.tag}", Trace(), "", ""
        entries = archive.context_entries(request.context, request.extra)
        with self._post(action, "/build", self._build_query(request), archive.stream(entries)) as stream:
            for record in stream.records():
                match record.id:
                    case "moby.buildkit.trace":
                        for step in _steps(action, trace, record):
                            on_step(step)
                    case "moby.image.id":
                        built = _aux(action, record, _BuiltImage).id
                    case _:
                        refusal = refusal or record.error or ""
        for step in trace.finish():
            on_step(step)
        if refusal or not built:
            raise _build_error(request, trace.failure(), refusal or "the engine ended without an image")
        return self._present(built)

    def import_base(self, tar: Path, tag: str, labels: Mapping[str, str]) -> port.Image:
        repository, name = parse_repository_tag(tag)
        changes = [f"LABEL {json.dumps(key)}={json.dumps(value)}" for key, value in sorted(labels.items())]
        query = {"fromSrc": "-", "repo": repository, "tag": name or "latest", "changes": [*changes, 'CMD ["/bin/sh"]']}
        try:
            with tar.open("rb") as file, self._post(f"import {tag}", "/images/create", query, file) as stream:
                stream.drain()
        except OSError as error:
            raise of_system(error, f"read {tar}") from error
        return self._present(tag)

    def reach(self, reference: str) -> None:
        """Ask for an image's manifest only; a network that drops packets costs 20 s, not minutes."""
        action = f"reach {reference}"
        with connection.calling(action):
            try:
                response = self._api.get(
                    self._connection.url("/distribution/{}/json", reference),
                    headers=self._login(reference),
                    timeout=(connection.CONNECT_S, _REACH_S),
                )
            except ReadTimeout as error:
                raise InfrastructureError(f"no registry answered for {reference} in {_REACH_S} s") from error
        connection.checked(action, response)

    def pull(self, reference: str, on_bytes: port.OnBytes | None = None) -> port.Image:
        repository, tag = parse_repository_tag(reference)
        query = {"fromImage": repository, "tag": tag or "latest"}
        with self._post(f"pull {reference}", "/images/create", query, None, self._login(reference)) as stream:
            stream.drain(on_bytes)
        return self._present(reference)

    def push(self, reference: str, on_bytes: port.OnBytes | None = None) -> str:
        repository, tag = parse_repository_tag(reference)
        action, query = f"push {reference}", {"tag": tag or "latest"}
        # Without credentials in the header, Docker 20.10 looks for them in the body.
        headers = {"Content-Type": "application/json", **self._login(reference)}
        with self._post(action, f"/images/{repository}/push", query, b"{}", headers) as stream:
            answers = [_aux(action, record, _Outcome) for record in stream.drain(on_bytes) if record.aux]
        digests = [answer.digest for answer in answers if answer.digest]
        if not digests:
            raise InfrastructureError(f"could not {action}: no digest in the registry's answer")
        return digests[-1]

    def tag(self, image: str, reference: str) -> None:
        repository, tag = parse_repository_tag(reference)
        with connection.calling(f"tag {image} as {reference}"):
            self._api.tag(image, repository, tag or "latest", force=True)

    def remove(self, reference: str) -> None:
        with connection.calling(f"remove {reference}"), suppress(ImageNotFound):
            self._api.remove_image(reference)

    def run(self, spec: port.ContainerSpec, on_stdout: port.Sink, on_stderr: port.Sink) -> port.ContainerResult:
        if not self._swept:  # the next command that runs anything removes what a killed one left
            self._swept = True
            with suppress(InfrastructureError):
                self.sweep()
        most = self.info().memory * 3 // 4 or spec.memory
        return containers.run(self._connection, replace(spec, memory=min(spec.memory, most)), on_stdout, on_stderr)

    @contextmanager
    def export(self, *references: str) -> Iterator[Iterable[bytes]]:
        action = f"save {', '.join(references)}"
        with self._connection.stream(action, "GET", "/images/get", params={"names": references}) as stream:
            yield stream.pieces()

    @contextmanager
    def layer_files(self, *references: str, without: Collection[int] = ()) -> Iterator[Iterator[port.LayerStream]]:
        with self.export(*references) as pieces:
            yield layers.layers(pieces, without)

    def sweep(self) -> int:
        return containers.sweep(self._connection)

    def names(self, repository: str) -> tuple[str, ...]:
        query = {"filters": json.dumps({"reference": [repository]})}
        rows = self._connection.get(f"list {repository}", "/images/json", list[Inspected], params=query) or ()
        tags = (tag for row in rows for tag in row.repo_tags or ())
        return tuple(sorted(tag for tag in tags if tag.rpartition(":")[0] == repository))

    def prune(self, label: str) -> int:
        with connection.calling(f"prune images with {label}"):
            answer = self._api.prune_images({"dangling": True, "label": label})  # type: ignore[no-untyped-call]
            return decoding.converted(answer, _Outcome).space_reclaimed or 0

    def trim_cache(self, keep: int, *, shared: bool = False) -> int:
        with connection.calling("trim the builder's cache"):  # ``shared``: records of layers that images have, too
            answer = self._api.prune_builds(keep_storage=keep, all=shared or None)
            return decoding.converted(answer, _Outcome).space_reclaimed or 0

    def _present(self, reference: str) -> port.Image:
        found = self.image(reference)
        if found is None:
            raise InfrastructureError(f"the engine does not have {reference} although it reported success")
        return found

    def _build_query(self, request: port.BuildRequest) -> dict[str, Any]:
        # A step cannot reach a proxy on this host's loopback, except from the host's network.
        loopback = any(_LOOPBACK.search(value) for key, value in self._proxies.items() if key.upper() != "NO_PROXY")
        # Proxies are predefined build arguments: steps see them, but no layer, history or cache key has them.
        return {
            "version": "2",
            "t": request.tag,
            "dockerfile": request.dockerfile,
            "target": request.target,
            "networkmode": "host" if loopback else "default",
            "nocache": str(request.no_cache).lower(),
            "buildargs": json.dumps({**self._proxies, **request.build_args}),
            "labels": json.dumps(dict(request.labels)),
            "cachefrom": json.dumps(request.cache_from),
        }

    def _post(
        self, action: str, path: str, query: connection.Query, body: object, headers: Mapping[str, str] | None = None
    ) -> connection.Stream:
        # The SDK's build() speaks to the classic builder only; its connection speaks to BuildKit as well.
        headers = {"Content-Type": "application/x-tar"} if headers is None else headers
        return self._connection.stream(action, "POST", path, params=query, data=body, headers=headers)

    def _login(self, reference: str) -> dict[str, str]:
        """Return the header with the credentials of ``docker login`` for a reference's registry."""
        header = auth.get_config_header(self._api, auth.resolve_repository_name(reference)[0])
        return {"X-Registry-Auth": decoding.lossy(header) if isinstance(header, bytes) else header} if header else {}


def _aux(action: str, record: connection.Record, kind: type[_Aux]) -> _Aux:
    with connection.calling(action):
        return decoding.converted(record.aux, kind)


def _steps(action: str, trace: Trace, record: connection.Record) -> list[Step]:
    """Decode a message of the builder's trace; errors of the steps' reader are not the engine's."""
    with connection.calling(action), decoding.damaged("not BuildKit's trace"):
        return list(trace.feed(base64.b64decode(record.aux, validate=True)))


def _shown(step: str) -> str:
    line = " ".join(terminal_text.line(step).split())
    return line if len(line) <= _STEP_WIDTH else line[:_STEP_WIDTH].rstrip() + "…"


def _build_error(
    request: port.BuildRequest, failure: Vertex | None, refusal: str
) -> BuildFailedError | InfrastructureError:
    """Distinguish a step that failed from an engine, disk or registry that did."""
    if failure is None:
        return BuildFailedError(f"{request.tag} could not be built: {refusal}", hint="see the Dockerfile of this image")
    if failure.name.startswith("[internal] load metadata"):
        image = failure.name.rpartition(" ")[2]
        return InfrastructureError(
            f"the base {image} is neither in the engine nor in a registry that answers: {failure.error}"
        )
    if failure.name == "[internal] load remote build context":
        text = f"the engine lost the context of {request.tag}: {failure.error}"
        return InfrastructureError(text, hint="run the command again while nobody prunes the builder's cache")
    if hint := connection.next_step("\n".join((failure.error, *failure.lines))):
        return InfrastructureError(f"the engine's disk is full, at {_shown(failure.name)}", hint=hint)
    lines = "\n".join(f"  | {line}" for line in list(failure.lines)[-_LAST_LINES:])
    text = f"{request.tag}: step {_shown(failure.name)} failed: {_EXECUTOR.sub('', failure.error)}\n{lines}".rstrip()
    return BuildFailedError(text, hint=f"{request.log} has the complete output", step=failure.name)


def to_image(inspected: Inspected, history: list[HistoryEntry]) -> port.Image:
    config = inspected.config or _Config()
    diff_ids = (inspected.root_fs.layers if inspected.root_fs else None) or ()
    return port.Image(
        id=inspected.id,
        tags=inspected.repo_tags or (),
        digests=inspected.repo_digests or (),
        size=inspected.size or 0,
        labels=config.labels or {},
        env=dict(pair.partition("=")[::2] for pair in config.env or ()),
        user=config.user or "",
        architecture=inspected.architecture or "",
        layers=to_layers(diff_ids, history),
        entrypoint=_words(config.entrypoint),
        command=_words(config.cmd),
        workdir=config.working_dir or "",
        history=tuple(entry.created_by or "" for entry in history),
        tagged=(inspected.metadata.last_tag_time if inspected.metadata else None) or "",
        settings={name: value for name, value in msgspec.structs.asdict(config).items() if value},
    )


def to_layers(diff_ids: tuple[str, ...], history: list[HistoryEntry]) -> tuple[port.Layer, ...]:
    """Pair diff ids (oldest first) with their instructions in the history (newest first).

    The engine does not give the pairs. An instruction has a layer if it has a size and is not metadata. If these are
    not as many as the layers, the sizes are paired from the newest layer backwards.
    """
    entries = [entry for entry in history if entry.size or not _METADATA.match(entry.created_by or "")]
    for entry in [entry for entry in entries if not entry.size][: max(0, len(entries) - len(diff_ids))]:
        entries = [other for other in entries if other is not entry]
    entries += [HistoryEntry()] * (len(diff_ids) - len(entries))
    pairs = zip(reversed(diff_ids), entries, strict=False)
    return tuple(reversed([port.Layer(diff_id, entry.size or 0, entry.created_by or "") for diff_id, entry in pairs]))


def _words(value: tuple[str, ...] | str | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())
