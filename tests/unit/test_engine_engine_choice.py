"""Docker's contexts: which engine a user means, and that no other one is taken for it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envbuilder.engine import engine_choice
from envbuilder.engine.docker import connect
from envbuilder.errors import InfrastructureError

KEY = hashlib.sha256(b"far").hexdigest()
ENDPOINT = {"Host": "tcp://far.example.org:2376", "SkipTLSVerify": False}


def settings(folder: Path, config: object, meta: object = None) -> dict[str, str]:
    """Write Docker's settings: its configuration, and a context called ``far`` unless ``meta`` is None."""
    (folder / "config.json").write_text(json.dumps(config))
    if meta is not None:
        file = folder / "contexts/meta" / KEY / "meta.json"
        file.parent.mkdir(parents=True)
        file.write_text(meta if isinstance(meta, str) else json.dumps(meta))
    return {"DOCKER_CONFIG": str(folder)}


def far(**endpoint: Any) -> dict[str, Any]:
    """Describe a context as Docker writes it."""
    return {"Name": "far", "Metadata": {}, "Endpoints": {"docker": {**ENDPOINT, **endpoint}}}


@pytest.mark.parametrize(("config", "name"), [({"currentContext": "far"}, ""), ({"currentContext": "x"}, "far")])
def test_a_context_leads_to_its_engine(tmp_path: Path, config: object, name: str) -> None:
    """The one that DOCKER_CONTEXT names, else the current one, gives the address."""
    environment = settings(tmp_path, config, far()) | {"DOCKER_CONTEXT": name}
    assert engine_choice.resolved(environment)["DOCKER_HOST"] == ENDPOINT["Host"]


@pytest.mark.parametrize("skips", [True, False])
def test_a_contexts_certificates_are_its_own(tmp_path: Path, *, skips: bool) -> None:
    """Where it has certificates they take the variables' place, and it says whether the engine's are looked at."""
    environment = settings(tmp_path, {"currentContext": "far"}, far(SkipTLSVerify=skips))
    environment["DOCKER_CERT_PATH"] = "/elsewhere"
    assert engine_choice.resolved(environment)["DOCKER_CERT_PATH"] == ""
    folder = tmp_path / "contexts/tls" / KEY / "docker"
    folder.mkdir(parents=True)
    found = engine_choice.resolved(environment)
    assert (found["DOCKER_CERT_PATH"], bool(found["DOCKER_TLS_VERIFY"])) == (str(folder), not skips)


@pytest.mark.parametrize("variable", [{"DOCKER_HOST": "tcp://near:1"}, {"DOCKER_CONTEXT": "default"}])
def test_a_variable_outranks_the_current_context(tmp_path: Path, variable: dict[str, str]) -> None:
    """DOCKER_HOST, and DOCKER_CONTEXT=default, say that no context is meant."""
    environment = settings(tmp_path, {"currentContext": "nonsuch"}) | variable
    assert engine_choice.resolved(environment) == environment


def test_no_settings_are_no_context(tmp_path: Path) -> None:
    """Without a configuration nothing is changed."""
    assert engine_choice.resolved({"HOME": str(tmp_path)}) == {"HOME": str(tmp_path)}


DAMAGED: dict[str, tuple[object, object]] = {
    "no such context": ({"currentContext": "far"}, None),
    "a name that leads out": ({"currentContext": "../../far"}, far()),
    "a name that is a number": ({"currentContext": 5}, far()),
    "a configuration that is a list": ([], far()),
    "cut": ({"currentContext": "far"}, "{"),
    "empty": ({"currentContext": "far"}, ""),
    "a list": ({"currentContext": "far"}, []),
    "null": ({"currentContext": "far"}, "null"),
    "no endpoints": ({"currentContext": "far"}, {"Name": "far"}),
    "endpoints of another kind": ({"currentContext": "far"}, {"Endpoints": {"kubernetes": {}}}),
    "an endpoint that is a text": ({"currentContext": "far"}, {"Endpoints": {"docker": "x"}}),
    "no host": ({"currentContext": "far"}, far(Host="")),
    "a host that is a number": ({"currentContext": "far"}, far(Host=1)),
    "nesting": ({"currentContext": "far"}, "[" * 100_000),
}


@pytest.mark.parametrize(("config", "meta"), DAMAGED.values(), ids=DAMAGED.keys())
def test_another_engine_is_never_taken_for_the_one_meant(tmp_path: Path, config: object, meta: object) -> None:
    """A context that is not there, or cannot be read, ends the command with its file and what to do next."""
    with pytest.raises(InfrastructureError) as caught:
        connect(settings(tmp_path, config, meta))
    assert str(tmp_path) in caught.value.message
    assert "docker context" in caught.value.hint


@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: path.symlink_to("/dev/ptmx"), lambda path: path.symlink_to("/dev/zero")]
)
def test_settings_without_an_end_are_not_waited_for(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """A pipe, a terminal or a device in a configuration's place is named at once."""
    make(tmp_path / "config.json")
    with pytest.raises(InfrastructureError, match=r"config\.json"):
        connect({"DOCKER_CONFIG": str(tmp_path), "DOCKER_HOST": "tcp://127.0.0.1:1"})
