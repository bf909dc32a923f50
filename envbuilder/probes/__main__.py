"""Start the probes from any folder and any Python, without putting this folder's names in the framework's way.

``python <this folder> PLAN.json`` runs a plan and prints one JSON document a line;
``python <this folder> --identify`` describes the TensorFlow that this Python would import, without importing it.
"""

import importlib
import importlib.util
import os
import sys
import time

STARTED = time.monotonic()
HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = "envbuilder_probes"


def load_package():
    """Import this folder as a package of its own name, so that no module here can shadow another of that name."""
    if sys.path and os.path.abspath(sys.path[0] or ".") == HERE:
        del sys.path[0]
    spec = importlib.util.spec_from_file_location(
        PACKAGE, os.path.join(HERE, "__init__.py"), submodule_search_locations=[HERE]
    )
    package = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = package
    spec.loader.exec_module(package)


def main(arguments):
    """Run as the runner, as one of its workers or samples, or as the identification of what is installed."""
    load_package()
    if arguments[:1] == ["--worker"]:
        worker = importlib.import_module(PACKAGE + ".worker")
        return worker.main(int(arguments[1]), arguments[2], STARTED)
    if arguments[:1] == ["--sample"]:
        return importlib.import_module(PACKAGE + ".sample").main(int(arguments[1]), STARTED)
    if arguments[:1] == ["--layers"]:
        return importlib.import_module(PACKAGE + ".layers_left").main()
    if arguments[:1] == ["--identify"]:
        return importlib.import_module(PACKAGE + ".identify").main()
    return importlib.import_module(PACKAGE + ".runner").main(arguments[0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
