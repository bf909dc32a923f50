"""Write rows into the catalogue's files: instead of the row about the same thing, or at the place of its version.

Only the changed rows are written again, so comments and all other lines stay byte for byte.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from envbuilder import versions
from envbuilder.catalog import store
from envbuilder.catalog.rows import Row, TensorflowRelease
from envbuilder.support import decoding
from envbuilder.workspace import packaged, write_atomically

_TABLE = re.compile(r"(?m)^[a-z_]+:\n")
_ROW = re.compile(r"(?m)^- .*\n(?: .*\n)*")

FILES = {"cuda": "cuda.yaml", "cudnn": "cudnn.yaml", "cudnn_wheels": "cudnn.yaml"}
"""The file of a table; a distribution's rows are in the file of its name."""

_WIDTH = 120
_TEXT = re.compile(
    r"(?!(?:[yn]|yes|no|on|off|true|false|null)\Z)[a-z/](?:[\w ./+()<>=~;!-]|:(?! |\Z))*(?<! )",
    re.IGNORECASE | re.ASCII,
)
"""What is a text without quotes for every reader of YAML."""


def as_yaml(rows: Iterable[Row]) -> str:
    """Write rows, without fields at their default, as items of a YAML list, in the style of the catalogue's files."""
    return "".join(f"{line}\n" for row in rows for line in _item(row))


def _item(row: msgspec.Struct) -> Iterator[str]:
    """Yield the lines of a row, its source last; a mapping has a line for each field, a list of texts is filled."""
    fields = [field for field in msgspec.structs.fields(row) if getattr(row, field.name) != field.default]
    fields.sort(key=lambda field: field.name in Row.__struct_fields__ and isinstance(row, Row))
    lead = "- "
    for field in fields:
        value = getattr(row, field.name)
        if not isinstance(value, tuple):
            yield f"{lead}{field.name}: {_scalar(value)}"
        elif value and isinstance(value[0], msgspec.Struct):
            yield f"{lead}{field.name}:"
            yield from (f"  {line}" for one in value for line in _item(one))
        else:
            yield from _filled(f"{lead}{field.name}: [", [_scalar(one) for one in value])
        lead = "  "


def _filled(line: str, words: list[str]) -> Iterator[str]:
    for word in (*(f"{one}," for one in words[:-1]), f"{''.join(words[-1:])}]"):
        if len(line) + len(word) >= _WIDTH:
            yield line.rstrip()
            line = " " * 6
        line += f"{word} "
    yield line.rstrip()


def _scalar(value: object) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    if not value.isprintable():
        return '"' + value.encode("unicode_escape").decode().replace('"', '\\"') + '"'
    return value if _TEXT.fullmatch(value) else "'" + value.replace("'", "''") + "'"


def _key(row: Row) -> tuple[str, ...]:
    """Return the key of a row: no two rows of a table have the same."""
    return tuple(getattr(row, name) for name in ("package", "version") if name in row.__struct_fields__)


def put(text: str, table: str, row: Row) -> str:
    """Return a file's text with this row in a table; comments and other rows stay the same."""
    head = re.search(rf"(?m)^{table}:\n", text)
    if head is None:
        return f"{text}{table}:\n{as_yaml([row])}"
    start = place = head.end()
    for block in _ROW.finditer(text, start, start + len(_TABLE.split(text[start:], 1)[0])):
        (old,) = getattr(store.parse(((table, f"{table}:\n{block[0]}".encode()),)), table)
        if _key(old) == _key(row):
            return text[: block.start()] + as_yaml([row]) + text[block.end() :]
        if _order(old) <= _order(row):
            place = block.end()
    return text[:place] + as_yaml([row]) + text[place:]


def _order(row: Row) -> versions.Key:
    return versions.key(getattr(row, "version", "0"))


def write(tables: Mapping[str, Sequence[Row]]) -> tuple[str, ...]:
    """Write rows into the catalogue's own files, and return the files' names.

    Raises InfrastructureError if they cannot be written.
    """
    texts: dict[str, str] = {}
    for table, rows in tables.items():
        for row in rows:
            name = f"{row.package}.yaml" if isinstance(row, TensorflowRelease) else FILES[table]
            path = store.path_of(name)
            before = texts.get(name) or (decoding.text(packaged(path)) if path.exists() else "")
            texts[name] = put(before, table, row)
    for name, text in texts.items():
        store.parse(((name, text.encode()),))
        write_atomically(store.path_of(name), text.encode())
    store.load.cache_clear()
    return tuple(texts)
