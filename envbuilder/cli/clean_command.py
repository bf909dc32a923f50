"""``envbuilder clean``: free the engine's disk."""

from datetime import UTC, datetime

from envbuilder.cli.options import declared, moment


@declared("clean")
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
