"""Kill commands at random moments and look at what is left: ``python tests/soak/soak.py [--trials N] [--pool POOL]``.

A trial starts a command in a workspace of its own, sends it a signal at a random moment, and runs it again, to its end.
Then the exit code, what it prints and everything that it makes must be those of a run that nobody disturbed, and nothing
may be left: no process (what it had started ends with it), no temporary file or folder, no container, no volume, no name
in the engine's store, and no more memory than an undisturbed run takes. A trial's pool and number decide its command,
signal and moment; two trials run at a time, though images with TensorFlow one at a time. Counts and what was wrong go on
in ``tally.json``, by the commit of each piece; a trial that came out wrong is made again by the next piece, and the exit
code is 1 as long as one is wrong, or where nothing was tried and what was asked for does not stand.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests" / "support")]

from registries import docker_registry  # noqa: E402 - the paths come first
from soak_commands import (  # noqa: E402
    BUILT,
    BUILT_TINY,
    COMMANDS,
    COMPARED,
    HOST,
    POOLS,
    PUBLISHED,
    PUSHED,
    QUICK,
    REAL,
    Bench,
    Command,
    Seen,
    Trial,
    contexts,
    local,
    tiny,
)
from soak_tally import Tally, commit  # noqa: E402
from tiny_world import TINY, tiny_world  # noqa: E402

PLACE = REPOSITORY / "out" / "soak" / "place"
"""Where trials have their folders; what the engine's part prepares stays for the next piece."""

SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
ENDS_WITHIN_S = 12.0
"""How long a command may take to end after a signal: cleaning up has 8 s of its own."""
CHILDREN_WITHIN_S = 3.0
"""How long what a command had started may outlive it."""
AGED_S = 120.0
"""How old what a killed run left is made before the next one."""
ENDS_WELL = frozenset({0, 1, 8})
"""Exit codes of a command that did its work; an undisturbed run that ends otherwise shows nothing of a disturbed one."""
MORE_MEMORY = 64 << 20
"""Bytes that a run after a kill may take beyond an undisturbed one."""

_LABEL = "org.envbuilder.run"


@dataclass(frozen=True)
class Ran:
    """How a process ended: its number, exit code, what it printed, and the most memory that it had, in bytes."""

    pid: int
    code: int
    out: bytes
    errors: bytes
    memory: int
    killed: bool = False
    took: float = 0.0


@dataclass(frozen=True)
class Honest:
    """What an undisturbed run of a command comes to."""

    code: int
    seen: Seen
    took: float
    memory: int


@dataclass(frozen=True)
class Title:
    """Which trial something is said of: its number, what it was in words, and which signal is sent after how long."""

    number: int
    text: str
    sent: signal.Signals
    after: float


