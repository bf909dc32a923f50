"""The one C compile: what decides whether the cache serves."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from envbuilder.errors import InfrastructureError
from envbuilder.simulated.compiler import LIBRARIES
from envbuilder.simulated.shared_library import Libraries, Library, compiled

pytestmark = pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="no C compiler")

STUB = Libraries(
    "stub", "a stub", "envbuilder.simulated", {"libone.so": Library(("stub.c",), "libone.so")}, LIBRARIES.headers
)


def test_cache_serves_the_same_and_nothing_else(tmp_path: Path) -> None:
    first = compiled(STUB, tmp_path)
    (folder,) = tmp_path.iterdir()
    (folder / "libone.so").write_bytes(b"from the cache")
    assert compiled(STUB, tmp_path) == {"libone.so": b"from the cache"}
    named = replace(STUB, members={"libone.so": Library(("stub.c",), soname="libother.so")})
    linked = replace(
        STUB, members={"libone.so": Library(("stub.c",), soname="libone.so", links=("-Wl,--no-as-needed",))}
    )
    assert b"libother.so" in compiled(named, tmp_path)["libone.so"]
    assert b"libother.so" not in first["libone.so"]
    assert compiled(linked, tmp_path)["libone.so"] != b"from the cache"
    assert len(list(tmp_path.iterdir())) == 3
    assert all(path.name.startswith("stub-") for path in tmp_path.iterdir()), "no half-made folder is left"


def test_who_cannot_be_compiled_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    with pytest.raises(InfrastructureError, match="could not compile a stub"):
        compiled(STUB, tmp_path)
    assert list(tmp_path.iterdir()) == []
