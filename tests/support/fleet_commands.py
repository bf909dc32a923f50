"""Commands of the fleet as a user starts them, in the folder of a world, and what they said."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from fleet_world import FleetWorld


def begin(world: FleetWorld, variables: Mapping[str, str], *words: str) -> subprocess.Popen[str]:
    """Start `fleet run` with the words of an executor."""
    command = (sys.executable, "-m", "envbuilder", "fleet", "run", *world.words, *words, "--format", "json")
    return subprocess.Popen(
        command,
        cwd=world.folder,
        env={**world.variables, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str], seconds: float = 150) -> tuple[int, dict[str, Any], str]:
    """Wait for its end: exit code, document, and what it told people."""
    out, err = process.communicate(timeout=seconds)
    assert out, err
    return process.returncode, json.loads(out), err


def states(document: dict[str, Any]) -> dict[tuple[str, str], str]:
    """Return the state of each proof by its environment and kind."""
    return {(row["environment"], row["kind"]): row["state"] for row in document["rows"]}


def verified(world: FleetWorld, environment: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Ask `verify` of an environment's image, by the world's key."""
    command = (sys.executable, "-m", "envbuilder", "verify", f"{world.to.name}:{environment}", "--key", world.words[-1])
    return subprocess.run(
        (*command, *words), cwd=world.folder, env=world.variables, capture_output=True, text=True, check=False
    )
