"""Runs the `run:` steps of a CI job in a repository, as a runner does."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from factories import workspace

TOP = Path(__file__).parents[2]
SHIPPED = "tf2.20.0-py311-cpu-bookworm-runtime"
MATRIX = 'name: own\naxes: {tensorflow: ["2.20.0"], python: ["3.11"], os: [debian-bookworm], form: [runtime]}\n'


def repository(folder: Path) -> Path:
    """Make a repository with a matrix of its own and its committed context."""
    (folder / "matrix.yaml").write_text(MATRIX)
    workspace(folder, SHIPPED, "shared")
    shutil.copy(TOP / "images" / "README.md", folder / "images")
    return folder


def run_steps(job: dict[str, Any], folder: Path, **variables: str) -> tuple[int, str]:
    """Run the steps until one fails; return its exit code and output, or 0 and the outputs of the job.

    Steps that install the project are left out: `test_install` runs them.
    """
    outputs = folder / "outputs"
    outputs.touch()
    texts = [one.get("run", "") if isinstance(one, dict) else one for one in job.get("steps") or job["script"]]
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "MATRIX": "matrix.yaml",
        "GITHUB_OUTPUT": str(outputs),
        "RUNNER_TEMP": str(folder),
        **variables,
    }
    ran = [text for text in texts if text and not text.startswith("pip install")]
    assert ran
    for text in ran:
        words = ["bash", "-e", "-c", text]
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            return done.returncode, done.stdout + done.stderr
    return 0, outputs.read_text()
