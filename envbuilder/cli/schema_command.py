"""``envbuilder schema``: print the JSON Schema of a document or of a file."""

import json
from pkgutil import resolve_name
from typing import Any

import click
import msgspec

from envbuilder.cli import COMMANDS
from envbuilder.cli.options import declared
from envbuilder.cli.output import ErrorDocument
from envbuilder.compat.fleet import Fleet
from envbuilder.environment import Environment
from envbuilder.errors import UsageError
from envbuilder.image.build import ImageRecord
from envbuilder.matrix import Matrix
from envbuilder.upgrade.policy import Policy

FILES: dict[str, Any] = {"matrix": Matrix, "environment": Environment, "fleet": Fleet, "upgrade-policy": Policy}
"""Files without a field ``schema``, by name."""


DOCUMENTS: tuple[type[msgspec.Struct], ...] = (
    *map(resolve_name, dict.fromkeys(f"envbuilder.{place}" for _, _, *answers in COMMANDS for place in answers)),
    ImageRecord,
    ErrorDocument,
)
"""Everything that names its schema: what commands print, and what they leave in ``out/``."""


def schema_of(kind: type[msgspec.Struct]) -> str:
    """Return the schema of a document's type, ``envbuilder/<name>/v1``: the default of its field ``schema``."""
    return next(str(field.default) for field in msgspec.structs.fields(kind) if field.name == "schema")


NAMES: dict[str, Any] = {**FILES, **{schema_of(kind).split("/")[1]: kind for kind in DOCUMENTS}}


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a document or a file. Raises UsageError that names them all for an unknown name."""
    if name not in NAMES:
        raise UsageError(f"there is no document {name!r}", hint="one of: " + ", ".join(NAMES))
    found = msgspec.json.schema(NAMES[name])
    for kind in found["$defs"].values():
        keys = kind.get("properties", {})
        keys |= {key["alias"]: {**key, "deprecated": True} for key in keys.values() if "alias" in key}
    return found


@declared("schema")
def command(name: str | None) -> None:
    click.echo("\n".join(NAMES) if name is None else json.dumps(schema(name), indent=2))


command.epilog = "Documents: " + ", ".join(NAMES)
