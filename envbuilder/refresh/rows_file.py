"""Write rows into the catalogue's files: instead of the row about the same thing, or at the end of its table.

Only the changed rows are written again, so comments and all other lines stay byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import yaml

from envbuilder.catalog import store
from envbuilder.catalog.rows import Row, TensorflowRelease
from envbuilder.support import decoding
from envbuilder.workspace import packaged, write_atomically

_TABLE = re.compile(r"(?m)^([a-z_]+):\n")
_ROW = re.compile(r"(?m)^(?=- )")
_LAST_COMMENT = re.compile(r"(?m)(?:^#.*\n)+\Z")

FILES = {"cuda": "cuda.yaml", "cudnn": "cudnn.yaml", "cudnn_wheels": "cudnn.yaml"}
"""The file of a table; a distribution's rows are in the file of its name."""

Key = tuple[str, ...]


def as_yaml(rows: Iterable[Row]) -> str:
    """Write rows, without fields at their default, as items of a YAML list."""
    items = [_plain(row) for row in rows]
    if not items:
        return ""
    return yaml.safe_dump(items, sort_keys=False, default_flow_style=None, width=120, allow_unicode=True)


def _plain(value: object) -> Any:  # noqa: ANN401 - what YAML holds
    """Turn a struct into a mapping without fields at their default, the source last."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if not isinstance(value, msgspec.Struct):
        return value
    fields = [field for field in msgspec.structs.fields(value) if getattr(value, field.name) != field.default]
    fields.sort(key=lambda field: field.name in Row.__struct_fields__ and isinstance(value, Row))
    return {field.name: _plain(getattr(value, field.name)) for field in fields}


def _key(row: Row) -> Key:
    """Return the key of a row: no two rows of a table have the same."""
    return tuple(getattr(row, name) for name in ("package", "version") if name in row.__struct_fields__)


def put(text: str, table: str, rows: Sequence[Row]) -> str:
    """Return a file's text with these rows in a table; comments and other rows stay the same."""
    heads = list(_TABLE.finditer(text))
    found = next((place for place, head in enumerate(heads) if head[1] == table), None)
    if found is None:
        return f"{text}{table}:\n{as_yaml(rows)}"
    start = heads[found].end()
    stop = heads[found + 1].start() if found + 1 < len(heads) else len(text)
    comment = _LAST_COMMENT.search(text, start, stop)  # it is about the next table
    end = comment.start() if comment else stop
    new = {_key(row): row for row in rows}
    blocks = [_updated(table, block, new) for block in _ROW.split(text[start:end]) if block]
    return text[:start] + "".join(blocks) + as_yaml(new.values()) + text[end:]


def _updated(table: str, block: str, new: dict[Key, Row]) -> str:
    """Return the text of the new row with the key of a block, and the comments below the block."""
    if not block.startswith("- "):  # a comment above the first row
        return block
    (old,) = getattr(store.parse(((table, f"{table}:\n{block}".encode()),)), table)
    row = new.pop(_key(old), None)
    if row is None:
        return block
    below = re.search(r"(?m)^#", block)
    return as_yaml([row]) + (block[below.start() :] if below else "")


def write(tables: Mapping[str, Sequence[Row]]) -> tuple[str, ...]:
    """Write rows into the catalogue's own files, and return the files' names.

    Raises InfrastructureError if they cannot be written.
    """
    texts: dict[str, str] = {}
    for table, rows in tables.items():
        for name in dict.fromkeys(_file_of(table, row) for row in rows):
            path = store.path_of(name)
            before = texts.get(name) or (decoding.text(packaged(path)) if path.exists() else "")
            texts[name] = put(before, table, [row for row in rows if _file_of(table, row) == name])
    for name, text in texts.items():
        store.parse(((name, text.encode()),))
        write_atomically(store.path_of(name), text.encode())
    store.load.cache_clear()
    return tuple(texts)


def _file_of(table: str, row: Row) -> str:
    return f"{row.package}.yaml" if isinstance(row, TensorflowRelease) else FILES[table]
