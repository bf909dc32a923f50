"""Check which GPUs the binaries really hold code for: the fat binaries inside TensorFlow's own objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from . import fatbin, framework
from .answer import Answer, Facts, finding, judged, measure, skipped

PIECE = 4 * 1024 * 1024
SECTIONS = (".nv_fatbin", "__nv_relfatbin")


def in_binaries(facts: Facts) -> Answer:
    """Read every fat binary's header in TensorFlow's objects and compare with what the environment names."""
    search = framework.new_search()
    cubins, ptx, count = set(), set(), 0
    for read in framework.callers(search):
        for name in SECTIONS:
            if name in read.sections:
                found = fatbin.architectures(_pieces(read.path, *read.sections[name]))
                cubins |= set(found.cubins)
                ptx |= set(found.ptx)
                count += found.fat_binaries
    if not count:
        return skipped("TensorFlow's objects hold no fat binary that can be read")
    findings = []
    for kind, wanted, seen in (("machine code", facts.get("cubins"), cubins), ("PTX", facts.get("ptx"), ptx)):
        if wanted and not set(wanted) <= seen:
            lacking = ", ".join(sorted(set(wanted) - seen))
            text = "the binaries hold no {0} for {1}, which the environment names".format(kind, lacking)
            findings.append(finding("IMAGE_CLAIM", kind, text, " ".join(wanted), " ".join(sorted(seen))))
    expected = "machine code {0}; PTX {1}".format(" ".join(facts.get("cubins") or ()), " ".join(facts.get("ptx") or ()))
    observed = "machine code {0}; PTX {1}".format(" ".join(_sorted(cubins)), " ".join(_sorted(ptx)))
    return judged(findings, expected, observed, measurements={"fat_binaries": measure(count, "1")})


def _sorted(versions: Iterable[str]) -> list[str]:
    return sorted(versions, key=lambda text: [int(part) for part in text.split(".")])


def _pieces(path: str, offset: int, size: int) -> Iterator[bytes]:
    """Read one section of a file in pieces."""
    with open(path, "rb") as stream:
        stream.seek(offset)
        while size > 0:
            piece = stream.read(min(PIECE, size))
            if not piece:
                return
            size -= len(piece)
            yield piece
