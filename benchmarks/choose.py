# ruff: noqa: INP001 - benchmarks are programs, not a package
"""Measure `envbuilder choose` for old and new hosts and for this one: exits 1 above 0.5 s of processor time.

Run: ``python benchmarks/choose.py``
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from plan import best

LIMIT_S = 0.5
QUESTIONS = (
    "",
    "--gpu H100 --driver 580.65.06",
    "--gpu A100 --driver 535.104.05 --variant notebook",
    "--gpu V100 --driver 418.87.00",
    "--gpu K80 --driver 470.57.02 --tensorflow >=2.10,<2.16",
    "--gpu RTX-5090 --driver 470",
)
"""The newest release works for the first, an old release for the fourth, none for the last."""


def main() -> int:
    """Print the best of three runs of each question as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        used = {question or "this host": best(["choose", *question.split()], Path(folder))[0] for question in QUESTIONS}
    sys.stdout.write(json.dumps({question: round(seconds, 2) for question, seconds in used.items()}) + "\n")
    return int(max(used.values()) > LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
