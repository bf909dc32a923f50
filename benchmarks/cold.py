# ruff: noqa: INP001, T201 - benchmarks are programs, not a package, and print what they measured
"""Measure a cold matrix, in time and on disk: four GPU environments, against `pip install` in four Dockerfiles.

    python benchmarks/cold.py [--rounds 1] [--releases …] [--form runtime]

Before each side, the builder's cache is emptied, downloads and records that it shares with images included, and what
the engine holds of these environments is removed. Both take packages from one index, stand on the same base, and build
as many images at a time as their command does (ours two, `docker build` one). A naive image is removed as soon as it
is built and measured: four of them and the builder's cache are more than many disks have. On disk, a layer that several
images have counts once.
Each clock starts after the kernel's caches are written and dropped, which takes root on the engine's machine. Without
that, an ext4 without journal makes new files slowly: it passes over each deleted inode that is still in memory
(`recently_deleted` in fs/ext4/ialloc.c), and what was removed before the clock counts as time of the build after it.
Minutes a round; nothing else should run.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from size import OS, base_of, naive

from envbuilder.catalog.store import load
from envbuilder.compat.resolve import resolve
from envbuilder.engine.docker import DockerEngine, connect
from envbuilder.environment import Combination, Environment, Variant
from envbuilder.image.context import build_files
from envbuilder.image.names import reference
from envbuilder.workspace import Workspace, write_atomically

ROOT = Path(__file__).resolve().parents[1]


def layers_of(engine: DockerEngine, name: str) -> dict[str, int]:
    """Return the bytes on disk of each layer of an image, by diff id."""
    image = engine.image(name)
    assert image is not None  # noqa: S101 - it was built
    return {layer.diff_id: layer.size for layer in image.layers}


def drop_caches() -> None:
    """Write what the kernel holds, and forget it."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3", encoding="ascii")


def naive_seconds(engine: DockerEngine, releases: Sequence[str]) -> tuple[float, int]:
    """Build all naive images on a cold builder; return the seconds that building took, and their bytes on disk."""
    engine.trim_cache(0, shared=True)
    taken, layers = 0.0, dict[str, int]()
    for release in releases:
        drop_caches()
        begun = time.monotonic()
        tag = naive(engine, release, "gpu")
        taken += time.monotonic() - begun
        layers |= layers_of(engine, tag)
        engine.remove(tag)
    return taken, sum(layers.values())


def our_seconds(engine: DockerEngine, ids: Sequence[str]) -> tuple[float, float, int]:
    """Build all environments from their committed contexts in one call, on a cold builder; then find them unchanged.

    Return the seconds of the first, the median of five calls that find nothing to do, and the images' bytes on disk.
    Images of the same contexts that the engine holds are removed before: a build would find them, and make nothing.
    """
    for name in ids:
        engine.remove(reference(name))
    engine.trim_cache(0, shared=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in ids:
            for path, content in build_files(name, Workspace(ROOT)).items():
                write_atomically(Path(folder) / "images" / path, content)
        drop_caches()
        words = [sys.executable, "-m", "envbuilder", "build", "tensorflow", *(w for one in ids for w in ("-s", one))]
        cold, again = _timed(words, folder), statistics.median(_timed(words, folder) for _ in range(5))
    layers = {diff_id: size for name in ids for diff_id, size in layers_of(engine, reference(name)).items()}
    return cold, again, sum(layers.values())


def _timed(words: Sequence[str], folder: str) -> float:
    begun = time.monotonic()
    subprocess.run(words, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - begun


def identifier(release: str, variant: Variant) -> str:
    """Name an environment that ships."""
    found = resolve(Combination(tensorflow=release, os=OS, flavor="gpu", variant=variant), load())
    assert isinstance(found, Environment)  # noqa: S101 - a release that ships
    return found.id


def main(words: Sequence[str] | None = None) -> int:
    """Time both sides in each round, and print the ratio of their medians; 1 where a bound is not met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--releases", nargs="+", default=["2.17.1", "2.18.1", "2.19.1", "2.20.0"])
    parser.add_argument("--form", default="runtime", choices=["runtime", "devel"])
    parser.add_argument("--bound", type=float, default=0.36)
    parser.add_argument("--disk", type=float, default=0.50, help="bound of the bytes on disk")
    parser.add_argument(
        "--idle", type=float, default=1.0, metavar="S", help="bound of a build that finds nothing to do"
    )
    asked = parser.parse_args(words)
    engine, ids = connect(), [identifier(release, asked.form) for release in asked.releases]
    base_of(engine)  # before any clock runs: neither side is asked for it
    theirs, ours, idle = [], [], []
    for at in range(asked.rounds):
        naive_s, naive_bytes = naive_seconds(engine, asked.releases)
        cold, again, bytes_ = our_seconds(engine, ids)
        theirs.append(naive_s)
        ours.append(cold)
        idle.append(again)
        print(
            f"round {at + 1}: naive {theirs[-1]:.0f} s, {asked.form} {cold:.0f} s, unchanged {again:.2f} s", flush=True
        )
        print(f"on disk: naive {naive_bytes / 1e9:.2f} GB, {asked.form} {bytes_ / 1e9:.2f} GB", flush=True)
    ratio, disk = statistics.median(ours) / statistics.median(theirs), bytes_ / naive_bytes
    print(f"{len(ids)} environments, cold: {ratio:.3f} of naive in time (bound {asked.bound})")
    print(f"all on one disk: {disk:.3f} of naive (bound {asked.disk})")
    print(f"found unchanged: {statistics.median(idle):.2f} s (bound {asked.idle} s)")
    return int(ratio > asked.bound or disk > asked.disk or statistics.median(idle) > asked.idle)


if __name__ == "__main__":
    sys.exit(main())
