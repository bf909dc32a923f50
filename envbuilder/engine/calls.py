"""Turn what the Docker SDK raises into our errors: the one place that knows its exceptions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import requests
from docker.errors import APIError, DockerException
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from envbuilder.errors import InfrastructureError

NO_ENGINE = "install Docker (scripts/setup does it on Debian as root), start it, or set DOCKER_HOST to one that runs"

T = TypeVar("T")


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Name the action in the InfrastructureError that any failure of the engine within becomes."""
    try:
        yield
    except APIError as error:
        raise InfrastructureError(f"the engine could not {what}: {error.explanation or error}") from error
    except (RequestException, HTTPError, DockerException, OSError) as error:
        raise InfrastructureError(f"the engine did not answer when asked to {what}: {error}", hint=NO_ENGINE) from error


def answers(what: str, stream: Iterable[T]) -> Iterator[T]:
    """Yield a stream's items; what the reader of them raises stays its own and is not taken for the engine's."""
    with asking(what):
        yield from stream


def records(what: str, response: requests.Response) -> Iterator[dict[str, Any]]:
    """Yield the JSON records of a streaming answer as they arrive. Raises InfrastructureError on a broken one."""
    for line in answers(what, response.iter_lines(chunk_size=None)):
        if not line.strip():
            continue
        try:
            yield json.loads(line)
        except ValueError as error:
            raise InfrastructureError(f"could not {what}: the engine answered {line[:200]!r}, not JSON") from error


def checked(what: str, response: requests.Response) -> requests.Response:
    """Pass a good answer on. Raises InfrastructureError with the engine's own message otherwise."""
    if response.ok:
        return response
    try:
        message = response.json()["message"]
    except (ValueError, KeyError, TypeError):
        message = response.text
    raise InfrastructureError(f"the engine could not {what}: {message}")
