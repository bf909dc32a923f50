"""What a host does for a job of a fleet: check itself, then validate an image and attach the verdict, or build one."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.choice import choose
from envbuilder.compat.fleet import advertised, is_of_class
from envbuilder.engine.docker import connect
from envbuilder.engine.port import Engine
from envbuilder.errors import EnvbuilderError, InfrastructureError, PublishError, UsageError, verdict_exit_code
from envbuilder.host import describe
from envbuilder.image.bases import NEEDED, ask_for_room
from envbuilder.jobs.fleet.job import Job, JobSpec, ProofDocument, code_of, is_pending, unpacked
from envbuilder.jobs.fleet.workers import dask, with_patience
from envbuilder.jobs.run import RunOptions, RunRow, run
from envbuilder.publish.attestation import PublishSession, validate_and_attach
from envbuilder.publish.publish_all import PublishOptions, publish_all, sealer_of
from envbuilder.publish.results import PublishRow
from envbuilder.publish.tags import destination
from envbuilder.publish.verification import advising
from envbuilder.publish.verify_request import MAX_SKEW_S, Registrar, openers_of, trusting
from envbuilder.pypi.client import open_index
from envbuilder.registry.client import Repository
from envbuilder.registry.errors import RegistryFailedError
from envbuilder.registry.reference import Reference
from envbuilder.support import decoding
from envbuilder.support.console import Console
from envbuilder.validation import suite_plan
from envbuilder.validation.validate import ValidationRequest
from envbuilder.validation.validate_request import of_record, validate_target
from envbuilder.verdict import HostRef
from envbuilder.workspace import Workspace, temporary_folder, write_atomically

SIGNING_KEY = "TF_ENVBUILDER_SIGNING_KEY"
"""The variable with the path of a host's private key."""


class Signing(msgspec.Struct, frozen=True):
    """Keys that sign; without any, the key of this host's variable, or this CI job's identity with ``keyless``."""

    signers: tuple[Path, ...] = ()
    keyless: bool = False

    def sealer(self) -> Any:  # noqa: ANN401 - a signer of attestations
        """Return the signer. Raises UsageError if there is none."""
        own = os.environ.get(SIGNING_KEY, "")
        keys = self.signers or ((Path(own),) if own and not self.keyless else ())
        if not keys and not self.keyless:
            hint = f"envbuilder keys new ~/.envbuilder, then set {SIGNING_KEY}=~/.envbuilder/envbuilder.key"
            raise UsageError("this host has no signing key", hint=hint)
        return sealer_of(keys, keyless=self.keyless, environment=os.environ, say=Console().say)


def as_text(document: ProofDocument) -> str:
    result = document.verdict or document.state or "; ".join(document.reasons) or "done"
    return f"{document.image} on {document.kind}: {document.did}, {result} (driver {document.driver or 'none'})"


def prove(data: bytes, signing: Signing, catalog: Catalog) -> ProofDocument:
    """Do the job of a specification (JSON), unless its result exists or this host cannot do it.

    Raises UsageError for anything else than a specification.
    """
    try:
        spec = decoding.from_json(data, JobSpec)
    except decoding.DamagedError as error:
        hint = "`envbuilder fleet run` and `envbuilder fleet export` write them"
        raise UsageError(f"not a job specification: {error}", hint=hint) from error
    host, to = describe(), destination(spec.repository)
    image, name = str(to.at(spec.digest)) if spec.digest else to.name, spec.environment
    document = ProofDocument(image=image, environment=name, kind=spec.host_class, did="refused", driver=host.driver)
    try:
        with advising(to):
            ready = _ready(spec, to, host, signing, catalog)
            document = msgspec.structs.replace(document, did="failed")
            return _build(spec, ready, document) if spec.matrix else _validate(spec, ready, document)
    except EnvbuilderError as error:
        reason = f"{error.message} (next: {error.hint})" if error.hint else error.message
        return msgspec.structs.replace(document, reasons=(reason,), exit_code=error.exit_code)


class _Ready(NamedTuple):
    registrar: Registrar
    sealer: Any
    session: PublishSession
    catalog: Catalog


