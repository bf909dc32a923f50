"""Bases: what is here, else from the registry or its mirror, else bootstrapped, else an error; and room for a build."""

import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from fake_engine import FakeEngine
from table_rows import rows

from envbuilder.catalog.store import load
from envbuilder.errors import BaseUnavailableError, InfrastructureError, UsageError
from envbuilder.image import debian
from envbuilder.image.bases import NEEDED, ask_for_room, ensure_base, fetched, sources
from envbuilder.image.host_settings import mirrors
from envbuilder.image.names import BASE_FROM_LABEL, BASE_KEY_LABEL

BOOKWORM = next(row for row in load().systems if row.name == "debian-bookworm")


def test_cached_root_file_system_is_imported_again(tmp_path: Path) -> None:
    key = debian.recipe("bookworm")
    stem = tmp_path / f"debian-bookworm-{key[:12]}"
    stem.with_suffix(".tar").write_bytes(b"root")
    stem.with_suffix(".txt").write_text("signed packages of bookworm")
    engine = FakeEngine()
    base = ensure_base(engine, BOOKWORM, tmp_path, lambda _: None)
    image = engine.image(base.reference)
    assert image.labels == {BASE_KEY_LABEL: key, BASE_FROM_LABEL: "signed packages of bookworm"}


def mirror(folder: Path, monkeypatch: pytest.MonkeyPatch, content: str, end: str = "") -> None:
    program = folder / "mmdebstrap"
    program.write_text(f'#!/bin/sh\nfor word; do case $word in *.part) echo {content} > "$word";; esac; done\n{end}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_bootstrapped_base_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    engine = FakeEngine()
    mirror(tmp_path, monkeypatch, "monday")
    first = ensure_base(engine, BOOKWORM, tmp_path / "cache", said.append)
    assert ensure_base(engine, BOOKWORM, tmp_path / "cache", said.append, renew=True) == first
    assert said[-1] == "no package has changed"
    mirror(tmp_path, monkeypatch, "tuesday")
    assert ensure_base(engine, BOOKWORM, tmp_path / "cache", said.append) == first
    renewed = ensure_base(engine, BOOKWORM, tmp_path / "cache", said.append, renew=True)
    assert renewed.id != first.id
    assert ensure_base(engine, BOOKWORM, tmp_path / "cache", pytest.fail) == renewed


def test_registry_base_that_cannot_be_renewed_is_said_to_be(tmp_path: Path) -> None:
    image = replace(FakeEngine().add("debian:bookworm-slim"), digests=(f"debian@{DIGEST}",))
    engine = FakeEngine(registry={"debian:bookworm-slim": image})
    ensure_base(engine, BOOKWORM, tmp_path, lambda _: None)
    engine.registry.clear()
    with pytest.raises(InfrastructureError, match="cannot be renewed") as caught:
        ensure_base(engine, BOOKWORM, tmp_path, lambda _: None, renew=True)
    assert "without --pull" in caught.value.hint


def test_old_recipes_base_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    engine = FakeEngine()
    engine.add("envbuilder/base:debian-bookworm", b"root", {BASE_KEY_LABEL: "of an older recipe"})
    with pytest.raises(BaseUnavailableError, match=r"registry: .*\n.*bootstrap: mmdebstrap is not installed") as caught:
        ensure_base(engine, BOOKWORM, tmp_path / "cache", lambda _: None)
    assert "no such host" in caught.value.message
    assert "apt-get install mmdebstrap" in caught.value.hint


def test_system_other_than_debian_cannot_be_bootstrapped(tmp_path: Path) -> None:
    ubuntu = msgspec.structs.replace(BOOKWORM, name="ubuntu-22.04", image="ubuntu:22.04", suite="")
    with pytest.raises(InfrastructureError, match="only come from a registry") as caught:
        ensure_base(FakeEngine(), ubuntu, tmp_path, lambda _: None)
    assert "docker pull ubuntu:22.04" in caught.value.hint


def test_failed_bootstrap_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror(tmp_path, monkeypatch, "half", "echo E: no key; exit 1")
    with pytest.raises(InfrastructureError, match="E: no key"):
        debian.bootstrap("bookworm", tmp_path / "cache" / "root.tar", lambda _: None)
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("room", [0, 1 << 60])
def test_tree_is_in_memory_where_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    mirror(tmp_path, monkeypatch, "$TMPDIR")
    monkeypatch.setattr("envbuilder.workspace._MEMORY", tmp_path / "memory")
    monkeypatch.setattr(debian, "_ROOM", room)
    (tmp_path / "memory").mkdir()
    debian.bootstrap("bookworm", tmp_path / "root.tar", lambda _: None)
    assert (tmp_path / "root.tar").read_text().startswith(str(tmp_path / "memory")) == (room == 0)
    assert list((tmp_path / "memory").iterdir()) == []


DIGEST = "sha256:" + "d" * 64


@pytest.fixture(autouse=True)
def no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("TF_ENVBUILDER_MIRRORS", raising=False)
    return tmp_path / "config/envbuilder/config.toml"


@rows
def test_images_come_from_the_mirror(reference: str, mirrored: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_ENVBUILDER_MIRRORS", "docker.io=mirror.example.org:5000/hub")
    assert sources(reference) == ((mirrored, reference) if mirrored else (reference,))


def test_variable_outranks_the_file(no_configuration: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_configuration.parent.mkdir(parents=True)
    no_configuration.write_text('[mirrors]\n"docker.io" = "a.example.org"\n"quay.io" = "b.example.org/quay"\n')
    assert mirrors() == {"docker.io": "a.example.org", "quay.io": "b.example.org/quay"}
    monkeypatch.setenv("TF_ENVBUILDER_MIRRORS", "docker.io=c.example.org")
    assert mirrors()["docker.io"] == "c.example.org"
    monkeypatch.setenv("TF_ENVBUILDER_MIRRORS", "docker.io=")
    with pytest.raises(UsageError, match="TF_ENVBUILDER_MIRRORS"):
        mirrors()


def test_base_from_a_mirror_is_named_by_its_digest_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_ENVBUILDER_MIRRORS", "docker.io=mirror.example.org")
    name = "mirror.example.org/library/debian:bookworm-slim"
    pinned = f"mirror.example.org/library/debian@{DIGEST}"
    engine = FakeEngine(registry={name: replace(FakeEngine().add(name), digests=(pinned,))})
    said: list[str] = []
    base = ensure_base(engine, BOOKWORM, tmp_path, said.append)
    assert (base.reference, base.origin) == (pinned, "registry")
    assert said == [f"pulling {name}"]
    engine.registry.clear()
    assert ensure_base(engine, BOOKWORM, tmp_path, pytest.fail) == base


def test_mirror_that_lacks_an_image_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_ENVBUILDER_MIRRORS", "docker.io=mirror.example.org")
    engine = FakeEngine(registry={"team/image:1": FakeEngine().add("team/image:1")})
    assert fetched(engine, "team/image:1", lambda _: None).id
    with pytest.raises(InfrastructureError, match=r"mirror.example.org/team/image:2: .*; .* team/image:2"):
        fetched(engine, "team/image:2", lambda _: None)


def test_digest_that_the_registry_lacks_is_answered_with_the_command_that_prints_one() -> None:
    class Answering(FakeEngine):
        def reach(self, reference: str) -> None:
            raise InfrastructureError(
                f"the engine could not reach {reference}: manifest unknown", hint="docker version"
            )

    with pytest.raises(InfrastructureError, match=f"the registry has no image reg.example.org/corp@{DIGEST}") as error:
        fetched(Answering(), f"reg.example.org/corp@{DIGEST}", lambda _: None)
    assert error.value.hint == "copy the digest from `envbuilder catalog inspect reg.example.org/corp:TAG`"


@pytest.mark.parametrize(
    ("free", "end"), [(NEEDED["cpu"], ""), (NEEDED["cpu"] - 1, "warning"), (NEEDED["cpu"] // 8 - 1, "error")]
)
def test_less_room_warns_and_almost_none_is_an_error(
    free: int, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    with pytest.raises(InfrastructureError) if end == "error" else nullcontext() as refused:
        ask_for_room("tf-cpu", NEEDED["cpu"], FakeEngine(root=str(tmp_path)))
    text = str(refused.value) if refused else capsys.readouterr().err
    assert ("needs about 4 GB" in text) == ("envbuilder clean --cache" in text) == bool(end)


@pytest.mark.parametrize("root", ["", "/nonexistent/docker"])
def test_nothing_is_claimed_of_a_disk_elsewhere(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    ask_for_room("tf-cpu", 1 << 60, FakeEngine(root=root))
    assert capsys.readouterr().err == ""
