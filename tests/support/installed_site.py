"""A folder of installed distributions, as an installer leaves them: files and RECORD."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from envbuilder.probes.slimming import remove_files


def installed(site: Path, name: str, files: Mapping[str, bytes]) -> None:
    """Install a distribution of version 1.0 as an installer does before byte code is compiled, with its RECORD."""
    rows = []
    for path, content in files.items():
        place = site / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        rows.append(f"{path},{remove_files.written(hashlib.sha256(content).digest())},{len(content)}")
    folder = site / f"{name}-1.0.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    own = f"{name}-1.0.dist-info"
    (folder / "RECORD").write_text("\n".join([*rows, f"{own}/METADATA,,", f"{own}/RECORD,,"]) + "\n")
