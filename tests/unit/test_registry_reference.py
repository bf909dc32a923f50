"""References, credentials and where a login goes; manifests, uploads and pages."""

import base64
import json
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hostile import Front, Rules, hostile
from hypothesis import given
from hypothesis import strategies as st
from registries import free_port, login, modern_registry
from table_rows import rows
from urllib3.connection import HTTPConnection

from envbuilder.errors import EnvbuilderError, ExitCode, InfrastructureError, InputError, Reason, UsageError
from envbuilder.registry import client
from envbuilder.registry.client import Repository, Response
from envbuilder.registry.errors import RegistryFailedError, RegistryRefusedError
from envbuilder.registry.manifests import OCI_MANIFEST, digest_of
from envbuilder.registry.reference import parse
from envbuilder.support import terminal_text
from envbuilder.support.docker_config import Login
from envbuilder.support.docker_config import find_login as find
from envbuilder.support.http_headers import known_scheme

HEX = "a" * 64


@pytest.mark.parametrize(
    ("text", "host", "repository", "tag", "digest"),
    [
        ("registry.example.org/team/image", "registry.example.org", "team/image", "", ""),
        ("registry.example.org:5000/image:1.0", "registry.example.org:5000", "image", "1.0", ""),
        ("localhost/a/b/c:x", "localhost", "a/b/c", "x", ""),
        (f"127.0.0.1:5000/a@sha256:{HEX}", "127.0.0.1:5000", "a", "", f"sha256:{HEX}"),
        (f"[::1]:5000/a:t@sha256:{HEX}", "[::1]:5000", "a", "t", f"sha256:{HEX}"),
    ],
)
def test_reference_is_read_whole(text, host, repository, tag, digest) -> None:
    found = parse(text)
    assert (found.host, found.repository, found.tag, found.digest) == (host, repository, tag, digest)


@rows
def test_no_host_is_assumed_and_nothing_is_guessed(text) -> None:
    with pytest.raises(UsageError):
        parse(text)


def test_login_in_a_reference_is_not_repeated() -> None:
    for text in ("ann:x/hidden?@a.b/c@sha256:12", "a.b/c:d?token=hidden", "a.b/c?token=hidden", "a.b/c#hidden"):
        with pytest.raises(UsageError) as caught:
            parse(text)
        assert "hidden" not in str(caught.value)


@given(st.text(max_size=60))
def test_any_text_is_a_reference_or_a_usage_error(text) -> None:
    try:
        found = parse(text)
    except EnvbuilderError:
        return
    assert parse(str(found)).name == found.name


@rows
def test_only_this_machine_is_loopback(host, loopback) -> None:
    assert parse(f"{host}/a").loopback is loopback


def test_tag_is_checked_before_it_is_used() -> None:
    reference = parse("registry.example.org/a")
    assert str(reference.at("x")) == "registry.example.org/a:x"
    assert str(reference.at(f"sha256:{HEX}")).endswith(f"@sha256:{HEX}")
    for wrong in ("", "a b", "-a", "sha256:12", "a" * 129):
        with pytest.raises(UsageError):
            reference.at(wrong)


def config(folder, document) -> dict[str, str]:
    (folder / "config.json").write_text(json.dumps(document))
    return {"DOCKER_CONFIG": str(folder)}


