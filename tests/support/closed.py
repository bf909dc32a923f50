"""Tests stay on this machine: what is not marked reaches neither the network nor a container engine.

Loopback is free, for servers that a test starts itself. An attempt fails the test at once, by an exception that no
``except Exception`` takes for an answer. Child processes are told what can be told by variables.
"""

import ipaddress
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn
from unittest import mock
from urllib.parse import urlsplit

import pytest

ENGINES = ("/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock")
CHILDREN = {"UV_OFFLINE": "1", "PIP_NO_INDEX": "1", "DOCKER_HOST": "unix:///nonexistent/docker.sock"}
"""What keeps programs that a test starts from the package index and the engine."""

_Address = Any


def refuse(what: str, mark: str) -> NoReturn:
    pytest.fail(f"a test that is not marked `{mark}` reaches for {what}")


def check_address(address: _Address) -> None:
    """Fail where an address of a socket is neither loopback nor a Unix socket that is no engine's."""
    engine = urlsplit(os.environ.get("TF_ENVBUILDER_TESTS_ENGINE", ""))
    if isinstance(address, str | bytes):
        path = os.fsdecode(address)
        if os.path.realpath(path) in {os.path.realpath(one) for one in (*ENGINES, engine.path) if one}:
            refuse(f"the engine at {path}", "engine")
    elif not is_local(str(address[0])):
        refuse(f"{address[0]}:{address[1]}", "network")
    elif engine.port and (engine.hostname, engine.port) == tuple(address[:2]):
        refuse(f"the engine at {address[0]}:{address[1]}", "engine")


def is_local(host: str) -> bool:
    """Tell whether a host's name or address is this machine's own loopback."""
    try:
        return host in ("localhost", "") or ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


class ClosedSocket(socket.socket):
    def connect(self, address: _Address, /) -> None:
        check_address(address)
        super().connect(address)

    def connect_ex(self, address: _Address, /) -> int:
        check_address(address)
        return super().connect_ex(address)

    def sendto(self, data: Any, *arguments: Any) -> int:
        check_address(arguments[-1])
        return super().sendto(data, *arguments)


_resolve = socket.getaddrinfo


def resolve_locally(host: bytes | str | None, *arguments: Any, **options: Any) -> Any:
    """Resolve the names of this machine alone."""
    name = host.decode() if isinstance(host, bytes) else host
    if name is not None and not is_local(name):
        refuse(name, "network")
    return _resolve(host, *arguments, **options)


@contextmanager
def closed(*, network: bool = False, engine: bool = False) -> Iterator[None]:
    """Close what is not allowed for as long as this is entered; an engine's images come from the network as well."""
    if network or engine:
        yield
        return
    variables = {"TF_ENVBUILDER_TESTS_ENGINE": os.environ.get("DOCKER_HOST", ""), **CHILDREN}
    with (
        mock.patch("socket.socket", ClosedSocket),
        mock.patch("socket.getaddrinfo", resolve_locally),
        mock.patch("requests.adapters.DEFAULT_CA_BUNDLE_PATH", "/etc"),  # a bundle takes 30 ms a connection
        mock.patch.dict(os.environ, variables),
    ):
        yield
