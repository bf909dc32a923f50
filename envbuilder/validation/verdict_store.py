"""Stored verdicts: the newest of each environment in out/, and the history of all in one SQLite file."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from envbuilder.engine.port import Engine
from envbuilder.errors import InfrastructureError, InputError, Problem, UsageError
from envbuilder.image.system_lock import pinned_wheels
from envbuilder.image.wheel_records import WheelRecords, add_pins
from envbuilder.support import console, decoding
from envbuilder.validation import suite_plan
from envbuilder.validation.known_image import KnownImage
from envbuilder.validation.suite_session import Progress
from envbuilder.validation.validate import ValidationRequest, validate
from envbuilder.verdict import Verdict, contradiction
from envbuilder.workspace import (
    VERDICT,
    Workspace,
    content_key,
    digest,
    read_document,
    read_kept,
    read_users,
    set_aside,
    write_atomically,
    write_document,
)


def read_verdict(path: Path) -> Verdict | None:
    """Read a stored verdict; None if there is none. Warns on standard error about a contradictory one."""
    verdict = read_document(path, Verdict)
    why = contradiction(verdict) if verdict else ""
    if why:
        console.warn(f"{path} {why}; it is ignored")
        return None
    return verdict


def users_verdict(path: Path) -> Verdict:
    """Read a verdict from a file of the user. Raises InputError if it is not one, or contradicts itself."""
    hint = "envbuilder run writes out/<id>/verdict.json"
    try:
        verdict = decoding.from_json(read_users(path), Verdict, "not a verdict")
    except decoding.DamagedError as error:
        raise InputError((Problem(str(path), 0, "", str(error)),), hint=hint) from error
    if why := contradiction(verdict):
        raise InputError((Problem(str(path), 0, "", why),), hint=hint)
    return verdict


VERSION = 1
"""The layout that this program writes, stored in the file's ``user_version``."""

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
    """Every verdict so far, in one file that several processes may share. Triggers refuse changes of rows.

    A verdict is stored as its JSON document, so that later versions lose nothing; columns are for searches. Every
    method opens the file, so threads may share an object.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, verdicts: Iterable[Verdict]) -> int:
        """Add verdicts that are not stored yet; return their number."""
        rows = [_row(verdict) for verdict in verdicts]
        with self._open() as connection, connection:
            before = connection.total_changes
            connection.executemany("INSERT OR IGNORE INTO verdicts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
            return connection.total_changes - before

    def since(self, start: datetime | None = None) -> tuple[Verdict, ...]:
        """Return the verdicts since a time (all by default), oldest first. They are not evaluated again.

        Rows of another version, and altered rows (their digest differs from their key), stay in the file and are left
        out; `count` includes them.
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
                decoding.damaged("not a history file"),  # a damaged file may contain bytes that are not text
                closing(sqlite3.connect(self.path, timeout=_BUSY_S)) as connection,
            ):
                _prepare(connection, self.path)
                yield connection
        except (sqlite3.Error, OSError, decoding.DamagedError) as error:
            raise InfrastructureError(
                f"{self.path}: {error}", hint="is it a history file of envbuilder, on a disk that can be written?"
            ) from error


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables of a new file, once. Raises UsageError for the file of a newer program."""
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
    """Return the time of a verdict. Raises DamagedError if it has none."""
    with decoding.damaged("the verdict has no valid time"):
        return _utc(datetime.fromisoformat(verdict.finished))


def _utc(time: datetime) -> str:
    """Write a time so that texts sort as times do; without a zone it is UTC."""
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


DRIVER_VERSION = Path("/proc/driver/nvidia/version")
GPUS = Path("/proc/driver/nvidia/gpus")
"""Files of the kernel module: its version, and a file ``information`` for each GPU."""


class Validated(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of a stored verdict (``out/<id>/validated.json``), and the digest of its file."""

    schema: str = "envbuilder/validated/v1"
    key: str
    verdict: str = ""
    checksum: str = ""