def test_logins_are_found_by_host(tmp_path) -> None:
    auths: dict[str, Any] = {
        "https://one.example.org/v2/": {"auth": base64.b64encode(b"ann:a:b").decode()},
        "two.example.org": {"auth": "%%%", "identitytoken": "t"},
        "three.example.org": {"username": "ann", "password": "plain", "auth": None},
        "elsewhere.example.org": {},
    }
    damaged = json.loads('["%%%", [], {"auth": "%%%"}, {"auth": "aGlkZGVu"}, {"auth": []}, {"password": "hidden"}]')
    auths |= {"null.example.org": None} | {f"{number}.example.org": one for number, one in enumerate(damaged)}
    environment = config(tmp_path, {"auths": auths})
    assert find("one.example.org", environment) == Login("ann", "a:b")
    assert find("two.example.org", environment) == Login(identity_token="t")
    assert find("three.example.org", environment) == Login("ann", "plain")
    for number in range(len(damaged)):
        excuse = f"the login for {number}.example.org in {tmp_path / 'config.json'} cannot be read"
        assert find(f"{number}.example.org", environment) == Login(excuse=excuse)
    assert [find(f"{name}example.org", environment) for name in ("", "elsewhere.", "null.")] == [None] * 3
    assert find("one.example.org", config(tmp_path, dict.fromkeys(("auths", "credsStore", "credHelpers")))) is None
    assert find("one.example.org", {"DOCKER_CONFIG": str(tmp_path / "none")}) is None
    assert "hidden" not in repr(Login("hidden-user", "hidden", "hidden"))