@dataclass
class Soak:
    """One soak: where it works, what it draws from, what an undisturbed run of each command came to, and its tally."""

    bench: Bench
    pool: str
    tally: Tally
    honest: dict[Command, Honest] = field(default_factory=dict)
    locks: dict[str, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))

    def trial(self, number: int) -> None:
        """Make one trial."""
        draw = random.Random(f"soak {self.pool} {number}")  # noqa: S311 - a number names a trial
        every = [one for one in COMMANDS for _ in range(one.weight) if self._may(one)]
        command, sent, part = draw.choice(every), draw.choice(SIGNALS), draw.random()
        with self.locks[REAL] if command.needs == REAL else contextlib.nullcontext():
            disturbed = self._tried(command, number, sent, part)
        self.tally.add(number, command.name, killed=disturbed.killed, engine=command.needs != HOST)

    def _may(self, command: Command) -> bool:
        return POOLS.index(command.needs) <= POOLS.index(self.pool)

    def _tried(self, command: Command, number: int, sent: signal.Signals, part: float) -> Ran:
        with self.locks[command.name]:
            if command not in self.honest:
                self.honest[command] = self._undisturbed(command)
        honest = self.honest[command]
        text = f"trial {self.pool} {number}: {command.name}, {sent.name} after {part * honest.took:.2f} s"
        title = Title(number, text, sent, part * honest.took * 1.1)
        trial = self._workspace(command, f"t{number}")
        try:
            disturbed = self._disturbed(command, trial, title, honest)
            if command.words[:2] == ("keys", "new"):  # it never overwrites; who was interrupted takes the rest away
                shutil.rmtree(trial.folder / "k", ignore_errors=True)
            for left in trial.folder.rglob(".*.tmp"):  # a minute later, and more: what nobody takes away then, stays
                os.utime(left, (time.time() - AGED_S,) * 2)
            again = self._run(command, trial)
            if b"Traceback" in again.errors:
                self._say(title, f"run again, a traceback: {again.errors[-600:]!r}")
            if again.code != honest.code:
                self._say(title, f"run again it ends with {again.code}, not {honest.code}: {again.errors[-600:]!r}")
            if again.memory > honest.memory + MORE_MEMORY:
                self._say(title, f"run again it takes {again.memory >> 20} MB, not {honest.memory >> 20}")
            self._compare(title, trial, honest.seen, command.seen(replace(trial, printed=again.out)))
            self._leaks(title, trial, (disturbed.pid, again.pid))
            return disturbed
        finally:
            self._remove(trial)

    def prepare(self) -> None:
        """Make what trials begin with: keys, the tiny image, a publication and a comparison, as far as the pool goes."""
        made = (self.bench.repositories / PUSHED, self.bench.place / BUILT_TINY)
        if self.pool != HOST and not all(folder.is_dir() for folder in made):
            self._prepare_tiny()
        if self.pool != HOST:
            self._name_tiny()
        if self.pool == REAL and not (self.bench.place / COMPARED).is_dir():
            self._prepare_real()

    def _prepare_tiny(self) -> None:
        for left in (self.bench.keys, self.bench.repositories / PUSHED):
            shutil.rmtree(left, ignore_errors=True)
        trial = self._workspace(Command(("build",), tiny, lambda _: {}), PUSHED)
        for name in ("one", "two"):
            self._must(trial, "keys", "new", str(self.bench.keys / name))
        self._must(trial, "build", "m.yaml", environment=self.bench.tiny)
        shutil.rmtree(self.bench.place / BUILT_TINY, ignore_errors=True)
        for made in ("images", "out"):
            shutil.copytree(trial.folder / made, self.bench.place / BUILT_TINY / made)
        name = f"{self.bench.host}/team/{PUSHED}:1"
        for words in (["tag", f"envbuilder/tensorflow:{TINY}", name], ["push", "--quiet", name], ["rmi", name]):
            subprocess.run(["docker", *words], check=True, stdout=subprocess.DEVNULL)
        self._remove(trial)

    def _name_tiny(self) -> None:
        """Give the tiny image its name in the engine again, where somebody has cleared that since it was pushed."""
        pushed, name = f"{self.bench.host}/team/{PUSHED}:1", f"envbuilder/tensorflow:{TINY}"
        if subprocess.run(["docker", "image", "inspect", name], capture_output=True, check=False).returncode:
            for words in (["pull", "--quiet", pushed], ["tag", pushed, name], ["rmi", pushed]):
                subprocess.run(["docker", *words], check=True, stdout=subprocess.DEVNULL)

    def _prepare_real(self) -> None:
        for left in (BUILT, PUBLISHED, "upgrade"):
            shutil.rmtree(self.bench.place / left, ignore_errors=True)
        publish, upgrade = (next(one for one in COMMANDS if one.words[0] == name) for name in ("publish", "upgrade"))
        trial = self._workspace(replace(publish, begin=contexts(QUICK)), PUBLISHED)
        self._must(trial, "build")
        shutil.copytree(trial.folder / "out", self.bench.place / BUILT)
        self._must(trial, *publish.words)
        self._remove(trial)
        trial = self._workspace(upgrade, "upgrade")
        self._must(trial, *upgrade.words, codes=(0, 1, 8))
        shutil.copytree(trial.folder / "out", trial.folder / COMPARED)
        (trial.folder / COMPARED).replace(self.bench.place / COMPARED)
        self._remove(trial)

    def _must(
        self, trial: Trial, *words: str, codes: tuple[int, ...] = (0,), environment: Mapping[str, str] | None = None
    ) -> None:
        ran = self._run(Command(words, contexts(), lambda _: {}, tiny=bool(environment)), trial)
        assert ran.code in codes, (ran.out + ran.errors).decode(errors="replace")

    def _say(self, title: Title, what: str) -> None:
        self.tally.say(title.number, f"{title.text}: {what}")
        print(f"{title.text}: {what}", flush=True)

    def _workspace(self, command: Command, name: str) -> Trial:
        trial = Trial(self.bench, self.bench.place / name)
        trial.folder.mkdir()
        command.begin(trial)
        return trial

    def _remove(self, trial: Trial) -> None:
        shutil.rmtree(trial.folder, ignore_errors=True)
        if self.pool != HOST and (found := local(trial)):
            subprocess.run(["docker", "image", "rm", *found], capture_output=True, check=False)

    def _undisturbed(self, command: Command) -> Honest:
        """Run a command twice: what is made once for all, such as a cache, is no part of what is compared."""
        for name in ("first", "honest"):
            stem = hashlib.sha256(command.name.encode()).hexdigest()[:8]
            trial = self._workspace(command, f"{name}-{stem}")
            ran = self._run(command, trial)
            seen = command.seen(replace(trial, printed=ran.out))
            self._remove(trial)
        assert ran.code in ENDS_WELL, (command.name, ran.code, ran.errors.decode(errors="replace"))
        assert seen, f"{command.name}: nothing to compare"
        seen = {name: value.replace(trial.folder.name, "NAME") for name, value in seen.items()}
        return Honest(ran.code, seen, ran.took, ran.memory)

    def _run(self, command: Command, trial: Trial, after: float = 3600.0, sent: signal.Signals = signal.SIGKILL) -> Ran:
        """Run a command, and send it a signal where it has not ended in time; return how it ended, and how fast."""
        temporary = self._temporary(trial)
        temporary.mkdir(parents=True, exist_ok=True)
        environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            **(self.bench.tiny if command.tiny else {}),
            "PYTHONPATH": str(REPOSITORY),
            "PYTHONPYCACHEPREFIX": str(self.bench.place / "bytecode"),  # compiled once: a trial is not for that
            "TMPDIR": str(temporary),
            "XDG_CACHE_HOME": str(self.bench.place / "cache"),
            "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache" / "uv")),
        }
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            began = time.monotonic()
            process = subprocess.Popen(
                [sys.executable, "-m", "envbuilder", *command.said(trial)],
                cwd=trial.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                start_new_session=True,
            )
            ended, killed = _ended(process.pid, after), False
            if ended is None:
                killed = True
                process.send_signal(sent)
                began = time.monotonic()
                ended = _ended(process.pid, ENDS_WITHIN_S * 3)
            if ended is None:
                process.kill()
                ended = _ended(process.pid, 60.0)
            assert ended is not None
            process.returncode = code = ended[0]
            took = time.monotonic() - began
            out.seek(0)
            errors.seek(0)
            return Ran(process.pid, code, out.read(), errors.read(), ended[1], killed, took)

    def _disturbed(self, command: Command, trial: Trial, title: Title, honest: Honest) -> Ran:
        ran = self._run(command, trial, title.after, title.sent)
        if ran.killed and ran.took > ENDS_WITHIN_S:
            self._say(title, f"took {ran.took:.0f} s to end")
        if b"Traceback" in ran.errors and b"envbuilder/cli/__init__.py" in ran.errors:  # else Python was loading it
            self._say(title, f"a traceback: {ran.errors[-600:]!r}")
        if ran.killed and not _is_an_end(ran, title.sent, honest.code):
            self._say(title, f"ended with {ran.code}: {ran.errors[-600:]!r}")
        until = time.monotonic() + CHILDREN_WITHIN_S
        while (left := list(self._processes_of(trial))) and time.monotonic() < until:
            time.sleep(0.05)
        for pid in left:
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")[:200]
                self._say(title, f"process {pid} lives on: {words!r}")
        return ran

    def _compare(self, title: Title, trial: Trial, seen: Seen, now: Seen) -> None:
        now = {key: value.replace(trial.folder.name, "NAME") for key, value in now.items()}
        for key in sorted(seen.keys() | now.keys()):
            if seen.get(key) != now.get(key):
                self._say(title, f"run again, {key} is {now.get(key)}, not {seen.get(key)}")

    def _leaks(self, title: Title, trial: Trial, pids: tuple[int, ...]) -> None:
        found = [path.name for path in trial.folder.rglob(".*.tmp")]
        found += [path.name for path in (self.bench.place / "cache").rglob(".*.tmp") if not _is_young(path)]
        found += [path.name for path in self._temporary(trial).iterdir()]
        found += [f"process {pid}" for pid in self._processes_of(trial)]
        if self.pool != HOST:
            found += _left_in_engine(pids)
        for name in found:
            self._say(title, f"left {name}")
        shutil.rmtree(self._temporary(trial), ignore_errors=True)

    def _processes_of(self, trial: Trial) -> Iterator[int]:
        """Name the processes that work in a trial's folder, or have inherited where its temporary files belong."""
        inherited = f"TMPDIR={self._temporary(trial)}".encode()
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                works_there = (place / "cwd").readlink() == trial.folder
                if works_there or inherited in (place / "environ").read_bytes().split(b"\0"):
                    yield int(place.name)

    def _temporary(self, trial: Trial) -> Path:
        return self.bench.place / "tmp" / trial.folder.name


