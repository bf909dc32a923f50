"""Every verdict that was ever reached, in one SQLite file that several processes and people may share.

Rows are added and never changed: triggers in the file refuse it. The verdict is kept as the JSON document that it
is, so that a later version of this program loses nothing; the columns are what is searched by.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.support import decoding
from envbuilder.verdict import Verdict

VERSION = 1
"""The layout that this program writes, kept in the file's ``user_version``."""

_BUSY_S = 30.0

_LAYOUT = (
    """CREATE TABLE verdicts (
        key TEXT PRIMARY KEY, environment TEXT NOT NULL, digest TEXT NOT NULL, verdict TEXT NOT NULL,
        level TEXT NOT NULL, simulated INTEGER NOT NULL, finished TEXT NOT NULL, document BLOB NOT NULL
    ) WITHOUT ROWID""",
    "CREATE INDEX by_time ON verdicts (finished, environment)",
    "CREATE TRIGGER no_update BEFORE UPDATE ON verdicts BEGIN SELECT RAISE(ABORT, 'history is append-only'); END",
    "CREATE TRIGGER no_delete BEFORE DELETE ON verdicts BEGIN SELECT RAISE(ABORT, 'history is append-only'); END",
)


class History:
    """The store. Every method opens the file for itself: an object may be shared by threads."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, verdicts: Iterable[Verdict]) -> int:
        """Keep verdicts; returns how many were new. One that is there already changes nothing."""
        rows = [_row(verdict) for verdict in verdicts]
        with self._open() as connection, connection:
            before = connection.total_changes
            connection.executemany("INSERT OR IGNORE INTO verdicts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
            return connection.total_changes - before

    def since(self, start: datetime | None = None) -> tuple[Verdict, ...]:
        """Return the verdicts that were reached at or after a time (all of them by default), oldest first.

        Those that cannot be believed stay in the file and are left out: another version wrote them, or they were
        altered and their digest is not their key. `count` has them. They are not judged again: they say what was said.
        """
        if not self.path.exists():
            return ()
        query = "SELECT key, document FROM verdicts WHERE finished >= ? ORDER BY finished, environment, key"
        with self._open() as connection:
            found = connection.execute(query, (_utc(start) if start else "",)).fetchall()
        return tuple(verdict for row in found if (verdict := _readable(*row)) is not None)

    def count(self, start: datetime | None = None) -> int:
        """Count the rows since a time, readable or not."""
        if not self.path.exists():
            return 0
        with self._open() as connection:
            query = "SELECT count(*) FROM verdicts WHERE finished >= ?"
            return int(connection.execute(query, (_utc(start) if start else "",)).fetchone()[0])

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with (
                decoding.damaged("not a history that can be read"),  # what a damaged file holds may be no text
                closing(sqlite3.connect(self.path, timeout=_BUSY_S)) as connection,
            ):
                _prepare(connection, self.path)
                yield connection
        except (sqlite3.Error, OSError, decoding.DamagedError) as error:
            raise InfrastructureError(
                f"{self.path}: {error}", hint="is it a history file of envbuilder, on a disk that can be written?"
            ) from error


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Lay a new file out, once, whoever comes first. Raises UsageError for the file of a newer program."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    if _version(connection) == 0:
        connection.execute("BEGIN IMMEDIATE")
        with connection:
            if _version(connection) == 0:
                for statement in _LAYOUT:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {VERSION}")
    if _version(connection) > VERSION:
        raise UsageError(f"{path} was written by a newer envbuilder", hint="upgrade envbuilder, or choose another file")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _readable(key: object, document: object) -> Verdict | None:
    if not isinstance(document, bytes) or hashlib.sha256(document).hexdigest() != key:
        return None
    try:
        return decoding.from_json(document, Verdict)
    except decoding.DamagedError:
        return None


def _row(verdict: Verdict) -> tuple[str, str, str, str, str, int, str, bytes]:
    document = msgspec.json.encode(verdict, order="deterministic")
    return (
        hashlib.sha256(document).hexdigest(),
        verdict.environment.id if verdict.environment else verdict.image.reference,
        verdict.image.digest or verdict.image.id,
        verdict.verdict,
        verdict.level,
        int(verdict.simulated),
        _finished(verdict),
        document,
    )


def _finished(verdict: Verdict) -> str:
    """Return when a verdict was reached. Raises DamagedError where it does not say so."""
    with decoding.damaged("the verdict's time is none"):
        return _utc(datetime.fromisoformat(verdict.finished))


def _utc(time: datetime) -> str:
    """Write a time so that texts sort as times do; one without a zone is taken as UTC."""
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return aware.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def moment(text: str, now: datetime) -> datetime:
    """Read ``2026-11-20``, a full ISO 8601 time, or ``30d`` before now. Raises UsageError for anything else."""
    try:
        if text.endswith("d") and text[:-1].isdigit():
            return now - timedelta(days=int(text[:-1]))
        time = datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{text!r} is not a time", hint="a date (2026-11-20) or an age in days (30d)") from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)