@pytest.fixture
def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return what installs a credential helper with a script."""

    def install(script: str) -> None:
        (tmp_path / "docker-credential-test").write_text(script)
        (tmp_path / "docker-credential-test").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return install


def test_helper_is_asked(tmp_path, helper) -> None:
    helper(
        '#!/bin/sh\nread host\n[ "$host" = one.example.org ] && '
        'echo \'{"Username": "ann", "Secret": "from-helper"}\' && exit\n'
        "echo credentials not found in native keychain\nexit 1\n"
    )
    environment = config(tmp_path, {"credHelpers": {"one.example.org": "test", "two.example.org": "test"}})
    assert find("one.example.org", environment) == Login("ann", "from-helper")
    assert find("two.example.org", environment) is None
    login = find("one.example.org", config(tmp_path, {"credsStore": "absent"}))
    assert login
    assert "not installed" in login.excuse


@rows
def test_output_of_a_failing_helper_is_never_shown(tmp_path, helper, script: str, capfd) -> None:
    helper(script)
    login = find("one.example.org", config(tmp_path, {"credsStore": "test"}))
    assert login
    assert "docker-credential-test" in login.excuse
    assert "hidden" not in f"{login.excuse}{capfd.readouterr()}"
    assert not login.user


def test_configuration_that_is_a_pipe_is_not_waited_for(tmp_path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(InputError, match="pipe"):
        find("one.example.org", {"DOCKER_CONFIG": str(tmp_path)})


def test_broken_configuration_is_the_user_s_to_mend(tmp_path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match=r"config\.json") as caught:
        find("one.example.org", {"DOCKER_CONFIG": str(tmp_path)})
    assert "docker login" in caught.value.hint


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
    return found.content


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_another_port_or_host_is_not_told_the_login(hosts: Hosts, tmp_path: Path, host: str) -> None:
    assert hosts.registry.startswith("127.0.0.1:")
    hosts.challenges(f"http://{host}:{hosts.other.split(':')[1]}", 'Basic realm="x"')
    assert ask(hosts, tmp_path) == b"{}"
    assert hosts.heard == {"registry": ["", f"Basic {LOGIN}"], "other": [""]}


def test_token_stays_with_its_registry(hosts: Hosts, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("says", [f"Basic {LOGIN}", "ann:secret", "ann:secre", LOGIN[:9], "of-the-service"])
def test_answer_that_repeats_a_login_or_token_is_not_shown(says: str, hosts: Hosts, tmp_path: Path) -> None:
    realm = f'Bearer realm="http://{hosts.registry}/service",service="x"'
    token = (200, b'{"token":"of-the-service"}') if says == "of-the-service" else (401, says.encode())
    hosts.rules.on("GET /service", lambda front: front.say(*token))
    hosts.rules.on("GET .*/manifests/", lambda front: front.say(401, says.encode(), WWW_Authenticate=realm))
    with pytest.raises(RegistryRefusedError, match="answered 401") as caught:
        ask(hosts, tmp_path)
    assert says not in str(caught.value)


def test_login_that_a_redirect_repeats_is_not_shown(hosts: Hosts, tmp_path: Path) -> None:
    def echo(front: Front) -> None:
        told = front.headers.get("Authorization", "").removeprefix("Basic ")
        front.say(307 if told else 401, Location=f"ftp://{told.lower()}/x", WWW_Authenticate='Basic realm="x"')

    hosts.rules.on("GET .*/manifests/", echo)
    with pytest.raises(RegistryRefusedError, match="redirects to") as caught:
        ask(hosts, tmp_path)
    assert LOGIN.rstrip("=").lower() not in terminal_text.text(str(caught.value))


def test_identity_token_does_not_follow_to_another_host(hosts: Hosts, tmp_path: Path) -> None:
    bodies: list[bytes] = []

    def elsewhere(front: Front) -> None:
        bodies.append(front.body())
        front.say(200, b'{"token":"t"}')

    hosts.rules.on("POST /service", lambda front: front.say(307, Location=f"http://{hosts.other}/elsewhere"))
    hosts.other_rules.on("/elsewhere", elsewhere)
    hosts.challenges(f"http://{hosts.other}", f'Bearer realm="http://{hosts.registry}/service",service="x"')
    environment = config(tmp_path, {"auths": {hosts.registry: {"identitytoken": "secret"}}})
    with pytest.raises(RegistryRefusedError) as caught:
        Repository(parse(f"{hosts.registry}/team/image"), environment).manifest("one")
    assert caught.value.fault is Reason.BAD_REDIRECT
    assert bodies == []


def test_only_the_registry_s_own_challenge_is_answered(hosts: Hosts, tmp_path: Path) -> None:
    """Where a redirect leads may ask for a login, and name a token service; it is told nothing."""
    realm = f'Bearer realm="http://{hosts.other}/service",service="x"'
    hosts.other_rules.on("GET /blob", lambda front: front.say(401, b"sig=secret", WWW_Authenticate=realm))
    hosts.other_rules.on("GET /service", hosts.keeps)
    hosts.rules.on("GET .*/manifests/", lambda front: front.say(307, Location=f"http://{hosts.other}/blob?sig=secret"))
    with pytest.raises(RegistryRefusedError) as caught:
        ask(hosts, tmp_path)
    assert caught.value.fault is Reason.ACCESS_DENIED
    assert "secret" not in str(caught.value)
    assert caught.value.message.startswith(hosts.other)
    assert caught.value.hint.endswith(f"curl -I http://{hosts.other}")
    assert hosts.heard["other"] == []


def test_token_service_that_gives_no_token_is_named(hosts: Hosts, tmp_path: Path) -> None:
    realm = f'Bearer realm="http://{hosts.other}/service?sig=secret"'
    hosts.other_rules.on("GET /service", lambda front: front.say(200, b'{"secret": 1}'))
    hosts.rules.on("GET .*/manifests/", lambda front: front.say(401, WWW_Authenticate=realm))
    with pytest.raises(RegistryRefusedError, match=f"names http://{hosts.other}/service for a login") as caught:
        ask(hosts, tmp_path)
    assert (caught.value.fault, caught.value.exit_code) == (Reason.BAD_ANSWER, ExitCode.PUBLISH_FAILED)
    assert caught.value.hint.endswith(f"curl -I http://{hosts.other}")
    assert "secret" not in str(caught.value)


@rows
def test_plain_login_stays_on_this_machine(
    hosts: Hosts, tmp_path: Path, realm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on loopback is asked of the token service, not of the registry."""
    hosts.challenges(f"http://{hosts.other}", f'Bearer realm="{realm}",service="x"')
    once = Repository._once
    sent: list[str] = []

    def noted(self: Repository, request: Any, *more: Any) -> Response:
        sent.append(request.url)
        return once(self, request, *more)

    monkeypatch.setattr(Repository, "_once", noted)
    with pytest.raises(RegistryRefusedError) as caught:
        ask(hosts, tmp_path)
    assert caught.value.fault is Reason.BAD_ANSWER
    assert not [address for address in sent if hosts.registry not in address]


