"""HTTP to the Docker engine: every answer has limits and a type, every failure is an InfrastructureError.

The SDK finds the engine and connects to it. Its own methods read answers without a limit.
"""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import msgspec
import requests
from docker import APIClient
from docker.constants import MINIMUM_DOCKER_API_VERSION
from docker.context import ContextAPI
from docker.context.config import get_meta_dir
from docker.errors import APIError, DockerException
from docker.utils import kwargs_from_env
from requests.exceptions import ChunkedEncodingError, RequestException
from urllib3.exceptions import HTTPError

from envbuilder.engine.port import OnBytes
from envbuilder.errors import InfrastructureError, UsageError, first_message
from envbuilder.support import decoding
from envbuilder.support.docker_config import docker_settings

NO_ENGINE = "start it and run the same command again; without one, install Docker 20.10 or newer, or set DOCKER_HOST"
_FREE_THE_DISK = "envbuilder clean --cache 5 removes build cache; docker system df shows what uses the rest"
_WHICH_CONTEXT = "docker context ls lists the contexts; choose one by docker context use NAME, or set DOCKER_HOST"
_WHICH_ENGINE = "docker version shows the engine; if it was upgraded meanwhile, run the same command again"
_NAMES = "write an image as Docker does, such as team/image:tag; repositories are in lower case"
_SSH = "pip install 'tf-envbuilder[ssh]', and install the program ssh (apt-get install openssh-client)"
_OLD_ENGINE = "docker version shows the engine: it must be Docker 20.10 or newer"
_HANGING = "look at the engine's log (journalctl -u docker), restart it, and run the same command again"

CONNECT_S, ANSWER_S, WHOLE_S = 10.0, 60.0, 180.0
"""Limits until the engine accepts a connection, for the next bytes of an answer, and for a complete answer."""

SDK_S = 300
"""Limit for calls through the SDK: removing or committing gigabytes on a busy disk takes minutes."""

SEND_S = 120.0
"""Limit until the engine takes the next piece of a build context: with many builds at once it starts late."""

SILENCE_S, STREAM_S = 1800.0, 4 * 3600.0
"""Limits between two pieces of a stream, and for a complete one: unpacking 6 GB on a slow disk prints nothing."""

MAX_ANSWER = MAX_LINE = 16 << 20
"""Bytes of a complete answer, and of one record of a stream. The largest records hold 2 MB of a build's output."""

PING_EVERY_S, PING_WAITS_S, PINGS_MISSED = 10.0, 10.0, 3
"""An engine that misses so many pings in a row hangs: a stream is given up after about a minute."""

_PIECE = 1 << 16
_NOT_FOUND, _SERVER_ERROR = 404, 500

T = TypeVar("T")
Query = Mapping[str, Any]


class _Progress(msgspec.Struct, frozen=True):
    current: int = 0
    total: int = 0


class Record(msgspec.Struct, frozen=True):
    """One record of a stream. ``id`` gives the type of ``aux``, or is a layer's; ``action`` is that of an event."""

    id: str | None = None
    aux: Any = None
    error: str | None = None
    status: str | None = None
    progress: _Progress | None = msgspec.field(name="progressDetail", default=None)
    action: str | None = msgspec.field(name="Action", default=None)


class _Component(msgspec.Struct, rename="pascal"):
    name: str | None = None
    version: str | None = None


class _Version(msgspec.Struct, rename="pascal"):
    api_version: str
    components: tuple[_Component, ...] | None = None


class _Message(msgspec.Struct, frozen=True):
    message: str


class _Config(msgspec.Struct, frozen=True, rename="camel"):
    current_context: str | None = None


@dataclass(frozen=True)
class Connection:
    """A connection to one engine, which threads may share. ``api`` is the SDK's client."""

    api: APIClient

    def get(
        self, action: str, path: str, kind: type[T], *, names: tuple[str, ...] = (), params: Query | None = None
    ) -> T | None:
        """Get a JSON answer as a type; None if the engine has no such thing (404). ``names`` fill the path's ``{}``.

        Raises InfrastructureError on a failure, and for an answer of another shape or above the limits.
        """
        with calling(action):
            response = self.api.get(self.url(path, *names), params=params, stream=True, timeout=(CONNECT_S, ANSWER_S))
            with closing(response):
                return None if response.status_code == _NOT_FOUND else _decoded(action, response, kind)

    def stream(self, action: str, method: str, path: str, **request: Any) -> Stream:  # noqa: ANN401 - requests' own
        """Send a request whose answer is a stream. Raises InfrastructureError if the engine refuses."""
        sending = CONNECT_S if request.get("data") is None else SEND_S
        with calling(action):
            response = self.api.request(method, self.url(path), stream=True, timeout=(sending, SILENCE_S), **request)
        return Stream(self.api, action, checked(action, response), STREAM_S)

    def url(self, path: str, *names: str) -> str:
        filled = path.format(*(quote(name, safe="/:") for name in names)) if names else path
        return f"{self.api.base_url}/v{self.api.api_version}{filled}"


