"""A folder of installed distributions, as an installer leaves them: files, byte code, RECORD."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from envbuilder.probes import omit


def installed(site: Path, name: str, files: Mapping[str, bytes]) -> None:
    """Install a distribution of version 1.0 as an installer would, with its RECORD and byte code."""
    rows = []
    for path, content in files.items():
        place = site / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        rows.append(f"{path},{omit.digest_of_file(str(place))},{len(content)}")
        if path.endswith(".py"):
            cached = place.parent / "__pycache__" / f"{place.stem}.cpython-311.pyc"
            cached.parent.mkdir(exist_ok=True)
            cached.write_bytes(b"code")
    folder = site / f"{name}-1.0.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    own = f"{name}-1.0.dist-info"
    (folder / "RECORD").write_text("\n".join([*rows, f"{own}/METADATA,,", f"{own}/RECORD,,"]) + "\n")
