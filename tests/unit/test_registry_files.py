"""Upload of a file as a blob."""

from __future__ import annotations

from typing import Any

import pytest
from registries import login, modern_registry

from envbuilder.registry.client import Repository
from envbuilder.registry.manifests import digest_of
from envbuilder.registry.reference import parse

DATA = b"".join(b"%d, " % number for number in range(400_000))
NAME = digest_of(DATA)


@pytest.fixture
def file(tmp_path):
    with (tmp_path / "file").open("w+b") as opened:
        opened.write(DATA)
        yield opened


def test_a_file_is_sent_from_its_beginning_and_stored_once(file) -> None:
    with modern_registry() as (host, state):
        repository = Repository(parse(f"{host}/team/image"), {})
        repository.upload(NAME, file)
        assert state.blobs[NAME] == DATA
        state.blobs[NAME] = b"stored before"
        repository.upload(NAME, file)
        assert state.blobs[NAME] == b"stored before"


def test_a_file_is_sent_again_from_its_beginning_when_the_login_expires(tmp_path, file, monkeypatch) -> None:
    with modern_registry(user="name:secret") as (host, state):
        repository = Repository(parse(f"{host}/team/image"), login(tmp_path, host, "name:secret"))
        send = repository.transport.send
        put: list[str] = []

        def expiring(method: str, path: str, **given: Any) -> Any:
            if method == "PUT":
                put.append(path)
                state.tokens.clear()
            return send(method, path, **given)

        monkeypatch.setattr(repository.transport, "send", expiring)
        repository.upload(NAME, file)
        assert len(put) == 1
        assert state.blobs == {NAME: DATA}
