"""Search files, variables and build instructions for credentials (`secret_patterns.yaml`). Values are never quoted."""

from __future__ import annotations

import re
from itertools import groupby

import msgspec

from envbuilder.workspace import packaged_yaml

VARIABLE, INSTRUCTION = "<variable>", "<instruction>"
"""In place of a path: a variable or a label (``name=value``), and a build instruction or a command."""


class Secret(msgspec.Struct, frozen=True):
    path: str
    what: str


class _Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    what: str
    hints: tuple[str, ...]
    pattern: str


class _Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    what: str
    paths: tuple[str, ...]
    shapes: tuple[str, ...]
    binary: bool = False


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    anywhere: tuple[_Shape, ...]
    within: tuple[_Place, ...]
    name: str


_TABLE = packaged_yaml("validation/secret_patterns.yaml", _Table)
_ANYWHERE = tuple(
    (shape.what, hint.encode(), re.compile(shape.pattern.replace("HINT", re.escape(hint)).encode()))
    for shape in _TABLE.anywhere
    for hint in shape.hints
)
_WITHIN = tuple(
    (
        place,
        re.compile(rf"(?:^|/)(?:{'|'.join(place.paths)})\Z"),
        tuple(re.compile(shape.replace("NAME", _TABLE.name).encode(), re.MULTILINE) for shape in place.shapes),
    )
    for place in _TABLE.within
)
_PLACES = re.compile(rf"(?:^|/)(?:{'|'.join(path for place in _TABLE.within for path in place.paths)})\Z")

_ANCHORS = b"KJI/-_"
"""Every hint contains one of these letters, the rarest in source code first.

A regular expression that begins with one letter skips to the next such letter at memory speed, so that a text is read
once per letter and not once per hint.
"""


def _prefilter(anchor: bytes, hints: list[bytes]) -> re.Pattern[bytes]:
    """Return an expression for a letter with the rest of a hint around it; few checks follow a letter of no hint."""
    rests = {hint: hint.partition(anchor)[2] for hint in hints}
    around = [b"%b(?<=%b)" % (re.escape(rest), re.escape(hint)) for hint, rest in rests.items() if rest]
    ends = sorted((hint for hint, rest in rests.items() if not rest), key=len)
    around += [b"(?<=%b)" % b"|".join(map(re.escape, same)) for _, same in groupby(ends, len)]
    return re.compile(b"%b(?:%b)" % (re.escape(anchor), b"|".join(around)))


_BY_ANCHOR: dict[bytes, list[bytes]] = {}
for _hint in sorted({hint for _, hint, _ in _ANYWHERE}):
    _BY_ANCHOR.setdefault(next(bytes((letter,)) for letter in _ANCHORS if letter in _hint), []).append(_hint)
_PREFILTERS = tuple(_prefilter(*pair) for pair in _BY_ANCHOR.items())


_WORD = re.compile(b"[A-Za-z0-9]{8,}")
_KINDS = 3
"""A match is a placeholder (``hf_xxxx…``, ``0000-0000…``) if its last word has at most so many different letters."""


def _is_in(shape: re.Pattern[bytes], content: bytes, hint: bytes = b"") -> bool:
    texts = (match[0][match[0].find(hint) + len(hint) :] for match in shape.finditer(content))
    words = (_WORD.findall(text.lower()) for text in texts)
    return any(not own or len({*own[-1]}) > _KINDS for own in words)


def secrets_in(path: str, content: bytes, *, binary: bool = False) -> list[str]:
    """Return what looks like a credential in a file, or in a `VARIABLE` or `INSTRUCTION`."""
    if any(prefilter.search(content) for prefilter in _PREFILTERS):
        found = [what for what, hint, shape in _ANYWHERE if hint in content and _is_in(shape, content, hint)]
        if found:
            return list(dict.fromkeys(found))
    places = _WITHIN if _PLACES.search(path) else ()
    return [
        place.what
        for place, paths, shapes in places
        if (place.binary or not binary) and paths.search(path) and any(_is_in(shape, content) for shape in shapes)
    ][:1]
