"""Ask the Docker engine: every answer bounded and of its type, every failure one of our errors."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
import requests
from docker import APIClient
from docker.errors import APIError, DockerException
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from envbuilder.errors import InfrastructureError
from envbuilder.support import decoding

NO_ENGINE = "install Docker (scripts/setup does it on Debian as root), start it, or set DOCKER_HOST to one that runs"

CONNECT_S = 10.0
ANSWER_S = 60.0
"""An answer that takes longer is none. What moves gigabytes is given more where it is asked for."""

MAX_ANSWER = 32 << 20
MAX_LINE = 16 << 20
"""Bytes of a whole answer, and of one record of a stream. A build's largest records hold 2 MB of a step's output."""

MAX_VALUES = 1_000_000
"""Values of one answer: a list of ten thousand images has a tenth of them, and each takes far more than its bytes."""

WHOLE_S = 180.0
"""For a whole answer, however slowly it comes."""

FREE_THE_DISK = "envbuilder clean --cache 5 frees what builds left; docker system df says what holds the rest"

EXCHANGED = "docker version says which engine answers; where it was exchanged meanwhile, run the same command again"
"""An engine that is upgraded while a command runs may take no more of the version in which both spoke."""

_NOT_FOUND = 404
_PIECE = 1 << 16
_STRANGE = "is this Docker 20.10 or newer? docker version"

T = TypeVar("T")


class Record(msgspec.Struct, frozen=True):
    """One line of a streaming answer; ``aux`` is of a kind that ``id`` names, ``action`` what happened, of an event."""

    id: str | None = None
    aux: Any = None
    error: str | None = None
    action: str | None = msgspec.field(name="Action", default=None)


def next_about(refusal: str) -> str:
    """Say what to do next about what the engine refused; '' where nothing is known. It has no codes, only words."""
    return FREE_THE_DISK if "no space left on device" in refusal.lower() else ""


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Name the action in the InfrastructureError that any failure of the engine within becomes."""
    try:
        yield
    except APIError as error:
        raise InfrastructureError(
            f"the engine could not {what}: {error.explanation or error}", hint=next_about(str(error)) or EXCHANGED
        ) from error
    except decoding.DamagedError as error:
        raise InfrastructureError(
            f"the engine's answer when asked to {what} is none: {error}", hint=_STRANGE
        ) from error
    except (RequestException, HTTPError, DockerException, OSError) as error:
        raise InfrastructureError(f"the engine did not answer when asked to {what}: {error}", hint=NO_ENGINE) from error


def ask(
    api: APIClient,
    path: str,
    what: str,
    kind: type[T],
    *,
    names: tuple[str, ...] = (),
    params: Mapping[str, Any] | None = None,
) -> T | None:
    """Get a JSON answer as a type; None where the engine has no such thing (404). ``names`` fill the path's ``{}``.

    Raises InfrastructureError for a failure, for an answer of another shape, and for one that is too large.
    """
    address = url(api, path.format(*(quote(name, safe="/:") for name in names)))
    with asking(what):
        response = api.get(address, params=params, stream=True, timeout=(CONNECT_S, ANSWER_S))
        with closing(response):
            if response.status_code == _NOT_FOUND:
                return None
            return read(what, response, kind)


def read(what: str, response: requests.Response, kind: type[T]) -> T:
    """Read a whole answer as a type, within `asking`. Raises DamagedError for another shape, or what is too much."""
    content = whole(checked(what, response).iter_content(_PIECE))
    if content.count(b",") > MAX_VALUES:
        raise decoding.DamagedError(f"it holds more than {MAX_VALUES:,} values")
    return decoding.from_json(content, kind, "not of the shape that Docker documents")


def url(api: APIClient, path: str) -> str:
    """Return the address of a path of the engine's API, with the version that both sides speak."""
    return f"{api.base_url}/v{api.api_version}{path}"


def whole(pieces: Iterable[bytes], limit: int = MAX_ANSWER) -> bytes:
    """Join an answer's pieces. Raises DamagedError, and reads no further, where they are too many or too slow."""
    found, ends = bytearray(), time.monotonic() + WHOLE_S
    for piece in pieces:
        found += piece
        if time.monotonic() > ends:
            raise decoding.DamagedError(f"not whole after {WHOLE_S:.0f} s")
        if len(found) > limit:
            raise decoding.DamagedError(f"larger than {limit} bytes")
    return bytes(found)


def answers(what: str, stream: Iterable[T]) -> Iterator[T]:
    """Yield a stream's items; what the reader of them raises stays its own and is not taken for the engine's."""
    with asking(what):
        yield from stream


def records(what: str, response: requests.Response) -> Iterator[Record]:
    """Yield the JSON records of a streaming answer as they arrive. Raises InfrastructureError on a broken one."""
    for line in answers(what, _lines(response.iter_content(_PIECE))):
        try:
            yield decoding.from_json(line, Record)
        except decoding.DamagedError as error:
            raise InfrastructureError(
                f"could not {what}: the engine answered {line[:200]!r}, which is no record: {error}", hint=_STRANGE
            ) from error


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Split a stream into lines that are not empty. Raises DamagedError for one that is too long."""
    rest: list[bytes] = []
    size = 0
    for piece in pieces:
        first, *others = piece.split(b"\n")
        rest.append(first)
        size += len(first)
        if others:
            yield from (line for line in (b"".join(rest), *others[:-1]) if line.strip())
            rest, size = [others[-1]], len(others[-1])
        if size > MAX_LINE:
            raise decoding.DamagedError(f"a record is larger than {MAX_LINE} bytes")
    if last := b"".join(rest).strip():
        yield last


class _Message(msgspec.Struct, frozen=True):
    message: str


def checked(what: str, response: requests.Response) -> requests.Response:
    """Pass a good answer on. Raises InfrastructureError with the engine's own message otherwise."""
    if response.ok:
        return response
    with asking(what):
        content = whole(response.iter_content(_PIECE), _PIECE)
    try:
        message = decoding.from_json(content, _Message).message
    except decoding.DamagedError:
        message = decoding.lossy(content)
    raise InfrastructureError(f"the engine could not {what}: {message}", hint=next_about(message) or EXCHANGED)
