"""Read the fat binaries of a shared object, and choose of each the entries that stay for certain GPUs."""

from __future__ import annotations

import mmap
from typing import Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from .shorten import Pieces, Span
from .suite.fatbin import CONTAINER, CUBIN, MAGIC, PTX, parts

_ALIGNED = 8
"""Fat binaries begin at multiples of this."""


class StrangeError(Exception):
    """The object holds device code in a way that is not known here: it must not be touched."""


class FatBinary(NamedTuple):
    """One fat binary: where it stands in the file, and the spans of its entries that stay."""

    start: int
    end: int
    kept: Tuple[Span, ...]

    @property
    def left(self) -> int:
        """Its bytes afterwards."""
        return CONTAINER.size + sum(end - start for start, end in self.kept)

    def content(self, image: mmap.mmap) -> Pieces:
        """Return what is left of it: its header, with another length, and the entries that stay."""
        magic, version, header, _ = CONTAINER.unpack_from(image, self.start)
        return [CONTAINER.pack(magic, version, header, self.left - CONTAINER.size), *self.kept]


def number(capability: str) -> int:
    """Return a compute capability as an architecture's number: ``8.6`` is 86."""
    major, _, minor = capability.partition(".")
    return int(major) * 10 + int(minor)


def wanted(entries: Sequence[Tuple[int, int]], gpus: Iterable[int]) -> List[bool]:
    """Tell of the entries of a fat binary (kind, architecture) which stay for these GPUs.

    PTX stays. Of machine code what a driver takes stays: the newest of the GPU's own major that is not newer than it
    (CUDA C++ Programming Guide, "Binary Compatibility"). One entry always stays: no tool makes a fat binary of none.
    """
    taken = set()
    for gpu in gpus:
        fits = [arch for kind, arch in entries if kind == CUBIN and arch // 10 == gpu // 10 and arch <= gpu]
        taken.update([max(fits)] if fits else [])
    kept = [kind == PTX or arch in taken for kind, arch in entries]
    return kept if any(kept) else [True] + [False] * (len(entries) - 1)


def wall_to_wall(image: mmap.mmap, at: int, end: int, gpus: Sequence[int]) -> Iterator[FatBinary]:
    """Yield the fat binaries of a section of nothing else; between them may stand zeros, up to the next alignment."""
    while at < end:
        found = _fat_binary(image, at, end, gpus)
        if found is None:
            raise StrangeError("what stands at {0:#x} is no fat binary".format(at))
        yield found
        at = min(aligned(found.end), end)
        if image[found.end : at].strip(b"\0"):
            raise StrangeError("bytes stand behind the fat binary at {0:#x}".format(found.start))


def among_data(image: mmap.mmap, at: int, end: int, gpus: Sequence[int]) -> Iterator[FatBinary]:
    """Yield the fat binaries among a section's data of which something goes."""
    at = image.find(MAGIC, at, end)
    while at >= 0:
        found = _fat_binary(image, at, end, gpus)
        if found is not None and found.left < found.end - found.start:
            yield found
        at = image.find(MAGIC, found.end if found is not None else at + len(MAGIC), end)


def _fat_binary(image: mmap.mmap, start: int, end: int, gpus: Sequence[int]) -> Optional[FatBinary]:
    found = parts(image, start, end)
    stay = wanted([(one.kind, one.architecture) for one in found], gpus)
    kept = tuple((one.start, one.end) for one, stays in zip(found, stay) if stays)
    return FatBinary(start, found[-1].end, kept) if found else None


def aligned(size: int) -> int:
    """Return the next place where a fat binary may begin."""
    return -(-size // _ALIGNED) * _ALIGNED
