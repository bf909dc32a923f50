"""``envbuilder clean``: free the engine's disk."""

import math
from datetime import UTC, datetime

import click

from envbuilder.cli.options import format_option, moment, repository_option


def _finite(_context: click.Context, _option: click.Parameter, size: float | None) -> float | None:
    """Reject NaN and infinity, which FloatRange accepts."""
    if size is not None and not math.isfinite(size):
        raise click.BadParameter(f"{size} is not a size.")
    return size


@click.command("clean")
@click.option("--all", "everything", is_flag=True)
@click.option("--cache", "cache_gb", type=click.FloatRange(min=0), callback=_finite, metavar="GB")
@click.option("--older-than", metavar="TIME")
@click.option("--keep-last", type=click.IntRange(min=0), metavar="N")
@click.option("--dry-run", is_flag=True)
@repository_option
@format_option
def command(
    form: str, *, everything: bool, cache_gb: float | None, older_than: str | None, keep_last: int | None, dry_run: bool
) -> None:
    from envbuilder.cli.output import finish
    from envbuilder.engine.docker import connect
    from envbuilder.jobs.clean import CleanOptions, as_text, clean

    keep = None if cache_gb is None else round(cache_gb * 1e9)
    before = moment(older_than, datetime.now(UTC)) if older_than else None
    options = CleanOptions(everything=everything, cache_keep=keep, dry_run=dry_run, before=before, keep_last=keep_last)
    finish(clean(connect(), options), form, as_text)
