"""Which folders of the CUDA wheels a library searches, and which ones the loader has to be told."""

from __future__ import annotations

import msgspec
import pytest

from envbuilder.catalog import store
from envbuilder.catalog.library_search import (
    WHEEL_FOLDERS,
    finds_cuda,
    folder_of,
    loader_folders,
    unfound,
    unsearched,
)
from envbuilder.catalog.rows import Search, TensorflowRelease

OPENED = ("libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12", "libcusolver.so.11", "libcudnn.so.9")
ALL = ("cublas", "cuda_runtime", "cudnn", "cusolver")


def searches(*names: str, others: tuple[str, ...] = ALL) -> tuple[Search, ...]:
    opener = Search(object="libtensorflow_framework.so.2", folders=names)
    return (Search(object="libtensorflow_cc.so.2", folders=others), opener)


def test_where_a_build_finds_cuda_depends_on_the_opener_only() -> None:
    """All folders, none, only the run time (2.16.1), all except some (2.21.0)."""
    assert finds_cuda(OPENED, searches(*ALL, "nccl", others=())) == "wheels"
    assert finds_cuda(OPENED, searches("nccl")) == "system"
    assert finds_cuda(OPENED, ()) == "system"
    assert finds_cuda(OPENED, searches("cuda_runtime")) == "unfindable"
    assert finds_cuda(OPENED, searches("cublas", "cuda_runtime", "cudnn", others=("cusolver",))) == "partly"
    assert finds_cuda((), searches(*ALL)) is None


def test_unfound_lists_every_library_of_a_folder() -> None:
    assert unfound(OPENED, searches("cuda_runtime", "cudnn", "cusolver")) == ("libcublas.so.12", "libcublasLt.so.12")
    assert [folder_of(soname) for soname in OPENED] == ["cuda_runtime", "cublas", "cublas", "cusolver", "cudnn"]


def row(openers: tuple[str, ...], folders: tuple[str, ...]) -> TensorflowRelease:
    return msgspec.structs.replace(
        store.load().releases("tensorflow")[-1],
        finds_cuda="wheels",
        openers=openers,
        searches=(
            Search(object="libtensorflow_framework.so.2", folders=folders),
            Search(object="libtensorflow_cc.so.2", folders=("cuda_cupti", "nvshmem", "cuda_nvrtc")),
        ),
    )


def test_unsearched_needs_a_function_a_wheel_and_no_entry() -> None:
    wheels = ("nvidia-cuda-cupti-cu12==12.5.82", "nvidia-nvshmem-cu12<4,>=3.2.5", "nvidia-cublas-cu12==12.5.3.2")
    assert unsearched(row(("Cublas", "Cupti", "Nvshmem"), ("cublas",)), wheels) == ("cuda_cupti", "nvshmem")
    assert unsearched(row(("Cublas", "Cupti"), ("cublas",)), wheels) == ("cuda_cupti",)
    assert unsearched(row(("Cublas", "Cupti"), ("cublas", "cuda_cupti")), wheels) == ()
    assert unsearched(row(("Cupti", "Nvrtc", "CudaDriver", "NvInfer", "Unheard"), ()), wheels[1:]) == ()


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.13.1", ("*",)),
        ("2.14.1", ("cuda_cupti",)),
        ("2.15.1", ("cuda_cupti",)),
        ("2.16.1", ("*",)),
        ("2.16.2", ("cuda_cupti",)),
        ("2.18.1", ("cuda_cupti",)),
        ("2.19.1", ("cuda_cupti",)),
        ("2.20.0", ()),
        ("2.21.0", ("cusolver",)),
        ("2.22.0rc0", ("cuda_nvrtc",)),
    ],
)
def test_loader_folders_of_releases(version: str, expected: tuple[str, ...]) -> None:
    """Folders that GPUs need, and with the wheels those opened on demand: CUPTI up to 2.19, NVRTC in 2.22.0rc0."""
    release = store.load().release(version)
    assert release is not None
    assert loader_folders(release, release.cuda_wheels) == expected
    assert loader_folders(release) == tuple(set(expected) - {"cuda_cupti", "cuda_nvrtc"})


def test_loader_folders_leave_out_what_a_borrowed_set_lacks() -> None:
    """An environment's wheels may be another release's; a missing folder would fail its build."""
    release = store.load().release("2.18.1")
    assert release is not None
    borrowed = tuple(pin for pin in release.cuda_wheels if "cupti" not in pin)
    assert len(borrowed) == len(release.cuda_wheels) - 1
    assert loader_folders(release, borrowed) == ()


def test_openers_of_every_release_include_the_libraries_that_it_was_seen_to_open() -> None:
    """Functions are read from the bytes, libraries from a run. 1.13 opens few by itself: most are linked."""
    for row in (row for row in store.load().tensorflow if row.kernels):
        if row.version.startswith("1.13."):
            assert row.openers == ("Cublas", "Cudnn", "Cufft", "Curand")
            continue
        assert "Cupti" in row.openers, row
        assert set(row.openers) <= WHEEL_FOLDERS.keys(), row
        assert {folder_of(soname) for soname in row.libraries} <= {WHEEL_FOLDERS[name] for name in row.openers}, row
