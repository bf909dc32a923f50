"""Which folders of the CUDA wheels a library searches, and which ones the loader has to be told."""

from __future__ import annotations

import pytest

from envbuilder.catalog import store
from envbuilder.catalog.library_search import (
    WHEEL_FOLDERS,
    folder_of,
    loader_folders,
)


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
