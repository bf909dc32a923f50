"""Keep verdicts in ``out/<id>/``, and find that one already stands for the same image, suite and host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from envbuilder.engine.port import Engine
from envbuilder.errors import UsageError
from envbuilder.image import lockfile
from envbuilder.image.system_lock import CUDNN_LOCK
from envbuilder.image.wheel_pins import add_pins
from envbuilder.image.wheel_records import WheelRecords
from envbuilder.support import decoding
from envbuilder.validation import suite_plan
from envbuilder.validation.history import History
from envbuilder.validation.stored import read_verdict
from envbuilder.validation.suite_session import Progress
from envbuilder.validation.validate import ValidationRequest, validate
from envbuilder.verdict import Verdict
from envbuilder.workspace import (
    VERDICT,
    Workspace,
    content_key,
    digest,
    read_document,
    read_kept,
    set_aside,
    write_atomically,
    write_document,
)

DRIVER_VERSION = Path("/proc/driver/nvidia/version")
GPUS = Path("/proc/driver/nvidia/gpus")
"""Where the kernel's module says what it is, and what it drives: a file ``information`` a GPU."""


class Validated(msgspec.Struct, frozen=True, kw_only=True):
    """What a kept verdict was reached with (``out/<id>/validated.json``), and the digest of its file."""

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
    fresh: bool = False,
) -> tuple[Verdict, bool]:
    """Validate an environment's image and keep the verdict; return it and whether anything was run for it.

    A verdict that stands (same image, lock, suite, profile, budgets, engine and driver) is returned as it is, unless
    ``fresh`` asks for a new one.
    """
    environment = request.environment
    if environment is None:
        raise UsageError("only an environment's verdict is kept by its id", hint="use validate for other images")
    folder = workspace.results(environment.id)
    key = _key(request, engine)
    stands = read_document(folder / "validated.json", Validated)
    kept = None if fresh or stands is None or stands.key != key else _unaltered(folder / VERDICT, stands.verdict)
    if kept is not None:
        return kept, False
    verdict = validate(engine, request, on_progress=lambda progress: on_progress(said(progress)))
    record(folder, verdict)
    if request.built:
        locks = (request.lock, request.system.get(CUDNN_LOCK, ""))
        add_pins(workspace, WheelRecords(None).proved(package for lock in locks for package in lockfile.parse(lock)))
    History(workspace.history).add((verdict,))  # out/<id>/ holds the newest alone; here none is lost
    # Last: from here on the verdict stands, and what would be done for a new one is done no more.
    whole = digest((read_kept(folder / VERDICT)) or b"")
    write_document(folder / "validated.json", Validated(key=key, verdict=whole))
    return verdict, True


def _unaltered(path: Path, expected: str) -> Verdict | None:
    """Read a verdict that is, byte for byte, the one that was kept; None where it is another, or there is none."""
    content = read_kept(path)
    if content is None or digest(content) == expected:
        return read_verdict(path)
    if expected:
        set_aside(path, "was altered after it was written")
    return None


def record(folder: Path, verdict: Verdict) -> None:
    """Write a verdict's documents: every result a line, then the verdict, each atomically."""
    encoder = msgspec.json.Encoder()
    write_atomically(folder / "results.jsonl", encoder.encode_lines(verdict.checks))
    write_document(folder / VERDICT, verdict)


def said(progress: Progress) -> str:
    """Say in a few words what happened."""
    match progress.kind:
        case "began":
            return f"checking: {progress.name}"
        case "ended":
            return f"{progress.name}: {progress.outcome} ({progress.seconds:.1f} s)"


def _key(request: ValidationRequest, engine: Engine) -> str:
    """Return what a verdict depends on, as one digest; the host's driver and its kinds of GPU are part of it."""
    info = engine.info()
    driver = read_kept(DRIVER_VERSION) or b""
    simulated = request.simulate.profile.text if request.simulate else ""
    host = (info.name, info.version, info.gpu_runtime, request.gpus, simulated)
    return content_key(
        {
            "image": request.image.encode(),
            "environment": msgspec.json.encode(request.environment),
            "lock": request.lock.encode(),
            "omissions": request.omissions.encode(),
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
    """Name the model of each GPU that the driver drives; none where there is no driver."""
    lines = [
        line for path in GPUS.glob("*/information") for line in decoding.lossy(read_kept(path) or b"").splitlines()
    ]
    return sorted(line.partition(":")[2].strip() for line in lines if line.startswith("Model:"))