def _ready(spec: JobSpec, to: Reference, host: HostRef, signing: Signing, catalog: Catalog) -> _Ready:
    """Check this host before its job: suite, machine, clock, driver and GPUs, key, engine, disk and registry.

    Raises EnvbuilderError for the first problem.
    """
    if spec.suite != (here := suite_plan.digest()):
        text = f"the job needs suite {spec.suite[:19]}, this host has {here[:19]}"
        raise UsageError(text, hint="install the same version of envbuilder on every host")
    if spec.arch != platform.machine():
        raise InfrastructureError(f"the job needs {spec.arch}, this host is {platform.machine()}")
    if spec.now is not None and abs(late := time.time() - spec.now) > MAX_SKEW_S:
        text = f"this host's clock differs by {abs(late):.0f} s from the scheduler's"
        raise InfrastructureError(text, hint="set the clock; verdicts with a wrong time are refused")
    names = [gpu.name for gpu in host.gpus]  # a scheduler's label proves nothing
    if spec.gpu and not is_of_class(spec.gpu, spec.driver, host.driver, names, catalog):
        here = f"{', '.join(names) or 'no GPU'} with driver {host.driver or 'none'}"
        hint = "correct the constraint or labels of the fleet file: they lead to another host class"
        raise InfrastructureError(f"the job needs {spec.host_class}, this host has {here}", hint=hint)
    with temporary_folder("trusted") as folder:
        write_atomically(folder / "keys.pub", "\n".join(spec.trusted).encode())
        keys = (folder / "keys.pub",) if spec.trusted else ()
        openers = openers_of(keys, spec.identity or None, spec.issuer or None)
    sealer, engine = trusting(signing.sealer(), openers), _engine()
    registrar = Registrar(Repository(to, os.environ), openers, catalog.gpu_model, spec.max_age_s)
    registrar.repository.manifest("envbuilder-check")
    session = PublishSession(engine, Workspace.here(), Console().say, dict(os.environ), host)
    return _Ready(registrar, sealer, session, catalog)


def _engine() -> Engine:
    """Return this host's engine. Raises InfrastructureError if none answers, or if its disk is full."""
    engine = connect()
    ask_for_room("a validation", NEEDED["cpu"], engine)
    return engine


def worker_command(address: str, name: str, catalog: Catalog) -> tuple[str, ...]:
    """Check that this host can be a worker; return the command of one that runs one job at a time.

    It advertises the host's classes. Certificates are Dask's configuration, such as `DASK_DISTRIBUTED__COMM__TLS__…`.
    """
    dask()
    Signing().sealer()
    _engine()
    host = describe()
    resources = advertised(host.driver, (gpu.name for gpu in host.gpus), platform.machine(), catalog)
    Console().say(f"this host is {', '.join(resources)}")
    one_each = " ".join(f"{host_class}={count}" for host_class, count in resources.items())
    options = ("--nthreads", "1", "--nworkers", "1", "--no-dashboard", "--resources", one_each)
    return (sys.executable, "-m", "dask", "worker", address, *options, *(("--name", name) if name else ()))


def _validate(spec: JobSpec, ready: _Ready, document: ProofDocument) -> ProofDocument:
    """Validate an image and attach the verdict, if no trusted result exists."""
    reference = ready.registrar.repository.reference.at(spec.digest)
    state = ready.registrar.standing(spec.environment, spec.level, [(spec.gpu, spec.driver)], spec.digest)
    if state is None:
        hint = "publish it again, or run `envbuilder fleet run` again if its tag has another digest by now"
        raise PublishError(f"the registry has no {reference}", hint=hint)
    (standing,) = state.kinds
    if not is_pending(standing, spec.suite, again=spec.again):
        code = code_of(standing.state)
        return msgspec.structs.replace(document, did="stands", state=standing.state, exit_code=code)
    validate = partial(validate_target, workspace=ready.session.workspace, console=Console(), catalog=ready.catalog)
    with temporary_folder("record") as folder:
        request = ValidationRequest(profile=spec.profile, gpus=spec.gpus)
        request = of_record(request, spec.environment, unpacked(spec.record, folder))
        # A verdict that is not attached yet is on this host only: on another one the suite would run again.
        attach = partial(validate_and_attach, request, reference, ready.session, ready.sealer, validate)
        verdict = with_patience(attach, Console().say, faults=RegistryFailedError)
    found = {name: getattr(verdict, name) for name in ("verdict", "level", "reasons")}
    code = verdict_exit_code(verdict.verdict)
    return msgspec.structs.replace(document, did="attached", driver=verdict.host.driver, exit_code=code, **found)


def _build(spec: JobSpec, ready: _Ready, document: ProofDocument) -> ProofDocument:
    """Build and publish an image, unless the repository has it by now. A failed build is not a broken host.

    The folder of the build, ``made/<job>``, is removed when the image is published: by an earlier attempt, too.
    """
    folder = Path.cwd() / "made" / Job(msgspec.structs.replace(spec, now=None)).name
    session = replace(ready.session, workspace=unpacked(spec.record, folder))
    write_atomically(folder / "matrix.yaml", msgspec.yaml.encode(spec.matrix))
    choice = choose(str(folder / "matrix.yaml"), (spec.environment,), session.workspace, ready.catalog)
    to, did = ready.registrar.repository, "stands"
    if not to.manifest(choice.environments[0].image_tag):
        options = RunOptions(validate=False)
        row: RunRow | PublishRow
        (row,) = run(choice, session.workspace, session.engine, Console(), options, open_index()).rows
        if not row.error:
            terms = PublishOptions(to.reference, allow=("inconclusive",), profile=spec.profile, gpus=spec.gpus)
            (row,) = publish_all(choice, terms, ready.sealer, session).rows
        if row.error:
            return msgspec.structs.replace(document, reasons=(row.error,), exit_code=row.exit_code)
        did = "published"
    shutil.rmtree(folder, ignore_errors=True)
    return msgspec.structs.replace(document, did=did)
