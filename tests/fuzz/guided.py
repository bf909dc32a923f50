"""Fuzz a target by coverage: ``python tests/fuzz/guided.py TARGET SECONDS`` (atheris; ``scripts/setup fuzz``).

What reaches lines that nothing had reached is kept in ``out/fuzz/guided/TARGET`` and mutated further, in half of the
cases by `mutations`, which knows documents, in half by libFuzzer, which knows what was compared with what. A case is
judged as `fuzz` judges it, and goes to ``corpus/`` where it is wrong. The last line says how many were tried.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
import time
from pathlib import Path

import atheris

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1]), str(HERE.parent / "support")]

with atheris.instrument_imports(include=["envbuilder"]):
    from fuzz import PROGRESS, tried
    from fuzz_target import CORPUS
    from fuzz_targets import TARGETS
from mutations import MUTATIONS  # noqa: E402

_LARGEST = 1 << 14
"""Bytes of a case: what is counted line by line is slow, and size reaches no line that this does not."""


class _Work:
    """What one process has tried of a target."""

    def __init__(self, name: str, seconds: float) -> None:
        self.target = next(one for one in TARGETS if one.name == name)
        self.until = time.monotonic() + seconds
        self.count = 0
        self.causes: set[str] = set()

    def one(self, data: bytes) -> None:
        """Judge a case, keep it where it is wrong, and end the process when its time is up."""
        if time.monotonic() > self.until:
            print(self.count, flush=True)
            os._exit(0)  # libFuzzer has no other end that is none of an error
        self.count += 1
        why = tried(self.target, data)
        if why and why[:60] not in self.causes:
            self.causes.add(why[:60])
            path = CORPUS / self.target.name / hashlib.sha256(data).hexdigest()[:16]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            print(f"{self.target.name}: {why} ({path.relative_to(HERE)})", flush=True)


def _mutated(data: bytes, size: int, seed: int) -> bytes:
    draw = random.Random(seed)  # noqa: S311 - libFuzzer's own number
    if draw.random() < 0.5:
        made: bytes = atheris.Mutate(data, size)
        return made
    return draw.choice(MUTATIONS)(draw, data)[:size]


def main() -> None:
    """Go on from what earlier runs kept."""
    name, seconds = sys.argv[1], float(sys.argv[2])
    work = _Work(name, seconds)
    kept = PROGRESS.parent / "guided" / name
    kept.mkdir(parents=True, exist_ok=True)
    for seed in work.target.seeds():
        (kept / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed[:_LARGEST])
    options = [f"-max_len={_LARGEST}", "-rss_limit_mb=0", "-timeout=0", "-print_final_stats=0", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *options, str(kept)], work.one, custom_mutator=_mutated)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
