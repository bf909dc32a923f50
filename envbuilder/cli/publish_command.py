"""``envbuilder publish``: push, validate by digest, state, sign and promote."""

from __future__ import annotations

import os
from pathlib import Path

import click

from envbuilder.cli.options import (
    format_option,
    gpus_option,
    keyless_option,
    matrix_argument,
    profile_option,
    select_option,
    sign_option,
)


@click.command("publish")
@matrix_argument
@select_option
@format_option
@click.option("--to", "to", required=True, metavar="HOST/REPOSITORY", help="Where the images go.")
@sign_option
@keyless_option
@click.option("--moving", multiple=True, metavar="TAG", help="A further tag that moves to this image, such as latest.")
@click.option(
    "--allow",
    multiple=True,
    type=click.Choice(["inconclusive"]),
    help="Publish although the verdict is INCONCLUSIVE. The statement says so; verify still refuses it.",
)
@profile_option
@gpus_option
@click.option("--no-sbom", is_flag=True, help="Leave the bill of materials out: it means reading the whole image.")
@click.option(
    "--zstd",
    is_flag=True,
    help="Publish the same image with its layers in zstd too, under each of its tags with -zstd behind it.",
)
@click.option(
    "--zstd-level",
    type=click.IntRange(1, 19),
    help="How hard zstd tries: a higher level is smaller, and slower.  [default: 12]",
)
@click.option("--dry-run", is_flag=True, help="Show the tags and where they point now; change nothing.")
def command(
    matrix: str | None,
    selectors: tuple[str, ...],
    form: str,
    to: str,
    keys: tuple[Path, ...],
    keyless: bool,  # noqa: FBT001
    moving: tuple[str, ...],
    allow: tuple[str, ...],
    profile: str,
    gpus: str,
    no_sbom: bool,  # noqa: FBT001
    zstd: bool,  # noqa: FBT001
    zstd_level: int | None,
    dry_run: bool,  # noqa: FBT001
) -> None:
    r"""Push built images aside, validate each by its digest, attach signed statements, and only then tag it in public.

    An image gets a tag of its own (ID-<image id>), which never moves, and its environment's id, which moves last.
    A run that was killed leaves no public tag on an unvalidated image; the same command completes it.

    Engines push layers in gzip. With --zstd each layer is then packed in zstd as well, read back from the registry and
    held to the image that was judged: a second manifest of it, smaller to pull, for containerd 1.5 and Docker 23 on.

    \b
    Examples:
      envbuilder publish --to registry.example.org/ml/tensorflow --key ~/.envbuilder/envbuilder.key
      envbuilder publish -s flavor=cpu --to registry.example.org/ml/tensorflow --key k --moving latest
      envbuilder publish -s flavor=gpu --to registry.example.org/ml/tensorflow --key k --allow inconclusive
      envbuilder publish -s form=runtime --to registry.example.org/ml/tensorflow --key k --zstd
      envbuilder publish --to registry.example.org/ml/tensorflow --dry-run
    """
    from envbuilder.catalog.store import load
    from envbuilder.choice import choose
    from envbuilder.cli.output import finish
    from envbuilder.engine.docker import connect
    from envbuilder.errors import UsageError
    from envbuilder.host import describe
    from envbuilder.publish.publish_all import Session, Wish, allowance, plan_all, publish_all, sealer_of
    from envbuilder.publish.publish_text import as_text
    from envbuilder.publish.tag_names import check_moving, destination
    from envbuilder.publish.zstd_form import LEVEL
    from envbuilder.support.console import Console
    from envbuilder.workspace import Workspace

    if zstd_level is not None and not zstd:
        raise UsageError("--zstd-level says how --zstd packs", hint="add --zstd")
    check_moving(moving)
    workspace = Workspace(Path.cwd())
    choice = choose(matrix, selectors, workspace, load())
    wish = Wish(
        to=destination(to),
        moving=moving,
        allow=allowance(allow),
        profile="full" if profile == "full" else "quick",
        gpus=gpus,
        sbom=not no_sbom,
        zstd=(zstd_level or LEVEL) if zstd else None,
    )
    say = Console().say
    session = Session(connect(), workspace, say, dict(os.environ), describe())
    if dry_run:
        document = plan_all(choice, wish, session)
    else:
        sealer = sealer_of(keys, keyless=keyless, environment=os.environ, say=say)
        document = publish_all(choice, wish, sealer, session)
    finish(document, form, as_text)
