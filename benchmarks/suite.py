# ruff: noqa: INP001, T201 - benchmarks are programs, not a package, and print what they measured
"""Measure the quick profile against one bare import and matmul, side by side in one image: the ratio of medians.

    python benchmarks/suite.py [IMAGE] [ROUNDS]

The bound is three (docs/explanation/validation.md). Rounds take turns, so that a busy host slows both alike.
"""

from __future__ import annotations

import statistics
import sys
import time

from envbuilder.catalog.store import load
from envbuilder.engine.docker import DockerEngine, connect
from envbuilder.engine.port import ContainerSpec
from envbuilder.validation.validate import ValidationRequest, validate

IMAGE = "envbuilder/tensorflow:tf2.20.0-py311-cpu-bookworm"
BARE = "import tensorflow as tf; print(float(tf.matmul(tf.fill((256, 256), 0.5), tf.fill((256, 256), 0.5))[0, 0]))"
BOUND = 3.0


def bare(engine: DockerEngine, image: str) -> float:
    """Run one import and one matmul in a fresh container; return its seconds."""
    printed = bytearray()
    spec = ContainerSpec(image=image, command=("python", "-c", BARE), env={"CUDA_VISIBLE_DEVICES": "-1"})
    begun = time.perf_counter()
    ended = engine.run(spec, printed.extend, lambda _: None)
    took = time.perf_counter() - begun
    if ended.exit_code or printed.strip() != b"64.0":
        raise SystemExit(f"the bare run failed: exit {ended.exit_code}, {printed!r}")
    return took


def suite(engine: DockerEngine, image: str) -> float:
    """Validate the image by the quick profile; return the seconds."""
    begun = time.perf_counter()
    verdict = validate(engine, ValidationRequest(image=image, catalog=load(), gpus="none"))
    took = time.perf_counter() - begun
    if verdict.verdict != "PASSED":
        raise SystemExit(f"{image}: {verdict.verdict}: {verdict.reasons}")
    return took


def main(image: str = IMAGE, rounds: str = "5") -> int:
    """Take turns and print both medians and their ratio; 1 where it is beyond the bound."""
    engine = connect()
    if engine.image(image) is None:
        print(f"{image}: no such image; `envbuilder run` builds it", file=sys.stderr)
        return 2
    bare(engine, image)  # fills the page cache for both
    times = [(bare(engine, image), suite(engine, image)) for _ in range(int(rounds))]
    one, other = (statistics.median(column) for column in zip(*times, strict=True))
    spread = ", ".join(f"{right / left:.2f}" for left, right in times)
    print(f"bare import and matmul {one:.2f} s; quick profile {other:.2f} s (medians of {len(times)})")
    print(f"ratio {other / one:.2f} (bound {BOUND:g}; rounds: {spread})")
    return 0 if other <= BOUND * one else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
