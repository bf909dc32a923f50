"""What a shared object is called by who opens it at run time, and which of these words another object has."""

from __future__ import annotations

import fnmatch
import mmap
import os
import re
from typing import FrozenSet, Iterable, Iterator, NamedTuple, Set, Tuple

from .suite.elf import Elf

_TOKEN = re.compile(rb"[A-Za-z_][\w.+-]{2,79}?(?=\0|%|\.so)")
"""A word that ends a string of a program, or stands before ``.so`` or a place for a number in it."""

_PATTERN = re.compile(rb"[A-Za-z_][\w.+-]{3,79}[*?][\w.*?+-]{0,40}(?=\0)")
"""A name with places for anything in it, as for what a program finds in a folder."""

_SKIPPED = re.compile(
    r"\.(?:nv_fatbin|text|eh_frame(?:_hdr)?|gcc_except_table|symtab|strtab|dynsym|dynstr|gnu\.\w+|rela?\..*|debug_.*)\Z|__nv_relfatbin\Z"
)
"""Sections that hold no names of files: code for either processor, tables of addresses, what debuggers read."""

_SEPARATOR = re.compile(rb"[-_.]")


class Names(NamedTuple):
    """The name of an object up to ``.so``, the same without ``lib``, both with all their parts; its functions."""

    stem: bytes
    bare: bytes
    pieces: FrozenSet[bytes]
    functions: FrozenSet[bytes]

    def can_be_made_of(self, words: FrozenSet[bytes]) -> bool:
        """Tell whether words make the name: whole, without ``lib``, or of two parts."""
        if words & {self.stem, self.bare}:
            return True
        splits = (split for name in (self.stem, self.bare) for split in _splits(name))
        return any(words & set(left) and words & set(right) for left, right in splits)


def names(path: str, functions: FrozenSet[bytes]) -> Names:
    """Say what the object at ``path``, which offers ``functions``, may be called."""
    whole = stem(path)
    bare = whole[3:] if whole.startswith(b"lib") else whole
    pieces = {part for name in (whole, bare) for split in _splits(name) for side in split for part in side}
    return Names(whole, bare, frozenset((pieces | {whole, bare}) - {b""}), functions)


def stem(path: str) -> bytes:
    """Return an object's name as others write it: up to ``.so``, or as it is for a program."""
    return re.split(r"\.(?:cpython-[\w-]+\.|abi3\.)?so\b", os.path.basename(path))[0].encode()


def words(elf: Elf, wanted: FrozenSet[bytes]) -> FrozenSet[bytes]:
    """Return which of the ``wanted`` words an object has where names of files and of functions may stand."""
    return frozenset(word for word in _found(elf, _TOKEN) if word in wanted)


def patterns(elf: Elf) -> FrozenSet[str]:
    """Return the names with places for anything in them (``libtfkernel*.so``) by which an object may find others."""
    return frozenset(word.decode() for word in _found(elf, _PATTERN))


def is_like(path: str, wanted: Iterable[str]) -> bool:
    """Tell whether one of such names stands for the file at ``path``."""
    return any(fnmatch.fnmatchcase(os.path.basename(path), pattern) for pattern in wanted)


def _found(elf: Elf, what: "re.Pattern[bytes]") -> Set[bytes]:
    with open(elf.path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as image:
        return {word for start, end in _spans(elf, len(image)) for word in what.findall(image, start, end)}


def has(elf: Elf, text: str) -> bool:
    """Tell whether a text stands anywhere in an object."""
    with open(elf.path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as image:
        return image.find(text.encode()) >= 0


def _splits(name: bytes) -> Iterator[Tuple[Tuple[bytes, bytes], Tuple[bytes, bytes]]]:
    """Yield a name's two parts at each separator, each part with and without it."""
    for match in _SEPARATOR.finditer(name):
        at, end = match.span()
        yield (name[:at], name[:end]), (name[at:], name[end:])


def _spans(elf: Elf, size: int) -> Iterator[Tuple[int, int]]:
    """Yield where in an object names may stand; all of it where it has no table of sections."""
    if not elf.sections:
        yield 0, size
    for name, (start, length) in elf.sections.items():
        if name and not _SKIPPED.match(name) and start + length <= size:
            yield start, start + length
