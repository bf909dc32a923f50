"""Put rows into the catalogue's files: in the place of the row that is about the same, or at its table's end."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from envbuilder.catalog import store
from envbuilder.catalog.rows import CudaToolkit, Cudnn, CudnnWheel, Row, TensorflowRelease
from envbuilder.refresh import emit
from envbuilder.support import decoding
from envbuilder.workspace import packaged, write_atomically

_TABLE = re.compile(r"(?m)^([a-z_]+):\n")
_ROW = re.compile(r"(?m)^(?=- )")

Key = tuple[str, ...]


def key_of(row: Row) -> Key:
    """Return what a row is about: no two rows of a table have the same."""
    match row:
        case TensorflowRelease():
            return row.package, row.version
        case CudnnWheel():
            return (row.package,)
        case CudaToolkit() | Cudnn():
            return (row.version,)
        case _:
            raise TypeError(f"rows of {type(row).__name__} are not proposed")


def put(text: str, table: str, rows: Sequence[Row]) -> str:
    """Return a file's text with these rows in a table of it; comments and other rows stay as they are."""
    heads = list(_TABLE.finditer(text))
    found = next((place for place, head in enumerate(heads) if head[1] == table), None)
    if found is None:
        return f"{text}{table}:\n{emit.rows(rows)}"
    start = heads[found].end()
    stop = heads[found + 1].start() if found + 1 < len(heads) else len(text)
    below = _LAST_COMMENT.search(text, start, stop)  # it is about what follows
    end = below.start() if below else stop
    new = {key_of(row): row for row in rows}
    blocks = [_placed(table, block, new) for block in _ROW.split(text[start:end]) if block]
    return text[:start] + "".join(blocks) + emit.rows(new.values()) + text[end:]


_LAST_COMMENT = re.compile(r"(?m)(?:^#.*\n)+\Z")


def _placed(table: str, block: str, new: dict[Key, Row]) -> str:
    """Write the new row of the same key in the place of an old one, with the comments below it."""
    old = _only(table, block)
    row = new.pop(key_of(old), None) if old is not None else None
    if row is None:
        return block
    below = re.search(r"(?m)^#", block)
    return emit.rows([row]) + (block[below.start() :] if below else "")


def _only(table: str, block: str) -> Row | None:
    """Read the one row of a block; None for what is none, such as a comment above the first."""
    if not block.startswith("- "):
        return None
    (row,) = getattr(store.parse(((table, f"{table}:\n{block}".encode()),)), table)
    assert isinstance(row, Row)  # noqa: S101 - every table holds rows
    return row


FILES = {"cuda": "cuda.yaml", "cudnn": "cudnn.yaml", "cudnn_wheels": "cudnn.yaml"}
"""The file of each table that has one; a distribution's rows are in the file of its name."""


def write(tables: Mapping[str, Sequence[Row]]) -> tuple[str, ...]:
    """Put rows into the catalogue's own files and return the files' names.

    Raises InfrastructureError where they cannot be written.
    """
    texts: dict[str, str] = {}
    for table, rows in tables.items():
        for name, mine in _by_file(table, rows).items():
            path = store.path_of(name)
            before = texts.get(name) or (decoding.text(packaged(path)) if path.exists() else "")
            texts[name] = put(before, table, mine)
    for name, text in texts.items():
        store.parse(((name, text.encode()),))
        write_atomically(store.path_of(name), text.encode())
    store.load.cache_clear()
    return tuple(texts)


def _by_file(table: str, rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        name = f"{row.package}.yaml" if isinstance(row, TensorflowRelease) else FILES[table]
        found.setdefault(name, []).append(row)
    return found
