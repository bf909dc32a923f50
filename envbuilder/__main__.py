"""Run the command line: ``python -m envbuilder`` and the ``envbuilder`` script."""

from __future__ import annotations

from envbuilder.cli import main

if __name__ == "__main__":
    main()
