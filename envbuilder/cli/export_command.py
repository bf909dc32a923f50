"""``envbuilder export``: verdicts and environments for other tools."""

import os
from datetime import UTC, datetime
from pathlib import Path

from envbuilder.cli.options import declared, moment

_OF_ENVIRONMENTS = ("compose", "devcontainer", "kubernetes", "github", "gitlab")


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
