"""Where a library looks for the CUDA wheels."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from envbuilder.refresh.runpath import NEEDED, Watch, finds_cuda

ENTRY = b"\0$ORIGIN/:" + b":".join(b"$ORIGIN/../nvidia/%s/lib" % name.encode() for name in sorted(NEEDED)) + b"\0"


@given(before=st.binary(max_size=300), size=st.integers(1, 200))
def test_folders_are_found_however_the_file_is_cut(before: bytes, size: int) -> None:
    """Every folder of a RUNPATH is noted, and the pieces pass unchanged."""
    content = before + ENTRY
    watch = Watch()
    passed = list(watch.over(content[at : at + size] for at in range(0, len(content), size)))
    assert b"".join(passed) == content
    assert watch.folders >= NEEDED


def test_some_folders_are_not_enough() -> None:
    """All folders mean wheels, none the system, some (2.16.1) that the libraries are not found."""
    assert finds_cuda(NEEDED | {"nccl"}) == "wheels"
    assert finds_cuda({"cuda_runtime"}) == "unfindable"
    assert finds_cuda(()) == "system"
