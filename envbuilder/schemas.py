"""Documents as JSON, and the JSON Schema and the name of a document's type."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from envbuilder.errors import printable


def as_json(document: object) -> str:
    """Write a document as indented JSON, in the field order of its type."""
    return printable.json_text(json.dumps(json.loads(msgspec.json.encode(document)), indent=2, ensure_ascii=False))


def json_schema(kind: Any) -> dict[str, Any]:  # noqa: ANN401 - a file's type may be a list of structs
    """Return the JSON Schema of a type."""
    return msgspec.json.schema(kind)


def schema_of(kind: type[msgspec.Struct]) -> str:
    """Return the schema that a document's type names: ``envbuilder/<name>/v1``, the default of its ``schema``."""
    return next(str(field.default) for field in msgspec.structs.fields(kind) if field.name == "schema")


def name_of(kind: type[msgspec.Struct]) -> str:
    """Return the name under which a document's schema is asked for."""
    return schema_of(kind).split("/")[1]
