"""The suite's folder as the controls' containers have it: with the probes that fail on purpose beside its own."""

from __future__ import annotations

from pathlib import Path

import envbuilder
from envbuilder.validation.suite_plan import probe_files

MISBEHAVE = {"misbehave.py": (Path(envbuilder.__file__).parent / "controls" / "defects" / "misbehave.py").read_bytes()}


def write_suite(folder: Path) -> Path:
    """Write the suite and what misbehaves into ``folder``, and return it."""
    folder.mkdir(exist_ok=True)
    for name, content in {**probe_files(), **MISBEHAVE}.items():
        (folder / name).write_bytes(content)
    return folder
