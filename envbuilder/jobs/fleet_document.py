"""The document of `fleet`: which environment has to be proven on which kind of host, what stands, and what is left."""

from __future__ import annotations

from typing import Literal

import msgspec

from envbuilder.errors import ExitCode
from envbuilder.verdict import KindState, Level

ProofState = KindState | Literal["unpublished", "impossible"]
"""A kind's state; ``unpublished`` where the registry has no such image, ``impossible`` where the rules say no."""


class ProofRow(msgspec.Struct, frozen=True, kw_only=True):
    """One environment on one kind of host (``any host`` for an environment that needs no GPU).

    ``count`` is how many hosts of the fleet are of the kind, ``hosts`` their names. ``left``: it has to be run;
    ``here``: this host is of the kind. ``level``, ``ran_on``, ``finished`` and ``age_s`` (seconds) are the PASSED's
    that stands; ``why`` is what is in the way where none does. ``rehearsed``: the suite of now was run against this
    kind's driver simulated, which proves nothing. ``error`` is what kept a run from its verdict.
    """

    environment: str
    kind: str
    gpu: str = ""
    driver: str = ""
    hosts: tuple[str, ...]
    count: int
    digest: str = ""
    state: ProofState
    left: bool = False
    here: bool = False
    level: Level | None = None
    ran_on: str | None = None
    finished: str = ""
    age_s: float | None = None
    why: str = ""
    rehearsed: bool = False
    error: str = ""
    exit_code: int = 0


class FleetDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What `fleet plan`, `fleet status` and `fleet run` answer; ``suite`` is the digest of the suite of now.

    ``states`` counts the rows of each state, ``left`` those that have to be run, ``left_here`` those of them that fit
    this host. ``ran`` are the digests on which `fleet run` ran the suite, in order.
    """

    schema: str = "envbuilder/fleet/v1"
    asked: Literal["plan", "status", "run"]
    matrix: str
    repository: str
    suite: str
    rows: tuple[ProofRow, ...]
    states: dict[str, int] = {}
    left: int = 0
    left_here: int = 0
    ran: tuple[str, ...] = ()


def code_of(state: ProofState) -> int:
    """Return the exit code of a proof: what cannot be is no failure, what is left is no claim."""
    match state:
        case "passed" | "impossible":
            return ExitCode.DONE
        case "failed":
            return ExitCode.FAILED
        case _:
            return ExitCode.NO_CLAIM
