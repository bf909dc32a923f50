"""A job of a fleet: its specification, the record of its environment, and its result.

No key, login or path is in a job. The record is what a host needs to know to build or validate the environment.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from envbuilder.compat.fleet import FleetHost, asked_of
from envbuilder.environment import Environment
from envbuilder.errors import ExitCode, UsageError
from envbuilder.image.context import build_files
from envbuilder.image.lockfile import LOCK
from envbuilder.image.wheel_records import WheelPins, read_pins
from envbuilder.matrix import Matrix
from envbuilder.support import decoding
from envbuilder.validation.suite_plan import Profile
from envbuilder.verdict import HostClassState, Level, StateName, Word
from envbuilder.workspace import Workspace, read_stored, write_atomically


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `envbuilder fleet prove` reads: the validation of a digest, or with ``matrix`` the build of an environment.

    ``gpu`` and ``driver`` are the host class ('' any), ``suite`` is the digest of the suite to run, ``record`` the
    packed record of the environment: a build resolves nothing again. A result that one of ``trusted`` (public keys,
    PEM) signed is not repeated, except with ``again`` one without an answer. ``max_age_s`` is the maximum age of a
    PASSED. ``now`` is the scheduler's time in seconds since 1970, if there is a scheduler with a clock.
    """

    schema: Literal["envbuilder/job/v3"] = "envbuilder/job/v3"
    repository: str
    environment: str
    digest: str = ""
    matrix: Matrix | None = None
    level: Level
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


@dataclass(frozen=True)
class Job:
    """``envbuilder fleet prove -`` with ``data`` on its standard input. ``hosts`` are the fleet file's of its class."""

    spec: JobSpec
    hosts: tuple[FleetHost, ...] = ()

    @cached_property
    def data(self) -> bytes:
        return msgspec.json.encode(self.spec, order="deterministic")

    @cached_property
    def name(self) -> str:
        """A name that depends on the work only: two controllers give the same work the same name."""
        kind = "make" if self.spec.matrix else name_part(self.spec.gpu)
        return f"envbuilder-{kind}-{hashlib.sha256(self.data).hexdigest()[:16]}"

    @property
    def worker_class(self) -> str:
        return asked_of(self.spec.gpu, self.spec.driver, self.spec.arch)

    @property
    def title(self) -> str:
        """The work in words, for lines of progress."""
        work = "build of " if self.spec.matrix else ""
        return f"{work}{self.spec.environment} for {self.spec.host_class}"


def name_part(text: str) -> str:
    """Return a text as part of a name that every scheduler accepts: lower case, digits, dashes, at most 20."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:20].rstrip("-") or "any"


RowState = StateName | Literal["unpublished", "impossible"]
"""``unpublished``: the registry has no such image. ``impossible``: the compatibility rules say no."""


def is_pending(standing: HostClassState, suite: str, *, again: bool) -> bool:
    """Return True if a validation has to run. A failure under this suite is final: it is not repeated until it passes.

    A result without an answer under this suite is repeated only with ``again``.
    """
    if standing.state in ("missing", "stale") or (again and standing.state in ("inconclusive", "refused")):
        return True
    return standing.state != "passed" and suite not in standing.suites


def code_of(state: RowState) -> int:
    """Return a row's exit code: an impossible combination is not a failure, a pending one is inconclusive."""
    codes = {"passed": ExitCode.DONE, "impossible": ExitCode.DONE, "failed": ExitCode.FAILED}
    return codes.get(state, ExitCode.NO_CLAIM)


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

    @property
    def is_lost(self) -> bool:
        """True if it says nothing about an image: a broken host, no envbuilder there, or a signal."""
        broken = (ExitCode.INFRASTRUCTURE, ExitCode.PUBLISH_FAILED)
        return self.exit_code in broken or not 0 <= self.exit_code < _NO_END


_NO_END = 126
"""The first exit code of a shell that cannot start a program, or whose program was ended by a signal."""


def no_result(reason: str, code: int = ExitCode.INFRASTRUCTURE) -> ProofDocument:
    return ProofDocument(did="failed", reasons=(reason,), exit_code=code)


def end_of(code: int, out: bytes) -> ProofDocument:
    """Return the document that a job printed, or one that says how its process ended."""
    try:
        return decoding.from_json(out, ProofDocument)
    except decoding.DamagedError:
        return no_result(f"ended with exit code {code}", code)


_MOST = 64 << 20
"""Limit of an unpacked record in bytes; the largest has 200 kB."""


def packed(environment: Environment, workspace: Workspace) -> bytes:
    """Return what this folder has of an environment, compressed.

    These are the files of its build and of its matrix, the record of its image, the facts of its base, and its pins.
    Raises UsageError for a variant without files, if their list is missing: its own list proves nothing.
    """
    base, added = environment.on_registry_base, environment.added
    files = {f"images/{name}": data for name, data in build_files(environment.id, workspace).items()}
    if environment.variant and not files:
        text = f"{environment.id}: the files that the variant {environment.variant} leaves out are unknown here"
        hint = f"run it where images/ is; for a new environment first: {workspace.command('lock', environment.id)}"
        raise UsageError(text, hint=hint)
    lock = files.get(f"images/{environment.id}/{LOCK}", b"")
    pins = {name: pin for name, pin in read_pins(workspace).items() if name.encode() in lock}
    files["images/wheels.json"] = msgspec.json.encode(WheelPins(wheels=pins), order="sorted")
    facts = [workspace.base(base.image.rpartition("@")[2])] if base else []
    places = {f"{one.relative_to(workspace.root)}": one for one in (workspace.known_image(environment.id), *facts)}
    users = filter(None, (*(source for source, _ in added.files), *added.certificates, added.template))
    places |= {name: workspace.users(name) for name in users}
    files |= {name: data for name, path in places.items() if (data := read_stored(path)) is not None}
    return zlib.compress(msgspec.msgpack.encode(files, order="sorted"), 9)


def unpacked(record: bytes, root: Path) -> Workspace:
    """Write a record's files below a folder. Raises UsageError for anything else, and for a path outside of it."""
    hint = "write the job again with this version of envbuilder"
    try:
        with decoding.damaged("not the record of an environment"):
            opened = zlib.decompressobj()
            data = opened.decompress(record, _MOST)
            if not opened.eof:
                raise ValueError("it is cut off or too large")
        files = decoding.from_msgpack(data, dict[str, bytes])
    except decoding.DamagedError as error:
        raise UsageError(str(error), hint=hint) from error
    for name, content in files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise UsageError(f"the path {name!r} of a record is outside of its folder", hint=hint)
        write_atomically(root / path, content)
    return Workspace(root)
