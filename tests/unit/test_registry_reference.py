"""References and credentials: what names an image, and where logins come from."""

from __future__ import annotations

import base64
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuilder.errors import EnvbuilderError, InputError, PublishError, UsageError
from envbuilder.registry.credentials import Login, find
from envbuilder.registry.reference import parse

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
def test_a_reference_is_read_whole(text, host, repository, tag, digest) -> None:
    found = parse(text)
    assert (found.host, found.repository, found.tag, found.digest) == (host, repository, tag, digest)


@pytest.mark.parametrize(
    "text",
    [
        "image", "team/image", "registry.example.org", "registry.example.org/", "registry.example.org/Team/image",
        "registry.example.org/a:", "registry.example.org/a@sha256:12", "registry.example.org/a@", "-x.y/a", "a.b/c d",
        "registry.example.org/../a", "registry.example.org/a:b\n", "http://registry.example.org/a",
    ],
)  # fmt: skip
def test_no_host_is_assumed_and_nothing_is_guessed(text) -> None:
    with pytest.raises(UsageError):
        parse(text)


@given(st.text(max_size=60))
def test_any_text_is_a_reference_or_a_usage_error(text) -> None:
    try:
        found = parse(text)
    except EnvbuilderError:
        return
    assert parse(str(found)).name == found.name


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1:5000", True), ("127.1.2.3", True), ("localhost:80", True), ("[::1]:5000", True),
     ("10.0.0.1:5000", False), ("localhost.example.org", False), ("127.0.0.1.example.org", False)],
)  # fmt: skip
def test_only_this_machine_is_loopback(host, loopback) -> None:
    assert parse(f"{host}/a").loopback is loopback


def test_a_tag_is_checked_before_it_is_used() -> None:
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
    encoded = base64.b64encode(b"ann:a:b").decode()
    environment = config(
        tmp_path,
        {"auths": {"https://one.example.org/v2/": {"auth": encoded}, "two.example.org": {"identitytoken": "t"}}},
    )
    assert find("one.example.org", environment) == Login("ann", "a:b")
    assert find("two.example.org", environment) == Login(identity_token="t")
    assert find("example.org", environment) is None
    assert find("one.example.org", {"DOCKER_CONFIG": str(tmp_path / "none")}) is None


def test_a_password_is_never_printed() -> None:
    assert "hidden" not in repr(Login("hidden-user", "hidden", "hidden"))


def test_a_helper_is_asked(tmp_path, monkeypatch) -> None:
    helper = tmp_path / "docker-credential-test"
    helper.write_text(
        '#!/bin/sh\nread host\n[ "$host" = one.example.org ] || exit 1\n'
        'echo \'{"Username": "ann", "Secret": "from-helper"}\'\n'
    )
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    environment = config(tmp_path, {"credHelpers": {"one.example.org": "test", "two.example.org": "test"}})
    assert find("one.example.org", environment) == Login("ann", "from-helper")
    assert find("two.example.org", environment) is None


FAILING = {
    "says why": ("#!/bin/sh\necho 'the keychain is locked' >&2\nexit 1\n", "locked"),
    "says it with escapes": ("#!/bin/sh\nprintf '\\033[2Jlocked'\nexit 1\n", "locked"),
    "crashes": ("#!/bin/sh\nkill -9 $$\n", "exited with"),
    "cannot be run": ("#!/nonexistent\n", "exited with 127"),
    "answers null": ("#!/bin/sh\necho null\n", "not a login"),
    "answers another shape": ("#!/bin/sh\necho '{\"Username\": 5}'\n", "not a login"),
}


@pytest.mark.parametrize(("script", "says"), FAILING.values(), ids=FAILING.keys())
def test_a_helper_that_fails_is_no_helper_without_a_login(tmp_path, monkeypatch, script: str, says: str) -> None:
    helper = tmp_path / "docker-credential-test"
    helper.write_text(script)
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    login = find("one.example.org", config(tmp_path, {"credsStore": "test"}))
    assert login
    assert says in login.excuse
    assert "\x1b" not in login.excuse
    assert not login.user


def test_a_helper_may_keep_no_login(tmp_path, monkeypatch) -> None:
    """Docker's own words for that are no failure."""
    helper = tmp_path / "docker-credential-test"
    helper.write_text("#!/bin/sh\necho 'credentials not found in native keychain'\nexit 1\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert find("one.example.org", config(tmp_path, {"credsStore": "test"})) is None


def test_a_configuration_that_is_a_pipe_is_not_waited_for(tmp_path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(InputError, match="pipe"):
        find("one.example.org", {"DOCKER_CONFIG": str(tmp_path)})


@pytest.mark.parametrize("name", ["absent", "../../bin/sh", "a b", "$(id)"])
def test_a_helper_that_is_not_there_is_named(tmp_path, name) -> None:
    with pytest.raises(PublishError, match="credential helper"):
        find("one.example.org", config(tmp_path, {"credsStore": name}))


def test_a_broken_configuration_is_the_user_s_to_mend(tmp_path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match=r"config\.json") as caught:
        find("one.example.org", {"DOCKER_CONFIG": str(tmp_path)})
    assert "docker login" in caught.value.hint
