"""The text of a report, of any size and encoding: of a large log the head, the tail and the lines that tell."""

from __future__ import annotations

import codecs
import io
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from envbuilder.errors import UsageError

LARGEST = 4 << 20
"""Characters of a report that are all looked at: issue trackers end far below it."""

MOST = 512 << 20
"""Characters that are read at all: no log has so many, a device has no end."""

_HEAD, _TAIL, _MIDDLE = 4_000, 4_000, 12_000
"""Lines of a larger one that are kept: the first, the last, and between them those that tell something."""

_ALIKE = 12
"""Of lines that differ in their numbers alone so many are kept."""

_MOST_SHAPES = 100_000
_LONGEST = 8_192
_SAMPLE = 4_096
_TELLS = (
    "tensorflow", "cuda", "cudnn", "nvidia", "libcu", "dlerror", "driver", "gpu", "importerror", "cannot", "could not",
    "failed", "version", "fatal", "illegal", "abort", "ptxas", "numpy", "protobuf", "nccl",
)  # fmt: skip
"""Words of which a line holds one where it says something of an environment (searched for in lower case)."""

_NUMBERS = {ord(digit): None for digit in "0123456789"}
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def read_text(stream: BinaryIO) -> str:
    """Read a report: UTF-8, or UTF-16 as PowerShell writes it; a line of it never moves, whatever is left out."""
    buffered = io.BufferedReader(stream) if not isinstance(stream, io.BufferedReader) else stream  # type: ignore[type-var]
    encoding = encoding_of(buffered.peek(_SAMPLE)[:_SAMPLE])
    with io.TextIOWrapper(buffered, encoding=encoding, errors="replace", newline="\n") as text:
        return shortened(_lines(text))


def encoding_of(sample: bytes) -> str:
    """Tell an encoding by its mark, or by the zeros that ASCII has in UTF-16; else UTF-8."""
    marked = next((name for mark, name in _MARKS if sample.startswith(mark)), None)
    if marked is not None:
        return marked
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    most = len(sample) // 4
    return "utf-16-le" if odd > most >= even else "utf-16-be" if even > most >= odd else "utf-8"


def shortened(lines: Iterable[str]) -> str:
    """Join lines; of more characters than `LARGEST` those that are left out become empty, so that numbers stay."""
    whole: list[str] = []
    size = 0
    rest = iter(lines)
    for line in rest:
        whole.append(line)
        size += len(line) + 1
        if size > LARGEST:
            return "\n".join(_excerpt([*whole], rest))
    return "\n".join(whole)


def _excerpt(read: list[str], rest: Iterator[str]) -> list[str]:
    """Keep head and tail, and between them what tells something, each shape of line a few times."""
    kept = read[:_HEAD]
    tail: deque[tuple[int, str]] = deque(maxlen=_TAIL)
    shapes: defaultdict[str, int] = defaultdict(int)
    middle = 0
    for place, line in enumerate((row for part in (read[_HEAD:], rest) for row in part), start=len(kept)):
        tail.append((place, line))
        kept.append("")
        shape = line[:160].translate(_NUMBERS)
        if len(shapes) < _MOST_SHAPES:
            shapes[shape] += 1
        if shapes.get(shape, 0) > _ALIKE or middle >= _MIDDLE:
            continue
        lowered = line[:400].lower()
        if any(word in lowered for word in _TELLS):
            kept[-1] = line
            middle += 1
    for place, line in tail:
        kept[place] = line
    return kept


def _lines(text: io.TextIOWrapper) -> Iterator[str]:
    """Yield lines without their ends; of one without end, its beginning. Raises UsageError for an endless text."""
    left = MOST
    while line := text.readline(_LONGEST):
        yield line.rstrip("\n")
        left -= len(line)
        while line and line[-1] != "\n" and left > 0:
            line = text.readline(_LONGEST)
            left -= len(line)
        if left <= 0:
            raise UsageError(f"the report is larger than {MOST >> 20} MB", hint="give the part around the message")
