"""``envbuilder clean``: free the engine's disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from envbuilder.cli.options import format_option

if TYPE_CHECKING:
    from envbuilder.jobs.clean import CleanDocument


@click.command("clean")
@click.option("--all", "everything", is_flag=True, help="The environments' images and their bases too.")
@click.option(
    "--cache",
    "cache_gb",
    type=click.FloatRange(min=0),
    metavar="GB",
    help="Trim the builder's cache to this size, least recently used first. Other builds share it.",
)
@click.option("--dry-run", is_flag=True, help="Only list what would go.")
@format_option
def command(everything: bool, cache_gb: float | None, dry_run: bool, form: str) -> None:  # noqa: FBT001
    r"""Remove images that were made on the way: for reports, upgrades and controls; and replaced builds.

    What they were made from and what came of it stays: images/, locks, verdicts, published images.

    \b
    Examples:
      envbuilder clean --dry-run
      envbuilder clean --cache 10
      envbuilder clean --all
    """
    from envbuilder.engine.docker import connect
    from envbuilder.jobs.clean import CleanOptions, clean
    from envbuilder.schemas import as_json

    keep = None if cache_gb is None else round(cache_gb * 1e9)
    document = clean(connect(), CleanOptions(everything=everything, cache_keep=keep, dry_run=dry_run))
    click.echo(as_json(document) if form == "json" else _text(document))
    raise click.exceptions.Exit(5 if any(image.kept for image in document.images) else 0)


def _text(document: CleanDocument) -> str:
    from envbuilder.console import table

    verb = "would go" if document.dry_run else "removed"
    rows = [(row.reference, f"{row.size / 1e9:.2f} GB", row.kept or verb) for row in document.images]
    lines = [table(("image", "size", ""), rows)] if rows else ["no image of ours to remove"]
    if document.containers:
        lines.append(f"{document.containers} containers of interrupted runs removed")
    if document.freed:
        lines.append(f"{document.freed / 1e9:.2f} GB freed of replaced builds and the builder's cache")
    return "\n".join(lines)
