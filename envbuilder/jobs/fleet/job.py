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
from envbuilder.validation.checks import Profile
from envbuilder.verdict import Level, StateName, Word
from envbuilder.workspace import Workspace, read_stored, write_atomically


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


_MOST = 64 << 20
"""Limit of an unpacked record in bytes; the largest has 200 kB."""


def packed(environment: Environment, workspace: Workspace) -> bytes:
    """Return what this folder has of an environment, compressed.

    These are the files of its build and of its matrix, the record of its image, the facts of its base, and its pins.
    """
    base, added = environment.on_registry_base, environment.added
    build = {f"images/{name}": data for name, data in build_files(environment.id, workspace).items()}
    lock = build.get(f"images/{environment.id}/{LOCK}", b"")
    pins = {name: pin for name, pin in read_pins(workspace).items() if name.encode() in lock}
    files = {**build, "images/wheels.json": msgspec.json.encode(WheelPins(wheels=pins), order="sorted")}
    paths = [workspace.known_image(environment.id)]
    paths += [workspace.base(base.image.rpartition("@")[2])] if base else []
    for path in paths:
        files |= _file(path, path.relative_to(workspace.root))
    sources = (source for source, _ in added.files)
    for name in (*sources, *added.certificates, *filter(None, [added.template])):
        files |= _file(workspace.users(name), Path(name))
    return zlib.compress(msgspec.msgpack.encode(files, order="sorted"), 9)


def required(environment: Environment, workspace: Workspace) -> bytes:
    """Return the record of an environment. Raises UsageError for a variant without files, if their list is missing.

    Without it such an image can only end INCONCLUSIVE: its own list proves nothing.
    """
    if environment.variant and not build_files(environment.id, workspace):
        raise UsageError(
            f"{environment.id}: this folder has no images/{environment.id}, so the files that the variant "
            f"{environment.variant} leaves out are unknown",
            hint="run it in a checkout with images/; for a new environment first: "
            + workspace.command("lock", environment.id),
        )
    return packed(environment, workspace)


def unpacked(record: bytes, root: Path) -> Workspace:
    """Write a record's files below a folder. Raises UsageError for anything else, and for a path outside of it."""
    files: dict[str, bytes] = {}
    if record:
        try:
            with decoding.damaged("not the record of an environment"):
                opened = zlib.decompressobj()
                data = opened.decompress(record, _MOST)
                if not opened.eof:
                    raise ValueError("it is cut off or too large")
            files = decoding.from_msgpack(data, dict[str, bytes])
        except decoding.DamagedError as error:
            raise UsageError(str(error), hint="write the job again with this version of envbuilder") from error
    for name, content in files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise UsageError(f"the path {name!r} of a record is outside of its folder", hint="write the job again")
        write_atomically(root / path, content)
    return Workspace(root)


def _file(path: Path, name: Path) -> dict[str, bytes]:
    data = read_stored(path)
    return {} if data is None else {name.as_posix(): data}
