"""``envbuilder catalog``: show the facts, check them against the artefacts, propose rows for new releases."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from envbuilder.cli.options import format_option


@click.group("catalog")
def command() -> None:
    r"""Show, check and renew the facts that every answer rests on.

    \b
    Examples:
      envbuilder catalog list                     how many rows of which kind, and the releases
      envbuilder catalog list gpus                one table
      envbuilder catalog verify                   every TensorFlow row against the package index
      envbuilder catalog verify 2.20.0 --binary   what GPU code the wheel's library really holds
      envbuilder catalog refresh                  rows for releases that the catalogue lacks
      envbuilder catalog look IMAGE@sha256:...    what an image holds, to build on it
    """


@command.command("list")
@click.argument("table", required=False, metavar="[TABLE]")
@click.option(
    "-s",
    "--select",
    "selectors",
    multiple=True,
    metavar="SELECTOR",
    help="Only these rows: a glob on names ('RTX 50*') or field=value (compute_capability=9.0). Several are a union.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show where each row comes from, and how it was checked.")
@format_option
def list_command(table: str | None, form: str, *, selectors: tuple[str, ...], verbose: bool) -> None:
    r"""Print a table of the catalogue: tensorflow, cuda, cudnn, drivers, gpus, systems, images, reports.

    \b
    Examples:
      envbuilder catalog list gpus -s 'RTX 50*' -v
      envbuilder catalog list tensorflow -s cuda=12.5 --format json
    """
    from envbuilder.catalog import store
    from envbuilder.cli.output import finish
    from envbuilder.jobs import listing

    found = listing.list_catalog(store.load(), table, selectors)
    finish(found, form, partial(listing.as_text, table=table, sources=verbose))


@command.command("verify")
@click.argument("version", nargs=-1, metavar="[VERSION]...")
@click.option("--binary", is_flag=True, help="Read the GPU code inside the wheels' shared objects (up to 0.6 GB each).")
@click.option("--fresh", is_flag=True, help="Ask the index again instead of believing what was read within the hour.")
@click.option("--all", "everything", is_flag=True, help="Show what agrees, too.")
@format_option
def verify_command(version: tuple[str, ...], form: str, *, binary: bool, fresh: bool, everything: bool) -> None:
    r"""Compare rows with the real artefacts; exit 1 where one disagrees.

    \b
    Examples:
      envbuilder catalog verify                   every row: about a minute, seconds when cached
      envbuilder catalog verify 2.20.0 2.21.0 --all
      envbuilder catalog verify 2.20.0 --binary
      envbuilder catalog verify --binary          every GPU build: 56 GB, once; a run that was stopped goes on
    """
    from envbuilder.catalog import store
    from envbuilder.cli.output import finish
    from envbuilder.pypi.open_index import evidence, open_index
    from envbuilder.refresh import verify_catalog
    from envbuilder.refresh.agreement import as_text
    from envbuilder.support.console import Console

    kept = None if fresh else evidence()
    found = verify_catalog.run(store.load(), open_index(fresh=fresh), version, Console(), binary=binary, kept=kept)
    finish(found, form, partial(as_text, everything=everything))


@command.command("refresh")
@click.argument("version", nargs=-1, metavar="[VERSION]...")
@click.option("--package", help="One distribution alone: tensorflow, tensorflow-gpu, tensorflow-cpu or tf-nightly.")
@click.option("--write", is_flag=True, help="Put the rows into the catalogue's files.")
@format_option
def refresh_command(version: tuple[str, ...], package: str | None, form: str, *, write: bool) -> None:
    r"""Propose rows that the catalogue lacks, made from their artefacts, to be reviewed by a person.

    Releases of every distribution, lines of CUDA and cuDNN, lists of CUDA wheels; no index shows anything of drivers.
    A release that is named and has a row is read again, and keeps what no wheel says.

    \b
    Examples:
      envbuilder catalog refresh                  print what is missing as YAML
      envbuilder catalog refresh 2.22.0rc0        one release
      envbuilder catalog refresh --package tf-nightly   the newest build
      envbuilder catalog refresh --write
    """
    from envbuilder.catalog import store
    from envbuilder.cli.output import finish
    from envbuilder.pypi.open_index import evidence, open_index
    from envbuilder.refresh import propose, put_rows
    from envbuilder.support.console import Console

    proposer = propose.Proposer(store.load(), open_index(), propose.today(), Console().say, evidence())
    found = propose.refresh(proposer, version, package)
    if write:
        for name in put_rows.write(found.tables):
            click.echo(f"wrote {name}", err=True)
    finish(found, form, propose.as_text)


@command.command("look")
@click.argument("image", metavar="IMAGE")
@format_option
def look_command(image: str, form: str) -> None:
    r"""Look into an image: its system, Python, C library, CUDA and cuDNN, by its files; nothing of it is run.

    What is found is kept in bases/, under the image's digest, for matrices that name it among their `bases`. Exits 1
    where nothing can be built on it, or where it is not what the catalogue says of its name.

    \b
    Examples:
      envbuilder catalog look registry.example.org/hardened/ubuntu:22.04
      envbuilder catalog look nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04 --format json
    """
    from envbuilder.catalog import store
    from envbuilder.cli.output import finish
    from envbuilder.engine.docker import connect
    from envbuilder.jobs import base_found
    from envbuilder.support.console import Console
    from envbuilder.workspace import Workspace

    found = base_found.look_into(connect(), image, Workspace(Path.cwd()), store.load(), Console().say)
    finish(found, form, base_found.as_text)
