"""Kill commands at random moments and look at what is left: ``python tests/soak/soak.py [--trials N] [--no-engine]``.

A trial starts a command in a workspace of its own, sends it a signal at a random moment, and runs it again, to its end.
Then the exit code, and everything that the command makes, must be those of a run that nobody disturbed, and nothing may
be left: no process, no temporary file or folder, no container, no volume. A trial's number decides its command, signal
and moment. Counts go on in ``out/soak/progress.json``; the exit code is 1 where anything was wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PROGRESS = REPOSITORY / "out" / "soak" / "progress.json"
QUICK = "tf2.20.0-py311-cpu-bookworm"
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
ENDS_WITHIN_S = 12.0
"""How long a command may take to end after a signal: cleaning up has 8 s of its own."""

_LABEL = "org.envbuilder.host"
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|\+00:00| UTC)?")

Seen = dict[str, str]


@dataclass(frozen=True)
class Command:
    """A command of the soak: its words, what its workspace begins with, what it makes, and how often it is drawn."""

    words: tuple[str, ...]
    begin: Callable[[Path], None]
    seen: Callable[[Path], Seen]
    weight: int = 4
    engine: bool = False
    undone: Callable[[], None] = field(default=lambda: None)


def nothing(_: Path) -> None:
    """Begin with an empty folder."""


def images(folder: Path) -> None:
    """Begin with the contexts that ship, one of them stale."""
    shutil.copytree(REPOSITORY / "images" / QUICK, folder / "images" / QUICK)
    (folder / "images" / QUICK / "Dockerfile").write_text("FROM scratch\n")


def results(folder: Path) -> None:
    """Begin with verdicts and a history."""
    sys.path.insert(0, str(REPOSITORY / "tests" / "support"))
    from verdicts import failed_verdict, verdict  # noqa: PLC0415

    from envbuilder.validation.history import History  # noqa: PLC0415
    from envbuilder.workspace import Workspace, write_document  # noqa: PLC0415

    space = Workspace(folder)
    for one in (verdict(), failed_verdict()):
        assert one.environment is not None
        write_document(space.verdict(one.environment.id), one)
    History(space.history).add((verdict(), failed_verdict()))


def tree(folder: Path) -> Seen:
    """Return every file's digest, times in them left out, but for logs, locks of databases and what has random bytes."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not name.endswith((".log", "-wal", "-shm", ".sqlite3")):
            text = _TIME.sub("TIME", path.read_text(encoding="utf-8", errors="surrogateescape"))
            found[name] = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return found


def judged(folder: Path) -> Seen:
    """Return what a run came to: the verdict, its image, the results' names and outcomes, and a history that is whole."""
    found: Seen = {}
    for path in folder.glob("out/*/verdict.json"):
        document = json.loads(path.read_text())
        checks = sorted((one["name"], one["outcome"]) for one in document["checks"])
        found[path.parent.name] = f"{document['verdict']} {document['level']} {document['image']['id']} {checks}"
    for path in folder.glob("out/*/image.json"):
        found[f"{path.parent.name} image"] = json.loads(path.read_text())["image"]
    return found | history(folder)


def history(folder: Path) -> Seen:
    """Say whether the history is whole, and every row of it what its key says."""
    path = folder / "out" / "history.sqlite3"
    if not path.exists():
        return {}
    with contextlib.closing(sqlite3.connect(path)) as connection:
        (whole,) = connection.execute("PRAGMA integrity_check").fetchone()
        rows = connection.execute("SELECT key, document FROM verdicts").fetchall()
    torn = [key for key, document in rows if hashlib.sha256(document).hexdigest() != key]
    return {"history": f"{whole}, {len(torn)} torn, {'some' if rows else 'no'} rows"}


def names(folder: Path) -> Seen:
    """Return the names of files alone, where what they hold is random."""
    return dict.fromkeys(tree(folder), "there")


def both(folder: Path) -> Seen:
    """Return files and history."""
    return tree(folder) | history(folder)


