"""The Docker engine behind the port: images and builds through the Docker SDK, builds by BuildKit."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import docker
import requests
from docker import APIClient, auth
from docker.constants import MINIMUM_DOCKER_API_VERSION
from docker.errors import DockerException, ImageNotFound
from docker.utils import parse_repository_tag
from requests.exceptions import ReadTimeout

from envbuilder.engine import archive, containers, engine_choice, layer_files
from envbuilder.engine import docker_answers as answer
from envbuilder.engine.buildkit import Failure, Trace
from envbuilder.engine.calls import (
    CONNECT_S,
    NO_ENGINE,
    Record,
    answers,
    ask,
    asking,
    checked,
    next_about,
    read,
    records,
    url,
)
from envbuilder.engine.images import to_image
from envbuilder.engine.port import BuildRequest, ContainerSpec, Ended, EngineInfo, Image, LayerStream, Step
from envbuilder.engine.watch import Watch, watched
from envbuilder.errors import BuildFailedError, InfrastructureError, of_system
from envbuilder.support import decoding, terminal_text

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")
_LOOPBACK = re.compile(r"^(?:\w+://)?(?:[^/@]*@)?(?:localhost|127\.[\d.]+|\[::1\])(?::|/|$)")
_REACH_SECONDS = 20
_SILENCE_S = 1800.0
"""Between two pieces of a build, a pull, a push, an export: unpacking a layer of 6 GB on a slow disk says nothing."""
_SEND_S = 120.0
"""Until the engine takes the next piece of a context: with many builds at once it begins to read late."""
_TOTAL_S = 4 * 3600.0
"""For all of one of these."""
_ANSWER_SECONDS = 300
"""Removing or committing an image of several gigabytes on a busy disk takes minutes."""
_LAST_LINES = 20
_STEP_SHOWN = 80
"""Characters of a step's name in an error: an instruction may be ten lines long, and stands whole in the log."""
_EXECUTOR = re.compile(r"\Aexecutor failed running \[.*\]: ", re.DOTALL)
"""What BuildKit puts before an exit code: the whole instruction, once more."""

_Aux = TypeVar("_Aux")


def connect(environment: Mapping[str, str] | None = None) -> DockerEngine:
    """Find the engine that ``DOCKER_HOST``, the current Docker context or the usual socket leads to.

    Raises InfrastructureError, with what to do next, where none answers.
    """
    environment = engine_choice.resolved(os.environ if environment is None else environment)
    try:
        with decoding.damaged("what answers is no Docker engine"):
            told = _spoken(_client(environment, MINIMUM_DOCKER_API_VERSION))
            [int(part) for part in told.api_version.split(".")]
            api = _client(environment, told.api_version)
    except InfrastructureError as error:
        raise InfrastructureError(f"no container engine answers: {error.message}", hint=NO_ENGINE) from error
    except (DockerException, OSError, decoding.DamagedError) as error:
        raise InfrastructureError(f"no container engine answers: {error}", hint=NO_ENGINE) from error
    _refuse_podman(told)
    api.timeout = _ANSWER_SECONDS
    return DockerEngine(api, environment)


def _client(environment: Mapping[str, str], version: str) -> APIClient:
    return docker.from_env(version=version, environment=dict(environment), timeout=int(CONNECT_S)).api


def _spoken(api: APIClient) -> answer.Version:
    """Ask an engine what it is, and in which version it speaks; its SDK would read an answer without end."""
    what = "say what it is"
    with asking(what), closing(api.get(f"{api.base_url}/version", stream=True, timeout=CONNECT_S)) as response:
        return read(what, response, answer.Version)


def _refuse_podman(told: answer.Version) -> None:
    """Say at once that an engine is Podman: it takes a build of BuildKit's without a word, and makes no image."""
    named = [part for part in told.components or () if part.name == "Podman Engine"]
    if named:
        raise InfrastructureError(
            f"what answers is Podman {named[0].version or ''}: its interface has no BuildKit, which builds images",
            hint="let DOCKER_HOST lead to Docker Engine 20.10 or newer; Podman runs the images that were published",
        )


