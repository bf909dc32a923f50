"""``envbuilder keys``: make and show signing keys."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from envbuilder.cli.options import FilePath
from envbuilder.errors import UsageError


@click.group("keys")
def command() -> None:
    r"""Make and show the ed25519 keys that sign statements.

    \b
    Examples:
      envbuilder keys new ~/.envbuilder
      envbuilder keys show ~/.envbuilder/envbuilder.pub
    """


@command.command("new")
@click.argument("folder", type=FilePath(path_type=Path, file_okay=False))
@click.option("--expires", metavar="AGE", help="How long the key is to be trusted: 365d. It stands in the public file.")
def new(folder: Path, expires: str | None) -> None:
    r"""Make a key pair in FOLDER: envbuilder.key (yours alone) and envbuilder.pub (for everybody).

    Nothing is ever overwritten. With ENVBUILDER_KEY_PASSWORD set, the private key is encrypted with it.

    \b
    Example:
      envbuilder keys new ~/.envbuilder
      envbuilder keys new ~/.envbuilder --expires 365d
    """
    from envbuilder.attest.keys import PRIVATE, PUBLIC, create
    from envbuilder.publish.verify_request import duration

    until = _end(duration(expires)) if expires else None
    made = create(folder, password=os.environ.get("ENVBUILDER_KEY_PASSWORD") or None, expires=until)
    click.echo(f"{folder / PRIVATE}  the private key: keep it to yourself", err=True)
    click.echo(f"{folder / PUBLIC}  the public key: give it to whoever verifies", err=True)
    click.echo(made.keyid)


def _end(seconds: float) -> datetime:
    """Say when a key ends. Raises UsageError for what is over at once, and for what no calendar holds."""
    try:
        until = datetime.now(UTC) + timedelta(seconds=seconds)
    except OverflowError:
        until = None
    if not seconds or until is None:
        raise UsageError("--expires is no time for which a key can be trusted", hint="365d, or leave it out")
    return until


@command.command("show")
@click.argument("file", type=FilePath(path_type=Path, dir_okay=False))
def show(file: Path) -> None:
    r"""Print a public key's id (as statements name it) and the key.

    \b
    Example:
      envbuilder keys show envbuilder.pub
    """
    from envbuilder.attest.keys import load_public_keys

    for key in load_public_keys(file):
        limit = f"trusted until {key.expires}\n" if key.expires else ""
        click.echo(f"{key.keyid}\n{limit}{key.pem}", nl=False)
