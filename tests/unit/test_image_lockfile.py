"""Locks are read exactly, and a part of one is a lock with the same lines."""

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


def test_packages_are_read_with_normalised_names_and_all_hashes() -> None:
    numpy, cublas = lockfile.parse(TEXT)
    assert (numpy.name, numpy.version, numpy.hashes) == ("numpy", "2.1.3", (A, B))
    assert (cublas.name, cublas.version, cublas.hashes) == ("nvidia-cublas-cu12", "12.5.3.2", (B,))
    part = lockfile.subset(TEXT, {"nvidia-cublas-cu12"})
    assert part in TEXT
    assert lockfile.parse(part) == (cublas,)


@pytest.mark.parametrize("line", ["numpy>=1", "-e .", "--index-url x", "numpy @ file:///x"])
def test_a_line_that_pins_nothing_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not a pinned package"):
        lockfile.parse(line + "\n")
