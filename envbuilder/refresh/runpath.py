"""Find in which wheels' folders a shared object looks for CUDA: the ``nvidia/<name>/lib`` entries of its RUNPATH."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_ENTRY = re.compile(rb"\$ORIGIN[\x20-\x7e]*")
_FOLDER = re.compile(rb"/nvidia/([a-z0-9_]+)/lib")
_OVERLAP = 64 * 1024
"""RUNPATH is one text, of 20 kB in TensorFlow 2.21; it may stand across two pieces."""

NEEDED = frozenset({"cublas", "cuda_runtime", "cudnn", "cufft", "cusparse"})
"""The folders that the library which opens CUDA must name. cuSOLVER may be opened by another one (2.21)."""

OPENER = "libtensorflow_framework.so"
"""The library whose RUNPATH decides: 2.16.1 names every folder in libtensorflow_cc and finds none of them."""


class Watch:
    """Passes a file's pieces on unchanged and notes the folders that go by in ``folders``."""

    def __init__(self) -> None:
        self.folders: set[str] = set()

    def over(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the pieces."""
        tail = b""
        for piece in pieces:
            text = tail + piece
            for entry in _ENTRY.findall(text):
                self.folders.update(name.decode() for name in _FOLDER.findall(entry))
            tail = text[-_OVERLAP:]
            yield piece


def finds_cuda(folders: Iterable[str]) -> str:
    """Tell where a build looks for CUDA: ``system``, ``wheels``, or ``unfindable`` where it knows only some folders."""
    known = NEEDED & set(folders)
    return "wheels" if known == NEEDED else "unfindable" if known else "system"
