"""``envbuilder keys``: create and show signing keys."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from envbuilder.cli.options import declared
from envbuilder.errors import UsageError


@click.group("keys")
def command() -> None: ...


@declared("keys new", command)
def new(folder: Path, expires: str | None) -> None:
    from envbuilder.attest.keys import PRIVATE, PUBLIC, create
    from envbuilder.support.terminal_text import duration

    until = _end(duration(expires)) if expires else None
    if (password := os.environ.get("TF_ENVBUILDER_KEY_PASSWORD")) == "":
        text = "TF_ENVBUILDER_KEY_PASSWORD is empty, so that the key would not be protected"
        raise UsageError(text, hint="set a password, or unset the variable")
    key = create(folder, password=password, expires=until)
    click.echo(f"{folder / PRIVATE}  the private key: keep it secret", err=True)
    click.echo(f"{folder / PUBLIC}  the public key: give it to people who verify images", err=True)
    click.echo(key.public.keyid)


def _end(seconds: float) -> datetime:
    """Return the end of a duration. Raises UsageError for zero and for a date that does not exist."""
    try:
        until = datetime.now(UTC) + timedelta(seconds=seconds)
    except OverflowError:
        until = None
    if not seconds or until is None:
        raise UsageError(
            "--expires must be positive and end before the year 10000",
            hint="use a duration such as --expires 365d, or omit the option",
        )
    return until


@declared("keys show", command)
def show(file: Path) -> None:
    from envbuilder.attest.keys import load_public_keys

    for key in load_public_keys(file):
        limit = f"trusted until {key.expires.isoformat()}\n" if key.expires else ""
        click.echo(f"{key.keyid}\n{limit}{key.pem}", nl=False)
