"""``envbuilder controls``: test the validation suite with images that are broken on purpose."""

from typing import Literal

from envbuilder.cli.options import declared


@declared("controls")
def command(names: tuple[str, ...], listed: bool, profile: Literal["quick", "full"], form: str) -> None:  # noqa: FBT001
    from envbuilder.catalog.store import load
    from envbuilder.cli.output import finish
    from envbuilder.controls.control import list_text, listed_of, named
    from envbuilder.controls.run import Controller, as_text
    from envbuilder.engine.docker import connect
    from envbuilder.pypi.client import open_index
    from envbuilder.support.console import Console
    from envbuilder.workspace import Workspace

    controls = named(names)
    if listed:
        finish(listed_of(controls), form, list_text)
    workspace = Workspace.here()
    controller = Controller(workspace, connect(), open_index(), load(), Console(), profile)
    finish(controller.run(controls), form, as_text)
