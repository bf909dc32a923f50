"""What the soak has come to, over all of its pieces: trials, kills and what was wrong, by pool and piece."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

REPOSITORY = Path(__file__).parents[2]
TALLY = Path(__file__).with_name("tally.json")


class Piece(msgspec.Struct, kw_only=True):
    """What was tried at one commit: how often a command was killed alive, by name, and what was wrong.

    ``merged_as`` is said where that commit is not in the history: which commits of it hold what was tried.
    """

    commit: str
    merged_as: str = ""
    pool: str
    day: str
    trials: int = 0
    killed: int = 0
    killed_with_engine: int = 0
    minutes: float = 0.0
    commands: dict[str, int] = {}
    wrong: list[str] = []


class Kept(msgspec.Struct, kw_only=True):
    """The file: every piece, and by pool the numbers of the trials that came out right, as ranges, and of those not."""

    pieces: list[Piece] = []
    made: dict[str, list[tuple[int, int]]] = {}
    open: dict[str, list[int]] = {}


def commit() -> str:
    """Name the commit that is tried; ``+`` behind it where the package differs from it."""
    head = _git("rev-parse", "--short=12", "HEAD").strip()
    return head + "+" * bool(_git("status", "--porcelain", "--untracked-files=no", "envbuilder", "tests/soak/*.py"))


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, check=True, text=True).stdout


class Tally:
    """Counts one piece, and keeps it with those before; several threads may add to it."""

    def __init__(self, pool: str, at: str, path: Path = TALLY) -> None:
        """Read what earlier pieces came to, and begin one at a commit, or go on with the one of this commit and pool."""
        self._path = path
        self._lock = threading.RLock()
        self._kept = msgspec.json.decode(path.read_bytes(), type=Kept) if path.exists() else Kept()
        self._made = {one for low, high in self._kept.made.get(pool, ()) for one in range(low, high)}
        self._open = set(self._kept.open.get(pool, ()))
        self._now_wrong: set[int] = set()
        self.tried = 0
        before = [one for one in self._kept.pieces if (one.commit, one.pool) == (at, pool)]
        self.piece = before[0] if before else Piece(commit=at, pool=pool, day=f"{datetime.now(UTC):%Y-%m-%d}")
        self._began, self._minutes = datetime.now(UTC), self.piece.minutes
        if not before:
            self._kept.pieces.append(self.piece)

    def wanted(self, trials: int, kills: int = 0) -> Iterator[int]:
        """Yield what came out wrong, then what was not tried, up to so many trials and so many killed of the pool."""
        yield from (again := sorted(self._open))
        number = 0
        while number < trials or self.killed() < kills:
            if number not in self._made and number not in again:
                yield number
            number += 1

    def killed(self) -> int:
        """Return how often a command of this pool was killed alive, in all pieces."""
        return sum(one.killed for one in self._kept.pieces if one.pool == self.piece.pool)

    def stands(self, trials: int, kills: int = 0) -> bool:
        """Tell whether so many trials of the pool came out right, so many were killed, and none is still wrong."""
        return not self._open and self._made.issuperset(range(trials)) and self.killed() >= kills

    def is_right(self, trials: int, kills: int = 0) -> bool:
        """Tell whether nothing is wrong: where this run tried nothing, what was asked for has to stand already."""
        return not self._open and (self.tried > 0 or self.stands(trials, kills))

    def add(self, number: int, command: str, *, killed: bool, engine: bool) -> None:
        """Count a trial, and write everything down; one that came out wrong is still to be made."""
        with self._lock:
            if number not in self._now_wrong:
                self._made.add(number)
                self._open.discard(number)
            piece = self.piece
            self.tried += 1
            piece.trials += 1
            piece.killed += killed
            piece.killed_with_engine += killed and engine
            piece.commands[command] = piece.commands.get(command, 0) + 1
            self._write()

    def say(self, number: int, what: str) -> None:
        """Count something that was wrong in a trial: until it is made again and right, it stays so."""
        with self._lock:
            self._now_wrong.add(number)
            self._made.discard(number)
            self._open.add(number)
            self.piece.wrong.append(what)
            self._write()

    def told(self) -> str:
        """Say what this piece and all pieces came to."""
        pieces = self._kept.pieces
        every = [sum(getattr(one, name) for one in pieces) for name in ("trials", "killed", "killed_with_engine")]
        wrong, here = sum(len(one.wrong) for one in pieces), self.piece
        rate = here.trials / max(here.minutes, 0.01)
        nothing = "" if self.tried else "nothing was tried now; the numbers are of earlier runs\n"
        left = f"\nstill wrong: trials {', '.join(map(str, sorted(self._open)))}" if self._open else ""
        return (
            f"{nothing}"
            f"{here.commit}, pool {here.pool}: {here.trials} trials, {here.killed} killed alive"
            f" ({here.killed_with_engine} with the engine), {len(here.wrong)} wrong, {rate:.1f} trials a minute\n"
            f"in all pieces: {every[0]} trials, {every[1]} killed alive ({every[2]} with the engine), {wrong} wrong{left}"
        )

    def _write(self) -> None:
        spent = (datetime.now(UTC) - self._began).total_seconds() / 60
        self.piece.minutes = round(self._minutes + spent, 1)
        self._kept.made[self.piece.pool] = list(_ranges(sorted(self._made)))
        self._kept.open[self.piece.pool] = sorted(self._open)
        beside = self._path.with_suffix(".new")
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(self._kept), indent=2) + b"\n")
        beside.replace(self._path)


def _ranges(numbers: list[int]) -> Iterator[tuple[int, int]]:
    begin = previous = None
    for number in numbers:
        if previous is None or number != previous + 1:
            if begin is not None and previous is not None:
                yield begin, previous + 1
            begin = number
        previous = number
    if begin is not None and previous is not None:
        yield begin, previous + 1