def _ended(pid: int, within: float) -> tuple[int, int] | None:
    """Wait for a process; return its exit code and the most memory that it had, None where it has not ended in time."""
    until = time.monotonic() + within
    while True:
        found, status, used = os.wait4(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status), used.ru_maxrss << 10
        if time.monotonic() > until:
            return None
        time.sleep(0.01)


def _is_young(path: Path) -> bool:
    """Tell whether a temporary file of what trials share may be another's, or is one that its next writer takes away."""
    with contextlib.suppress(OSError):
        return time.time() - path.stat().st_mtime < 90
    return True


def _is_an_end(ran: Ran, sent: signal.Signals, honest: int) -> bool:
    """Tell whether a command that was sent a signal ended by that, or did its work all the same; no other word counts."""
    # A shell knows no difference between the last two; Python ends itself so where what was broken off made a class.
    if ran.code in (honest, -sent, 128 + sent, 128 + signal.SIGINT, -signal.SIGINT):
        return True
    return b"KeyboardInterrupt" in ran.errors and b"envbuilder/cli/__init__.py" not in ran.errors  # Python was loading


def _left_in_engine(pids: tuple[int, ...]) -> list[str]:
    """Name containers and volumes of these processes, which are gone."""
    found = []
    for kind, words in (("container", ["ps", "-a"]), ("volume", ["volume", "ls"])):
        form = "{{.ID}} {{.Labels}}" if kind == "container" else "{{.Name}} {{.Labels}}"
        listed = subprocess.run(
            ["docker", *words, "--filter", f"label={_LABEL}", "--format", form],
            capture_output=True,
            check=True,  # an engine that does not answer has no leaks to show
            text=True,
        )
        for line in listed.stdout.splitlines():
            run = re.search(rf"{re.escape(_LABEL)}=(\d+)", line)
            if run and int(run[1]) in pids:
                found.append(f"{kind} {line.split()[0]}")
    return found


