"""Options that several commands share, so that they read and behave alike."""

from __future__ import annotations

import os
from pathlib import Path

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

profile_option = click.option(
    "--profile",
    type=click.Choice(["quick", "full"]),
    default="quick",
    show_default=True,
    help="quick answers within a few imports' time; full adds samples, stalls and all libraries' closure.",
)

gpus_option = click.option(
    "--gpus",
    default="auto",
    show_default=True,
    metavar="auto|none|all|0,1",
    help="GPUs to hand to the container; auto takes all that the driver and the engine offer.",
)

pull_option = click.option(
    "--pull",
    is_flag=True,
    help="Renew the bases first, from the registry or Debian's packages of today; images follow where they changed.",
)

sign_option = click.option(
    "--key",
    "keys",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A private key that signs (envbuilder keys new).",
)

keyless_option = click.option(
    "--keyless", is_flag=True, help="Sign by Sigstore with this CI job's identity instead of a key."
)
