"""Interrupt commands at random moments: ``python tests/soak/soak.py [--trials N] [--pool POOL] [--only TRIAL]``.

A trial starts a command in a new workspace, sends it a signal at a random moment, and runs it again to its end.
Exit code, output and files must equal those of an undisturbed run, and nothing may be left: no process, no
temporary file, no container, no volume. A trial's pool and number decide its command, signal and moment, so
``--only`` repeats a trial. The exit code is 1 if a trial failed.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from commands import COMMANDS, POOLS, REPOSITORY, Command, Result
from tiny_world import tiny_world

FOLDER = REPOSITORY / "out" / "soak"
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
ENDS_WITHIN_S = 12.0
"""A command ends this long after a signal: its own cleaning up may take 8 s."""
CHILDREN_END_WITHIN_S = 3.0
AGE_S = 120.0
"""Temporary files of a killed run are made this old before the next run, which then has to remove them."""
SUCCESS = frozenset({0, 1, 8})
LABEL = "org.envbuilder.run"


@dataclass(frozen=True)
class Ended:
    """How a process ended; ``took`` is counted from the signal, if one was sent."""

    pid: int
    code: int
    out: bytes
    errors: bytes
    took: float
    killed: bool


@dataclass(frozen=True)
class Reference:
    code: int
    result: Result
    took: float


@dataclass
class Soak:
    pool: str
    variables: Mapping[str, str]
    references: dict[Command, Reference] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    killed: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def trial(self, number: int) -> None:
        draw = random.Random(f"soak {self.pool} {number}")  # noqa: S311 - a number names a trial
        eligible = [one for one in COMMANDS if POOLS.index(one.pool) <= POOLS.index(self.pool)]
        command = draw.choices(eligible, [one.weight for one in eligible])[0]
        sent, part = draw.choice(SIGNALS), draw.random()
        with self.lock:
            if command not in self.references:
                self.references[command] = self.reference(command)
        reference = self.references[command]
        after = part * reference.took * 1.1
        with workspace(f"t{number}", command) as folder:
            first = self.run(command, folder, after, sent)
            found = [*faults_of_end(first, sent, reference), *self.survivors(folder)]
            for left in folder.rglob(".*.tmp"):
                os.utime(left, (time.time() - AGE_S,) * 2)
            if command.words.startswith("keys new"):  # it never overwrites keys
                shutil.rmtree(folder / "k", ignore_errors=True)
            again = self.run(command, folder)
            found += differences(reference, again, command.result(folder, again.out))
            found += self.leftovers(folder, (first.pid, again.pid))
        self.killed += first.killed
        for text in found:
            self.failures.append(
                f"trial {self.pool} {number}: {command.words}, {sent.name} after {after:.2f} s: {text}"
            )
            print(self.failures[-1], flush=True)

    def reference(self, command: Command) -> Reference:
        """Run a command undisturbed; the first of two runs fills caches."""
        for _ in range(2):
            with workspace("reference", command) as folder:
                ended = self.run(command, folder)
                result = command.result(folder, ended.out)
        assert ended.code in SUCCESS, (command.words, ended.code, ended.errors.decode(errors="replace"))
        assert result, f"{command.words}: nothing to compare"
        return Reference(ended.code, result, ended.took)

    def run(
        self, command: Command, folder: Path, after: float = 3600.0, sent: signal.Signals = signal.SIGKILL
    ) -> Ended:
        temporary(folder).mkdir(parents=True, exist_ok=True)
        variables = {
            **os.environ,
            **(self.variables if command.pool == "tiny" else {}),
            "PYTHONPATH": str(REPOSITORY),
            "PYTHONPYCACHEPREFIX": str(FOLDER / "bytecode"),
            "TMPDIR": str(temporary(folder)),
            "XDG_CACHE_HOME": str(FOLDER / "cache"),
            "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache" / "uv")),
        }
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            words = [sys.executable, "-m", "envbuilder", *command.words.split()]
            began = time.monotonic()
            process = subprocess.Popen(
                words,
                cwd=folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                start_new_session=True,
            )
            if killed := not has_ended(process, after):
                process.send_signal(sent)
                began = time.monotonic()
                if not has_ended(process, ENDS_WITHIN_S * 3):
                    process.kill()
                    process.wait()
            took = time.monotonic() - began
            out.seek(0)
            errors.seek(0)
            return Ended(process.pid, process.returncode, out.read(), errors.read(), took, killed)

    def survivors(self, folder: Path) -> list[str]:
        until = time.monotonic() + CHILDREN_END_WITHIN_S
        while (left := list(processes_of(folder))) and time.monotonic() < until:
            time.sleep(0.05)
        return [f"process {pid} is still alive" for pid in left]

    def leftovers(self, folder: Path, pids: tuple[int, ...]) -> list[str]:
        found = [path.name for path in (*folder.rglob(".*.tmp"), *temporary(folder).iterdir())]
        found += [f"process {pid}" for pid in processes_of(folder)]
        if self.pool != "host":
            found += [one for pid in pids for one in in_engine(pid)]
        return [f"left {name}" for name in found]


@contextlib.contextmanager
def workspace(name: str, command: Command) -> Iterator[Path]:
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        command.begin(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(temporary(folder), ignore_errors=True)


def temporary(folder: Path) -> Path:
    return FOLDER / "tmp" / folder.name


def has_ended(process: subprocess.Popen[bytes], within: float) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(within)
    return process.returncode is not None


def processes_of(folder: Path) -> Iterator[int]:
    inherited = f"TMPDIR={temporary(folder)}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            works_there = (process / "cwd").readlink() == folder
            if works_there or inherited in (process / "environ").read_bytes().split(b"\0"):
                yield int(process.name)


def in_engine(pid: int) -> list[str]:
    found = []
    for words in (("ps", "-aq"), ("volume", "ls", "-q")):
        command = ["docker", *words, "--filter", f"label={LABEL}={pid}"]
        listed = subprocess.run(command, capture_output=True, check=True, text=True)
        found += [f"{words[0]} {name}" for name in listed.stdout.split()]
    return found


def faults_of_end(ended: Ended, sent: signal.Signals, reference: Reference) -> Iterator[str]:
    loading = b"envbuilder/cli/__init__.py" not in ended.errors  # Python itself was still importing
    if ended.killed and ended.took > ENDS_WITHIN_S:
        yield f"took {ended.took:.0f} s to end"
    if b"Traceback" in ended.errors and not loading:
        yield f"a traceback: {ended.errors[-600:]!r}"
    codes = (reference.code, -sent, 128 + sent, 128 + signal.SIGINT, -signal.SIGINT)
    if ended.killed and ended.code not in codes and not (loading and b"KeyboardInterrupt" in ended.errors):
        yield f"ended with {ended.code}: {ended.errors[-600:]!r}"


def differences(reference: Reference, again: Ended, result: Result) -> Iterator[str]:
    if again.code != reference.code or b"Traceback" in again.errors:
        yield f"run again, it ends with {again.code}, not {reference.code}: {again.errors[-600:]!r}"
    for key in sorted(reference.result.keys() | result.keys()):
        if reference.result.get(key) != result.get(key):
            yield f"run again, {key} is {result.get(key)}, not {reference.result.get(key)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--pool", choices=POOLS, default="tiny")
    parser.add_argument("--only", type=int, help="Make this trial only.")
    parser.add_argument("--minutes", type=float, default=600.0, help="Start no trial after this time.")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGHUP):  # an ignored signal would be ignored by the commands as well
        signal.signal(number, signal.default_int_handler)
    numbers = range(options.trials) if options.only is None else (options.only,)
    until, done = time.monotonic() + options.minutes * 60, 0
    with contextlib.ExitStack() as stack:
        variables = {} if options.pool == "host" else stack.enter_context(tiny_world(FOLDER / "tiny"))
        soak = Soak(options.pool, variables)

        def work(number: int) -> bool:
            if time.monotonic() > until:
                return False
            soak.trial(number)
            return True

        workers = stack.enter_context(ThreadPoolExecutor(2))
        done = sum(workers.map(work, numbers))
    print(f"{done} trials, {soak.killed} commands interrupted, {len(soak.failures)} failures")
    return int(bool(soak.failures) or not done)


if __name__ == "__main__":
    sys.exit(main())
