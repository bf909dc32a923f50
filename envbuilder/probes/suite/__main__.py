"""Start the probes from any folder and any Python, without putting this folder's names in the framework's way.

``python -I -S <this folder>`` reads an order (a key and a plan, as JSON) from standard input and answers with sealed
messages on what was its standard output.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
import types
from typing import Any

STARTED = time.monotonic()
HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = "envbuilder_probes"


def load_package() -> None:
    """Make this folder a package of its own name, so that no module here can shadow another of that name."""
    if sys.path and os.path.abspath(sys.path[0] or ".") == HERE:
        del sys.path[0]
    package = types.ModuleType(PACKAGE)
    package.__path__ = [HERE]
    sys.modules[PACKAGE] = package


def main(arguments: list[str]) -> Any:
    """Run as the runner, which may have to look for its Python first, or as one of its workers or samples."""
    load_package()
    if arguments[:1] == ["--worker"]:
        worker = importlib.import_module(PACKAGE + ".worker")
        return worker.main(int(arguments[1]))
    if arguments[:1] == ["--sample"]:
        return importlib.import_module(PACKAGE + ".sample").main(int(arguments[1]), STARTED)
    if arguments[:1] == ["--seek"]:
        importlib.import_module(PACKAGE + ".seek").settle(int(arguments[1]), arguments[2:])
    code = importlib.import_module(PACKAGE + ".runner").main()
    importlib.import_module(PACKAGE + ".seek").end_all_others()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
