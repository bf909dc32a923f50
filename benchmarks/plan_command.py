# ruff: noqa: INP001 - benchmarks are programs, not a package
"""How long `envbuilder plan` takes as a user runs it, and how much memory; exits 1 above the limits.

Two questions: 100,000 combinations as JSON (3 s of processor time, 300 MB), and a fleet of 1,000 hosts as a table of at
most 120 columns.

Run: ``python benchmarks/plan_command.py``
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml
from plan import MATRIX

import envbuilder
from envbuilder.cli.output import as_json

LIMIT_S, LIMIT_MB, COLUMNS = 3.0, 300, 120
RUNS = 3
GPUS = ("Tesla T4", "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB", "NVIDIA L4", "NVIDIA H100 80GB HBM3")
DRIVERS = ("450.80.02", "470.57.02", "525.85.12", "535.104.05", "550.54.15", "570.124.06", "580.65.06", "590.44.01")
HOSTS = [
    {"name": f"host-{number:04}", "driver": DRIVERS[number % 8], "gpus": [GPUS[number % 5]] * (1 + number % 3)}
    for number in range(1000)
]


_MEASURED = """
import pathlib, re, sys
from envbuilder.cli import main
try:
    main()
finally:
    status = pathlib.Path("/proc/self/status").read_text()
    print(re.search(r"VmHWM:\\s+(\\d+)", status)[1], file=sys.stderr)
"""
"""Runs the command and says last, on standard error, the most memory that it held, in KiB."""


def run(*arguments: str) -> tuple[str, dict[str, float]]:
    """Run the command once in a process of its own: what it printed, its times, and its peak of memory."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    # this interpreter, our own program, our own arguments
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, "plan", *arguments], capture_output=True, text=True, check=False
    )
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    peak = int(done.stderr.split()[-1]) * 1024 / 1e6
    return done.stdout, {"wall_s": round(wall, 2), "cpu_s": round(spent, 2), "peak_mb": round(peak)}


def fastest(*arguments: str) -> tuple[str, dict[str, float]]:
    """Run several times; the least processor time counts, because the others measured the neighbours."""
    return min((run(*arguments) for _ in range(RUNS)), key=lambda found: found[1]["cpu_s"])


def main() -> int:
    """Print the figures as JSON, a line a question; 1 where a limit is exceeded."""
    with tempfile.TemporaryDirectory() as folder:
        matrix, fleet = Path(folder) / "matrix.yaml", Path(folder) / "fleet.yaml"
        matrix.write_text(yaml.safe_dump(json.loads(as_json(MATRIX))))
        fleet.write_text(yaml.safe_dump(HOSTS))
        text, large = fastest(str(matrix), "--format", "json")
        document = json.loads(text)
        rows = sum(len(document[name]) for name in ("environments", "rejections", "excluded"))
        large |= {"rows": rows, "findings": len(document["findings"]), "mb": round(len(text) / 1e6, 1)}
        shipped = Path(envbuilder.__file__).parents[1] / "matrices" / "tensorflow.yaml"
        table, hosts = fastest(str(shipped), "--fleet", str(fleet))
        hosts |= {"hosts": len(HOSTS), "lines": len(table.splitlines()), "columns": max(map(len, table.splitlines()))}
    for name, found in (("plan --format json", large), ("plan --fleet", hosts)):
        sys.stdout.write(json.dumps({"question": name, **found}) + "\n")
    slow = large["cpu_s"] > LIMIT_S or large["peak_mb"] > LIMIT_MB
    return int(slow or hosts["columns"] > COLUMNS)


if __name__ == "__main__":
    sys.exit(main())
