"""``envbuilder upgrade``: compare two TensorFlow versions, or find the release at which a command begins to fail."""

from pathlib import Path
from typing import Any

import click

from envbuilder.cli import options as common

_FILE = common.FilePath(exists=True, dir_okay=False, path_type=Path)
_SECONDS = click.IntRange(1, 86400)
_FOLDER = common.FilePath(exists=True, file_okay=False, path_type=Path)


@click.command("upgrade", context_settings={"ignore_unknown_options": False})
@click.argument("old")
@click.argument("new")
@click.argument(common.CMD, nargs=-1, type=click.UNPROCESSED, metavar="[-- CMD]...")
@click.option("--bisect", is_flag=True)
@click.option("--axis", type=click.Choice(["tensorflow", "cuda", "cudnn"]), default="tensorflow", show_default=True)
@click.option("--tensorflow", metavar="VERSION")
@click.option("--check", metavar="NAME")
@click.option("--repeat", type=click.IntRange(1, 100), default=1)
@common.matrix_option
@common.select_option
@click.option("--fleet", type=_FILE, metavar="FILE")
@click.option("--gpu", multiple=True, metavar="NAME", shell_complete=common.complete_gpu)
@click.option("--driver", metavar="VERSION")
@click.option("--dry-run", is_flag=True)
@click.option("--suite", type=_FOLDER, metavar="DIR")
@click.option("--test-limit", type=_SECONDS, default=90, show_default=True)
@click.option("--suite-limit", type=_SECONDS, default=3600, show_default=True)
@click.option("--wheel", type=_FILE, metavar="FILE")
@click.option("--policy", type=common.FilePath(resolve_path=True), metavar="FILE")
@click.option("--flavor", type=click.Choice(["cpu", "gpu"]))
@click.option("--rounds", type=click.IntRange(1, 1000))
@click.option("--fresh", is_flag=True)
@common.gpus_option
@common.progress_options
@click.option("--format", "form", type=click.Choice(["table", "json", "markdown"]), default="table", show_default=True)
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
