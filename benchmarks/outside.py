# ruff: noqa: INP001, T201 - benchmarks are programs, not a package, and print what they measured
"""Measure how long an image's layers take to be read from outside: with no record of any, and with all kept.

    python benchmarks/outside.py [IMAGE]

The bounds are for the 5 GB GPU image (docs/suite.md): 25 s and 300 MB for the first reading. Memory is this process's
own peak, all of Python in it.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

from envbuilder.engine.docker import connect
from envbuilder.pypi.answer_cache import Cache
from envbuilder.validation.image_files import read_image

IMAGE = "envbuilder/tensorflow:tf2.20.0-py311-cu12.5-cudnn9.3-bookworm"
BOUND_S, BOUND_MB = 25.0, 300.0


def main(image: str = IMAGE) -> int:
    """Read the image twice and print what it took; 1 where the first reading is beyond the bounds."""
    engine = connect()
    found = engine.image(image)
    if found is None:
        print(f"{image}: no such image; `envbuilder build` makes it", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        times = []
        for _ in range(2):
            begun, used = time.perf_counter(), time.process_time()
            files = read_image(engine, found, Cache(Path(folder)))
            times.append((time.perf_counter() - begun, time.process_time() - used))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    (cold, cold_cpu), (warm, _) = times
    print(f"{len(files.paths)} files of {found.size / 1e9:.1f} GB: {cold:.1f} s ({cold_cpu:.1f} s of processor time)")
    print(f"with records kept {warm:.2f} s; peak memory {memory:.0f} MB (bounds {BOUND_S:g} s, {BOUND_MB:g} MB)")
    return 0 if cold <= BOUND_S and memory <= BOUND_MB else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
