"""Read untrusted JSON: the result is a value or a MalformedError."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

from envbuilder.errors import PublishError
from envbuilder.support import decoding

_Document = TypeVar("_Document")

MAX_VALUES = 1_000_000
"""Values in one document: a list of 20,000 attachments with their annotations has a fifth of them. More values take a
hundred times the memory of their bytes."""


class MalformedError(PublishError):
    """Bytes that are not the expected document."""


def parsed(content: bytes | msgspec.Raw, kind: type[_Document] | Any, what: str) -> Any:  # noqa: ANN401 - of ``kind``
    """Read a document of a type. Raises MalformedError, for endless nesting and too many values too."""
    data = bytes(content)
    if data.count(b",") > MAX_VALUES:
        raise MalformedError(f"not {what}: it holds more than {MAX_VALUES:,} values")
    try:
        return decoding.from_json(data, kind, f"not {what}")
    except decoding.DamagedError as error:
        raise MalformedError(str(error)) from error


def check_unambiguous(content: bytes, what: str) -> None:
    """Raise MalformedError if an object has a key twice: readers differ in which value they take."""
    try:
        with decoding.damaged(f"not {what}"):
            json.loads(content, object_pairs_hook=_once)
    except decoding.DamagedError as error:
        raise MalformedError(str(error)) from error


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it says {twice[:60]!r} twice")
    return made
