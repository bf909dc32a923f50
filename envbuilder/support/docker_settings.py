"""Where Docker's own command line keeps its settings: logins, and which engine is meant."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def config_file(environment: Mapping[str, str]) -> Path:
    """Return the place of ``config.json``: in ``$DOCKER_CONFIG``, or in ``~/.docker``."""
    folder = environment.get("DOCKER_CONFIG") or Path(environment.get("HOME") or Path.home()) / ".docker"
    return Path(folder) / "config.json"