@pytest.mark.parametrize(
    "proxy", ["http://ann:b@:", "http://:3128", "http://", ":3128", "http://h:port", "http://[::1"]
)
def test_proxy_without_a_host_is_named(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", proxy)
    with pytest.raises(InfrastructureError, match="HTTPS_PROXY"):
        Repository(parse("registry.example.org/team/image"), {})


def test_challenge_of_a_known_scheme_is_found_between_others() -> None:
    bearer = ("bearer", {"realm": "https://a.b/t", "service": "s"})
    for text in (
        'Negotiate, Bearer realm="https://a.b/t",service="s"',
        'NTLM TlRM==, Bearer realm = "https://a.b/t" , service = "s"',
        'Digest qop="Basic realm=x", BEARER Realm=https://a.b/t, service=s,',
    ):
        assert known_scheme(text) == bearer
    assert known_scheme('Basic realm="a, b", Bearer realm="c"') == ("basic", {"realm": "a, b"})
    for text in ("Negotiate", "", '"\\' * 30_000, "Bearer" + "a" * 60_000, " " * 60_000):
        assert known_scheme(text) == ("", {})


def test_refused_connection_is_unreachable_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    connect = HTTPConnection.connect

    def noted(self: HTTPConnection) -> None:
        tried.append(self.host)
        connect(self)

    monkeypatch.setattr(HTTPConnection, "connect", noted)
    monkeypatch.setattr(client, "PAUSE_S", 0.001)
    with pytest.raises(RegistryFailedError) as caught:
        Repository(parse(f"127.0.0.1:{free_port()}/team/image"), {}).manifest("one")
    assert caught.value.fault is Reason.UNREACHABLE
    assert caught.value.message.endswith("no complete answer: Connection refused")
    assert len(tried) == client.ATTEMPTS
    proxy = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("https_proxy", f"http://ann:hidden@{proxy}")
    with pytest.raises(RegistryFailedError, match=f"through the proxy {proxy}: Connection refused") as caught:
        Repository(parse("registry.example.org/team/image"), {}).manifest("one")
    assert "HTTPS_PROXY" in caught.value.hint
    assert "hidden" not in str(caught.value)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        proxy = f"127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("https_proxy", f"http://ann:hidden@{proxy}")
        repository = Repository(parse("registry.example.org/team/image"), {})
        with pytest.raises(RegistryFailedError, match=f"POST https://.*/one through the proxy {proxy}$"):
            repository.within(0.3, lambda: repository.send("POST", "one", expect=(200,)))  # it is not repeated


DATA = b"".join(b"%d, " % number for number in range(40_000)) * 10
NAME = digest_of(DATA)


@pytest.fixture
def file(tmp_path):
    with (tmp_path / "file").open("w+b") as opened:
        opened.write(DATA)
        yield opened


def test_file_is_sent_from_its_beginning_and_stored_once(file) -> None:
    with modern_registry() as (host, state):
        repository = Repository(parse(f"{host}/team/image"), {})
        repository.upload(NAME, file)
        assert state.blobs[NAME] == DATA
        state.blobs[NAME] = b"stored before"
        repository.upload(NAME, file)
        assert state.blobs[NAME] == b"stored before"


def test_file_is_sent_again_from_its_beginning_when_the_login_expires(tmp_path, file, monkeypatch) -> None:
    with modern_registry(user="name:secret") as (host, state):
        repository = Repository(parse(f"{host}/team/image"), login(tmp_path, host, "name:secret"))
        send = repository.send
        put: list[str] = []

        def expiring(method: str, path: str, **given: Any) -> Any:
            if method == "PUT":
                put.append(path)
                state.tokens.clear()
            return send(method, path, **given)

        monkeypatch.setattr(repository, "send", expiring)
        repository.upload(NAME, file)
        assert len(put) == 1
        assert {query["scope"][0] for query in state.asked} == {"repository:team/image:pull,push"}
        assert len(state.asked) <= 3
        assert state.blobs == {NAME: DATA}
