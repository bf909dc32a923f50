"""Documents as JSON, whole or a part at a time, and the JSON Schema and the name of a document's type."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any

import msgspec

from envbuilder.errors import decode, printable


def as_json(document: object) -> str:
    """Write a document as indented JSON, in the field order of its type."""
    return printable.json_text(json.dumps(json.loads(decode.to_json(document)), indent=2, ensure_ascii=False))


def json_pieces(document: Any) -> Iterator[str]:  # noqa: ANN401 - any struct; its name alone is known to `exits`
    """Write a document as `as_json` does, but for lists of more than `MANY` rows: a row a line, a part at a time.

    So 100,000 rows take neither their size in memory nor the time that indenting each of them takes.
    """
    names = [field.encode_name for field in msgspec.structs.fields(document)]
    values = [getattr(document, field) for field in document.__struct_fields__]
    if not any(map(_is_long, values)):
        yield as_json(document)
        return
    for number, (name, value) in enumerate(zip(names, values, strict=True)):
        yield f"{',' if number else '{'}\n  {json.dumps(name)}: "
        if _is_long(value):
            yield from _rows(value)
        else:
            yield textwrap.indent(as_json(value), "  ").lstrip()
    yield "\n}"


MANY = 1000
_PART = 4000


def _is_long(value: object) -> bool:
    return isinstance(value, tuple) and len(value) > MANY


def _rows(values: tuple[object, ...]) -> Iterator[str]:
    encoder = msgspec.json.Encoder()
    for start in range(0, len(values), _PART):
        lines = encoder.encode_lines(values[start : start + _PART]).decode()
        yield ("," if start else "[") + "\n    " + printable.json_text(lines.rstrip("\n").replace("\n", ",\n    "))
    yield "\n  ]"


def json_schema(kind: Any) -> dict[str, Any]:  # noqa: ANN401 - a file's type may be a list of structs
    """Return the JSON Schema of a type."""
    return msgspec.json.schema(kind)


def schema_of(kind: type[msgspec.Struct]) -> str:
    """Return the schema that a document's type names: ``envbuilder/<name>/v1``, the default of its ``schema``."""
    return next(str(field.default) for field in msgspec.structs.fields(kind) if field.name == "schema")


def name_of(kind: type[msgspec.Struct]) -> str:
    """Return the name under which a document's schema is asked for."""
    return schema_of(kind).split("/")[1]
