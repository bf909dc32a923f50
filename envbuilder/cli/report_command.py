"""``envbuilder report``: write the verdicts as a page."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click
from click.core import ParameterSource

from envbuilder.cli.options import declared, moment


@declared("report")
def command(
    matrices: tuple[str, ...],
    output: Path | None,
    store: Path | None,
    since: str | None,
    repository: str | None,
    keys: tuple[Path, ...],
    on: str | None,
    max_age: str,
    opened: bool,  # noqa: FBT001 - click passes it by name
) -> None:
    from envbuilder.catalog.store import load
    from envbuilder.choice import SHIPPED, VETTED, local_matrices
    from envbuilder.errors import UsageError
    from envbuilder.publish.attached_statements import PublishedVerdicts
    from envbuilder.publish.verify_request import fetch, standings
    from envbuilder.report.page import write
    from envbuilder.report.report_data import collect
    from envbuilder.support.console import Console
    from envbuilder.workspace import Workspace

    now = datetime.now(UTC)
    start = moment(since, now) if since else None
    workspace = Workspace.here()
    catalog = load()
    aged = click.get_current_context().get_parameter_source("max_age") is ParameterSource.COMMANDLINE
    source = ("--from", "HOST/REPOSITORY", repository)
    for name, is_given, (other, value, has) in (
        ("--on", on is not None, source),
        ("--key", bool(keys), source),
        ("--max-age", aged, ("--on", "CLASSES", on)),
    ):
        if is_given and has is None:
            raise UsageError(f"{name} needs {other}", hint=f"add {other} {value}, or leave {name} out")
    standings(PublishedVerdicts(), on, max_age, catalog.gpu_names)  # refuses words before anything is fetched
    found = None
    if repository is not None:
        with (shown := Console()).live(), shown.task(repository) as task:
            found = fetch(repository, keys, shown.say, task.update)
    given = matrices or local_matrices(workspace.root) or (SHIPPED,)
    known = tuple(name for one in given for name in (VETTED if one == SHIPPED else (one,)))
    material = collect(workspace, known, store, start, catalog, found.verdicts if found else ())
    if found is not None:
        states = standings(found, on, max_age, catalog.gpu_names)
        material = replace(material, standings=states, answered=tuple(found.answered))
    page = write(material, output or workspace.out / "report", now)
    click.echo(page)
    if opened:
        click.launch(str(page))
