"""Tests stay on this machine: the guard itself."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from closed import ENGINES, check_address, closed

Refused = pytest.fail.Exception


@pytest.mark.parametrize("address", [("192.0.2.1", 80), ("2001:db8::1", 80, 0, 0), ("example.invalid", 443)])
def test_connection_to_another_machine_fails(address: tuple[str, int]) -> None:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family) as tried, pytest.raises(Refused, match="network"):
        tried.connect(address)
    with socket.socket(family, socket.SOCK_DGRAM) as tried, pytest.raises(Refused, match="network"):
        tried.sendto(b"x", address)
    with pytest.raises(Refused, match="network"):
        socket.create_connection(address[:2], timeout=1)


@pytest.mark.parametrize("path", ENGINES)
def test_socket_of_an_engine_is_refused(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as tried, pytest.raises(Refused, match="engine"):
        tried.connect(path)


def test_engine_on_loopback_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_ENVBUILDER_TESTS_ENGINE", "tcp://127.0.0.1:2375")
    check_address(("127.0.0.1", 2376))
    with pytest.raises(Refused, match="engine"):
        check_address(("127.0.0.1", 2375))


def test_refusal_is_not_an_exception() -> None:
    assert not issubclass(Refused, Exception)


def test_servers_of_the_test_are_reached(tmp_path: Path) -> None:
    for family, address in ((socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_UNIX, str(tmp_path / "s"))):
        with socket.socket(family) as server, socket.socket(family) as client:
            server.bind(address)
            server.listen()
            client.connect(server.getsockname())
            accepted, _ = server.accept()
            accepted.close()


def test_child_processes_find_no_engine_and_no_index() -> None:
    program = "import os; print(os.environ['DOCKER_HOST'], os.environ['UV_OFFLINE'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["unix:///nonexistent/docker.sock", "1"]


def test_mark_opens_network_and_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    outside = socket.socket
    with closed(network=True):
        assert socket.socket is outside
    monkeypatch.setattr(socket, "socket", object)
    with closed():
        assert socket.socket is not object
        assert os.environ["UV_OFFLINE"] == "1"
    assert socket.socket is object