COMMANDS: tuple[Command, ...] = (
    Command(("render", "quickstart", "-s", "flavor=cpu"), images, tree),
    Command(("report",), results, both),
    Command(("export", "junit", "-o", "v.xml"), results, both),
    Command(("capture", "--output", "c.json"), nothing, names, weight=1),
    Command(("keys", "new", "k"), nothing, names, weight=1),
    Command(("plan", "tensorflow", "--format", "json"), nothing, tree, weight=1),
    Command(("check", "--tensorflow", "2.20.0", "--driver", "535.104.05", "--gpu", "H100"), nothing, tree, weight=1),
    Command(("catalog", "list"), nothing, tree, weight=1),
    Command(("lock", "quickstart", "-s", "flavor=cpu"), nothing, tree, weight=2),
    Command(("run",), nothing, judged, weight=2, engine=True),
    Command(("build",), nothing, judged, weight=1, engine=True),
    Command(("validate", QUICK), images, judged, weight=2, engine=True),
    Command(("clean", "--dry-run"), nothing, tree, weight=1, engine=True),
)


@dataclass
class Soak:
    """One soak: where it works, what an undisturbed run of each command came to, and what was found."""

    place: Path
    engine: bool
    honest: dict[Command, tuple[int, Seen, float]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def trial(self, number: int) -> None:
        """Make one trial."""
        draw = random.Random(f"soak {number}")  # noqa: S311 - a number names a trial
        every = [one for one in COMMANDS for _ in range(one.weight) if self.engine or not one.engine]
        command, sent, part = draw.choice(every), draw.choice(SIGNALS), draw.random()
        if command not in self.honest:
            self.honest[command] = self._undisturbed(command)
        code, seen, took = self.honest[command]
        title = f"trial {number}: {' '.join(command.words)}, {sent.name} after {part * took:.2f} s"
        folder = self._workspace(command, f"t{number}")
        try:
            self._disturbed(command, folder, sent, part * took * 1.1, title)
            if command.words[:2] == ("keys", "new"):  # it never overwrites; who was interrupted takes the rest away
                shutil.rmtree(folder / "k", ignore_errors=True)
            again = self._run(command, folder)
            if again.returncode != code:
                self.wrong.append(
                    f"{title}: run again it ends with {again.returncode}, not {code}: {again.stderr[-300:]!r}"
                )
            self._compare(title, seen, command.seen(folder))
            self._leaks(title, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self.counts["trials"] += 1
        self.counts[command.words[0]] += 1

    def _workspace(self, command: Command, name: str) -> Path:
        folder = self.place / name
        folder.mkdir()
        command.begin(folder)
        return folder

    def _undisturbed(self, command: Command) -> tuple[int, Seen, float]:
        folder = self._workspace(command, f"honest-{hashlib.sha256(' '.join(command.words).encode()).hexdigest()[:8]}")
        self._run(command, folder)  # what is made once for all, such as a cache, is no part of what is compared
        shutil.rmtree(folder)
        command.begin(self._made(folder))
        began = time.monotonic()
        done = self._run(command, folder)
        took = time.monotonic() - began
        return done.returncode, command.seen(folder), took

    def _made(self, folder: Path) -> Path:
        folder.mkdir()
        return folder

    def _environment(self) -> dict[str, str]:
        temporary = self.place / "tmp"
        temporary.mkdir(exist_ok=True)
        return {**os.environ, "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(temporary)}

    def _start(self, command: Command, folder: Path) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "envbuilder", *command.words]
        return subprocess.Popen(
            words,
            cwd=folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_default_signals,  # a shell in the background hands SIGINT on ignored
        )

    def _run(self, command: Command, folder: Path) -> subprocess.CompletedProcess[bytes]:
        with self._start(command, folder) as process:
            _, errors = process.communicate(timeout=1800)
        return subprocess.CompletedProcess(command.words, process.returncode, b"", errors)

    def _disturbed(self, command: Command, folder: Path, sent: signal.Signals, after: float, title: str) -> None:
        with self._start(command, folder) as process:
            try:
                _, errors = process.communicate(timeout=after)
            except subprocess.TimeoutExpired:
                self.counts["hit"] += 1
                process.send_signal(sent)
                began = time.monotonic()
                try:
                    _, errors = process.communicate(timeout=ENDS_WITHIN_S * 3)
                except subprocess.TimeoutExpired:
                    process.kill()
                    _, errors = process.communicate()
                if time.monotonic() - began > ENDS_WITHIN_S:
                    self.wrong.append(f"{title}: took {time.monotonic() - began:.0f} s to end")
        if b"Traceback" in errors and b"envbuilder/cli/__init__.py" in errors:  # else Python was still loading it
            self.wrong.append(f"{title}: a traceback: {errors[-300:]!r}")
        if process.returncode == 70:
            self.wrong.append(f"{title}: ended in the code of a bug")

    def _compare(self, title: str, seen: Seen, now: Seen) -> None:
        for name in sorted(seen.keys() | now.keys()):
            if seen.get(name) != now.get(name):
                self.wrong.append(f"{title}: run again, {name} is {now.get(name)}, not {seen.get(name)}")

    def _leaks(self, title: str, folder: Path) -> None:
        found = [path.name for path in folder.rglob(".*.tmp") if not _is_young(path)]
        found += [path.name for path in (self.place / "tmp").iterdir()]
        until = time.monotonic() + ENDS_WITHIN_S  # what a killed command had started may come to its own end
        while (running := list(_processes_in(folder))) and time.monotonic() < until:
            time.sleep(0.2)
        found += [f"process {pid}" for pid in running]
        if self.engine:
            found += _left_in_engine()
        for name in found:
            self.counts["leaks"] += 1
            self.wrong.append(f"{title}: left {name}")
        for path in (self.place / "tmp").iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _default_signals() -> None:
    for one in (signal.SIGINT, signal.SIGHUP):
        signal.signal(one, signal.SIG_DFL)


def _is_young(path: Path) -> bool:
    """Tell whether a temporary file is one that the next writer takes away when it is a minute old."""
    with contextlib.suppress(OSError):
        return time.time() - path.stat().st_mtime < 90
    return True


def _processes_in(folder: Path) -> Iterator[int]:
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (place / "cwd").readlink() == folder:
                yield int(place.name)


def _left_in_engine() -> list[str]:
    """Name containers and volumes of this host's commands whose process is gone."""
    found = []
    for kind, words in (("container", ["ps", "-a"]), ("volume", ["volume", "ls"])):
        form = "{{.ID}} {{.Labels}}" if kind == "container" else "{{.Name}} {{.Labels}}"
        listed = subprocess.run(
            ["docker", *words, "--filter", f"label={_LABEL}", "--format", form],
            capture_output=True,
            check=False,
            text=True,
        )
        for line in listed.stdout.splitlines():
            pid = re.search(r"org\.envbuilder\.run=(\d+)", line)
            if pid and not Path(f"/proc/{pid[1]}").exists():
                found.append(f"{kind} {line.split()[0]}")
    return found


def main() -> int:
    """Make the trials that are asked for, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument(
        "--no-engine", dest="engine", action="store_false", help="Leave out what needs a container engine."
    )
    parser.add_argument("--minutes", type=float, default=600.0)
    words = parser.parse_args()
    kept = json.loads(PROGRESS.read_text()) if PROGRESS.exists() else {}
    first, until = int(kept.get("next", 0)), time.monotonic() + words.minutes * 60
    with tempfile.TemporaryDirectory(prefix="envbuilder-soaking-") as place:
        soak = Soak(Path(place), words.engine, counts=Counter(kept.get("counts", {})))
        for number in range(first, first + words.trials):
            if time.monotonic() > until:
                break
            soak.trial(number)
            for line in soak.wrong[soak.counts["told"] :]:
                print(line, flush=True)
            soak.counts["told"] = len(soak.wrong)
            PROGRESS.parent.mkdir(parents=True, exist_ok=True)
            counts = {name: count for name, count in soak.counts.items() if name != "told"}
            PROGRESS.write_text(json.dumps({"next": number + 1, "counts": counts}, indent=2))
    soak.counts.pop("told", None)
    print(f"{dict(soak.counts)}; {len(soak.wrong)} wrong now")
    return int(bool(soak.wrong))


if __name__ == "__main__":
    sys.exit(main())
