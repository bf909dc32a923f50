"""Read which functions a wheel's opener of CUDA has: its names for them stand in its bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from envbuilder.support import decoding

_FUNCTION = re.compile(rb"Get((?:Cu|Nv|Nccl)[A-Za-z]{0,24}?)DsoHandle")
_LONGEST = 64
"""Bytes in which such a name and what stands around it fit."""

_STUBS = {"Nccl": b"nccl_stub", "Nvrtc": b"nvrtc_stub", "Nvshmem": b"nvshmem_stub"}
"""What stands in an object that calls such a function: in others NCCL is linked in, and nothing calls any of them."""


class Openers:
    """Passes an object's pieces on unchanged and notes the functions that open CUDA's libraries."""

    def __init__(self) -> None:
        self._found: set[str] = set()
        self._stubs: set[str] = set()

    def over(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the pieces."""
        tail = b""
        for piece in pieces:
            text = tail + piece
            self._found.update(decoding.lossy(name) for name in _FUNCTION.findall(text))
            self._stubs.update(name for name, mark in _STUBS.items() if mark in text)
            tail = text[-_LONGEST:]
            yield piece

    @property
    def names(self) -> tuple[str, ...]:
        """What the functions open, sorted; without those that nothing calls."""
        return tuple(sorted(self._found - (_STUBS.keys() - self._stubs)))
