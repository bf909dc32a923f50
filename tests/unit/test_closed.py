"""Tests stay on this machine: the guard itself."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from closed import ENGINES, check_address, closed

Refused = pytest.fail.Exception


@pytest.mark.parametrize("address", [("192.0.2.1", 80), ("2001:db8::1", 80, 0, 0), ("example.invalid", 443)])
def test_other_machines_are_refused(address: tuple[str, int]) -> None:
    """Connecting to another machine fails the test, however it is written, before anything is sent."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family) as tried, pytest.raises(Refused, match="network"):
        tried.connect(address)
    with socket.socket(family, socket.SOCK_DGRAM) as tried, pytest.raises(Refused, match="network"):
        tried.sendto(b"x", address)
    with pytest.raises(Refused, match="network"):
        socket.create_connection(address[:2], timeout=1)


@pytest.mark.parametrize("path", ENGINES)
def test_engines_are_refused(path: str) -> None:
    """The engine's socket fails the test, under each of its usual names, whether or not an engine is there."""
    with socket.socket(socket.AF_UNIX) as tried, pytest.raises(Refused, match="engine"):
        tried.connect(path)


def test_an_engine_on_loopback_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that DOCKER_HOST names is one, wherever it listens."""
    monkeypatch.setenv("ENVBUILDER_TESTS_ENGINE", "tcp://127.0.0.1:2375")
    check_address(("127.0.0.1", 2376))
    with pytest.raises(Refused, match="engine"):
        check_address(("127.0.0.1", 2375))


def test_no_handler_of_exceptions_takes_it_for_an_answer() -> None:
    """Code that expects a network to fail cannot swallow the refusal."""
    assert not issubclass(Refused, Exception)


def test_loopback_is_free(tmp_path: Path) -> None:
    """A server that a test starts itself is reached, by TCP and by a Unix socket."""
    for family, address in ((socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_UNIX, str(tmp_path / "s"))):
        with socket.socket(family) as server, socket.socket(family) as client:
            server.bind(address)
            server.listen()
            client.connect(server.getsockname())
            accepted, _ = server.accept()
            accepted.close()


def test_children_are_told() -> None:
    """Programs that a test starts find no engine and no package index."""
    program = "import os; print(os.environ['DOCKER_HOST'], os.environ['UV_OFFLINE'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["unix:///nonexistent/docker.sock", "1"]


def test_a_mark_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a mark nothing is replaced; without one, everything is, and put back afterwards."""
    outside = socket.socket
    with closed(network=True):
        assert socket.socket is outside
    monkeypatch.setattr(socket, "socket", object)
    with closed():
        assert socket.socket is not object
        assert os.environ["UV_OFFLINE"] == "1"
    assert socket.socket is object
