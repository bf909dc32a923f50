# ruff: noqa: INP001, T201 - benchmarks are programs, not a package, and print what they measured
"""Measure `import tensorflow` and the first operation: `pip install` in a Dockerfile, against ours, cold and warm.

    python benchmarks/start.py [--rounds 7] [NAIVE OTHER...]

Each start is a fresh container. Cold: before it another container asks the kernel to forget every file of the image;
how much is then read from the disk is said. The naive image starts twice in each round: the ratio of these two, which
are the same, is what this host's noise makes of nothing. Exits 1 where another image's median ratio to the naive one is
above every one of those.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from typing import Literal

import msgspec

from envbuilder.engine.docker import DockerEngine, connect
from envbuilder.engine.port import ContainerSpec

IMAGES = (
    "envbuilder/naive:tf2.20.0-cpu",
    "envbuilder/tensorflow:tf2.20.0-py311-cpu-bookworm",
    "envbuilder/tensorflow:tf2.20.0-py311-cpu-bookworm-runtime",
)
"""What `benchmarks/size.py --flavors cpu` leaves in the engine's store; the naive one first."""

START = """\
import json, resource, time
begun = time.perf_counter()
import tensorflow as tf
imported = time.perf_counter()
assert float(tf.matmul(tf.fill((256, 256), 0.5), tf.fill((256, 256), 0.5))[0, 0]) == 64.0
ended = time.perf_counter()
blocks = resource.getrusage(resource.RUSAGE_SELF).ru_inblock
print(json.dumps({"imported": imported - begun, "first": ended - imported, "read": blocks * 512}))
"""

FORGET = """\
import os
for folder, _, names in os.walk("/opt/venv"):
    for name in names:
        try:
            file = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            continue
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)
"""

Cache = Literal["cold", "warm"]


class Start(msgspec.Struct, frozen=True):
    """One start: seconds to import, seconds of the first operation after that, bytes read from the disk."""

    imported: float
    first: float
    read: int


def run(engine: DockerEngine, image: str, program: str) -> bytes:
    """Run a program in a fresh container, with no processor given and none taken; return what it printed."""
    printed, complained = bytearray(), bytearray()
    spec = ContainerSpec(image=image, command=("python", "-c", program), env={"CUDA_VISIBLE_DEVICES": "-1"})
    ended = engine.run(spec, printed.extend, complained.extend)
    if ended.exit_code:
        raise SystemExit(f"{image}: exit {ended.exit_code}: {complained[-400:].decode(errors='replace')}")
    return bytes(printed)


def start(engine: DockerEngine, image: str, cache: Cache) -> Start:
    """Start an image once."""
    if cache == "cold":
        run(engine, image, FORGET)
    return msgspec.json.decode(run(engine, image, START), type=Start)


def measured(engine: DockerEngine, images: Sequence[str], cache: Cache, rounds: int) -> list[list[Start]]:
    """Start every image once a round, in turn, each round from the next on; warm ones once before, unmeasured."""
    if cache == "warm":
        for image in dict.fromkeys(images):
            start(engine, image, cache)
    found: list[list[Start]] = [[] for _ in images]
    for number in range(rounds):
        for place in range(len(images)):
            turn = (place + number) % len(images)
            found[turn].append(start(engine, images[turn], cache))
    return found


def seconds(starts: Sequence[Start]) -> list[float]:
    """Return each start's seconds, to the end of the first operation."""
    return [one.imported + one.first for one in starts]


def ratios(starts: Sequence[Start], base: Sequence[Start]) -> list[float]:
    """Return each round's ratio."""
    return [mine / its for mine, its in zip(seconds(starts), seconds(base), strict=True)]


def report(images: Sequence[str], found: Sequence[Sequence[Start]], cache: Cache) -> bool:
    """Print each image's medians and ratios to the first; tell whether none is slower than noise explains."""
    noise = ratios(found[1], found[0])
    print(f"{cache}: the naive image against itself {min(noise):.3f} to {max(noise):.3f}")
    held = True
    for image, starts in zip(images, found, strict=True):
        imported, first = (statistics.median(getattr(one, name) for one in starts) for name in ("imported", "first"))
        read = statistics.median(one.read for one in starts)
        each = ratios(starts, found[0])
        print(
            f"  {image}: import {imported:.2f} s, first operation {first:.2f} s, {read / 1e6:.0f} MB from the disk, "
            f"ratio {statistics.median(each):.3f} ({min(each):.3f} to {max(each):.3f})"
        )
        held = held and statistics.median(each) <= max(1.0, *noise)
    return held


def main(words: Sequence[str] | None = None) -> int:
    """Measure cold and warm starts; 1 where one of ours is slower than noise explains, 2 where an image is lacking."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("images", nargs="*", default=IMAGES)
    asked = parser.parse_args(words)
    engine = connect()
    for image in asked.images:
        if engine.image(image) is None:
            print(f"{image}: no such image; benchmarks/size.py --flavors cpu builds it", file=sys.stderr)
            return 2
    images = (asked.images[0], *asked.images)
    caches: tuple[Cache, ...] = ("warm", "cold")
    held = [report(images, measured(engine, images, cache, asked.rounds), cache) for cache in caches]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
