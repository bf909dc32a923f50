"""Read untrusted JSON: the result is a value or a MalformedError."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from envbuilder.registry.errors import MalformedError
from envbuilder.support import decoding

_Document = TypeVar("_Document")

MAX_VALUES = 1_000_000
"""Values in one document: a list of 20,000 attachments with their annotations has a fifth of them. More values take a
hundred times the memory of their bytes."""


def parsed(content: bytes | msgspec.Raw, kind: type[_Document] | Any, what: str) -> Any:  # noqa: ANN401 - of ``kind``
    """Read a document of a type. Raises MalformedError, also for endless nesting and too many values."""
    data = bytes(content)
    if data.count(b",") > MAX_VALUES:
        raise MalformedError(f"not {what}: it holds more than {MAX_VALUES:,} values")
    try:
        return decoding.from_json(data, kind, f"not {what}")
    except decoding.DamagedError as error:
        raise MalformedError(str(error)) from error


def check_unambiguous(content: bytes, what: str, fields: Iterable[str] = ()) -> None:
    """Raise MalformedError if an object has a key twice: readers differ in which value they take.

    With ``fields``, keys that differ only in case are equal, and a field has to be spelled as it is here: Go's readers
    ignore case.
    """
    spelling = {field.casefold(): field for field in fields}

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, str] = {}
        for name, _ in pairs:
            key = name.casefold() if spelling else name
            if key in found or spelling.get(key, name) != name:
                raise ValueError(f"it says {name[:60]!r} twice or in another case")
            found[key] = name
        return dict(pairs)

    try:
        with decoding.damaged(f"not {what}"):
            json.loads(content, object_pairs_hook=once)
    except decoding.DamagedError as error:
        raise MalformedError(str(error)) from error
