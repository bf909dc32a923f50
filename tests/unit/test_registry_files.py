"""Blobs of any size, between a file and a registry: whole, of their digest, or an error of ours."""

from __future__ import annotations

import errno
import io
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest
from registries import Server, State, login, modern_registry

from envbuilder.errors import InfrastructureError
from envbuilder.registry.client import Repository, digest_of
from envbuilder.registry.faults import Fault, RegistryRefusedError
from envbuilder.registry.reference import parse

DATA = b"".join(b"%d, " % number for number in range(400_000))
NAME = digest_of(DATA)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[Repository, State, BinaryIO]]:
    with modern_registry() as (host, state), (tmp_path / "file").open("w+b") as file:
        yield Repository(parse(f"{host}/team/image"), {}), state, file


def test_a_file_goes_and_comes_back(place) -> None:
    """Sent from its beginning wherever it stood, stored once, and fetched in the place of what a file held before."""
    repository, state, file = place
    file.write(DATA)
    repository.upload(NAME, file)
    assert state.blobs[NAME] == DATA
    state.blobs[NAME] = b"kept"
    repository.upload(NAME, file)
    assert state.blobs[NAME] == b"kept", "what is there is not sent again"
    state.blobs[NAME] = DATA
    file.write(b"more, which has to go")
    repository.download(NAME, len(DATA), file)
    assert file.read() == DATA


@pytest.mark.parametrize(
    ("held", "fault"),
    [
        (DATA[:-1], Fault.ALTERED),
        (DATA[:-1] + b"x", Fault.ALTERED),
        (DATA + b"x", Fault.TOO_LARGE),
        (None, Fault.NOT_THERE),
    ],
)
def test_what_is_not_the_blob_is_refused(place, held: bytes | None, fault: Fault) -> None:
    """Shorter, longer, of other bytes, or not there: by the registry's own fault, never a file to go on with."""
    repository, state, file = place
    if held is not None:
        state.blobs[NAME] = held
    with pytest.raises(RegistryRefusedError) as caught:
        repository.download(NAME, len(DATA), file)
    assert caught.value.fault is fault


def test_a_login_that_ends_meanwhile_is_renewed_and_the_file_sent_whole(tmp_path: Path, monkeypatch) -> None:
    """A token that is no longer taken when the file is sent costs a second sending, from the file's beginning."""
    with modern_registry(user="name:secret") as (host, state), (tmp_path / "file").open("w+b") as file:
        repository = Repository(parse(f"{host}/team/image"), login(tmp_path, host, "name:secret"))
        file.write(DATA)
        send = repository.transport.send
        put: list[str] = []

        def ending(method: str, path: str, **given: Any) -> Any:
            if method == "PUT":
                put.append(path)
                state.tokens.clear()
            return send(method, path, **given)

        monkeypatch.setattr(repository.transport, "send", ending)
        repository.upload(NAME, file)
        repository.download(NAME, len(DATA), file)
        assert file.read() == DATA
        assert len(put) == 1
        assert state.blobs == {NAME: DATA}


def test_a_full_disk_is_this_hosts_fault(place) -> None:
    """It says what could not be written, and the registry is not asked again."""

    class Full(io.BytesIO):
        name = "out/layer"
        writes = 0

        def write(self, _: Any) -> int:
            self.writes += 1
            raise OSError(errno.ENOSPC, "No space left on device")

    repository, state, _ = place
    state.blobs[NAME] = DATA
    full = Full()
    with pytest.raises(InfrastructureError, match="cannot write out/layer"):
        repository.download(NAME, len(DATA), cast("BinaryIO", full))
    assert full.writes == 1


def test_an_answer_that_breaks_off_is_fetched_anew(tmp_path: Path) -> None:
    """What came before the break is not kept: the file holds the second answer alone."""
    asked: list[str] = []

    class Breaking(BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            """Say nothing."""

        def do_HEAD(self) -> None:
            self.send_response(200)
            self.end_headers()

        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(DATA)))
            self.end_headers()
            self.wfile.write(DATA[: len(DATA) // 2] if len(asked) == 1 else DATA)

    server = Server(("127.0.0.1", 0), Breaking)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        repository = Repository(parse(f"127.0.0.1:{server.server_port}/team/image"), {})
        with (tmp_path / "file").open("w+b") as file:
            repository.download(NAME, len(DATA), file)
            assert file.read() == DATA
        assert len(asked) == 2
    finally:
        server.shutdown()
        server.server_close()
