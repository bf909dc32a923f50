"""A job of a fleet: its specification, its end, and the rule for repeating it. No key, login or path is in a job."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import msgspec

from envbuilder.compat.fleet import FleetHost, asked_of
from envbuilder.errors import ExitCode
from envbuilder.matrix import Matrix
from envbuilder.support import decoding, terminal_text
from envbuilder.validation.checks import Profile
from envbuilder.verdict import Level


class JobTerms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the validations of a run have in common.

    ``trusted`` are public keys (PEM): a result that one of them signed is not repeated, except with ``again`` one
    without an answer. ``max_age_s`` is the maximum age of a PASSED, in seconds.
    """

    profile: Profile = "quick"
    gpus: str = "auto"
    again: bool = False
    max_age_s: float
    trusted: tuple[str, ...] = ()
    identity: str = ""
    issuer: str = ""


class ValidationSpec(JobTerms, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One validation on one host class: the input of `envbuilder fleet prove`.

    ``gpu`` and ``driver`` are the host class ('' any); ``suite`` is the digest of the suite to run; ``record`` is the
    packed record of the environment.
    """

    schema: str = "envbuilder/proof-order/v2"
    repository: str
    digest: str
    environment: str
    level: Level
    arch: str
    gpu: str = ""
    driver: str = ""
    suite: str
    record: bytes = b""

    @property
    def host_class(self) -> str:
        return f"{self.gpu}/{self.driver}" if self.gpu else "any host"


class BuildSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One image to build, validate and publish: the input of `envbuilder fleet make`.

    ``record`` has the committed build context, so that no host resolves versions again.
    """

    schema: str = "envbuilder/make-order/v2"
    repository: str
    environment: str
    matrix: Matrix
    record: bytes = b""
    profile: Profile = "quick"
    gpus: str = "auto"


class HostSpec(JobTerms, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a worker has to fit: the input of `envbuilder fleet check`. ``now`` is the time in seconds since 1970."""

    schema: str = "envbuilder/host-order/v1"
    repository: str
    suite: str
    now: float
    worker: str


@dataclass(frozen=True)
class Job:
    """``envbuilder fleet COMMAND -`` with ``spec`` on its standard input, on a host of a class.

    ``name`` depends only on the work: two controllers give the same work the same name. ``hosts`` are the fleet
    file's rows of the class.
    """

    name: str
    command: str
    spec: bytes
    environment: str
    gpu: str = ""
    host_class: str = "any host"
    worker_class: str = ""
    arch: str = ""
    hosts: tuple[FleetHost, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("fleet", self.command, "-", *(("--format", "json") if self.command != "check" else ()))

    @property
    def title(self) -> str:
        """The work in words, for lines of progress."""
        work = "build of " if self.command == "make" else ""
        return f"{work}{self.environment} for {self.host_class}"


def job_of(spec: ValidationSpec | BuildSpec | HostSpec, arch: str, hosts: Iterable[FleetHost] = ()) -> Job:
    """Return the job of a specification, named by all of it: other terms or another record are other work."""
    content = msgspec.json.encode(spec, order="deterministic")
    key = hashlib.sha256(content).hexdigest()[:16]
    any_host = asked_of("", "", arch)
    if isinstance(spec, HostSpec):
        return Job(f"envbuilder-check-{key}", "check", content, "")
    if isinstance(spec, BuildSpec):
        name = f"envbuilder-make-{key}"
        return Job(name, "make", content, spec.environment, worker_class=any_host, arch=arch)
    return Job(
        name=f"envbuilder-{name_part(spec.gpu)}-{key}",
        command="prove",
        spec=content,
        environment=spec.environment,
        gpu=spec.gpu,
        host_class=spec.host_class,
        worker_class=asked_of(spec.gpu, spec.driver, arch),
        arch=arch,
        hosts=tuple(hosts),
    )


def name_part(text: str) -> str:
    """Return a text as part of a name that every scheduler accepts: lower case, digits, dashes, at most 20."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:20].rstrip("-") or "any"


class _Row(msgspec.Struct, frozen=True):
    error: str = ""


class JobAnswer(msgspec.Struct, frozen=True):
    """Fields of the documents of `fleet prove`, `fleet make` and of an error; empty if it has none."""

    did: str = ""
    reasons: tuple[str, ...] = ()
    rows: tuple[_Row, ...] = ()
    message: str = ""
    next: str = ""


@dataclass(frozen=True)
class JobEnd:
    """Exit code of a job, its document (JSON), and the end of its standard error."""

    code: int
    document: bytes = b""
    errors: str = ""

    @cached_property
    def answer(self) -> JobAnswer:
        try:
            return decoding.from_json(self.document, JobAnswer)
        except decoding.DamagedError:
            return JobAnswer()

    @property
    def reason(self) -> str:
        """Why it ended as it did: the reason of its document, else the last error that it printed."""
        answer = self.answer
        reasons = (*answer.reasons, *(row.error for row in answer.rows if row.error))
        text, hint = "; ".join(reasons), ""
        if not text:
            text, hint = answer.message, answer.next
        if not text:  # a job without a document
            text, _, hint = self.errors.rpartition("error: ")[2].strip().partition("\n  next: ")
        return terminal_text.line(
            f"{text} (next: {hint})" if text and hint else text or f"ended with exit code {self.code}"
        )

    @property
    def is_lost(self) -> bool:
        """True for a process without an answer: a broken host, no envbuilder, or a signal."""
        return self.code in _REPEATABLE or self.code < 0 or self.code >= _FIRST_SIGNAL


_REPEATABLE = (ExitCode.INFRASTRUCTURE, ExitCode.PUBLISH_FAILED, ExitCode.INTERRUPTED, 126, 127)
"""Exit codes that say nothing about an image; the last two are a shell's for a program that it cannot start."""

_FIRST_SIGNAL = 129
