"""Fuzz every parser: ``python tests/fuzz/fuzz.py [--minutes N] [--only TARGET] [--guided]``; it goes on each time.

A case is wrong where it raises anything but an error of ours, takes longer than a second of processor time, or makes
the process grow by more than 300 MB. It is then kept in ``corpus/`` (which `test_fuzz` tries in every run), and the
exit code is 1. How many cases were tried, of 1,000,000 in all, is kept in ``out/fuzz/progress.json``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1]), str(HERE.parent / "support")]

import peak_memory  # noqa: E402 - the paths come first
from fuzz_target import CORPUS, Target  # noqa: E402 - the paths come first
from fuzz_targets import TARGETS  # noqa: E402
from mutations import case  # noqa: E402

MOST_S = 1.0
"""Processor seconds of one case; a busy machine takes none of them away."""
MOST_BYTES = 300 << 20
WANTED = 1_000_000
TRACED = 4.0
"""How much longer a case may take while coverage is measured: every line is then counted in Python's interpreter."""
_HANGS_S = 20
PROGRESS = HERE.parents[1] / "out" / "fuzz" / "progress.json"


@dataclass(frozen=True)
class Wrong:
    """A case that did not end as it should."""

    target: str
    why: str
    data: bytes


class _HangsError(BaseException):
    """A case went on for so long that it was stopped; no ``except Exception`` of what is fuzzed takes it."""


@contextmanager
def _alarm() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _HangsError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, _HANGS_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def tried(target: Target, data: bytes) -> str:
    """Run one case; return what is wrong with its end, '' where nothing is."""
    before, began = peak_memory.from_now_on(), time.process_time()
    try:
        with _alarm():
            target.ends(data)
    except _HangsError:
        return f"hangs: stopped after {_HANGS_S} s"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}: {str(error)[:200]}"
    took = time.process_time() - began
    grown = peak_memory.most() - before
    if took > MOST_S * (TRACED if sys.gettrace() else 1):
        return f"slow: {took:.1f} s of the processor for {len(data)} bytes"
    return f"large: {grown >> 20} MB more" if grown > MOST_BYTES else ""


def run(target: Target, first: int, count: int, seconds: float) -> tuple[int, list[Wrong]]:
    """Try cases from a number on, for so long; return how many were tried, and what was wrong, each cause once."""
    seeds, wrong, causes = target.seeds(), [], set()
    until = time.monotonic() + seconds
    number = first
    while number < first + count and time.monotonic() < until:
        data = case(target.name, number, seeds)
        why = tried(target, data)
        cause = why.partition(":")[0] if why.startswith(("slow", "large", "hangs")) else why[:60]
        if why and cause not in causes:
            causes.add(cause)
            wrong.append(Wrong(target.name, why, data))
        number += 1
    return number - first, wrong


def main() -> int:
    """Give each target its share of the time, again and again, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--only", choices=[target.name for target in TARGETS])
    parser.add_argument("--worker", nargs=3, metavar=("TARGET", "FIRST", "SECONDS"), help=argparse.SUPPRESS)
    parser.add_argument("--guided", action="store_true", help="By coverage, with atheris (tests/fuzz/guided.py).")
    words = parser.parse_args()
    if words.worker:
        return _work(*words.worker)
    done: dict[str, int] = json.loads(PROGRESS.read_text()) if PROGRESS.exists() else {}
    until, wrong, began = time.monotonic() + words.minutes * 60, 0, sum(done.values())
    names = [words.only] if words.only else [target.name for target in TARGETS]
    while time.monotonic() < until:  # what has had least first: a new target is tried however much others have had
        for name in sorted(names, key=lambda one: done.get(one, 0)):
            share = min(120.0 if words.guided else 20.0, (until - time.monotonic()))
            if share <= 1:
                break
            count, found = _in_a_process(name, done.get(name, 0), share, guided=words.guided)
            done[name] = done.get(name, 0) + count
            wrong += found
            PROGRESS.parent.mkdir(parents=True, exist_ok=True)
            PROGRESS.write_text(json.dumps(done, indent=2))
    total = sum(done.values())
    print(f"{total:,} of {WANTED:,} cases tried, {total - began:,} of them now; {wrong} wrong")
    print("\n".join(f"  {name:<14}{done.get(name, 0):>10,}" for name in names))
    return int(wrong > 0 or total == began)


def _in_a_process(name: str, first: int, seconds: float, *, guided: bool) -> tuple[int, int]:
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, __file__, "--worker", name, str(first), str(seconds)]
    if guided:
        command = [sys.executable, str(HERE / "guided.py"), name, str(seconds)]
    errors = subprocess.DEVNULL if guided else None  # libFuzzer's own figures
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, env=environment, check=False, text=True)
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        print(f"{name}: the process ended with {done.returncode} from case {first} on")
        time.sleep(1.0)  # what does not start at all would otherwise be counted a thousand times
        return 0, 1
    for line in lines[:-1]:
        print(line, flush=True)
    return int(lines[-1]), len(lines) - 1


def _work(name: str, first: str, seconds: str) -> int:
    target = next(one for one in TARGETS if one.name == name)
    count, wrong = run(target, int(first), WANTED, float(seconds))
    for one in wrong:
        path = CORPUS / name / hashlib.sha256(one.data).hexdigest()[:16]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(one.data)
        print(f"{name}: {one.why} ({path.relative_to(HERE)})")
    print(count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
