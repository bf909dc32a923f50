"""Where a library looks for the CUDA wheels, and what a release does not find by itself."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuilder.catalog import store
from envbuilder.catalog.rows import Search
from envbuilder.catalog.runpath import Watch, finds_cuda, folder_of, loader_folders, unfound
from envbuilder.probes.suite.elf import Elf

OPENED = ("libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12", "libcusolver.so.11", "libcudnn.so.9")
ALL = ("cublas", "cuda_runtime", "cudnn", "cusolver")
ENTRY = b"\0$ORIGIN/:" + b":".join(b"$ORIGIN/../nvidia/%s/lib" % name.encode() for name in ALL) + b"\0"


def searches(*names: str, others: tuple[str, ...] = ALL) -> tuple[Search, ...]:
    opener = Search(object="libtensorflow_framework.so.2", folders=names)
    return (Search(object="libtensorflow_cc.so.2", folders=others), opener)


def folders(pieces: Iterable[bytes]) -> tuple[str, ...]:
    """Watch pieces until the RUNPATH has gone by."""
    watch = Watch()
    for _ in watch.over(pieces):
        if watch.folders is not None:
            break
    return watch.folders or ()


@given(before=st.binary(max_size=300), size=st.integers(1, 200))
def test_folders_are_found_however_the_file_is_cut(before: bytes, size: int) -> None:
    """Every folder of a RUNPATH is noted, and the pieces pass unchanged."""
    content = before.replace(b"$", b"") + ENTRY
    watch = Watch()
    passed = list(watch.over(content[at : at + size] for at in range(0, len(content), size)))
    assert b"".join(passed) == content
    assert watch.folders == ALL


def test_the_first_runpath_is_the_files_own() -> None:
    """A text of this form further on is the program's, and what is half there is not taken for the whole."""
    watch = Watch()
    later = b"..$ORIGIN/../nvidia/nccl/lib\0"
    for _ in watch.over([ENTRY[:60], ENTRY[60:-1]]):
        assert watch.folders is None
    for _ in watch.over([ENTRY + later]):
        assert watch.folders == ALL


def test_a_library_is_read_no_further_than_its_runpath() -> None:
    """What comes after the RUNPATH is not asked for; a file without one is read to its end and names nothing."""
    left = iter([ENTRY, b"never read"])
    assert folders(left) == ALL
    assert next(left) == b"never read"
    assert folders([b"\x7fELF", b"no such text"]) == ()


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
@pytest.mark.parametrize("tags", ["--enable-new-dtags", "--disable-new-dtags"])
def test_a_linkers_library_is_read_as_its_dynamic_section_says(tmp_path: Path, tags: str) -> None:
    """The text that is found in the bytes is the one that the dynamic section of a real library points at."""
    made = tmp_path / "libmade.so"
    path = "$ORIGIN/:$ORIGIN/../nvidia/cudnn/lib:$ORIGIN/../nvidia/cublas/lib"
    source = 'const char *said(void) { return "$ORIGIN/../nvidia/nccl/lib"; }'
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(made), f"-Wl,-rpath,{path}", f"-Wl,{tags}"]
    subprocess.run(command, input=source.encode(), check=True)
    read = Elf(str(made))
    assert read.runpath + read.rpath == path.split(":")
    assert folders([made.read_bytes()]) == ("cublas", "cudnn")


def test_where_a_build_finds_cuda_follows_from_the_library_that_opens_it() -> None:
    """What other libraries look into does not count: all, none, the run time alone (2.16.1), all but some (2.21.0)."""
    assert finds_cuda(OPENED, searches(*ALL, "nccl", others=())) == "wheels"
    assert finds_cuda(OPENED, searches("nccl")) == "system"
    assert finds_cuda(OPENED, ()) == "system"
    assert finds_cuda(OPENED, searches("cuda_runtime")) == "unfindable"
    assert finds_cuda(OPENED, searches("cublas", "cuda_runtime", "cudnn", others=("cusolver",))) == "partly"
    assert finds_cuda((), searches(*ALL)) is None


def test_what_is_not_found_is_counted_by_library() -> None:
    """Two libraries of one wheel are both missed where its folder is, and nothing else is."""
    assert unfound(OPENED, searches("cuda_runtime", "cudnn", "cusolver")) == ("libcublas.so.12", "libcublasLt.so.12")
    assert [folder_of(soname) for soname in OPENED] == ["cuda_runtime", "cublas", "cublas", "cusolver", "cudnn"]


@pytest.mark.parametrize(
    ("version", "told"),
    [("2.13.1", ("*",)), ("2.14.1", ()), ("2.16.1", ("*",)), ("2.16.2", ()), ("2.20.0", ()), ("2.21.0", ("cusolver",))],
)
def test_the_loader_is_told_of_just_what_a_release_does_not_find(version: str, told: tuple[str, ...]) -> None:
    """Every folder where a release looks into none of the wheels, and only those that it leaves out otherwise."""
    release = store.load().release(version)
    assert release is not None
    assert loader_folders(release) == told
