"""Where a login goes: to its registry, to the token service that this names, and to no host that one redirects to."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from hostile import Front, Rules, hostile
from registries import modern_registry

from envbuilder.registry.client import Repository
from envbuilder.registry.manifests import OCI_MANIFEST
from envbuilder.registry.reference import parse

LOGIN = base64.b64encode(b"ann:secret").decode()


@dataclass
class Hosts:
    """A registry that asks for a login, another host, and what each was told of who asks."""

    registry: str
    rules: Rules
    other: str
    other_rules: Rules
    heard: dict[str, list[str]] = field(default_factory=lambda: {"registry": [], "other": []})

    def keeps(self, front: Front) -> None:
        name = "other" if front.rules is self.other_rules else "registry"
        self.heard[name].append(front.headers.get("Authorization", ""))
        front.forward()

    def challenges(self, then: str, kind: str) -> None:
        def action(front: Front) -> None:
            told = front.headers.get("Authorization", "")
            self.heard["registry"].append(told)
            if told:
                front.say(307, Location=f"{then}{front.path}")
            else:
                front.say(401, WWW_Authenticate=kind)

        self.rules.on("GET .*/manifests/", action)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with (
        modern_registry() as (upstream, _),
        hostile(upstream) as (registry, rules),
        hostile(upstream) as (other, other_rules),
    ):
        Repository(parse(f"{upstream}/team/image"), {}).put_manifest("one", b"{}", OCI_MANIFEST)
        made = Hosts(registry, rules, other, other_rules)
        other_rules.on("GET /v2/", made.keeps)
        yield made


def ask(hosts: Hosts, folder: Path) -> bytes:
    config = {"auths": {hosts.registry: {"auth": LOGIN}}}
    (folder / "config.json").write_bytes(msgspec.json.encode(config))
    found = Repository(parse(f"{hosts.registry}/team/image"), {"DOCKER_CONFIG": str(folder)}).manifest("one")
    assert found is not None
    return found.content


def test_another_host_is_not_told_the_login(hosts: Hosts, tmp_path: Path) -> None:
    hosts.challenges(f"http://{hosts.other}", 'Basic realm="x"')
    assert ask(hosts, tmp_path) == b"{}"
    assert hosts.heard == {"registry": ["", f"Basic {LOGIN}"], "other": [""]}


def test_another_port_is_another_host(hosts: Hosts, tmp_path: Path) -> None:
    assert hosts.registry.split(":")[0] == hosts.other.split(":")[0]
    hosts.challenges(f"http://localhost:{hosts.other.split(':')[1]}", 'Basic realm="x"')
    ask(hosts, tmp_path)
    assert hosts.heard["other"] == [""]


def test_a_token_stays_with_its_registry(hosts: Hosts, tmp_path: Path) -> None:
    """What the token service gave is for the registry, and the login for the token service, also where that moves."""
    services: list[str] = []

    def service(front: Front) -> None:
        services.append(front.headers.get("Authorization", ""))
        front.say(307, Location=f"http://{hosts.other}/elsewhere")

    def elsewhere(front: Front) -> None:
        services.append(front.headers.get("Authorization", ""))
        front.say(200, b'{"token":"t"}')

    hosts.rules.on("GET /service", service)
    hosts.other_rules.on("GET /elsewhere", elsewhere)
    hosts.challenges(f"http://{hosts.other}", f'Bearer realm="http://{hosts.registry}/service",service="x"')
    assert ask(hosts, tmp_path) == b"{}"
    assert services == [f"Basic {LOGIN}", ""]
    assert hosts.heard == {"registry": ["", "Bearer t"], "other": [""]}
