"""Read the document that ``envbuilder capture`` prints, field by field, without loss."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from envbuilder.reports.model import SCALARS, Evidence, Trust

SCHEMA = "envbuilder/capture/v1"
_GROUPS = ("packages", "built", "environment")


def statements(text: str) -> Iterator[Evidence]:
    """Yield every field of a captured document; nothing where the text is another kind of report."""
    document = _document(text)
    if document is None:
        return
    lines = text.split("\n")
    for field in SCALARS:
        if isinstance(document.get(field), str):
            yield _proved(field, document[field], lines, f'"{field}"')
    for group in _GROUPS:
        members = document.get(group)
        for name, value in members.items() if isinstance(members, dict) else ():
            if isinstance(value, str):
                yield _proved(f"{group}.{name}", value, lines, f'"{name}"')
    for field in ("gpus", "compute_capabilities"):
        rows = document.get(field)
        for index, value in enumerate(rows if isinstance(rows, list) else ()):
            if isinstance(value, str):
                yield _proved(field, value, lines, f'"{value}"', index)


def _document(text: str) -> dict[str, Any] | None:
    """Find the document: the whole text, or what stands between its first and last brace."""
    if SCHEMA not in text:
        return None
    start, end = text.find("{"), text.rfind("}")
    try:
        document = json.loads(text[start : end + 1])
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) and document.get("schema") == SCHEMA else None


def _proved(field: str, value: str, lines: list[str], key: str, index: int = -1) -> Evidence:
    line = next((number for number, text in enumerate(lines, start=1) if key in text), 1)
    return Evidence(
        field=field, value=value, line=line, text=lines[line - 1].strip()[:400], source="capture", trust=Trust.PROVED,
        index=index,
    )  # fmt: skip
