"""Progress on standard error: live lines on a terminal; plain lines, folds of a CI job, or JSON elsewhere."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from envbuilder.errors import InfrastructureError
from envbuilder.support import decoding, terminal_text

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live
    from rich.table import Table

Mode = Literal["auto", "live", "plain", "json", "quiet"]
_REPEAT_S = 20.0
"""Without a terminal, a running task is printed again after this many seconds."""
_REFRESH_S = 0.25
_STORED = 2_000
"""Number of stored times: those of the steps that ended last."""
COLOURS = {"PASSED": "green", "FAILED": "red", "ERROR": "red", "INCONCLUSIVE": "yellow"}
_RESULT, _TIMES, _PHASE, _BAR = 13, 14, 30, 12
"""Characters of a line: the result, the times, the phase (at least), and the bar from 80 columns on."""
_BYTES = 100_000
"""An amount of so much or more is in bytes, a smaller one in pieces."""
_TRANSFER = re.compile(r"(Need to get|Get:|Downloading|Downloaded)\S*(?:.*?([\d.,]+) ?([kKMG])i?B\b)?")
_UNITS = {None: 0.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
"""Lines of apt and uv that name bytes."""


def warn(text: str) -> None:
    complain(f"warning: {text}")


@contextmanager
def warning(text: str) -> Iterator[None]:
    """Turn an InfrastructureError of a step that may fail into a warning."""
    try:
        yield
    except InfrastructureError as error:
        warn(f"{text}: {error.message}")


def annotate(text: str, path: str = "", line: int = 0) -> None:
    """Mark an error at its place in the change that a job of GitHub checks."""
    if os.environ.get("GITHUB_ACTIONS"):
        message = terminal_text.text(text).replace("%", "%25").replace("\n", "%0A")
        file = re.sub("[%:,]", lambda one: f"%{ord(one[0]):02X}", terminal_text.line(path and os.path.relpath(path)))
        _write(f"::error title=envbuilder{f',file={file},line={max(line, 1)}' if file else ''}::{message}")


def complain(text: str) -> None:
    _write(terminal_text.text(text))


def _write(clean: str) -> None:
    # Standard error may be closed, or on a full disk; the answer is on standard output.
    with suppress(OSError, ValueError):
        if sys.stderr is not None:
            print(clean, file=sys.stderr, flush=True)  # noqa: T201 - this is the console


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def _cut(name: str, width: int) -> str:
    """Cut a name in its middle: both ends of an id distinguish it from others."""
    head = (width - 1) // 2
    return name if len(name) <= width else f"{name[:head]}…{name[len(name) - (width - 1 - head) :]}"


@dataclass(frozen=True)
class Step:
    """One event of a build: a step starts, prints, ends (``seconds``), is cached or fails (``error``)."""

    kind: Literal["started", "log", "done", "cached", "failed"]
    name: str
    text: str = ""
    seconds: float = 0.0
    error: str = ""


@dataclass
class Task:
    """One line of progress: the running steps of an environment, with their begin, and the last lines of its log.

    ``phase`` is the step that ends when another begins; a step of a build has an event for its end. ``done`` of
    ``total`` are pieces, or bytes, of the step that began last.
    """

    name: str
    console: Console
    began: float
    printed: float
    steps: dict[str, float] = field(default_factory=dict)
    phase: str = ""
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=3))
    sizes: dict[str, float] = field(default_factory=dict)
    done: float = 0
    total: float = 0

    @property
    def step(self) -> str:
        return next(reversed(self.steps), "")

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.steps.get(self.step, self.began)

    @property
    def expected(self) -> float:
        """The seconds that the step took last time, for this environment or another one; 0 if unknown."""
        return self.console.stored.get(f"{self.name}: {self.step}") or self.console.stored.get(self.step, 0.0)

    @property
    def times(self) -> str:
        return f"{_clock(self.elapsed)} of {_clock(self.expected)}" if self.expected else _clock(self.elapsed)

    @property
    def is_bytes(self) -> bool:
        return self.total >= _BYTES

    @property
    def amount(self) -> str:
        if self.is_bytes:
            return f"{self.done / 1e6:.0f} of {self.total / 1e6:.0f} MB"
        return f"{self.done:g}/{self.total:g}" if self.total else ""

    def update(self, step: str, done: float = 0, total: float = 0) -> None:
        """Begin a phase if another one runs, and say how much of it is done."""
        with self.console.lock:
            self._begin(step := terminal_text.line(step))
            self.phase, self.done, self.total = step, done, total

    def follow(self, step: Step) -> None:
        """Show an event of a build; one that prints nothing begins a phase."""
        with self.console.lock:
            name = terminal_text.line(step.name)
            match step.kind:
                case "log" if not step.text:
                    self.update(name)
                case "log":
                    self.log(step.text)
                case "started":
                    self._begin(name)
                case "cached":
                    self.console.ended(self.name, name, step.kind, 0.0)
                case _:
                    self._end(name, step.kind, step.seconds)

    def log(self, text: str) -> None:
        for line in filter(None, map(terminal_text.line, text.splitlines())):
            self.lines.append(line)
            self._count(line)
            if self.console.verbose or self.console.ci:
                self.console.emit("log", self.name, f"{self.name}: | {line}", text=line)

    def close(self) -> None:
        for name in tuple(self.steps):
            self._end(name, "done")

    def _begin(self, name: str) -> None:
        if name not in self.steps:
            self._end(self.phase, "done")
            self.steps[name], self.phase = time.monotonic(), ""
            self.done, self.total, self.sizes = 0, 0, {}

    def _end(self, name: str, result: str, seconds: float = 0.0) -> None:
        if (began := self.steps.pop(name, None)) is not None:
            self.console.ended(self.name, name, result, seconds or time.monotonic() - began)

    def _count(self, line: str) -> None:
        """Take the bytes of a download from a line of apt or uv."""
        if found := _TRANSFER.match(line):
            size, name = float((found[2] or "0").replace(",", "")) * _UNITS[found[3]], line.split(" ")[1]
            match found[1]:
                case "Need to get":
                    self.done, self.total, self.sizes = 0, size, {"": size}
                case "Downloading":
                    self.total, self.sizes[name] = self.total + size, size
                case _ if self.sizes:
                    self.done = min(self.total, self.done + (size or self.sizes.get(name, 0)))


class Console:
    """Shows tasks, in one of the modes of ``--progress``. ``stored`` are the times of steps, ``store`` keeps them."""

    def __init__(
        self,
        mode: Mode = "auto",
        *,
        verbose: bool = False,
        stored: dict[str, float] | None = None,
        store: Callable[[dict[str, float]], None] = lambda _: None,
    ) -> None:
        terminal = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self.mode = ("live" if terminal else "plain") if mode == "auto" else mode
        self.verbose, self.lock = verbose, threading.RLock()
        ci = "github" if os.environ.get("GITHUB_ACTIONS") else "gitlab" if os.environ.get("GITLAB_CI") else ""
        self.ci = ci if self.mode == "plain" else ""
        self.stored, self._store = stored or {}, store
        self._tasks: list[Task] = []
        self._names: tuple[str, ...] = ()
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._finished: set[str] = set()
        self._folded: defaultdict[str, list[str]] = defaultdict(list)
        self._slowest = (0.0, "", "")
        self._began = time.monotonic()
        self._live: Live | None = None

    def say(self, text: str) -> None:
        self.emit("message", "", text, text=text)

    @contextmanager
    def live(self, names: tuple[str, ...] = ()) -> Iterator[None]:
        """Show the tasks of the block; ``names`` are the environments of which each will be finished."""
        self._names, self._began, stop = names, time.monotonic(), threading.Event()
        ticker = threading.Thread(target=self._tick, args=(stop,), daemon=True)
        if self.mode == "live":
            from rich.console import Console as RichConsole  # noqa: PLC0415 - only a terminal pays for rich
            from rich.live import Live  # noqa: PLC0415

            shown = RichConsole(stderr=True, highlight=False, markup=False, emoji=False)
            # Its own thread would take its lock before this one, and printing takes them the other way round.
            self._live = Live(
                get_renderable=self.view, console=shown, transient=True, auto_refresh=False, redirect_stdout=False
            )
            with self.lock:
                self._live.start()
        ticker.start()
        try:
            yield
        finally:
            stop.set()
            ticker.join()
            with self.lock:
                if self._live is not None:
                    self._live.stop()
                self._live = None
            for name in tuple(self._folded):
                self._unfold(name, name)
            seconds, step, task = self._slowest
            if self._finished and seconds >= 1:
                self.say(f"slowest step: {step} of {task}, {_clock(seconds)}")
            self._store(dict(list(self.stored.items())[-_STORED:]))

    @contextmanager
    def task(self, name: str) -> Iterator[Task]:
        task = Task(terminal_text.line(name), self, time.monotonic(), time.monotonic())
        with self.lock:
            self._tasks.append(task)
        try:
            yield task
        finally:
            with self.lock:
                task.close()
                self._tasks.remove(task)
                self._spent[task.name] += time.monotonic() - task.began

    def finished(
        self, name: str, result: str, size: int = 0, error: str = "", place: tuple[str, int] = ("", 0)
    ) -> None:
        """Report the result of an environment; ``place`` is the file and line to which an error belongs."""
        with self.lock:
            seconds = self._spent[name]
            if result not in {"unchanged", "ERROR"}:
                self.stored[name] = seconds
            numbers = f"{f'{size / 1e9:.2f} GB' if size else '':>9}{_clock(seconds):>7}"
            self._finished.add(name)
            self._unfold(name, f"{result} {name}")
            ids = self._live.console.width - _RESULT - len(numbers) if self._live is not None else len(name)
            text = f"{result:<{_RESULT}}{_cut(name, ids):<{ids}}{numbers}"
            self.emit("finished", name, text, result=result, size=size, seconds=round(seconds, 1), text=error)
            about = error if error.startswith(name) else f"{name}: {error or result}"
            if error and self.mode != "json":
                self._show(about)
        if result in {"FAILED", "ERROR"}:
            annotate(about, *place)

    def emit(self, event: str, task: str, plain: str, **fields: object) -> None:
        """Print an event in the form of the mode: a line, a line that will be folded, or a JSON document."""
        with self.lock:
            match self.mode:
                case "json":
                    values = {"event": event, "task": task} | {key: one for key, one in fields.items() if one}
                    _write(terminal_text.json_text(decoding.to_json(values).decode()))
                case "quiet":
                    pass
                case "live" if event not in {"message", "finished"}:
                    pass
                case _ if self.ci and plain and event in {"step", "log"}:
                    self._folded[task].append(plain)
                case _ if plain:
                    self._show(plain)

    def ended(self, task: str, step: str, result: str, seconds: float) -> None:
        """Print that a step has ended, and keep its time for the next run."""
        if result == "done":
            for key in (step, f"{task}: {step}"):
                self.stored.pop(key, None)  # the newest are the last
                self.stored[key] = round(seconds, 2)
            self._slowest = max(self._slowest, (seconds, step, task))
        text = f"{task}: {step}, {_clock(seconds) if result == 'done' else result}"
        brief = result == "done" and seconds < 1
        self.emit("step", task, "" if brief else text, step=step, result=result, seconds=round(seconds, 1))

    def _show(self, text: str) -> None:
        if self._live is None:
            complain(text)
        else:
            self._live.console.print(
                terminal_text.text(text), style=COLOURS.get(text.partition(" ")[0]), soft_wrap=True
            )

    def _tick(self, stop: threading.Event) -> None:
        while not stop.wait(_REFRESH_S):
            with self.lock:
                if self._live is not None:
                    self._live.refresh()
                for task in self._tasks:
                    if time.monotonic() - task.printed >= _REPEAT_S:
                        task.printed, values = time.monotonic(), {"done": task.done, "total": task.total}
                        values |= {"seconds": round(task.elapsed), "expected_s": task.expected}
                        text = f"{task.name}: {task.step or 'running'} {task.amount}".rstrip()
                        self.emit("running", task.name, f"{text}, {task.times}", step=task.step, **values)

    def _unfold(self, name: str, title: str) -> None:
        """Print the lines of a task as a group that the pages of GitHub and GitLab show folded."""
        if lines := self._folded.pop(name, None):
            title, section = terminal_text.line(title), f"{int(time.time())}:{re.sub('[^A-Za-z0-9]', '_', name)}"
            begin = f"\x1b[0Ksection_start:{section}[collapsed=true]\r\x1b[0K{title}"
            end = f"\x1b[0Ksection_end:{section}\r\x1b[0K"
            _write(f"::group::{title}" if self.ci == "github" else begin)
            complain("\n".join(lines))
            _write("::endgroup::" if self.ci == "github" else end)

    def view(self) -> Group:
        """Return the live part of the terminal: the times of all environments, then the running tasks."""
        from rich.console import Group  # noqa: PLC0415 - only a terminal pays for rich
        from rich.text import Text  # noqa: PLC0415

        left = self._left()
        counts = f"{len(self._finished)}/{len(self._names)} finished, " if len(self._names) > 1 else ""
        rest = f", about {_clock(left)} left" if left else ""
        parts: list[Text | Table] = [Text(f"{counts}{_clock(time.monotonic() - self._began)}{rest}", style="bold")]
        for task in self._tasks:
            lines = task.lines if self.verbose else ()
            logged = [Text(f"  {line}", style="dim", no_wrap=True, overflow="ellipsis") for line in lines]
            parts += [self._line(task, self._live.console.width if self._live is not None else 80), *logged]
        return Group(*parts)

    def _line(self, task: Task, width: int) -> Table:
        from rich.progress_bar import ProgressBar  # noqa: PLC0415 - only a terminal pays for rich
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        total, done = task.expected, min(task.elapsed, task.expected)
        if task.total and not (task.is_bytes and total):
            total, done = task.total, task.done
        step = re.sub(r", \d+ MB$", "", task.step) if task.is_bytes else task.step
        bar = _BAR if width >= 80 else 0  # noqa: PLR2004 - the usual terminal
        rest = width - _TIMES - bar - 3
        ids = min(max(len(one.name) for one in self._tasks), rest - _PHASE)
        shown = (
            (ids, Text(_cut(task.name, ids), style="cyan")),
            (min(rest - ids, 2 * _PHASE), Text(f"{step} {task.amount}")),
            (bar, ProgressBar(total=total or None, completed=done, width=bar, pulse=not total)),
            (_TIMES, Text(task.times)),
        )
        row = Table.grid(padding=(0, 1, 0, 0))
        for size in (size for size, _ in shown if size):
            row.add_column(width=size, no_wrap=True, overflow="ellipsis")
        row.add_row(*(cell for size, cell in shown if size))
        return row

    def _left(self) -> float:
        """Return the seconds until all environments are finished; 0 if nothing is known about them."""
        known = [self.stored[name] for name in self._names if name in self.stored]
        if not known:
            return 0.0
        usual, running = sum(known) / len(known), {task.name: task for task in self._tasks}
        total = 0.0
        for name in set(self._names) - self._finished:
            task, left = running.get(name), self.stored.get(name, usual) - self._spent[name]
            if task is not None:  # one that takes longer than the others did has at least its step before it
                left = max(left - (time.monotonic() - task.began), task.expected - task.elapsed)
            total += max(0.0, left)
        return total / max(1, len(self._tasks))


_RUN = re.compile(r"(?m)^(?:# (?P<title>.+ MB|.+?)(?:[:;] .*|\.)?\n)?(?P<command>RUN (?:.*\\\n)*.*)$")
"""An instruction of a Dockerfile, and the comment above it up to its first colon: its name for people."""


def step_titles(dockerfile: str) -> dict[str, str | None]:
    """Return the names for people of a Dockerfile's RUN instructions; None if there is no comment above one."""
    return {_plain(found["command"]): found["title"] for found in _RUN.finditer(dockerfile)}


def step_line(step: str, dockerfile: str) -> int:
    """Return the line of a Dockerfile at which a builder's step begins; 1 if it is none of the RUN instructions."""
    begins = (one.start("command") for one in _RUN.finditer(dockerfile) if _plain(one["command"]) == _plain(step))
    return dockerfile.count("\n", 0, next(begins, 0)) + 1


def _plain(instruction: str) -> str:
    """Return an instruction on one line, without a builder's number before it."""
    return " ".join(re.sub(r"^\[[^]]*\] |\\\n", "", instruction).split())


def step_title(step: str, titles: Mapping[str, str | None]) -> str:
    """Return the name of a builder's step for people: ``[stage-2 3/7] RUN --mount=…`` is ``cuDNN 9.3.0, 710 MB``.

    An instruction without a name is cut in its middle.
    """
    name = _plain(step)
    script = re.search(r"/run/tools/(\S+)", re.sub(r"--mount=\S+", "", name))
    return titles.get(name) or (script[1] if script else _cut(name, 2 * _PHASE))
