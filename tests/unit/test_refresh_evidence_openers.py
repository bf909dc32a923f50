"""The functions that a wheel's opener has, read from its bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuilder.refresh.evidence import Openers

_MANGLED = b"\0_ZN3tsl8internal16CachedDsoLoader%dGet%sDsoHandleEv\0"


def symbols(*names: bytes) -> bytes:
    return b"".join(_MANGLED % (len(name) + 12, name) for name in names)


def names(content: bytes, size: int = 1 << 20) -> tuple[str, ...]:
    """Read what an object opens, given in pieces of a size."""
    openers = Openers()
    passed = b"".join(openers.over(content[at : at + size] for at in range(0, len(content), size)))
    assert passed == content
    return openers.names


@given(before=st.binary(max_size=200), size=st.integers(1, 90))
def test_functions_are_found_however_the_file_is_cut(before: bytes, size: int) -> None:
    """Every function of CUDA's is noted once, and the pieces pass unchanged."""
    content = before.replace(b"D", b"") + symbols(b"Cupti", b"Cudnn", b"NvInfer", b"Cupti")
    assert names(content, size) == ("Cudnn", "Cupti", "NvInfer")


def test_amds_functions_are_none_of_cudas() -> None:
    """Every build has functions for ROCm too, which say nothing here."""
    assert names(symbols(b"Hip", b"Rocblas", b"Miopen", b"Hipblaslt")) == ()


@pytest.mark.parametrize("name", ["Nccl", "Nvrtc", "Nvshmem"])
def test_a_function_that_nothing_calls_counts_for_nothing(name: str) -> None:
    """Where NCCL is linked in its function is there and unused; the stub's name is what shows a caller."""
    held = symbols(name.encode(), b"Cupti")
    assert names(held) == ("Cupti",)
    assert names(held + b"\0xla/tsl/cuda/%s_stub.cc\0" % name.lower().encode(), 40) == ("Cupti", name)
    assert names(held + b"xla/tsl/cuda/cudnn_stub.cc") == ("Cupti",)
