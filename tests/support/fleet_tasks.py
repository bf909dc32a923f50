"""Tasks as a fleet's executors take them: a plain one by its name, and the proof of an image on a kind of host."""

from __future__ import annotations

from typing import Any

from factories import digest

from envbuilder.compat.fleet import FleetHost
from envbuilder.jobs.fleet_task import ProofOrder, Task, proof_task


def plain_task(name: str) -> Task:
    """Make a task of nothing but its name."""
    return Task(name=name, arguments=(), order=b"", gpu="", driver="", arch="x86_64")


def proof_of(image: str, kind: str = "", hosts: tuple[FleetHost, ...] = (), **given: Any) -> Task:
    """Make the proof of an image on a kind of host (``A100/550.54.15``, any host where no GPU is named)."""
    gpu, _, driver = kind.rpartition("/")
    values = {
        "repository": "registry.example.org/ml/tf",
        "environment": image,
        "level": "gpu" if gpu else "cpu",
        "arch": "x86_64",
        "suite": "s",
        "max_age_s": 1.0,
        **given,
    }
    return proof_task(ProofOrder(digest=digest(image), gpu=gpu, driver=driver if gpu else "", **values), hosts)
