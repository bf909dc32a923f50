"""Write rows as the YAML that the catalogue's files are made of: one row a block, lists in one line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from envbuilder.catalog.rows import Row

WIDTH = 120

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9 _./+()<>=~;:,!\[\]-]*")
_UNSAFE = re.compile(r": |:\Z| #|[\[\]{},]")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"})


def rows(table: Iterable[Row]) -> str:
    """Write rows, without what is at its default, as items of a YAML list."""
    return "".join(_item(_told(row)) for row in table)


def _told(row: Row) -> dict[str, Any]:
    """Keep what is not at its default: what a row is about first, where it comes from last."""
    names = [field.name for field in msgspec.structs.fields(row) if getattr(row, field.name) != field.default]
    last = Row.__struct_fields__
    return {name: _plain(getattr(row, name)) for name in sorted(names, key=lambda name: name in last)}


def _plain(value: object) -> object:
    """Turn a struct inside of a row into a mapping, without what is at its default."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        return {one.name: _plain(getattr(value, one.name)) for one in fields if getattr(value, one.name) != one.default}
    return value


def _item(row: dict[str, Any]) -> str:
    lines = [line for key, value in row.items() for line in _field(key, value)]
    return "".join(f"{'- ' if number == 0 else '  '}{line}\n" for number, line in enumerate(lines))


def _field(key: str, value: object) -> list[str]:
    match value:
        case None:
            return [f"{key}: null"]
        case bool():
            return [f"{key}: {str(value).lower()}"]
        case list() | tuple() if value and all(isinstance(one, dict) for one in value):
            return [f"{key}:", *(line for one in value for line in _item(one).splitlines())]
        case list() | tuple():
            return _list(key, [_scalar(one) for one in value])
        case _:
            return [f"{key}: {_scalar(value)}"]


def _list(key: str, words: list[str]) -> list[str]:
    """Fill lines with a list's words up to `WIDTH`."""
    if not words:
        return [f"{key}: []"]
    lines, line = [], f"{key}: ["
    for number, word in enumerate(words):
        piece = word + ("]" if number == len(words) - 1 else ",")
        if len(line) + len(piece) + 3 > WIDTH and line.strip() != "":
            lines.append(line.rstrip())
            line = "    "
        line += piece + ("" if piece.endswith("]") and number == len(words) - 1 else " ")
    return [*lines, line]


def _scalar(value: object) -> str:
    """Write a scalar so that any YAML reader takes it as text."""
    text = str(value)
    if isinstance(value, int):
        return text
    plain = _PLAIN.fullmatch(text) and not _UNSAFE.search(text) and text.lower() not in _WORDS
    return text if plain else "'" + text.replace("'", "''") + "'"
