"""``envbuilder export``: verdicts and environments for other tools."""

import os
from datetime import UTC, datetime
from pathlib import Path

import click
from click.core import ParameterSource

from envbuilder.cli.options import declared, moment
from envbuilder.errors import UsageError

_WITH_IMAGES = ("compose", "devcontainer", "kubernetes")
_OF_ENVIRONMENTS, _OF_VERDICTS = (*_WITH_IMAGES, "github", "gitlab"), ("junit", "markdown", "prometheus")
_EFFECTS = {"store": _OF_VERDICTS, "since": _OF_VERDICTS, "repository": _WITH_IMAGES}
"""The formats for which an option has an effect; every other option has one for each."""


@declared("export")
def command(
    form: str,
    files: tuple[str, ...],
    selectors: tuple[str, ...],
    store: Path | None,
    since: str | None,
    output: Path | None,
) -> None:
    from envbuilder.cli.output import write_output

    source = click.get_current_context().get_parameter_source
    for name, forms in _EFFECTS.items():
        if form not in forms and source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(f"--{name} has no effect on {form}, only on {', '.join(forms)}", hint="leave it out")
    text = _environments(form, files, selectors) if form in _OF_ENVIRONMENTS else None
    if text is None:
        from envbuilder.report.export import export_verdicts
        from envbuilder.workspace import Workspace

        start = moment(since, datetime.now(UTC)) if since else None
        text = export_verdicts(form, Workspace.here(), tuple(map(Path, files)), store, start, selectors)
    write_output(text, output)


def _environments(form: str, matrices: tuple[str, ...], selectors: tuple[str, ...]) -> str:
    from envbuilder.catalog.store import load
    from envbuilder.choice import choose_all, default_matrix
    from envbuilder.jobs.project import export_project
    from envbuilder.workspace import project_folder

    root = project_folder()
    names = matrices or (default_matrix(root),)
    matrix = os.path.relpath(names[0], root) if Path(names[0]).is_file() else names[0]
    return export_project(form, matrix, choose_all(names, selectors, root, load()))
