"""One time for what a step installed: nothing but times changes, and Python still takes its byte code."""

from __future__ import annotations

import io
import os
import py_compile
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from envbuilder.engine.archive import MODIFIED
from envbuilder.probes import settle


def packed(folder: Path) -> bytes:
    """Write a folder as an engine writes a layer: sorted, with times and contents, from wherever it lies."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            archive.add(path, path.relative_to(folder), recursive=False)
    return out.getvalue()


def installed(folder: Path) -> Path:
    """Install a module with its byte code, a link and an empty folder, at this moment; return the folder."""
    (folder / "empty").mkdir(parents=True)
    source = folder / "one.py"
    source.write_text("answer = 42\n")
    os.utime(source, (time.time() - len(folder.name),) * 2)
    py_compile.compile(str(source), dfile="/opt/one.py", cfile=cached(folder), doraise=True)
    (folder / "link").symlink_to("one.py")
    (folder / "loop").symlink_to("empty")
    return folder


def cached(folder: Path) -> str:
    """Name the module's byte code."""
    return str(folder / "__pycache__" / f"one.{sys.implementation.cache_tag}.pyc")


def test_the_same_files_become_the_same_layer(tmp_path: Path) -> None:
    """Two installations at different moments differ before, and not after; what is settled is not touched again."""
    first, second = installed(tmp_path / "a"), installed(tmp_path / "later")
    assert packed(first) != packed(second)
    assert settle.settle(str(first)) == settle.settle(str(second)) == 7
    assert packed(first) == packed(second)
    assert settle.settle(str(first)) == 0
    assert settle.SETTLED == MODIFIED, "as the files of a base and of a build's context"


def test_python_takes_the_byte_code_and_does_not_write_it_anew(tmp_path: Path) -> None:
    """Its header names the source's new time: a module is loaded from it, with no compiler at hand."""
    folder = installed(tmp_path / "a")
    settle.settle(str(folder))
    before = Path(cached(folder)).read_bytes()
    done = subprocess.run(
        [sys.executable, "-v", "-c", "import one; print(one.answer)"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "42\n"
    assert "code object from" in done.stderr
    assert "matches" in done.stderr
    assert Path(cached(folder)).read_bytes() == before


@pytest.mark.parametrize("how", ["stale", "short", "hashed", "alone"])
def test_byte_code_that_is_not_of_its_source_does_not_become_so(tmp_path: Path, how: str) -> None:
    """Of an older source, cut short, held to a digest, or without a source: its content stays as it is."""
    folder = installed(tmp_path / "a")
    code = Path(cached(folder))
    if how == "stale":
        (folder / "one.py").write_text("answer = 43, which is longer\n")
    elif how == "short":
        code.write_bytes(code.read_bytes()[:9])
    elif how == "hashed":
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        py_compile.compile(str(folder / "one.py"), cfile=str(code), invalidation_mode=mode, doraise=True)
    else:
        (folder / "one.py").unlink()
    before = code.read_bytes()
    settle.settle(str(folder))
    assert code.read_bytes() == before
    assert code.stat().st_mtime == settle.SETTLED


def test_the_program_settles_a_folder_and_further_places(tmp_path: Path) -> None:
    """Places beside are settled alone, not what is in them; one that is not there is none; links stay links."""
    folder, beside = installed(tmp_path / "a"), installed(tmp_path / "beside")
    assert settle.main([str(folder), str(beside), str(tmp_path / "gone")]) == 0
    assert beside.stat().st_mtime == settle.SETTLED
    assert (beside / "one.py").stat().st_mtime != settle.SETTLED
    assert (folder / "link").lstat().st_mtime == settle.SETTLED
    assert (folder / "link").is_symlink()
