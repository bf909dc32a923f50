"""Start an upgrade probe from any folder and any Python: ``python <this folder> MODULE [ARGUMENTS [SECONDS]]``.

The arguments are one JSON document; after so many seconds the process ends itself. The probes share modules with the
folder of the suite next to this one. The names of neither folder shadow modules of the framework.
"""

from __future__ import annotations

import time
from typing import Any

STARTED = time.perf_counter()

import importlib  # noqa: E402 - the clock starts before anything is imported
import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
import types  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = "envbuilder_probes"


def load_package() -> None:
    """Import the folder above as a package, so that no module here shadows another of that name."""
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != HERE]
    package = types.ModuleType(PACKAGE)
    package.__path__ = [os.path.dirname(HERE)]
    sys.modules[PACKAGE] = package


def main(words: list[str]) -> Any:
    """Run the probe of this name with its arguments; it prints JSON, one document a line."""
    load_package()
    order = json.loads(words[1]) if len(words) > 1 else {}
    if len(words) > 2:
        importlib.import_module(PACKAGE + ".suite.watchdog").end_after(float(words[2]))
    channel = importlib.import_module(PACKAGE + ".suite.channel")
    writer = channel.Writer(channel.private_output())
    return importlib.import_module(PACKAGE + ".upgrade." + words[0]).main(writer, dict(order, started=STARTED))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