class DockerEngine:
    """`Engine` by Docker 20.10 or newer. One may be shared by threads."""

    def __init__(self, api: APIClient, environment: Mapping[str, str]) -> None:
        self._api = api
        self._swept = False
        self._memory: int | None = None
        self._proxies = {key: value for key, value in environment.items() if key.upper() in _PROXIES and value}

    def info(self) -> EngineInfo:
        """Describe the engine."""
        told = ask(self._api, "/info", "describe itself", answer.Info)
        if told is None:
            raise InfrastructureError("the engine has nothing to say about itself", hint=NO_ENGINE)
        return EngineInfo(
            name="docker",
            version=told.server_version or "",
            builder="buildkit",
            gpu_runtime=_hands_over_gpus(told),
            storage=told.driver or "",
            root=told.docker_root_dir or "",
            memory=max(0, told.mem_total or 0),
        )

    def image(self, reference: str) -> Image | None:
        """Look an image up by tag, id or digest."""
        what = f"look {reference} up"
        inspected = ask(self._api, "/images/{}/json", what, dict[str, Any], names=(reference,))
        history = ask(self._api, "/images/{}/history", what, list[Any], names=(reference,))
        if inspected is None or history is None:
            return None
        with asking(what):
            return to_image(inspected, history)

    def build(self, request: BuildRequest, on_step: Callable[[Step], None]) -> Image:
        """Build by BuildKit from a streamed context; closing the connection, as any exception does, cancels it."""
        what, trace, built, refused = f"build {request.tag}", Trace(), "", ""
        entries = archive.context_entries(request.context, request.extra)
        with self._post("/build", what, self._build_query(request), archive.stream(entries)) as response:
            for record in records(what, response):
                match record.id:
                    case "moby.buildkit.trace":
                        for step in _steps(what, trace, record):
                            on_step(step)
                    case "moby.image.id":
                        built = _aux(what, record, answer.Built).id
                    case _:
                        refused = refused or record.error or ""
        for step in trace.finish():
            on_step(step)
        if refused or not built:
            raise _build_error(request, trace.failure(), refused or "the engine ended without an image")
        return self._present(built)

    def import_base(self, tar: Path, tag: str, labels: Mapping[str, str]) -> Image:
        """Make an image of one layer from a root file system's tar."""
        what = f"import {tag}"
        repository, name = parse_repository_tag(tag)
        changes = [f"LABEL {json.dumps(key)}={json.dumps(value)}" for key, value in sorted(labels.items())]
        query = {"fromSrc": "-", "repo": repository, "tag": name or "latest", "changes": [*changes, 'CMD ["/bin/sh"]']}
        try:
            with tar.open("rb") as file, self._post("/images/create", what, query, file) as response:
                _drain(what, records(what, response))
        except OSError as error:
            raise of_system(error, f"read {tar}") from error
        return self._present(tag)

    def reach(self, reference: str) -> None:
        """Ask a registry for an image's manifest alone; a network that swallows packets costs 20 s, not minutes."""
        what = f"reach {reference}"
        with asking(what):
            try:
                response = self._api.get(
                    self._url(f"/distribution/{reference}/json"),
                    headers=self._login(reference),
                    timeout=(CONNECT_S, _REACH_SECONDS),
                )
            except ReadTimeout as error:
                raise InfrastructureError(f"no registry answered for {reference} in {_REACH_SECONDS} s") from error
        checked(what, response)

    def pull(self, reference: str) -> Image:
        """Fetch an image from its registry, with the credentials that ``docker login`` left."""
        repository, tag = parse_repository_tag(reference)
        what, query = f"pull {reference}", {"fromImage": repository, "tag": tag or "latest"}
        with self._post("/images/create", what, query, None, self._login(reference)) as response:
            _drain(what, records(what, response))
        return self._present(reference)

    def push(self, reference: str) -> str:
        """Push a tag and return the manifest digest that the registry answered."""
        repository, tag = parse_repository_tag(reference)
        what, query = f"push {reference}", {"tag": tag or "latest"}
        # Without credentials in the header, Docker 20.10 looks for them in the body.
        headers = {"Content-Type": "application/json", **self._login(reference)}
        with self._post(f"/images/{repository}/push", what, query, b"{}", headers) as response:
            pushed = [
                _aux(what, record, answer.Pushed) for record in _drain(what, records(what, response)) if record.aux
            ]
        digest = [one.digest for one in pushed if one.digest]
        if not digest:
            raise InfrastructureError(f"could not {what}: the registry answered no digest")
        return digest[-1]

    def tag(self, image: str, reference: str) -> None:
        """Give an image a further name."""
        repository, tag = parse_repository_tag(reference)
        with asking(f"tag {image} as {reference}"):
            self._api.tag(image, repository, tag or "latest", force=True)

    def remove(self, reference: str) -> None:
        """Take a tag out of the store; nothing where there is none."""
        with asking(f"remove {reference}"):
            try:
                self._api.remove_image(reference)
            except ImageNotFound:
                return

    def run(self, spec: ContainerSpec, on_stdout: Callable[[bytes], None], on_stderr: Callable[[bytes], None]) -> Ended:
        """Run a container to its end."""
        if not self._swept:  # what a killed command left goes with the next that runs anything, whichever it is
            self._swept = True
            with suppress(InfrastructureError):
                self.sweep()
        if self._memory is None:
            self._memory = self.info().memory
        memory = min(spec.memory, self._memory * 3 // 4) if self._memory else spec.memory
        return containers.run(self._api, replace(spec, memory=memory), on_stdout, on_stderr)

    @contextmanager
    def export(self, reference: str) -> Iterator[Iterable[bytes]]:
        """Stream an image as ``docker save`` would."""
        what = f"save {reference}"
        with asking(what):
            response = self._api.get(
                self._url(f"/images/{reference}/get"), stream=True, timeout=(CONNECT_S, _SILENCE_S)
            )
        with closing(checked(what, response)), watched(self._api, what, response, _TOTAL_S) as watch:
            yield _unless_cut(watch, what, answers(what, response.iter_content(1 << 20)))

    @contextmanager
    def layer_files(self, reference: str, known: Container[str]) -> Iterator[Iterator[LayerStream]]:
        """Yield an image's layers: from overlay2's folders where this process may read them, else from its archive."""
        what = f"look {reference} up"
        inspected = ask(self._api, "/images/{}/json", what, dict[str, Any], names=(reference,))
        if inspected is None:
            raise InfrastructureError(f"the engine could not {what}: no such image")
        with asking(what):
            folders = layer_files.overlay_folders(inspected)
        if folders is not None:
            yield layer_files.from_folders(folders, known)
            return
        with self.export(reference) as chunks:
            yield layer_files.from_archive(chunks)

    def sweep(self) -> int:
        """Remove containers that an interrupted run of ours left behind."""
        return containers.sweep(self._api)

    def names(self, repository: str) -> tuple[str, ...]:
        """List the tags of a repository that the store holds."""
        told = {"filters": json.dumps({"reference": [repository]})}
        rows = ask(self._api, "/images/json", f"list {repository}", list[answer.Named], params=told) or ()
        every = (tag for row in rows for tag in row.repo_tags or ())
        return tuple(sorted(tag for tag in every if tag.rpartition(":")[0] == repository))

    def prune(self, label: str) -> int:
        """Remove the images with a label that have no tag any more."""
        with asking(f"prune images with {label}"):
            told = self._api.prune_images({"dangling": True, "label": label})  # type: ignore[no-untyped-call]
            return decoding.converted(told, answer.Freed).space_reclaimed or 0

    def trim_cache(self, keep: int) -> int:
        """Remove of the builder's cache what was used least recently, down to ``keep`` bytes."""
        with asking("trim the builder's cache"):
            return decoding.converted(self._api.prune_builds(keep_storage=keep), answer.Freed).space_reclaimed or 0

    def _present(self, reference: str) -> Image:
        found = self.image(reference)
        if found is None:
            raise InfrastructureError(f"the engine does not have {reference} although it said so")
        return found

    def _build_query(self, request: BuildRequest) -> dict[str, Any]:
        # Proxies are predefined build arguments: steps see them, no layer, history or cache key holds them.
        return {
            "version": "2",
            "t": request.tag,
            "dockerfile": request.dockerfile,
            "target": request.target,
            "networkmode": self._network(request),
            "nocache": str(request.no_cache).lower(),
            "buildargs": json.dumps({**self._proxies, **request.build_args}),
            "labels": json.dumps(dict(request.labels)),
        }

    def _network(self, request: BuildRequest) -> str:
        """Share the host's network where its proxy listens on loopback, which a step could not reach otherwise."""
        loopback = any(_LOOPBACK.search(value) for key, value in self._proxies.items() if key.upper() != "NO_PROXY")
        return "host" if loopback and request.network == "default" else request.network

    @contextmanager
    def _post(
        self,
        path: str,
        what: str,
        query: Mapping[str, Any],
        body: Any,  # noqa: ANN401 - requests' types
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[requests.Response]:
        """Post a body and yield the streaming answer, watched; leaving the block closes the connection."""
        # The SDK's own build() speaks to the classic builder only; its connection speaks to BuildKit as well.
        with asking(what):
            response = self._api.post(
                self._url(path),
                params=query,
                data=body,
                headers={"Content-Type": "application/x-tar"} if headers is None else headers,
                stream=True,
                timeout=(_SEND_S, _SILENCE_S),
            )
        with closing(checked(what, response)), watched(self._api, what, response, _TOTAL_S):
            yield response

    def _login(self, reference: str) -> dict[str, str]:
        """Return the header with the credentials that ``docker login`` left for a reference's registry."""
        header = auth.get_config_header(self._api, auth.resolve_repository_name(reference)[0])
        return {"X-Registry-Auth": decoding.lossy(header) if isinstance(header, bytes) else header} if header else {}

    def _url(self, path: str) -> str:
        return url(self._api, path)


def _aux(what: str, record: Record, kind: type[_Aux]) -> _Aux:
    with asking(what):
        return decoding.converted(record.aux, kind)


def _steps(what: str, trace: Trace, record: Record) -> list[Step]:
    """Decode a message of the builder's trace; what is done with its steps is not within."""
    with asking(what), decoding.damaged("not BuildKit's trace"):
        return list(trace.feed(base64.b64decode(record.aux, validate=True)))


def _unless_cut(watch: Watch, what: str, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield an archive's pieces. One that was cut ends in an error: its reader must not take a part for the whole."""
    yield from pieces
    if watch.why:
        raise InfrastructureError(f"could not {what}: {watch.why}")


def _hands_over_gpus(told: answer.Info) -> bool:
    """Look for NVIDIA's runtime or CDI devices in ``info``, or for the hook on a local engine's host."""
    return (
        "nvidia" in (told.runtimes or {})
        or any((device.id or "").startswith("nvidia.com/gpu") for device in told.discovered_devices or ())
        or shutil.which("nvidia-container-runtime-hook") is not None
    )


def _drain(what: str, stream: Iterable[Record]) -> list[Record]:
    """Read a progress stream to its end for the ``aux`` records in it. Raises InfrastructureError on an error in it."""
    kept: list[Record] = []
    for record in stream:
        if record.error:
            raise InfrastructureError(f"could not {what}: {record.error}", hint=next_about(record.error))
        if isinstance(record.aux, dict):
            kept.append(record)
    return kept


def _shown(step: str) -> str:
    line = " ".join(terminal_text.line(step).split())
    return line if len(line) <= _STEP_SHOWN else line[:_STEP_SHOWN].rstrip() + "…"


def _build_error(
    request: BuildRequest, failure: Failure | None, refused: str
) -> BuildFailedError | InfrastructureError:
    """Tell a step that failed from an engine, disk or registry that did."""
    if failure is None:
        return BuildFailedError(f"{request.tag} could not be built: {refused}", hint="see the Dockerfile of this image")
    if failure.name.startswith("[internal] load metadata"):
        image = failure.name.rpartition(" ")[2]
        return InfrastructureError(f"the base {image} is neither here nor in a registry that answers: {failure.error}")
    if hint := next_about("\n".join((failure.error, *failure.lines))):
        return InfrastructureError(f"the engine's disk is full, at {_shown(failure.name)}", hint=hint)
    lines = "\n".join(f"  | {line}" for line in failure.lines[-_LAST_LINES:])
    return BuildFailedError(
        f"{request.tag}: step {_shown(failure.name)} failed: {_EXECUTOR.sub('', failure.error)}\n{lines}".rstrip(),
        hint="the whole output is in build.log",
    )
