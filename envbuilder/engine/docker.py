"""The Docker engine behind the port: images and builds through the Docker SDK, builds by BuildKit."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import docker
from docker import APIClient, auth
from docker.errors import DockerException, ImageNotFound
from docker.utils import parse_repository_tag
from requests.exceptions import ReadTimeout

from envbuilder.engine import archive, containers, layer_files
from envbuilder.engine.buildkit import Failure, Trace
from envbuilder.engine.calls import NO_ENGINE, answers, asking, checked, records
from envbuilder.engine.images import to_image
from envbuilder.engine.port import BuildRequest, ContainerSpec, Ended, EngineInfo, Image, LayerStream, Step
from envbuilder.errors import BuildFailedError, InfrastructureError

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")
_LOOPBACK = re.compile(r"^(?:\w+://)?(?:[^/@]*@)?(?:localhost|127\.[\d.]+|\[::1\])(?::|/|$)")
_CONNECT_SECONDS = 10
_REACH_SECONDS = 20
_ANSWER_SECONDS = 300
"""Removing or committing an image of several gigabytes on a busy disk takes minutes."""
_LAST_LINES = 20


def connect(environment: Mapping[str, str] | None = None) -> DockerEngine:
    """Find the engine that ``DOCKER_HOST``, the current Docker context or the usual socket leads to.

    Raises InfrastructureError, with what to do next, where none answers.
    """
    environment = dict(os.environ if environment is None else environment)
    try:
        api = docker.from_env(version="auto", environment=environment, timeout=_CONNECT_SECONDS).api
        api.ping()
    except (DockerException, OSError) as error:
        raise InfrastructureError(f"no container engine answers: {error}", hint=NO_ENGINE) from error
    api.timeout = _ANSWER_SECONDS
    return DockerEngine(api, environment)


class DockerEngine:
    """`Engine` by Docker 20.10 or newer. One may be shared by threads."""

    def __init__(self, api: APIClient, environment: Mapping[str, str]) -> None:
        self._api = api
        self._proxies = {key: value for key, value in environment.items() if key.upper() in _PROXIES and value}

    def info(self) -> EngineInfo:
        """Describe the engine."""
        with asking("describe itself"):
            told = self._api.info()
        return EngineInfo(
            name="docker",
            version=told.get("ServerVersion") or "",
            builder="buildkit",
            gpu_runtime=_hands_over_gpus(told),
            storage=told.get("Driver") or "",
            root=told.get("DockerRootDir") or "",
        )

    def image(self, reference: str) -> Image | None:
        """Look an image up by tag, id or digest."""
        with asking(f"look {reference} up"):
            try:
                inspected: dict[str, Any] = self._api.inspect_image(reference)  # type: ignore[no-untyped-call]
                history: list[dict[str, Any]] = self._api.history(reference)  # type: ignore[no-untyped-call]
            except ImageNotFound:
                return None
        return to_image(inspected, history)

    def build(self, request: BuildRequest, on_step: Callable[[Step], None]) -> Image:
        """Build by BuildKit from a streamed context; closing the connection, as any exception does, cancels it."""
        what, trace, built, refused = f"build {request.tag}", Trace(), "", ""
        entries = archive.context_entries(request.context, request.extra)
        with closing(self._post("/build", what, self._build_query(request), archive.stream(entries))) as response:
            for record in records(what, response):
                match record.get("id"):
                    case "moby.buildkit.trace":
                        for step in trace.feed(base64.b64decode(record["aux"])):
                            on_step(step)
                    case "moby.image.id":
                        built = record["aux"]["ID"]
                    case _:
                        refused = refused or record.get("error") or ""
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
        with tar.open("rb") as file, closing(self._post("/images/create", what, query, file)) as response:
            _drain(what, records(what, response))
        return self._present(tag)

    def reach(self, reference: str) -> None:
        """Ask a registry for an image's manifest alone; a network that swallows packets costs 20 s, not minutes."""
        what = f"reach {reference}"
        login = auth.get_config_header(self._api, auth.resolve_repository_name(reference)[0])
        with asking(what):
            try:
                response = self._api.get(
                    self._url(f"/distribution/{reference}/json"),
                    headers={"X-Registry-Auth": login} if login else {},
                    timeout=(_CONNECT_SECONDS, _REACH_SECONDS),
                )
            except ReadTimeout as error:
                raise InfrastructureError(f"no registry answered for {reference} in {_REACH_SECONDS} s") from error
        checked(what, response)

    def pull(self, reference: str) -> Image:
        """Fetch an image from its registry, with the credentials that ``docker login`` left."""
        repository, tag = parse_repository_tag(reference)
        what = f"pull {reference}"
        with asking(what):
            stream = self._api.pull(repository, tag=tag or "latest", stream=True, decode=True)
        _drain(what, answers(what, stream))
        return self._present(reference)

    def push(self, reference: str) -> str:
        """Push a tag and return the manifest digest that the registry answered."""
        repository, tag = parse_repository_tag(reference)
        what = f"push {reference}"
        with asking(what):
            stream = self._api.push(repository, tag=tag or "latest", stream=True, decode=True)
        digest = [aux["Digest"] for aux in _drain(what, answers(what, stream)) if aux.get("Digest")]
        if not digest:
            raise InfrastructureError(f"could not {what}: the registry answered no digest")
        return str(digest[-1])

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
        return containers.run(self._api, spec, on_stdout, on_stderr)

    @contextmanager
    def export(self, reference: str) -> Iterator[Iterable[bytes]]:
        """Stream an image as ``docker save`` would."""
        what = f"save {reference}"
        with asking(what):
            response = self._api.get(
                self._url(f"/images/{reference}/get"), stream=True, timeout=(_CONNECT_SECONDS, None)
            )
        with closing(checked(what, response)):
            yield answers(what, response.iter_content(1 << 20))

    @contextmanager
    def layer_files(self, reference: str, known: Container[str]) -> Iterator[Iterator[LayerStream]]:
        """Yield an image's layers: from overlay2's folders where this process may read them, else from its archive."""
        with asking(f"look {reference} up"):
            inspected: dict[str, Any] = self._api.inspect_image(reference)  # type: ignore[no-untyped-call]
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
        with asking(f"list {repository}"):
            rows: list[dict[str, Any]] = self._api.images(repository)
        every = (tag for row in rows for tag in row.get("RepoTags") or ())
        return tuple(sorted(tag for tag in every if tag.rpartition(":")[0] == repository))

    def prune(self, label: str) -> int:
        """Remove the images with a label that have no tag any more."""
        with asking(f"prune images with {label}"):
            told = self._api.prune_images({"dangling": True, "label": label})  # type: ignore[no-untyped-call]
        return int(told.get("SpaceReclaimed") or 0)

    def trim_cache(self, keep: int) -> int:
        """Remove of the builder's cache what was used least recently, down to ``keep`` bytes."""
        with asking("trim the builder's cache"):
            told = self._api.prune_builds(keep_storage=keep)
        return int(told.get("SpaceReclaimed") or 0)

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

    def _post(self, path: str, what: str, query: Mapping[str, Any], body: Any) -> Any:  # noqa: ANN401 - requests' types
        # The SDK's own build() speaks to the classic builder only; its connection speaks to BuildKit as well.
        with asking(what):
            response = self._api.post(
                self._url(path),
                params=query,
                data=body,
                headers={"Content-Type": "application/x-tar"},
                stream=True,
                timeout=(_CONNECT_SECONDS, None),
            )
        return checked(what, response)

    def _url(self, path: str) -> str:
        return f"{self._api.base_url}/v{self._api.api_version}{path}"


