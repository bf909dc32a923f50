"""``envbuilder clean``: free the engine's disk."""

from datetime import UTC, datetime
from typing import Any

from envbuilder.cli.options import declared, moment


@declared("clean")
def command(form: str, *, cache_gb: float | None, older_than: str | None, **values: Any) -> None:  # noqa: ANN401 - click's
    from envbuilder.cli.output import finish
    from envbuilder.engine.docker import connect
    from envbuilder.jobs.clean import CleanOptions, as_text, clean

    keep = None if cache_gb is None else round(cache_gb * 1e9)
    before = moment(older_than, datetime.now(UTC)) if older_than else None
    finish(clean(connect(), CleanOptions(cache_keep=keep, before=before, **values)), form, as_text)
