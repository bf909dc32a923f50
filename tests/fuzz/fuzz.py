"""Fuzz parsers, guided by coverage (Atheris): ``python tests/fuzz/fuzz.py [--minutes N] [--only TARGET]``.

Each target runs in processes of its own, for a share of the time. Interesting inputs are kept in ``out/fuzz/TARGET``
and mutated further by the next run. A faulty input is copied to ``corpus/TARGET`` and the exit code is 1.
"""

import argparse
import contextlib
import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1]), str(HERE.parent / "support")]

import atheris  # noqa: E402 - the paths come first

INSTRUMENT = atheris.instrument_imports(include=["envbuilder"]) if "--worker" in sys.argv else contextlib.nullcontext()
with INSTRUMENT:
    from target import CORPUS, LARGEST, Target, fault
    from targets import TARGETS

INSTRUMENTED = 4.0
"""How much slower an instrumented parser may be."""
SHARE_S = 60.0


class Worker:
    """One process of one target; libFuzzer calls `case` for each input."""

    def __init__(self, target: Target, seconds: float) -> None:
        self.target, self.until = target, time.monotonic() + seconds
        self.cases, self.faults = 0, set[str]()

    def case(self, data: bytes) -> None:
        """Run a case, keep a faulty input, and end the process when the time is over."""
        if time.monotonic() > self.until:
            print(f"{self.target.name}: {self.cases} cases, {len(self.faults)} faults", flush=True)
            os._exit(1 if self.faults else 0)  # libFuzzer has no other end without an error
        self.cases += 1
        found = fault(self.target, data, INSTRUMENTED)
        if found and found[:60] not in self.faults:
            self.faults.add(found[:60])
            kept = CORPUS / self.target.name / hashlib.sha256(data).hexdigest()[:16]
            kept.parent.mkdir(exist_ok=True)
            kept.write_bytes(data)
            print(f"{self.target.name}: {found} ({kept.relative_to(HERE)})", flush=True)


def work(name: str, seconds: float) -> None:
    target = next(one for one in TARGETS if one.name == name)
    found = HERE.parents[1] / "out" / "fuzz" / name
    found.mkdir(parents=True, exist_ok=True)
    for seed in target.seeds():
        (found / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed[:LARGEST])
    options = ["-max_len=16384", "-rss_limit_mb=0", "-timeout=0", "-print_final_stats=0", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *options, str(found)], Worker(target, seconds).case)
    atheris.Fuzz()


def main() -> int:
    """Give each target its share of the time, until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--only", choices=[target.name for target in TARGETS])
    parser.add_argument("--worker", nargs=2, metavar=("TARGET", "SECONDS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker[0], float(options.worker[1]))
        return 0
    names = [options.only] if options.only else [target.name for target in TARGETS]
    share, failed = min(SHARE_S, options.minutes * 60 / len(names)), False
    until = time.monotonic() + options.minutes * 60
    while time.monotonic() < until:
        for name in names:
            command = [sys.executable, __file__, "--worker", name, str(share)]
            failed |= bool(subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
