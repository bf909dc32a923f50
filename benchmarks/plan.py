# ruff: noqa: INP001 - benchmarks are programs, not a package
"""Measure `envbuilder plan --format json` of 5,120 combinations: exits 1 above 5 s of processor time or 300 MB.

Run: ``python benchmarks/plan.py``
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import yaml

from envbuilder.catalog.store import load

LIMIT_S, LIMIT_MB = 5.0, 300
RUNS = 3


def matrix() -> dict[str, object]:
    """Make a matrix of every release with most CUDA and cuDNN versions."""
    axes = {
        "tensorflow": [row.version for row in load().tensorflow if row.package == "tensorflow"],
        "python": ["3.9", "3.11"],
        "os": ["debian-bookworm", "ubuntu-22.04"],
        "flavor": ["cpu", "gpu"],
        "cuda": ["11.8", "12.2", "12.5"],
        "cudnn": ["8.1", "8.6", "8.9", "9.1", "9.3"],
    }
    targets = {"drivers": ["535.104.05", "580.65.06"], "gpus": ["T4", "A100"]}
    return {"name": "benchmark", "axes": axes, "targets": targets}


def best(words: Sequence[str], folder: Path) -> tuple[float, int]:
    """Return processor time (s) and memory (MB) of a command's best run: the others measured other work of this host.

    Its output is in ``output`` of the folder.
    """
    runs = []
    for _ in range(RUNS):
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen([sys.executable, "-m", "envbuilder", *words], cwd=folder, stdout=output)
            _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        runs.append((used.ru_utime + used.ru_stime, used.ru_maxrss // 1024))
    return min(runs)


def main() -> int:
    """Print the best of three runs as JSON."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "m.yaml").write_text(yaml.safe_dump(matrix()))
        seconds, memory = best(["plan", "m.yaml", "--format", "json"], folder)
        document = json.loads((folder / "output").read_bytes())
    counts = {name: len(value) for name, value in document.items() if isinstance(value, list)}
    sys.stdout.write(json.dumps({**counts, "cpu_s": round(seconds, 2), "peak_mb": memory}) + "\n")
    return int(seconds > LIMIT_S or memory > LIMIT_MB)


if __name__ == "__main__":
    sys.exit(main())
