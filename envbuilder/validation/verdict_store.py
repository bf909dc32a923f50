"""Stored verdicts: the newest of each environment in out/, and the history of all in a folder."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from envbuilder.engine.port import Engine
from envbuilder.errors import InputError, Problem, UsageError
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
    digest,
    read_document,
    read_stored,
    read_users,
    set_aside,
    write_atomically,
    write_document,
)

DRIVER_VERSION = Path("/proc/driver/nvidia/version")
GPUS = Path("/proc/driver/nvidia/gpus")  # A folder for each GPU, with a file `information`


def read_verdict(path: Path) -> Verdict | None:
    """Read a stored verdict; None if there is none. Warns on standard error about a contradictory one."""
    verdict = read_document(path, Verdict)
    if verdict is not None and (why := contradiction(verdict)):
        console.warn(f"{path} {why}; it is ignored")
        return None
    return verdict


def users_verdict(path: Path) -> Verdict:
    """Read a verdict from a file of the user. Raises InputError if it is not one, or contradicts itself."""
    try:
        verdict = decoding.from_json(read_users(path, decoding.LARGE), Verdict, "not a verdict")
        why = contradiction(verdict)
    except decoding.DamagedError as error:
        why = str(error)
    if why:
        raise InputError((Problem(str(path), 0, "", why),), hint="envbuilder run writes out/<id>/verdict.json")
    return verdict


@dataclass(frozen=True)
class History:
    """A folder of every verdict so far; a file's name is when it ended (UTC), and the digest of its content."""

    path: Path

    def add(self, verdicts: Iterable[Verdict]) -> None:
        """Write files that are missing; processes may share the folder. Raises DamagedError for a time that is none."""
        for verdict in verdicts:
            document = msgspec.json.encode(verdict, order="deterministic")
            with decoding.damaged("the verdict has no valid time"):
                finished = _utc(datetime.fromisoformat(verdict.finished))
            file = self.path / f"{finished}-{hashlib.sha256(document).hexdigest()}.json"
            if not file.exists():
                write_atomically(file, document)

    def read(self, start: datetime | None = None) -> tuple[tuple[Verdict, ...], tuple[str, ...]]:
        """Return the verdicts since a time, oldest first and as they were, and the files that cannot be read."""
        since = _utc(start) if start else ""
        found = {file.stem: _readable(file) for file in sorted(self.path.glob("*.json")) if file.name >= since}
        verdicts = tuple(verdict for verdict in found.values() if verdict is not None)
        return verdicts, tuple(name for name, verdict in found.items() if verdict is None)


def _readable(file: Path) -> Verdict | None:
    try:
        document = decoding.file_content(file, decoding.LARGE)
        is_whole = hashlib.sha256(document).hexdigest() == file.stem.rpartition("-")[2]
        return decoding.from_json(document, Verdict) if is_whole else None
    except (OSError, decoding.DamagedError):
        return None


def _utc(time: datetime) -> str:
    """Write a time so that texts sort as times do; without a zone it is UTC."""
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return aware.astimezone(UTC).strftime("%Y%m%dT%H%M%S.%fZ")


class Validated(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of a stored verdict (``out/<id>/validated.json``), and the digest of its file."""

    schema: str = "envbuilder/validated/v1"
    key: str
    verdict: str = ""


def validate_and_record(
    request: ValidationRequest, engine: Engine, workspace: Workspace, *, on_progress: Callable[[Progress], None]
) -> tuple[Verdict, bool]:
    """Validate an environment's image and store the verdict; return it and whether checks ran for it.

    A stored verdict with the same inputs (image, lock, suite, profile, budgets, engine, driver) is returned unless
    the request is ``fresh``. The first image of its build files without errors is recorded next to the lock; a record
    of the same files is not replaced, because a changed base must not change committed files at each run.
    """
    environment = request.environment
    if environment is None:
        raise UsageError("only verdicts of environments are stored by id", hint="use validate for other images")
    folder, key = workspace.results(environment.id), _key(request, engine)
    stored = read_document(folder / "validated.json", Validated)
    if stored is not None and stored.key == key and not request.fresh:
        content = read_stored(folder / VERDICT)
        if content is None or digest(content) == stored.verdict:
            if (kept := read_verdict(folder / VERDICT)) is not None:
                return kept, False
        elif stored.verdict:
            set_aside(folder / VERDICT, "was altered after it was written")
    looked: list[KnownImage] = []
    verdict = validate(engine, request, on_progress=on_progress, on_look=looked.append)
    record(folder, verdict)
    for known in looked if request.built == verdict.image.id and verdict.verdict != "FAILED" else ():
        if request.known is None or known.checks.keys() - request.known.checks.keys():
            write_document(workspace.known_image(environment.id), known)
    if request.built:
        add_pins(workspace, WheelRecords(None).proved(pinned_wheels(request.lock, request.system)))
    History(workspace.history).add((verdict,))  # out/<id>/ has only the newest one
    # Last: from now on this verdict is reused, and none of the steps above runs again.
    whole = digest(read_stored(folder / VERDICT) or b"")
    write_document(folder / "validated.json", Validated(key=key, verdict=whole))
    return verdict, True


def record(folder: Path, verdict: Verdict) -> None:
    write_atomically(folder / "results.jsonl", msgspec.json.Encoder().encode_lines(verdict.checks))
    write_document(folder / VERDICT, verdict)


def _key(request: ValidationRequest, engine: Engine) -> str:
    """Return one digest of everything that a verdict depends on, including the host's driver and GPU models."""
    info = engine.info()
    files = sorted(GPUS.glob("*/information"))
    lines = [line for path in files for line in decoding.lossy(read_stored(path) or b"").splitlines()]
    parts = (
        (request.image, request.environment, request.lock, request.removed, sorted(request.system.items())),
        (suite_plan.digest(), request.profile, request.extra, request.budgets),
        (info.name, info.version, info.gpu_runtime, request.gpus),
        request.simulate.profile.text if request.simulate else "",
        decoding.lossy(read_stored(DRIVER_VERSION) or b""),
        sorted(line.partition(":")[2].strip() for line in lines if line.startswith("Model:")),
    )
    return digest(msgspec.json.encode(parts, order="sorted"))