def validate_and_record(
    request: ValidationRequest,
    engine: Engine,
    workspace: Workspace,
    *,
    on_progress: Callable[[str], None],
) -> tuple[Verdict, bool]:
    """Validate an environment's image and store the verdict; return it and whether checks ran for it.

    A stored verdict with the same inputs (image, lock, suite, profile, budgets, engine, driver) is returned unless
    the request is ``fresh``. The first image of its build files without errors is recorded next to the lock; a record
    of the same files is not replaced, because a changed base must not change committed files at each run.
    """
    environment = request.environment
    if environment is None:
        raise UsageError("only verdicts of environments are stored by id", hint="use validate for other images")
    folder = workspace.results(environment.id)
    key = _key(request, engine)
    stored = read_document(folder / "validated.json", Validated)
    kept = (
        None if request.fresh or stored is None or stored.key != key else _unaltered(folder / VERDICT, stored.verdict)
    )
    if kept is not None:
        return kept, False
    looked: list[KnownImage] = []
    verdict = validate(engine, request, on_progress=lambda one: on_progress(progress_text(one)), on_look=looked.append)
    record(folder, verdict)
    for known in looked if request.built == verdict.image.id and verdict.verdict != "FAILED" else ():
        if request.known is None or known.checks.keys() - request.known.checks.keys():
            write_document(workspace.known_image(environment.id), known)
    if request.built:
        add_pins(workspace, WheelRecords(None).proved(pinned_wheels(request.lock, request.system)))
    History(workspace.history).add((verdict,))  # out/<id>/ has only the newest one
    # Last: from now on this verdict is reused, and none of the steps above runs again.
    whole = digest((read_kept(folder / VERDICT)) or b"")
    write_document(folder / "validated.json", Validated(key=key, verdict=whole))
    return verdict, True


def _unaltered(path: Path, expected: str) -> Verdict | None:
    """Read the stored verdict if it is unchanged, byte for byte; else None."""
    content = read_kept(path)
    if content is None or digest(content) == expected:
        return read_verdict(path)
    if expected:
        set_aside(path, "was altered after it was written")
    return None


def record(folder: Path, verdict: Verdict) -> None:
    """Write the documents of a verdict, each atomically: a line for each result, then the verdict."""
    encoder = msgspec.json.Encoder()
    write_atomically(folder / "results.jsonl", encoder.encode_lines(verdict.checks))
    write_document(folder / VERDICT, verdict)


def progress_text(progress: Progress) -> str:
    match progress.kind:
        case "began":
            return f"checking: {progress.name}"
        case "ended":
            return f"{progress.name}: {progress.outcome} ({progress.seconds:.1f} s)"


def _key(request: ValidationRequest, engine: Engine) -> str:
    """Return one digest of everything that a verdict depends on, including the host's driver and GPU models."""
    info = engine.info()
    driver = read_kept(DRIVER_VERSION) or b""
    simulated = request.simulate.profile.text if request.simulate else ""
    host = (info.name, info.version, info.gpu_runtime, request.gpus, simulated)
    return content_key(
        {
            "image": request.image.encode(),
            "environment": msgspec.json.encode(request.environment),
            "lock": request.lock.encode(),
            "removed": request.removed.encode(),
            "system": msgspec.json.encode(dict(request.system)),
            "suite": suite_plan.digest().encode(),
            "profile": request.profile.encode(),
            "extra": msgspec.json.encode(request.extra),
            "budgets": msgspec.json.encode(request.budgets),
            "host": msgspec.json.encode(host),
            "driver": driver,
            "gpus": msgspec.json.encode(_gpu_models()),
        }
    )


def _gpu_models() -> list[str]:
    """Return the model of each GPU of the driver; none without a driver."""
    lines = [
        line for path in GPUS.glob("*/information") for line in decoding.lossy(read_kept(path) or b"").splitlines()
    ]
    return sorted(line.partition(":")[2].strip() for line in lines if line.startswith("Model:"))
