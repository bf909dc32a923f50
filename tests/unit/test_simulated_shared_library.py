"""Libraries are compiled once for each set of sources, options and compiler."""

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


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({"CC": "false"}, "could not compile a stub"),
        ({"CC": "FOLDER/broken"}, "no such target"),
        ({"CC": "", "PATH": "FOLDER"}, "no C compiler(.|\n)*gcc"),
    ],
    ids=["fails", "fails with a text", "missing"],
)
def test_compiler_that_fails_is_named(
    variables: dict[str, str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\n[ $1 = --version ] || { echo no such target >&2; exit 1; }\n")
    broken.chmod(0o755)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.replace("FOLDER", str(tmp_path)))
    with pytest.raises(InfrastructureError, match=why):
        compiled(STUB, tmp_path / "cache")
    assert not any((tmp_path / "cache").glob("*"))
