"""Write rows as the YAML that the catalogue's files are made of: one row a block, lists in one line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from envbuilder.catalog.model import Row

WIDTH = 120

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9 _./+()<>=~;:,!\[\]-]*")
_UNSAFE = re.compile(r": |:\Z| #|[\[\]{},]")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"})


def rows(table: Iterable[Row]) -> str:
    """Write rows, without what is at its default, as items of a YAML list."""
    return "".join(_item(_ordered(msgspec.to_builtins(row))) for row in table)


def _ordered(row: dict[str, Any]) -> dict[str, Any]:
    """Put what a row is about first, where it comes from last."""
    last = Row.__struct_fields__
    return {key: row[key] for key in (*(key for key in row if key not in last), *last) if key in row}


def _item(row: dict[str, Any]) -> str:
    lines = [line for key, value in row.items() if value not in (None, "", [], ()) for line in _field(key, value)]
    return "".join(f"{'- ' if number == 0 else '  '}{line}\n" for number, line in enumerate(lines))


def _field(key: str, value: object) -> list[str]:
    if isinstance(value, bool):
        return [] if value is _DEFAULTS.get(key) else [f"{key}: {str(value).lower()}"]
    if isinstance(value, list | tuple):
        if all(isinstance(one, dict) for one in value):
            return [f"{key}:", *(line for one in value for line in _item(one).splitlines())]
        return _list(key, [_scalar(one) for one in value])
    return [f"{key}: {_scalar(value)}"]


_DEFAULTS = {"installable": True, "reviewed": True}


def _list(key: str, words: list[str]) -> list[str]:
    """Fill lines with a list's words up to `WIDTH`."""
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
