"""A job of a fleet, and what a host does for it: check itself, then validate an image or build one."""

import hashlib
import os
import platform
import re
import shutil
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.choice import choose
from envbuilder.compat.fleet import asked_of, is_of_class
from envbuilder.engine.docker import connect
from envbuilder.environment import Environment
from envbuilder.errors import (
    EnvbuilderError,
    ExitCode,
    InfrastructureError,
    PublishError,
    UsageError,
    verdict_exit_code,
)
from envbuilder.host import describe
from envbuilder.image.bases import NEEDED, ask_for_room
from envbuilder.image.context import build_files
from envbuilder.image.lockfile import LOCK
from envbuilder.image.wheel_records import WheelPins, read_pins
from envbuilder.jobs.run import Runner, RunOptions
from envbuilder.matrix import Matrix
from envbuilder.publish.attestation import PublishSession, validate_and_attach
from envbuilder.publish.publish_all import PublishOptions, publish_all, sealer_of
from envbuilder.publish.tags import destination
from envbuilder.publish.verification import advising
from envbuilder.publish.verify_request import MAX_SKEW_S, Registrar, openers_of
from envbuilder.pypi.client import open_index
from envbuilder.registry.client import Repository
from envbuilder.registry.errors import RegistryFailedError
from envbuilder.support import decoding, terminal_text
from envbuilder.support.console import Console
from envbuilder.validation import suite_plan
from envbuilder.validation.suite_plan import Profile
from envbuilder.validation.validate import ValidationRequest
from envbuilder.validation.validate_request import of_record, validate_target
from envbuilder.verdict import HostClassState, HostRef, Level, StateName, Word
from envbuilder.workspace import Workspace, read_stored, temporary_folder, write_atomically

PATIENCE_S, PAUSE_S = 180.0, 5.0  # how long a registry may be away, and the pause between two questions


