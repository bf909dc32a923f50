"""The good images that tests start from: built once in `out/` of the checkout, for every test and worker."""

import fcntl
from pathlib import Path

from envbuilder.catalog.store import load
from envbuilder.controls.control import Base
from envbuilder.controls.run import Controller
from envbuilder.engine.docker import connect
from envbuilder.image.build import Built
from envbuilder.pypi.client import open_index
from envbuilder.support.console import Console
from envbuilder.workspace import Workspace

REPOSITORY = Path(__file__).parents[2]


class SharedController(Controller):
    """Builds a good image in one worker only; the others wait and find it."""

    def good(self, base: Base) -> Built:
        self.workspace.out.mkdir(exist_ok=True)
        with (self.workspace.out / "good-images.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            return super().good(base)


def shared_controller() -> Controller:
    return SharedController(Workspace(REPOSITORY), connect(), open_index(), load(), Console())
