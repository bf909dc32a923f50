"""Run the command line as on a machine that has nothing: no registry, no base, no image of ours, no cache.

``python bare_machine.py WORDS…``: the engine is this machine's, in which our images have names of their own meanwhile.
"""

import os
import sys
from typing import NoReturn

from envbuilder.cli import main
from envbuilder.engine.docker import DockerEngine
from envbuilder.errors import InfrastructureError
from envbuilder.image import names
from envbuilder.image.host_settings import REPOSITORY

PREFIX = "envbuilder-bare"


def no_registry(_: DockerEngine, reference: str) -> NoReturn:
    """Be without a registry, whatever this machine has."""
    raise InfrastructureError(f"{reference}: there is no registry here")


def bare() -> None:
    """Take everything away."""
    names.BASES, os.environ[REPOSITORY] = f"{PREFIX}/base", f"{PREFIX}/tensorflow"
    DockerEngine.reach = DockerEngine.pull = no_registry  # type: ignore[assignment,method-assign]


if __name__ == "__main__":
    bare()
    sys.exit(main(sys.argv[1:]))
