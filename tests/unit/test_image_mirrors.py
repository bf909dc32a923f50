"""Mirrors of registries: which names an image has at them, and what is no mirror."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_engine import FakeEngine

from envbuilder.catalog.store import load
from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.image.bases import ensure_base, fetched, sources
from envbuilder.image.user_config import mirrors

DIGEST = "sha256:" + "d" * 64
HUB = {"ENVBUILDER_MIRRORS": "docker.io=mirror.example.org:5000/hub"}


@pytest.fixture(autouse=True)
def no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("ENVBUILDER_MIRRORS", raising=False)
    HUB["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    return tmp_path / "config/envbuilder/config.toml"


@pytest.mark.parametrize(
    ("reference", "mirrored"),
    [
        ("debian:bookworm-slim", "mirror.example.org:5000/hub/library/debian:bookworm-slim"),
        ("debian", "mirror.example.org:5000/hub/library/debian"),
        (f"debian@{DIGEST}", f"mirror.example.org:5000/hub/library/debian@{DIGEST}"),
        ("nvidia/cuda:11.8.0-base-ubuntu22.04", "mirror.example.org:5000/hub/nvidia/cuda:11.8.0-base-ubuntu22.04"),
        ("docker.io/nvidia/cuda:1", "mirror.example.org:5000/hub/nvidia/cuda:1"),
        ("quay.io/team/image:1", None),
        ("localhost/team/image:1", None),
        ("127.0.0.1:5000/image", None),
    ],
)
def test_a_registry_s_images_are_had_from_its_mirror(reference: str, mirrored: str | None) -> None:
    """A mirror's names come first and the registry's own after; official images are in `library` there."""
    assert sources(reference, HUB) == ((mirrored, reference) if mirrored else (reference,))


def test_the_variable_outranks_the_file(no_configuration: Path) -> None:
    no_configuration.parent.mkdir(parents=True)
    no_configuration.write_text('[mirrors]\n"docker.io" = "a.example.org"\n"quay.io" = "b.example.org/quay"\n')
    environ = {"XDG_CONFIG_HOME": str(no_configuration.parents[1])}
    assert mirrors(environ) == {"docker.io": "a.example.org", "quay.io": "b.example.org/quay"}
    assert mirrors({**environ, "ENVBUILDER_MIRRORS": "docker.io=c.example.org"})["docker.io"] == "c.example.org"


@pytest.mark.parametrize(
    "text",
    [
        '[mirrors]\n"docker.io" = 5\n',
        '[mirrors]\n"docker.io" = "https://mirror.example.org"\n',
        '[mirrors]\n"docker.io" = "user:secret@mirror.example.org"\n',
        '[mirrors]\n"docker.io" = "mirror.example.org/../x"\n',
        '[mirrors]\n"https://docker.io" = "mirror.example.org"\n',
        "mirrors = 5\n",
        "mirrors = [\n",
        "\x00",
    ],
)
def test_what_is_no_mirror_is_refused_with_its_place(text: str, no_configuration: Path) -> None:
    no_configuration.parent.mkdir(parents=True)
    no_configuration.write_text(text)
    with pytest.raises(UsageError, match=r"config\.toml"):
        mirrors({"XDG_CONFIG_HOME": str(no_configuration.parents[1])})
    with pytest.raises(UsageError, match="ENVBUILDER_MIRRORS"):
        mirrors({"ENVBUILDER_MIRRORS": "docker.io=", "XDG_CONFIG_HOME": "/nowhere"})


def test_a_base_comes_from_the_mirror_and_is_named_by_its_digest_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENVBUILDER_MIRRORS", "docker.io=mirror.example.org")
    name = "mirror.example.org/library/debian:bookworm-slim"
    pinned = f"mirror.example.org/library/debian@{DIGEST}"
    engine = FakeEngine(registry={name: replace(FakeEngine().add(name), digests=(pinned,))})
    system = load().system("debian-bookworm")
    assert system is not None
    said: list[str] = []
    base = ensure_base(engine, system, tmp_path, said.append)
    assert (base.reference, base.origin) == (pinned, "registry")
    assert said == [f"pulling {name}"]
    assert ensure_base(engine, system, tmp_path, pytest.fail) == base


def test_a_mirror_that_lacks_an_image_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENVBUILDER_MIRRORS", "docker.io=mirror.example.org")
    engine = FakeEngine(registry={"team/image:1": FakeEngine().add("team/image:1")})
    assert fetched(engine, "team/image:1", lambda _: None).id
    with pytest.raises(InfrastructureError, match=r"mirror.example.org/team/image:2: .*; .* team/image:2"):
        fetched(engine, "team/image:2", lambda _: None)
