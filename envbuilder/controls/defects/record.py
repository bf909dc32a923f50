"""Used by the build of a control's image: write RECORD entries as an installer would, so that only the defect differs.

``record.py package NAME`` makes the files ``NAME.*`` of the current folder a distribution of version 1.0.
``record.py update FILE...`` writes the current digests of files into the RECORD that lists them.
"""

from __future__ import annotations

import base64
import hashlib
import sys
from pathlib import Path


def row(path: str) -> str:
    digest = hashlib.sha256(Path(path).read_bytes()).digest()
    return path + ",sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("=") + ","


def package(name: str) -> None:
    files = sorted(str(path) for path in Path().glob(name + ".*"))
    folder = Path(name + "-1.0.dist-info")
    folder.mkdir()
    metadata = folder / "METADATA"
    metadata.write_text("Metadata-Version: 2.1\nName: " + name + "\nVersion: 1.0\n")
    rows = [row(path) for path in [*files, str(metadata)]]
    (folder / "RECORD").write_text("\n".join([*rows, str(folder / "RECORD") + ",,", ""]))


def update(path: str) -> None:
    for record in Path().glob("*.dist-info/RECORD"):
        lines = record.read_text().split("\n")
        if any(line.startswith(path + ",") for line in lines):
            record.write_text("\n".join(row(path) if line.startswith(path + ",") else line for line in lines))
            return
    raise SystemExit("no RECORD lists " + path)


if __name__ == "__main__":
    if sys.argv[1] == "package":
        package(sys.argv[2])
    else:
        for path in sys.argv[2:]:
            update(path)
