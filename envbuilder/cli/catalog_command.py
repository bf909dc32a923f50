"""``envbuilder catalog``: show facts, compare them with artefacts, propose rows for new releases."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from envbuilder.cli.options import format_option


@click.group("catalog")
def command() -> None:
    r"""Show, verify and refresh the catalogue of facts.

    \b
    Examples:
      envbuilder catalog list                     how many rows of which kind, and the releases
      envbuilder catalog list gpus                one table
      envbuilder catalog verify                   every TensorFlow row against the package index
      envbuilder catalog verify 2.20.0 --binary   GPU code in the wheel's library
      envbuilder catalog refresh                  rows for releases that the catalogue lacks
      envbuilder catalog look IMAGE@sha256:...    inspect an image, to build on it
    """


@command.command("list")
@click.argument("table", required=False, metavar="[TABLE]")
@click.option(
    "-s",
    "--select",
    "selectors",
    multiple=True,
    metavar="SELECTOR",
    help="Select rows by a glob on names ('RTX 50*') or by field=value (compute_capability=9.0); repeat for more.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show the source of each row and how it was verified.")
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
@click.option("--fresh", is_flag=True, help="Ask the index again instead of using answers of the last hour.")
@click.option("--all", "everything", is_flag=True, help="Show agreeing fields too.")
@format_option
def verify_command(version: tuple[str, ...], form: str, *, binary: bool, fresh: bool, everything: bool) -> None:
    r"""Compare rows with the real artefacts; exit 1 if one disagrees.

    \b
    Examples:
      envbuilder catalog verify                   every row: about a minute, seconds when cached
      envbuilder catalog verify 2.20.0 2.21.0 --all
      envbuilder catalog verify 2.20.0 --binary
      envbuilder catalog verify --binary          every GPU build: 56 GB, once; continues if stopped
    """
    from envbuilder.catalog import store
    from envbuilder.cli.output import finish
    from envbuilder.pypi.client import open_index
    from envbuilder.refresh import evidence, verify_catalog
    from envbuilder.refresh.agreement import as_text
    from envbuilder.support.console import Console

    kept = None if fresh else evidence.stored()
    found = verify_catalog.run(store.load(), open_index(fresh=fresh), version, Console(), binary=binary, kept=kept)
    finish(found, form, partial(as_text, everything=everything))


@command.command("refresh")
@click.argument("version", nargs=-1, metavar="[VERSION]...")
@click.option("--package", help="Only one distribution: tensorflow, tensorflow-gpu, tensorflow-cpu or tf-nightly.")
@click.option("--write", is_flag=True, help="Write the rows to the catalogue's files.")
@format_option
def refresh_command(version: tuple[str, ...], package: str | None, form: str, *, write: bool) -> None:
    r"""Propose missing rows from the artefacts of an index, for review by a person.

    Covers releases of every distribution, lines of CUDA and cuDNN, and lists of CUDA wheels; no index contains drivers.
    A named release that has a row is read again; values that no wheel contains stay.

    \b
    Examples:
      envbuilder catalog refresh                  print what is missing as YAML
      envbuilder catalog refresh 2.22.0rc0        one release
      envbuilder catalog refresh --package tf-nightly   the newest build
      envbuilder catalog refresh --write
    """
    from envbuilder.catalog import store
    from envbuilder.cli.output import finish
    from envbuilder.pypi.client import open_index
    from envbuilder.refresh import evidence, propose, rows_file
    from envbuilder.support.console import Console

    proposer = propose.Proposer(store.load(), open_index(), propose.today(), Console().say, evidence.stored())
    found = propose.refresh(proposer, version, package)
    if write:
        for name in rows_file.write(found.tables):
            click.echo(f"wrote {name}", err=True)
    finish(found, form, propose.as_text)


@command.command("look")
@click.argument("image", metavar="IMAGE")
@format_option
def look_command(image: str, form: str) -> None:
    r"""Inspect an image's files (system, Python, C library, CUDA, cuDNN) without running it.

    The result is stored in bases/ under the image's digest, for matrices that name it in `bases`. Exits 1 if nothing
    can be built on the image, or if it differs from its catalogue row.

    \b
    Examples:
      envbuilder catalog look registry.example.org/hardened/ubuntu:22.04
      envbuilder catalog look nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04 --format json
    """
    from envbuilder.catalog import store
    from envbuilder.cli.output import finish
    from envbuilder.engine.docker import connect
    from envbuilder.jobs import base
    from envbuilder.support.console import Console
    from envbuilder.workspace import Workspace

    found = base.inspect(connect(), image, Workspace(Path.cwd()), store.load(), Console().say)
    finish(found, form, base.as_text)
