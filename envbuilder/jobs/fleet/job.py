"""A job of a fleet: its specification and its result. No key, login or path is in a job."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import msgspec

from envbuilder.compat.fleet import FleetHost, asked_of
from envbuilder.errors import EnvbuilderError, ExitCode
from envbuilder.matrix import Matrix
from envbuilder.support import decoding
from envbuilder.validation.checks import Profile
from envbuilder.verdict import Level, StateName, Word


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="schema"):
    """What `envbuilder fleet prove` reads.

    ``gpu`` and ``driver`` are the host class ('' any), ``suite`` is the digest of the suite to run, ``record`` the
    packed record of the environment. A result that one of ``trusted`` (public keys, PEM) signed is not repeated, except
    with ``again`` one without an answer. ``max_age_s`` is the maximum age of a PASSED. ``now`` is the scheduler's time
    in seconds since 1970, if there is a scheduler with a clock.
    """

    repository: str
    environment: str
    arch: str
    gpu: str = ""
    driver: str = ""
    suite: str
    record: bytes = b""
    profile: Profile = "quick"
    gpus: str = "auto"
    again: bool = False
    max_age_s: float
    trusted: tuple[str, ...] = ()
    identity: str = ""
    issuer: str = ""
    now: float | None = None

    @property
    def host_class(self) -> str:
        return f"{self.gpu}/{self.driver}" if self.gpu else "any host"


class ValidationSpec(JobSpec, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="envbuilder/proof-order/v2"):
    """One validation on one host class."""

    digest: str
    level: Level


class BuildSpec(JobSpec, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="envbuilder/make-order/v2"):
    """One image to build, validate and publish. Its record has the committed context: nothing is resolved again."""

    matrix: Matrix


@dataclass(frozen=True)
class Job:
    """``envbuilder fleet prove -`` with ``data`` on its standard input. ``hosts`` are the fleet file's of its class."""

    spec: ValidationSpec | BuildSpec
    hosts: tuple[FleetHost, ...] = ()

    @cached_property
    def data(self) -> bytes:
        return msgspec.json.encode(self.spec, order="deterministic")

    @cached_property
    def name(self) -> str:
        """A name that depends on the work only: two controllers give the same work the same name."""
        kind = "make" if isinstance(self.spec, BuildSpec) else name_part(self.spec.gpu)
        return f"envbuilder-{kind}-{hashlib.sha256(self.data).hexdigest()[:16]}"

    @property
    def worker_class(self) -> str:
        return asked_of(self.spec.gpu, self.spec.driver, self.spec.arch)

    @property
    def title(self) -> str:
        """The work in words, for lines of progress."""
        work = "build of " if isinstance(self.spec, BuildSpec) else ""
        return f"{work}{self.spec.environment} for {self.spec.host_class}"


def name_part(text: str) -> str:
    """Return a text as part of a name that every scheduler accepts: lower case, digits, dashes, at most 20."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:20].rstrip("-") or "any"


class ProofDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `fleet prove`.

    ``did`` is ``stands`` if the result exists already, so that nothing ran; ``state`` is then its state. It is
    ``refused`` if this host cannot do the job, and ``failed`` if there is no result. ``reasons`` are those of the
    verdict, or say why there is none.
    """

    schema: str = "envbuilder/proof/v1"
    image: str = ""
    environment: str = ""
    kind: str = ""
    did: Literal["stands", "attached", "published", "refused", "failed"]
    driver: str | None = None
    state: StateName | None = None
    verdict: Word | None = None
    level: Level | None = None
    reasons: tuple[str, ...] = ()
    exit_code: int = 0

    def unable(self, error: EnvbuilderError) -> ProofDocument:
        """Return it with an error as its reason."""
        reason = f"{error.message} (next: {error.hint})" if error.hint else error.message
        return msgspec.structs.replace(self, reasons=(reason,), exit_code=error.exit_code)

    @property
    def is_lost(self) -> bool:
        """True if it says nothing about an image: a broken host, no envbuilder there, or a signal."""
        return self.exit_code in _REPEATABLE or self.exit_code < 0 or self.exit_code >= _FIRST_SIGNAL


_REPEATABLE = (ExitCode.INFRASTRUCTURE, ExitCode.PUBLISH_FAILED, ExitCode.INTERRUPTED, 126, 127)
"""Exit codes that say nothing about an image; the last two are a shell's for a program that it cannot start."""

_FIRST_SIGNAL = 129


def end_of(code: int, out: bytes) -> ProofDocument:
    """Return the document that a job printed, or one that says how its process ended."""
    try:
        return decoding.from_json(out, ProofDocument)
    except decoding.DamagedError:
        return ProofDocument(did="failed", reasons=(f"ended with exit code {code}",), exit_code=code)
