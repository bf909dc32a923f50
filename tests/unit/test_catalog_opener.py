"""What a build has functions to open, and what of that the loader must be told of."""

from __future__ import annotations

import msgspec
import pytest

from envbuilder.catalog import store
from envbuilder.catalog.opener import FOLDERS, loader_folders, unsearched
from envbuilder.catalog.rows import Search, TensorflowRelease
from envbuilder.catalog.runpath import folder_of

GPU_ROWS = [row for row in store.load().tensorflow if row.kernels]


def row(openers: tuple[str, ...], folders: tuple[str, ...]) -> TensorflowRelease:
    """Make a row that finds what a GPU needs, opens these and looks there."""
    return msgspec.structs.replace(
        store.load().releases("tensorflow")[-1],
        finds_cuda="wheels",
        openers=openers,
        searches=(
            Search(object="libtensorflow_framework.so.2", folders=folders),
            Search(object="libtensorflow_cc.so.2", folders=("cuda_cupti", "nvshmem", "cuda_nvrtc")),
        ),
    )


def test_what_is_not_looked_for_counts_where_it_is_opened_and_brought() -> None:
    """A folder needs all three: a function, a wheel in this very set, and no entry in the opener's own RUNPATH."""
    wheels = ("nvidia-cuda-cupti-cu12==12.5.82", "nvidia-nvshmem-cu12<4,>=3.2.5", "nvidia-cublas-cu12==12.5.3.2")
    assert unsearched(row(("Cublas", "Cupti", "Nvshmem"), ("cublas",)), wheels) == ("cuda_cupti", "nvshmem")
    assert unsearched(row(("Cublas", "Cupti"), ("cublas",)), wheels) == ("cuda_cupti",)
    assert unsearched(row(("Cublas", "Cupti"), ("cublas", "cuda_cupti")), wheels) == ()
    assert unsearched(row(("Cupti", "Nvrtc", "CudaDriver", "NvInfer", "Unheard"), ()), wheels[1:]) == ()


@pytest.mark.parametrize(
    ("version", "told"),
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
def test_the_loader_is_told_of_all_that_a_release_opens_and_does_not_find(version: str, told: tuple[str, ...]) -> None:
    """What GPUs need and what is opened when asked for: CUPTI up to 2.19, NVRTC in 2.22.0rc0."""
    release = store.load().release(version)
    assert release is not None
    assert loader_folders(release, release.cuda_wheels) == told


def test_nothing_is_told_of_that_a_borrowed_set_does_not_bring() -> None:
    """An environment's wheels may be another release's: a folder that is not there would end its build."""
    release = store.load().release("2.18.1")
    assert release is not None
    borrowed = tuple(pin for pin in release.cuda_wheels if "cupti" not in pin)
    assert len(borrowed) == len(release.cuda_wheels) - 1
    assert loader_folders(release, borrowed) == ()


@pytest.mark.parametrize("row", GPU_ROWS, ids=lambda row: f"{row.package}-{row.version}")
def test_functions_agree_with_what_was_seen_to_be_opened(row: TensorflowRelease) -> None:
    """Two ways to the same: the bytes have a function for each library that a run asked the loader for.

    1.13 opens little by itself: most is linked, and the loader brings it before TensorFlow runs.
    """
    if row.version.startswith("1.13."):
        assert row.openers == ("Cublas", "Cudnn", "Cufft", "Curand")
        return
    assert "Cupti" in row.openers
    assert set(row.openers) <= FOLDERS.keys()
    assert {folder_of(soname) for soname in row.libraries} <= {FOLDERS[name] for name in row.openers}
