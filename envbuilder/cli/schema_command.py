"""``envbuilder schema``: print the JSON Schema of a document."""

from __future__ import annotations

import json

import click

from envbuilder.schemas import DOCUMENTS, schema


@click.command("schema")
@click.argument("name", metavar="NAME")
def command(name: str) -> None:
    r"""Print the JSON Schema of a document, for editors and for scripts that check what they read.

    \b
    Examples:
      envbuilder schema matrix > matrix.schema.json     completion in an editor
      envbuilder schema verdict
    """
    click.echo(json.dumps(schema(name), indent=2))


command.epilog = "Documents: " + ", ".join(name for name, _ in DOCUMENTS)