class Stream:
    """A streamed answer. While its block lasts the engine is pinged; at its end the connection is closed.

    An engine that hangs, or a stream without end, is cut off: that raises InfrastructureError at the end of the block,
    even if the stream seemed to end as it should.
    """

    def __init__(self, api: APIClient, action: str, response: requests.Response, limit_s: float) -> None:
        self._api, self._action, self._response, self._limit_s = api, action, response, limit_s
        self._over = threading.Event()
        self._reason = ""

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> None:
        self._over.set()
        self._response.close()
        if error is None or isinstance(error, InfrastructureError):
            self._raise_if_cut(error)

    def pieces(self) -> Iterator[bytes]:
        """Yield an archive. If the stream was cut, it ends in an error: a part is not taken for the complete one."""
        yield from streamed(self._action, self._response.iter_content(1 << 20))
        self._raise_if_cut()

    def records(self) -> Iterator[Record]:
        """Yield JSON records as they arrive. Raises InfrastructureError on a broken one."""
        for line in streamed(self._action, _lines(self._response.iter_content(_PIECE))):
            try:
                yield decoding.from_json(line, Record)
            except decoding.DamagedError as error:
                text = f"could not {self._action}: {line[:200]!r} in the engine's answer is not a record: {error}"
                raise InfrastructureError(text, hint=_OLD_ENGINE) from error

    def drain(self, on_bytes: OnBytes | None = None) -> list[Record]:
        """Read to the end; return the records with ``aux``. Raises InfrastructureError on a record with an error."""
        found, layers = list[Record](), dict[str | None, _Progress]()
        for record in self.records():
            if record.error:
                raise InfrastructureError(f"could not {self._action}: {record.error}", hint=next_step(record.error))
            if isinstance(record.aux, dict):
                found.append(record)
            if on_bytes and record.progress and record.status in {"Downloading", "Pushing"}:
                layers[record.id] = record.progress
                on_bytes(sum(one.current for one in layers.values()), sum(one.total for one in layers.values()))
        return found

    def _raise_if_cut(self, error: BaseException | None = None) -> None:
        if self._reason:
            raise InfrastructureError(f"could not {self._action}: {self._reason}", hint=_HANGING) from error

    def _watch(self) -> None:
        ends, missed = time.monotonic() + self._limit_s, 0
        while not self._over.wait(min(PING_EVERY_S, max(0.0, ends - time.monotonic()))):
            missed = 0 if self._engine_answers() else missed + 1
            if time.monotonic() >= ends:
                self._reason = f"it took longer than {self._limit_s:.0f} s"
            elif missed >= PINGS_MISSED:
                self._reason = f"the engine has not answered for {missed * (PING_EVERY_S + PING_WAITS_S):.0f} s"
            if self._reason:
                shut(self._response)
                return

    def _engine_answers(self) -> bool:
        try:
            return self._api.get(f"{self._api.base_url}/_ping", timeout=PING_WAITS_S).status_code < _SERVER_ERROR
        except RequestException:
            return False


def shut(response: requests.Response) -> None:
    """Shut down the connection of an answer, so that a thread that waits for more of it goes on."""
    with suppress(OSError, AttributeError):
        # Neither requests nor urllib3 has a public way to the socket.
        answer: Any = response.raw
        fp = answer._fp.fp  # noqa: SLF001
        raw = getattr(fp, "raw", fp)
        connection = getattr(raw, "_sock", None) or raw.sock
        connection.shutdown(socket.SHUT_RDWR)


def open_connection(environment: Mapping[str, str]) -> Connection:
    """Connect to the engine of ``DOCKER_HOST``, of the current Docker context or of the usual socket.

    Raises InfrastructureError if none answers, or if it is not Docker.
    """
    arguments, action = _arguments(environment) | {"use_ssh_client": True}, "report its version"
    host, has_ssh = str(arguments.get("base_url")), shutil.which("ssh") and find_spec("paramiko")
    if host.startswith("ssh://") and not has_ssh:
        raise InfrastructureError(f"{host}: this host cannot reach an engine by ssh", hint=_SSH)
    try:
        with decoding.damaged("the program there is not a Docker engine"):
            api = APIClient(version=MINIMUM_DOCKER_API_VERSION, timeout=int(CONNECT_S), **arguments)
            with calling(action), closing(api.get(f"{api.base_url}/version", stream=True, timeout=CONNECT_S)) as answer:
                version = _decoded(action, answer, _Version)
            [int(part) for part in version.api_version.split(".")]  # as the SDK does later
            api = APIClient(version=version.api_version, timeout=SDK_S, **arguments)
    except (InfrastructureError, DockerException, OSError, decoding.DamagedError) as error:
        reason = error.message if isinstance(error, InfrastructureError) else str(error)
        raise InfrastructureError(f"no container engine answers: {reason}", hint=NO_ENGINE) from error
    podman = [part for part in version.components or () if part.name == "Podman Engine"]
    if podman:  # it accepts a build by BuildKit, and makes no image
        raise InfrastructureError(
            f"the engine is Podman {podman[0].version or ''}: it has no BuildKit, which builds images",
            hint="set DOCKER_HOST to Docker Engine 20.10 or newer; Podman can run the published images",
        )
    return Connection(api)


