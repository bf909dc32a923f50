"""``envbuilder explain``: explain a finding code or an environment."""

from envbuilder.cli.options import declared


@declared("explain")
def command(name: str, matrix: str | None, form: str) -> None:
    from envbuilder.catalog.store import load
    from envbuilder.cli.output import finish
    from envbuilder.jobs.explain import as_text, explain
    from envbuilder.workspace import project_folder

    finish(explain(name, matrix, project_folder(), load()), form, as_text)
