"""The document of `fleet plan`, `fleet status` and `fleet run`, and its table."""

from __future__ import annotations

from typing import Literal

import msgspec

from envbuilder.errors import ExitCode
from envbuilder.support.console import table
from envbuilder.verdict import KindState, Level

RowState = KindState | Literal["unpublished", "impossible"]
"""``unpublished``: the registry has no such image. ``impossible``: the compatibility rules say no."""


class FleetRow(msgspec.Struct, frozen=True, kw_only=True):
    """One environment on one host class (``any host`` if it needs no GPU).

    ``hosts`` are names in the fleet file, ``count`` is how many hosts they are. ``left``: a validation is pending.
    ``here``: this host belongs to the class. ``level``, ``ran_on``, ``finished`` and ``age_s`` (seconds) describe the
    accepted PASSED; without one, ``why`` is the reason. ``error`` is why a run reached no verdict.
    """

    environment: str
    kind: str
    gpu: str = ""
    driver: str = ""
    hosts: tuple[str, ...]
    count: int
    digest: str = ""
    state: RowState
    left: bool = False
    here: bool = False
    level: Level | None = None
    ran_on: str | None = None
    finished: str = ""
    age_s: float | None = None
    why: str = ""
    error: str = ""
    exit_code: int = 0


class FleetDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `fleet plan`, `fleet status` and `fleet run`; ``suite`` is the digest of the installed suite.

    ``states`` counts the rows by state, ``left`` the pending validations, ``left_here`` those for this host. ``ran``
    are the digests that `fleet run` validated, in order. ``next`` is what to do about images that are not published.
    """

    schema: str = "envbuilder/fleet/v1"
    asked: Literal["plan", "status", "run"]
    matrix: str
    repository: str
    suite: str
    rows: tuple[FleetRow, ...]
    states: dict[str, int] = {}
    left: int = 0
    left_here: int = 0
    ran: tuple[str, ...] = ()
    next: str = ""


def code_of(state: RowState) -> int:
    """Return a row's exit code: an impossible combination is not a failure, a pending one is inconclusive."""
    match state:
        case "passed" | "impossible":
            return ExitCode.DONE
        case "failed":
            return ExitCode.FAILED
        case _:
            return ExitCode.NO_CLAIM


def as_text(document: FleetDocument) -> str:
    rows = [
        (row.environment, row.kind, f"{row.count}", row.state, _pending(row), row.error or row.why or _since(row))
        for row in document.rows
    ]
    counted = [f"{number} {state}" for state, number in document.states.items()]
    counted += [f"{document.left} left, {document.left_here} of them for this host"]
    ran = [f"ran: {', '.join(document.ran)}"] if document.ran else []
    return "\n".join(
        [
            table(("environment", "host class", "hosts", "state", "left", "since or why"), rows),
            "",
            f"{document.matrix} in {document.repository}: {'; '.join(counted)}",
            *ran,
            *([f"next: {document.next}"] if document.next else []),
        ]
    )


def _pending(row: FleetRow) -> str:
    return ("here" if row.here else "there") if row.left else "-"


def _since(row: FleetRow) -> str:
    return f"{row.finished} at level {row.level}" if row.finished else "-"
