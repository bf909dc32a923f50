"""Which base an image gets: what is here, else the registry's, else bootstrapped, else a clear error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from fake_engine import FakeEngine

from envbuilder.catalog.rows import OperatingSystem
from envbuilder.errors import InfrastructureError
from envbuilder.image import debian
from envbuilder.image.bases import BaseUnavailableError, ensure_base
from envbuilder.image.names import BASE_FROM_LABEL, BASE_KEY_LABEL

BOOKWORM = OperatingSystem(
    name="debian-bookworm",
    short="bookworm",
    python="3.11",
    glibc="2.36",
    image="debian:bookworm-slim",
    suite="bookworm",
    source=(),
    verified="",
)


def published() -> FakeEngine:
    other = FakeEngine()
    image = replace(other.add("debian:bookworm-slim", b"root"), digests=("debian@sha256:" + "a" * 64,))
    return FakeEngine(registry={"debian:bookworm-slim": image})


def test_a_registry_base_is_pinned_by_digest(tmp_path: Path) -> None:
    said: list[str] = []
    engine = published()
    first = ensure_base(engine, BOOKWORM, tmp_path, said.append)
    engine.registry.clear()
    assert first.reference == "debian@sha256:" + "a" * 64
    assert first.origin == "registry"
    assert ensure_base(engine, BOOKWORM, tmp_path, pytest.fail) == first
    assert said == ["pulling debian:bookworm-slim"]


def test_our_own_base_is_used_as_it_is(tmp_path: Path) -> None:
    engine = FakeEngine()
    image = engine.add("envbuilder/base:debian-bookworm", b"root", {BASE_KEY_LABEL: debian.recipe("bookworm")})
    base = ensure_base(engine, BOOKWORM, tmp_path, pytest.fail)
    assert (base.reference, base.id, base.origin) == ("envbuilder/base:debian-bookworm", image.id, "bootstrapped")


def test_a_cached_root_file_system_is_imported_again(tmp_path: Path) -> None:
    """An engine that lost the image gets the cached bytes, without a bootstrap."""
    key = debian.recipe("bookworm")
    stem = tmp_path / f"debian-bookworm-{key[:12]}"
    stem.with_suffix(".tar").write_bytes(b"root")
    stem.with_suffix(".txt").write_text("signed packages of bookworm")
    engine = FakeEngine()
    base = ensure_base(engine, BOOKWORM, tmp_path, lambda _: None)
    image = engine.image(base.reference)
    assert image is not None
    assert image.labels == {BASE_KEY_LABEL: key, BASE_FROM_LABEL: "signed packages of bookworm"}


def mirror(folder: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    program = folder / "mmdebstrap"
    program.write_text(f'#!/bin/sh\nfor word; do case $word in *.part) echo {content} > "$word";; esac; done\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_a_bootstrapped_base_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked to renew, the packages of today are taken; where they are the same, so is the base."""
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


def test_a_registry_base_that_cannot_be_renewed_is_said_to_be(tmp_path: Path) -> None:
    """Where the registry is gone, renewing fails instead of quietly changing to another kind of base."""
    engine = published()
    ensure_base(engine, BOOKWORM, tmp_path, lambda _: None)
    engine.registry.clear()
    with pytest.raises(InfrastructureError, match="cannot be renewed") as caught:
        ensure_base(engine, BOOKWORM, tmp_path, lambda _: None, renew=True)
    assert "without --pull" in caught.value.hint


def test_an_old_recipes_base_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    engine = FakeEngine()
    engine.add("envbuilder/base:debian-bookworm", b"root", {BASE_KEY_LABEL: "of an older recipe"})
    with pytest.raises(BaseUnavailableError, match=r"registry: .*\n.*bootstrap: mmdebstrap is not installed") as caught:
        ensure_base(engine, BOOKWORM, tmp_path / "cache", lambda _: None)
    assert caught.value.system == "debian-bookworm"
    assert "no such host" in caught.value.registry
    assert caught.value.bootstrap.startswith("mmdebstrap is not installed")
    assert "apt-get install mmdebstrap" in caught.value.hint


def test_what_is_not_debian_cannot_be_bootstrapped(tmp_path: Path) -> None:
    ubuntu = msgspec.structs.replace(BOOKWORM, name="ubuntu-22.04", image="ubuntu:22.04", suite="")
    with pytest.raises(InfrastructureError, match="only come from a registry") as caught:
        ensure_base(FakeEngine(), ubuntu, tmp_path, lambda _: None)
    assert "docker pull ubuntu:22.04" in caught.value.hint


def test_a_failed_bootstrap_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "mmdebstrap"
    program.write_text(
        '#!/bin/sh\nfor word; do case $word in *.part) echo half > "$word";; esac; done\necho E: no key; exit 1\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(InfrastructureError, match="E: no key"):
        debian.bootstrap("bookworm", tmp_path / "cache" / "root.tar", lambda _: None)
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_recipe_names_its_suite() -> None:
    assert debian.recipe("bookworm") != debian.recipe("trixie")
