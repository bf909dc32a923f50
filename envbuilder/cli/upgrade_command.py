"""``envbuilder upgrade``: compare two TensorFlow versions, or find the release at which a command begins to fail."""

from typing import Any

from envbuilder.cli import options as common


@common.declared("upgrade")
def command(form: str, *, bisect: bool, **values: Any) -> None:  # noqa: ANN401 - click's values
    from envbuilder.catalog.store import load
    from envbuilder.cli.output import finish
    from envbuilder.upgrade import bisect as bisection
    from envbuilder.upgrade import text
    from envbuilder.upgrade.upgrade import bisect_versions, compare_versions, read_upgrade
    from envbuilder.workspace import project_folder

    console, root = common.console_of(values), project_folder()
    options, catalog = read_upgrade(values, root, load(), bisect=bisect)
    if bisect:
        found = bisect_versions(options, root, console, catalog)
        finish(found, form, bisection.as_text, bisection.as_markdown)
    document = compare_versions(options, root, console, catalog)
    finish(document, form, text.as_text, text.as_markdown)
