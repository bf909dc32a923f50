"""Options that several commands share, so that they read and behave alike."""

from __future__ import annotations

import os

import click

matrix_argument = click.argument("matrix", required=False, metavar="[MATRIX]")

select_option = click.option(
    "-s",
    "--select",
    "selectors",
    multiple=True,
    metavar="SELECTOR",
    help="Only these environments: a glob on ids ('tf2.1[89]*') or key=value (tensorflow=2.20.0). Several are a union.",
)

format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="table for people, json for scripts (one document on standard output).",
)

jobs_option = click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, 64),
    default=min(2, os.cpu_count() or 1),
    show_default=True,
    help="Builds at a time. Validation is always one at a time: it measures.",
)