def _hands_over_gpus(told: Mapping[str, Any]) -> bool:
    """Look for NVIDIA's runtime or CDI devices in ``info``, or for the hook on a local engine's host."""
    devices = told.get("DiscoveredDevices") or []
    return (
        "nvidia" in (told.get("Runtimes") or {})
        or any(str(device.get("ID", "")).startswith("nvidia.com/gpu") for device in devices)
        or shutil.which("nvidia-container-runtime-hook") is not None
    )


def _drain(what: str, stream: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Read a progress stream to its end for the ``aux`` records in it. Raises InfrastructureError on an error in it."""
    kept: list[Mapping[str, Any]] = []
    for record in stream:
        if record.get("error"):
            raise InfrastructureError(f"could not {what}: {record['error']}")
        if isinstance(record.get("aux"), dict):
            kept.append(record["aux"])
    return kept


def _build_error(
    request: BuildRequest, failure: Failure | None, refused: str
) -> BuildFailedError | InfrastructureError:
    """Tell a step that failed from an engine, disk or registry that did."""
    if failure is None:
        return BuildFailedError(f"{request.tag} could not be built: {refused}", hint="see the Dockerfile of this image")
    if failure.name.startswith("[internal] load metadata"):
        image = failure.name.rpartition(" ")[2]
        return InfrastructureError(f"the base {image} is neither here nor in a registry that answers: {failure.error}")
    if "no space left on device" in "\n".join((failure.error, *failure.lines)).lower():
        return InfrastructureError(f"the disk is full: {failure.name}", hint="docker system df; docker builder prune")
    lines = "\n".join(f"  | {line}" for line in failure.lines[-_LAST_LINES:])
    return BuildFailedError(
        f"{request.tag}: step {failure.name} failed: {failure.error}\n{lines}".rstrip(),
        hint="the whole output is in build.log",
    )