def _arguments(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the SDK's arguments for the engine. A setting that cannot be read is an error, not the default engine."""
    config, current = docker_settings(environment), None
    try:
        current = decoding.from_json(decoding.file_content(config), _Config).current_context
    except decoding.DamagedError as error:
        raise InfrastructureError(f"{config} is not a Docker configuration: {error}", hint=_WHICH_CONTEXT) from error
    except OSError:
        pass  # there is none, or it belongs to another account
    name = environment.get("DOCKER_CONTEXT") or current or "default"
    if environment.get("DOCKER_HOST") or name == "default":
        return {**kwargs_from_env(dict(environment))}
    if not config.exists():  # the SDK finds contexts by it, and would search the working folder
        text = f"context {name!r} cannot be read: {config} does not exist"
        raise InfrastructureError(text, hint=f"docker context use {name} writes it; or set DOCKER_HOST")
    try:
        context = ContextAPI.get_context(name)
        host, tls = (context.Host, context.TLSConfig) if context is not None else (None, None)
    except Exception as error:
        raise InfrastructureError(
            f"{get_meta_dir(name)}: not a Docker context: {error}", hint=_WHICH_CONTEXT
        ) from error
    if not host or not isinstance(host, str):
        raise InfrastructureError(f"{get_meta_dir(name)}: no engine of context {name!r}", hint=_WHICH_CONTEXT)
    return {"base_url": host, "tls": tls or False}


def next_step(refusal: str) -> str:
    """Return the hint for an engine's refusal, which has no code; '' if none is known."""
    return _FREE_THE_DISK if "no space left on device" in refusal.lower() else ""


@contextmanager
def calling(action: str) -> Iterator[None]:
    """Turn any failure of the engine into an InfrastructureError with the name of the action."""
    try:
        yield
    except APIError as error:
        hint = next_step(str(error)) or _WHICH_ENGINE
        raise InfrastructureError(f"the engine could not {action}: {error.explanation or error}", hint=hint) from error
    except decoding.DamagedError as error:
        raise InfrastructureError(f"the engine's answer is not valid ({action}): {error}", hint=_OLD_ENGINE) from error
    except ChunkedEncodingError as error:
        raise InfrastructureError(f"the engine ended before its answer did ({action})", hint=_HANGING) from error
    except (RequestException, HTTPError, DockerException, OSError) as error:
        raise InfrastructureError(
            f"the engine did not answer ({action}): {first_message(error)}", hint=NO_ENGINE
        ) from error


def checked(action: str, response: requests.Response) -> requests.Response:
    """Return a good answer. Raises UsageError for a name of no image, else InfrastructureError, with its message."""
    if response.ok:
        return response
    with calling(action), closing(response):
        content = decoding.joined(response.iter_content(_PIECE), _PIECE, WHOLE_S)
    try:
        message = decoding.from_json(content, _Message).message
    except decoding.DamagedError:
        message = decoding.lossy(content)
    if "invalid reference format" in message:
        raise UsageError(f"the engine could not {action}: {message}", hint=_NAMES)
    raise InfrastructureError(f"the engine could not {action}: {message}", hint=next_step(message) or _WHICH_ENGINE)


def _decoded(action: str, response: requests.Response, kind: type[T]) -> T:
    """Read a complete answer as a type. Raises DamagedError for another shape, and above the limits."""
    content = decoding.joined(checked(action, response).iter_content(_PIECE), MAX_ANSWER, WHOLE_S)
    return decoding.from_json(content, kind, "not of the shape that Docker documents")


def streamed(action: str, items: Iterable[T]) -> Iterator[T]:
    """Yield the items of a stream. Its own failures are the engine's; those of its reader are not."""
    with calling(action):
        yield from items


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Split a stream into lines that are not empty. Raises DamagedError for one that is too long."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from filter(bytes.strip, lines)
        if len(rest) > MAX_LINE:
            raise decoding.DamagedError(f"a record is larger than {MAX_LINE} bytes")
    yield from filter(bytes.strip, [rest])
