# ruff: noqa: INP001, T201 - benchmarks are programs, not a package, and print what they measured
"""Measure what shared layers save: the sizes of built images, added up one by one and with each layer counted once.

Run after `envbuilder build` in the same folder: reads out/*/image.json, no engine needed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from envbuilder.image.build import ImageRecord
from envbuilder.workspace import Workspace, read_document


def main() -> int:
    """Print each image, then both sums and their ratio; exit 1 where fewer than two images were built."""
    found = [read_document(path, ImageRecord) for path in Workspace(Path()).image_records()]
    records = [record for record in found if record is not None]
    if len(records) < 2:  # noqa: PLR2004 - sharing takes two
        print(
            "build two environments first: envbuilder build tensorflow -s 'tf2.19.1-py311-cu*' -s 'tf2.20.0-py311-cu*'"
        )
        return 1
    seen: dict[str, int] = {}
    for record in records:
        own = sum(layer.size for layer in record.layers if layer.diff_id not in seen)
        seen |= {layer.diff_id: layer.size for layer in record.layers}
        print(f"{record.environment:45} {record.size / 1e9:6.2f} GB, {own / 1e9:6.2f} GB of it in layers of its own")
    alone = sum(record.size for record in records)
    shared = sum(seen.values())
    print(f"one by one {alone / 1e9:.2f} GB, each layer once {shared / 1e9:.2f} GB: {shared / alone:.2f} of it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