class Job(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """The validation of a digest, or with ``matrix`` the build of an environment; without keys, logins and paths.

    ``gpu`` and ``driver`` are the host class ('' any), ``suite`` is a digest, ``record`` all that a host needs to know
    of the environment, packed. A result that one of ``trusted`` (public keys, PEM) signed is not repeated, except with
    ``again`` one without an answer. ``now`` is the scheduler's time in seconds since 1970, if it has a clock.
    """

    schema: Literal["envbuilder/job/v4"] = "envbuilder/job/v4"
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
    again: bool = False
    max_age_s: float
    trusted: tuple[str, ...] = ()
    now: float | None = None

    @cached_property
    def data(self) -> bytes:
        return msgspec.json.encode(self, order="deterministic")

    @cached_property
    def name(self) -> str:
        """A name that every scheduler accepts, the same for the same work."""
        kind = re.sub(r"[^a-z0-9]+", "-", "make" if self.matrix else self.gpu.lower() or "any").strip("-")[:20]
        return f"envbuilder-{kind.rstrip('-')}-{hashlib.sha256(self.data).hexdigest()[:16]}"

    @property
    def host_class(self) -> str:
        return f"{self.gpu}/{self.driver}" if self.gpu else "any host"

    @property
    def worker_class(self) -> str:
        return asked_of(self.gpu, self.driver, self.arch)

    @property
    def title(self) -> str:
        return f"{'build of ' if self.matrix else ''}{self.environment} for {self.host_class}"


RowState = StateName | Literal["unpublished", "impossible"]  # no such image; the compatibility rules say no


def is_pending(standing: HostClassState, suite: str, *, again: bool) -> bool:
    """Return True if a validation has to run. FAILED under this suite is final, no answer only without ``again``."""
    is_open = standing.state in ("missing", "stale") or (again and standing.state in ("inconclusive", "refused"))
    return is_open or (standing.state != "passed" and suite not in standing.suites)


CODES = {"passed": ExitCode.DONE, "impossible": ExitCode.DONE, "failed": ExitCode.FAILED}  # any other: NO_CLAIM


class ProofDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `fleet prove`; ``reasons`` are those of the verdict, or say why there is none.

    ``did`` is ``stands`` if the result exists already, so that nothing ran; ``state`` is then its state. It is
    ``refused`` if this host cannot do the job, and ``failed`` if there is no result.
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
        """True if it says nothing about an image: a broken host, or a program that did not start or was killed."""
        broken = (ExitCode.INFRASTRUCTURE, ExitCode.PUBLISH_FAILED)
        return self.exit_code in broken or not 0 <= self.exit_code < 126  # noqa: PLR2004 - the first code of a shell


def no_result(reason: str, code: int = ExitCode.INFRASTRUCTURE) -> ProofDocument:
    return ProofDocument(did="failed", reasons=(reason,), exit_code=code)


def packed(environment: Environment, workspace: Workspace) -> bytes:
    """Return what this folder has of an environment, compressed: its files, image, base and pins.

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
    try:
        with decoding.damaged("not the record of an environment"):
            opened = zlib.decompressobj()
            data = opened.decompress(record, 64 << 20)  # the largest has 200 kB
            if not opened.eof:
                raise ValueError("it is cut off or too large")
            files = decoding.from_msgpack(data, dict[str, bytes])
            if bad := [name for name in files if not (root / name).resolve().is_relative_to(root.resolve())]:
                raise ValueError(f"the path {bad[0]!r} is outside of its folder")
    except decoding.DamagedError as error:
        raise UsageError(str(error), hint="write the job again with this version of envbuilder") from error
    for name, content in files.items():
        write_atomically(root / name, content)
    return Workspace(root)


def with_patience(
    lookup: Callable[[], Any],
    say: Callable[[str], None],
    patience_s: float = PATIENCE_S,
    faults: type[InfrastructureError] = InfrastructureError,
) -> Any:  # noqa: ANN401 - the answer
    """Repeat a lookup while its ``faults`` last; raises the last of them after ``patience_s`` seconds."""
    until = time.monotonic() + patience_s
    while True:
        try:
            return lookup()
        except faults as error:
            if (left := until - time.monotonic() - PAUSE_S) < 0:
                raise
            say(f"{error.message}; asking again for {left:.0f} s")
        time.sleep(PAUSE_S)


def trusted_signer(openers: Any = None) -> Any:  # noqa: ANN401 - a signer of attestations, and who opens them
    """Return the signer with this host's key. Raises UsageError if there is none, or if the openers do not trust it."""
    if not (own := os.environ.get("TF_ENVBUILDER_SIGNING_KEY")):
        hint = "envbuilder keys new ~/.envbuilder, then set TF_ENVBUILDER_SIGNING_KEY=~/.envbuilder/envbuilder.key"
        raise UsageError("this host has no signing key", hint=hint)
    return sealer_of((Path(own),), keyless=False, environment=os.environ, say=Console().say, openers=openers)


def as_text(document: ProofDocument) -> str:
    result = document.verdict or document.state or "; ".join(document.reasons) or "done"
    return f"{document.image} on {document.kind}: {document.did}, {result} (driver {document.driver or 'none'})"


def prove(data: bytes, catalog: Catalog) -> ProofDocument:
    """Do a job (JSON), unless its result exists or this host cannot do it. Raises UsageError for anything else."""
    try:
        job = decoding.from_json(data, Job)
    except decoding.DamagedError as error:
        hint = "`envbuilder fleet run` and `envbuilder fleet export` write them"
        raise UsageError(f"not a job specification: {error}", hint=hint) from error
    host, to = describe(), destination(job.repository)
    image, name = str(to.at(job.digest)) if job.digest else to.name, job.environment
    document = ProofDocument(image=image, environment=name, kind=job.host_class, did="refused", driver=host.driver)
    try:
        with advising(to):
            tools = _checked(job, host, catalog)
            document = msgspec.structs.replace(document, did="failed")
            found = _build(job, *tools, catalog) if job.matrix else _validate(job, *tools, catalog)
    except EnvbuilderError as error:
        reason = f"{error.message} (next: {error.hint})" if error.hint else error.message
        found = {"reasons": (reason,), "exit_code": error.exit_code}
    return msgspec.structs.replace(document, **found)


def _checked(job: Job, host: HostRef, catalog: Catalog) -> tuple[Registrar, Any, PublishSession]:
    """Return what publishes the result of a job, after checks of this host. Raises EnvbuilderError for a problem."""
    if job.suite != (here := suite_plan.digest()):
        text = f"the job needs suite {job.suite[:19]}, this host has {here[:19]}"
        raise UsageError(text, hint="install the same version of envbuilder on every host")
    if job.arch != platform.machine():
        raise InfrastructureError(f"the job needs {job.arch}, this host is {platform.machine()}")
    if job.now is not None and abs(late := time.time() - job.now) > MAX_SKEW_S:
        text = f"this host's clock differs by {terminal_text.in_words(abs(late))} from the scheduler's"
        raise InfrastructureError(text, hint="set the clock; verdicts with a wrong time are refused")
    names = [gpu.name for gpu in host.gpus]  # a scheduler's label proves nothing
    if job.gpu and not is_of_class(job.gpu, job.driver, host.driver, names, catalog):
        here = f"{', '.join(names) or 'no GPU'} with driver {host.driver or 'none'}"
        hint = "correct the constraint or labels of the fleet file: they lead to another host class"
        raise InfrastructureError(f"the job needs {job.host_class}, this host has {here}", hint=hint)
    with temporary_folder("trusted") as folder:
        write_atomically(folder / "keys.pub", "\n".join(job.trusted).encode())
        openers = openers_of((folder / "keys.pub",), None, None)
    sealer, engine = trusted_signer(openers), connect()
    ask_for_room("a validation", NEEDED["cpu"], engine)
    repository = Repository(destination(job.repository), os.environ)
    repository.manifest("envbuilder-check")
    session = PublishSession(engine, Workspace.here(), Console().say, dict(os.environ), host)
    return Registrar(repository, openers, catalog.gpu_names, job.max_age_s), sealer, session


def _validate(job: Job, registrar: Registrar, sealer: Any, session: PublishSession, catalog: Catalog) -> dict[str, Any]:  # noqa: ANN401
    reference = registrar.repository.reference.at(job.digest)
    state = registrar.standing(job.environment, job.level, [(job.gpu, job.driver)], job.digest)
    if state is None:
        hint = "publish it again, or run `envbuilder fleet run` again if its tag has another digest by now"
        raise PublishError(f"the registry has no {reference}", hint=hint)
    (standing,) = state.kinds
    if not is_pending(standing, job.suite, again=job.again):
        return {"did": "stands", "state": standing.state, "exit_code": CODES.get(standing.state, ExitCode.NO_CLAIM)}
    validate = partial(validate_target, workspace=session.workspace, console=Console(), catalog=catalog)
    with temporary_folder("record") as folder:
        request = of_record(ValidationRequest(profile=job.profile), job.environment, unpacked(job.record, folder))
        # A verdict that is not attached yet is on this host only: on another one the suite would run again.
        attach = partial(validate_and_attach, request, reference, session, sealer, validate)
        verdict = with_patience(attach, Console().say, faults=RegistryFailedError)
    found = {name: getattr(verdict, name) for name in ("verdict", "level", "reasons")}
    return {**found, "did": "attached", "driver": verdict.host.driver, "exit_code": verdict_exit_code(verdict.verdict)}


def _build(job: Job, registrar: Registrar, sealer: Any, session: PublishSession, catalog: Catalog) -> dict[str, Any]:  # noqa: ANN401
    """Build and publish an image in ``made/<job>``, unless the repository has it by now, and remove the folder."""
    folder = Path.cwd() / "made" / msgspec.structs.replace(job, now=None).name
    session = replace(session, workspace=unpacked(job.record, folder))
    write_atomically(folder / "matrix.yaml", msgspec.yaml.encode(job.matrix))
    choice = choose(str(folder / "matrix.yaml"), (job.environment,), session.workspace, catalog)
    to, did = registrar.repository, "stands"
    if not to.manifest(choice.environments[0].image_tag):
        row: Any
        options = RunOptions(validate=False)
        (row,) = Runner(choice, session.workspace, session.engine, Console(), options, open_index()).run().rows
        if not row.error:
            terms = PublishOptions(to.reference, allow=("inconclusive",), profile=job.profile)
            (row,) = publish_all(choice, terms, sealer, session).rows
        if row.error:
            return {"reasons": (row.error,), "exit_code": row.exit_code}
        did = "published"
    shutil.rmtree(folder, ignore_errors=True)
    return {"did": did}