def main() -> int:
    """Make the trials that are asked for, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--trials", type=int, default=1000, help="How many of this pool in all, earlier pieces counted."
    )
    parser.add_argument("--kills", type=int, default=0, help="Go on until so many were killed alive, likewise.")
    parser.add_argument("--pool", choices=POOLS, default=REAL, help="host: no engine; tiny: no TensorFlow.")
    parser.add_argument("--minutes", type=float, default=600.0, help="How long this piece may take.")
    parser.add_argument("--workers", type=int, default=2, help="How many trials at a time.")
    words = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGHUP):  # one that is ignored would be so in what is started here too
        signal.signal(number, signal.default_int_handler)
    tally = Tally(words.pool, commit())
    until = time.monotonic() + words.minutes * 60
    (place := PLACE).mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        bench = Bench(place, keys=place / "keys")
        if words.pool != HOST:
            host = stack.enter_context(docker_registry(place / "registry"))
            bench = replace(bench, host=host, tiny=stack.enter_context(tiny_world(place / "tiny")))
        for pattern in ("t[0-9]*", "first-*", "honest-*", "tmp"):
            for left in place.glob(pattern):
                shutil.rmtree(left, ignore_errors=True)
        soak = Soak(bench, words.pool, tally)
        soak.prepare()
        _make(soak, tally.wanted(words.trials, words.kills), until, words.workers)
    print(tally.told())
    return int(not tally.is_right(words.trials, words.kills))


def _make(soak: Soak, numbers: Iterator[int], until: float, workers: int) -> None:
    """Make trials, some at a time, for so long; one that breaks ends the soak."""
    lock = threading.Lock()

    def following() -> int | None:
        with lock:
            return next(numbers, None) if time.monotonic() < until else None

    def work() -> None:
        while (number := following()) is not None:
            try:
                soak.trial(number)
            except Exception as error:
                soak.tally.say(number, f"trial {soak.pool} {number}: the trial itself broke: {error!r}"[:2000])
                raise

    with ThreadPoolExecutor(workers) as executor:
        for done in as_completed([executor.submit(work) for _ in range(workers)]):
            done.result()


if __name__ == "__main__":
    sys.exit(main())
