"""The suite's folder as the controls' containers have it: with the probes that fail on purpose beside its own."""

from __future__ import annotations

from pathlib import Path

import envbuilder
from envbuilder.validation.suite_plan import probe_files

PROBES = (
    Path(envbuilder.__file__).parent / "controls/defects/misbehave.py",
    Path(__file__).with_name("misbehaving_probes.py"),
)
MISBEHAVE = {path.name: path.read_bytes() for path in PROBES}


def write_suite(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in {**probe_files(), **MISBEHAVE}.items():
        (folder / name).write_bytes(content)
    return folder
