"""Programs that run on a simulated host, as they run in a container."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from envbuilder.catalog.store import load
from envbuilder.simulated import compiler
from envbuilder.simulated import profile as profiles

ROOT = Path(__file__).parents[2]


def answers(host: str, program: str, *words: str, cache: Path, place: Path, **variables: str) -> dict[str, Any]:
    """Write the simulated driver to a folder, and run a Python program that prints JSON."""
    simulation = compiler.simulation(profiles.parse(host, load()), cache=cache, root=str(place))
    for name, content in simulation.files.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_bytes(content)
    environment = {**simulation.environment(dict(os.environ)), "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found
