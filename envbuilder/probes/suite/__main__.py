"""Start the probes from any folder, with any Python from 3.6 on: ``python -I -S <this folder>``.

Standard input has an order (a token and a plan, as JSON); the messages go to the original standard output.
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
    """Import this folder as a package, so that its modules do not shadow modules of the framework."""
    if sys.path and os.path.abspath(sys.path[0] or ".") == HERE:
        del sys.path[0]
    package = types.ModuleType(PACKAGE)
    package.__path__ = [HERE]
    sys.modules[PACKAGE] = package


def main(arguments: list[str]) -> Any:
    """Run as the runner, as one of its workers, or as a fresh process whose start-up is timed."""
    load_package()
    if arguments[:1] == ["--worker"]:
        return importlib.import_module(PACKAGE + ".worker").main(int(arguments[1]))
    if arguments:
        startup = importlib.import_module(PACKAGE + ".startup")
        return startup.sample(STARTED) if arguments == ["--sample"] else startup.traced_import()
    return importlib.import_module(PACKAGE + ".runner").main()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
