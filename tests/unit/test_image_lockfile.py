"""Locks: what is pinned is read exactly, and the CUDA part is a lock of its own."""

from __future__ import annotations

import pytest

from envbuilder.image import lockfile

A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64
TEXT = f"""\
numpy==2.1.3 \\
    --hash={A} \\
    --hash={B}
Nvidia_cuBLAS.cu12==12.5.3.2 ; sys_platform == 'linux' \\
    --hash={B}
"""


def test_packages_are_read_with_their_hashes() -> None:
    """Names are normalised, versions exact, every hash kept, markers tolerated."""
    numpy, cublas = lockfile.parse(TEXT)
    assert (numpy.name, numpy.version, numpy.hashes) == ("numpy", "2.1.3", (A, B))
    assert (cublas.name, cublas.version, cublas.hashes) == ("nvidia-cublas-cu12", "12.5.3.2", (B,))


def test_a_subset_is_a_lock_with_the_same_lines() -> None:
    """What is installed first is pinned by the very same lines as in the whole lock."""
    part = lockfile.subset(TEXT, frozenset({"nvidia-cublas-cu12"}))
    assert part in TEXT
    assert [package.name for package in lockfile.parse(part)] == ["nvidia-cublas-cu12"]


@pytest.mark.parametrize("line", ["numpy>=1", "-e .", "--index-url x", "numpy @ file:///x"])
def test_a_line_that_pins_nothing_is_refused(line: str) -> None:
    """A lock holds exact pins and nothing else."""
    with pytest.raises(ValueError, match="not a pinned package"):
        lockfile.parse(line + "\n")
