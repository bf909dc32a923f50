"""Tell whether an object brings a whole library in itself: linked in, as its functions and its own texts show."""

from __future__ import annotations

import mmap
import re
from typing import Dict, FrozenSet

from .suite.elf import Elf

_TEXT = re.compile(rb"[\x20-\x7e]{24,}(?=[\0\n])")
"""A text of a program that is long enough to be of one library alone: messages, with their places for values."""

LEAST = 100
"""Of a library with fewer texts nothing is said."""

SHARE = 0.5
"""So many of a library's texts stand in an object that it is linked into.

NCCL's wheels against TensorFlow's: 0.79 to 0.82 in 2.17 to 2.20, where `libnccl-net.so` (what NCCL itself opens) is
named in TensorFlow and its kernels lie there; 0.22 in 2.21, which opens it.
"""


class Contents:
    """What objects offer and say; each is read once."""

    def __init__(self) -> None:
        self._functions: Dict[str, FrozenSet[bytes]] = {}
        self._texts: Dict[str, FrozenSet[bytes]] = {}

    def is_linked_in(self, library: Elf, into: Elf) -> bool:
        """Tell whether ``into`` has the library's code in itself, and so need not open it to call what it names.

        It offers functions of the library under their own names, as what opens it to pass calls on may too, and has
        most of the library's own texts, which what opens it has not.
        """
        if not self.functions(library) & self.functions(into):
            return False
        texts = self.texts(library)
        return len(texts) >= LEAST and len(texts & self.texts(into)) >= SHARE * len(texts)

    def functions(self, elf: Elf) -> FrozenSet[bytes]:
        """Name the functions that an object offers under plain names: what ``dlsym`` would be asked for."""
        if elf.path not in self._functions:
            with open(elf.path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as image:
                names = {name for name, _, _ in elf.exported(image)}
            plain = (name.encode() for name in names if len(name) >= 6 and not name.startswith("_"))
            self._functions[elf.path] = frozenset(plain)
        return self._functions[elf.path]

    def texts(self, elf: Elf) -> FrozenSet[bytes]:
        """Return the long texts of an object's constants."""
        if elf.path not in self._texts:
            with open(elf.path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as image:
                self._texts[elf.path] = frozenset(
                    match.group()
                    for name, (start, length) in elf.sections.items()
                    if name.startswith(".rodata") and start + length <= len(image)
                    for match in _TEXT.finditer(image, start, start + length)
                )
        return self._texts[elf.path]
