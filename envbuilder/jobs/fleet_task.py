"""A task of a fleet: what is to be done on which kind of host, as a value that holds no key, no login and no path."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol, Self

import msgspec

from envbuilder.compat.fleet import FleetHost
from envbuilder.errors import ExitCode, InfrastructureError
from envbuilder.verdict import Level


class ProofOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One proof that a host is asked for: `envbuilder fleet prove` reads it.

    ``gpu`` and ``driver`` are the kind of host ('' any); ``suite`` is the digest of the suite that is meant.
    ``trusted`` are public keys (PEM): what they signed stands, and is not run again. ``simulate`` is the simulated
    driver of a rehearsal. ``max_age_s`` is how old a PASSED may be, in seconds.
    """

    schema: str = "envbuilder/proof-order/v1"
    repository: str
    digest: str
    environment: str
    level: Level
    arch: str
    gpu: str = ""
    driver: str = ""
    suite: str
    profile: str = "quick"
    gpus: str = "auto"
    simulate: str = ""
    again: bool = False
    max_age_s: float
    trusted: tuple[str, ...] = ()
    identity: str = ""
    issuer: str = ""


@dataclass(frozen=True)
class Task:
    """What an executor runs: ``envbuilder ARGUMENTS``, with ``order`` on its standard input.

    ``name`` is the same for the same work, whoever asks for it: an executor that knows it already does not begin it
    again. ``gpu``, ``driver`` and ``arch`` are the kind of host; ``hosts`` are the fleet file's rows of that kind. A
    ``rehearsal`` plays the kind's driver, and needs none of its GPUs.
    """

    name: str
    arguments: tuple[str, ...]
    order: bytes
    gpu: str
    driver: str
    arch: str
    hosts: tuple[FleetHost, ...] = ()
    rehearsal: bool = False

    @property
    def kind(self) -> str:
        """The kind of host in a word."""
        return f"{self.gpu}/{self.driver}" if self.gpu else "any host"


@dataclass(frozen=True)
class Ended:
    """How a task ended: envbuilder's exit code, the last thing that it said, and where it ran."""

    code: int
    said: str = ""
    where: str = ""


class LostError(InfrastructureError):
    """A worker went away in mid-work, or nobody knows what became of a task: no answer about the image."""


class Executor(Protocol):
    """The shape of `concurrent.futures.Executor`, for tasks. A future's result is `Ended`; it raises LostError."""

    def __enter__(self) -> Self:
        """Begin."""

    def __exit__(self, *failure: object) -> None:
        """End; what runs elsewhere may go on, and is taken up again by its name."""

    def submit(self, task: Task) -> Future[Ended]:
        """Begin a task, or join it where it is under way already."""


PROVE = ("fleet", "prove", "-")
"""What a host runs for a proof."""

INFRASTRUCTURE = (ExitCode.INFRASTRUCTURE, ExitCode.PUBLISH_FAILED, ExitCode.INTERRUPTED)
"""The exit codes that say nothing about an image: such a task may be begun again, and no other."""


NO_PROGRAM = (126, 127)
"""What a shell ends with where envbuilder itself may not be run, or is not there: another host may have it."""


def is_lost(code: int) -> bool:
    """Tell whether a process ended without an answer: a failed host, one without envbuilder, or a signal."""
    return code in (*INFRASTRUCTURE, *NO_PROGRAM) or code < 0 or code > 128  # noqa: PLR2004 - a shell's first signal


def proof_task(order: ProofOrder, hosts: Iterable[FleetHost]) -> Task:
    """Make the task of a proof; its name is made of digest, kind, suite and machine, and of nothing else."""
    same = (order.repository, order.digest, order.gpu, order.driver, order.suite, order.arch, order.simulate)
    made = hashlib.sha256("\n".join(same).encode()).hexdigest()[:16]
    return Task(
        name=f"envbuilder-{_word(order.gpu)}-{made}",
        arguments=PROVE,
        order=msgspec.json.encode(order),
        gpu=order.gpu,
        driver=order.driver,
        arch=order.arch,
        hosts=tuple(hosts),
        rehearsal=bool(order.simulate),
    )


def _word(text: str) -> str:
    """Write a text as part of a name that every scheduler takes: lower case, digits, dashes, short."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:20].rstrip("-") or "any"
