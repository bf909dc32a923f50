"""What a host does for a job of a fleet: check itself, validate an image and attach the verdict, or build one."""

from __future__ import annotations

import os
import platform
import shutil
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.choice import choose
from envbuilder.compat.fleet import is_of_kind
from envbuilder.engine.docker import connect
from envbuilder.errors import InfrastructureError, PublishError, UsageError, verdict_exit_code
from envbuilder.host import describe
from envbuilder.image.bases import NEEDED, ask_for_room
from envbuilder.jobs.fleet.job import BuildSpec, HostSpec, ValidationSpec, job_of
from envbuilder.jobs.fleet.record import unpacked
from envbuilder.jobs.fleet.survey import code_of, is_pending
from envbuilder.jobs.run import RunOptions, run
from envbuilder.publish.attestation import PublishSession, validate_and_attach
from envbuilder.publish.publish_all import PublishOptions, publish_all, sealer_of
from envbuilder.publish.results import PublishDocument, PublishRow
from envbuilder.publish.tags import destination
from envbuilder.publish.verify_request import (
    MAX_SKEW_S,
    Registrar,
    openers_of,
    published_digest,
    registrar_of,
    trusting,
)
from envbuilder.pypi.client import open_index
from envbuilder.support import decoding
from envbuilder.support.console import Console
from envbuilder.validation import suite_plan
from envbuilder.validation.validate import ValidationRequest
from envbuilder.validation.validate_request import of_record, validate_target
from envbuilder.verdict import HostRef, KindState, Level, Word
from envbuilder.workspace import Workspace, temporary_folder, write_atomically

_Spec = TypeVar("_Spec", ValidationSpec, BuildSpec, HostSpec)

SIGNING_KEY = "TF_ENVBUILDER_SIGNING_KEY"
"""The variable with the path of a host's private key."""


class Signing(msgspec.Struct, frozen=True):
    """Keys that sign; without any, the key of this host's variable, or this CI job's identity with ``keyless``."""

    signers: tuple[Path, ...] = ()
    keyless: bool = False

    @property
    def keys(self) -> tuple[Path, ...]:
        own = os.environ.get(SIGNING_KEY, "")
        return self.signers or ((Path(own),) if own and not self.keyless else ())


class ProofDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `fleet prove`.

    ``did`` is ``stands`` if a trusted result exists already, so that nothing ran; ``state`` is then its state.
    ``reasons`` are those of the verdict.
    """

    schema: str = "envbuilder/proof/v1"
    image: str
    environment: str
    kind: str
    did: Literal["stands", "attached"]
    driver: str | None = None
    state: KindState | None = None
    verdict: Word | None = None
    level: Level | None = None
    reasons: tuple[str, ...] = ()
    exit_code: int = 0


def as_text(document: ProofDocument) -> str:
    result = document.verdict or document.state or ""
    return f"{document.image} on {document.kind}: {document.did}, {result} (driver {document.driver or 'none'})"


def check_host(data: bytes | None, signing: Signing, catalog: Catalog) -> None:
    """Check that this host can run jobs: key, engine and disk, and with a specification suite, clock and registry.

    Raises UsageError or InfrastructureError for the first problem.
    """
    sealer = sealer_of(signing.keys, keyless=signing.keyless, environment=os.environ, say=Console().say)
    if data is not None:
        spec = _spec(data, HostSpec)
        _check_suite(spec.suite)
        if abs(late := time.time() - spec.now) > MAX_SKEW_S:
            raise InfrastructureError(
                f"this host's clock differs by {abs(late):.0f} s from that of the host that started the run",
                hint="set the clock; verdicts with a wrong time are refused",
            )
        registrar = _registrar(spec, catalog)
        trusting(sealer, registrar.openers)
        registrar.repository.manifest("envbuilder-check")
    ask_for_room("a validation", NEEDED["cpu"], connect())


def prove(data: bytes, signing: Signing, catalog: Catalog) -> ProofDocument:
    """Run the validation of a job specification (JSON) if no trusted result exists, and attach the verdict.

    Raises InfrastructureError if this host belongs to another class, UsageError if another version of envbuilder is
    installed here or the key that signs is not a trusted one, PublishError if the registry lacks the image.
    """
    spec, host, console = _spec(data, ValidationSpec), describe(), Console()
    _check_suite(spec.suite)
    if spec.arch != platform.machine():
        raise InfrastructureError(f"the job needs {spec.arch}, this host is {platform.machine()}")
    _check_class(spec, host, catalog)
    registrar = _registrar(spec, catalog)
    sealer = sealer_of(signing.keys, keyless=signing.keyless, environment=os.environ, say=console.say)
    sealer = trusting(sealer, registrar.openers)
    reference = registrar.repository.reference.at(spec.digest)
    document = ProofDocument(
        image=str(reference), environment=spec.environment, kind=spec.host_class, did="stands", driver=host.driver
    )
    image = registrar.standing(spec.environment, spec.level, [(spec.gpu, spec.driver)], spec.digest)
    if image is None:
        raise PublishError(f"the registry has no {reference}")
    standing = image.kinds[0]
    if not is_pending(standing, spec.suite, again=spec.again):
        return msgspec.structs.replace(document, state=standing.state, exit_code=code_of(standing.state))
    workspace = Workspace(Path.cwd())
    validate = partial(validate_target, workspace=workspace, console=console, catalog=catalog)
    session = PublishSession(connect(), workspace, console.say, dict(os.environ), host)
    with temporary_folder("record") as folder:
        request = ValidationRequest(profile=spec.profile, gpus=spec.gpus)
        request = of_record(request, spec.environment, unpacked(spec.record, folder))
        verdict = validate_and_attach(request, reference, session, sealer, validate)
    _check_class(spec, verdict.host, catalog)
    return msgspec.structs.replace(
        document,
        did="attached",
        driver=verdict.host.driver,
        verdict=verdict.verdict,
        level=verdict.level,
        reasons=verdict.reasons,
        exit_code=verdict_exit_code(verdict.verdict),
    )


def make(data: bytes, signing: Signing, catalog: Catalog) -> PublishDocument:
    """Build and publish the image of a job specification (JSON), unless the repository has it by now.

    A failed build is reported in the row, whose exit code differs from that of a broken host. The folder of the build,
    ``made/<job>``, is removed after the publication.
    """
    spec = _spec(data, BuildSpec)
    to, console = destination(spec.repository), Console()
    sealer = sealer_of(signing.keys, keyless=signing.keyless, environment=os.environ, say=console.say)
    folder = Path.cwd() / "made" / job_of(spec, "").name
    workspace = unpacked(spec.record, folder)
    write_atomically(folder / "matrix.yaml", msgspec.yaml.encode(spec.matrix))
    choice = choose(str(folder / "matrix.yaml"), (spec.environment,), workspace, catalog)
    row = PublishRow(environment=spec.environment, repository=to.name)
    published = published_digest(to, choice.environments[0].image_tag, os.environ)
    if published is not None:
        return PublishDocument(rows=(msgspec.structs.replace(row, published=True, digest=published),))
    engine = connect()
    built = run(choice, workspace, engine, console, RunOptions(validate=False), open_index()).rows[0]
    if built.error:
        return PublishDocument(rows=(msgspec.structs.replace(row, error=built.error, exit_code=built.exit_code),))
    options = PublishOptions(to, allow=("inconclusive",), profile=spec.profile, gpus=spec.gpus)
    session = PublishSession(engine, workspace, console.say, dict(os.environ), describe())
    document = publish_all(choice, options, sealer, session)
    if all(row.published for row in document.rows):
        with suppress(OSError):
            shutil.rmtree(folder)
    return document


def _spec(data: bytes, kind: type[_Spec]) -> _Spec:
    try:
        return decoding.from_json(data, kind)
    except decoding.DamagedError as error:
        raise UsageError(
            f"not a job specification: {error}", hint="`envbuilder fleet run` and `envbuilder fleet export` write them"
        ) from error


def _registrar(spec: ValidationSpec | HostSpec, catalog: Catalog) -> Registrar:
    """Return the repository of a specification, with the signers that it trusts."""
    with temporary_folder("trusted") as folder:
        paths = tuple(folder / f"{number}.pub" for number in range(len(spec.trusted)))
        for path, pem in zip(paths, spec.trusted, strict=True):
            write_atomically(path, pem.encode())
        openers = openers_of(paths, spec.identity or None, spec.issuer or None)
    return registrar_of(destination(spec.repository), os.environ, openers, catalog.gpu_model, spec.max_age_s)


def _check_suite(wanted: str) -> None:
    if wanted != (here := suite_plan.digest()):
        raise UsageError(
            f"the job needs suite {wanted[:19]}, this host has {here[:19]}",
            hint="install the same version of envbuilder on every host",
        )


def _check_class(spec: ValidationSpec, host: HostRef, catalog: Catalog) -> None:
    """Compare a host with a specification by its own facts: a scheduler's label proves nothing."""
    names = [gpu.name for gpu in host.gpus]
    if spec.gpu and not is_of_kind(spec.gpu, spec.driver, host.driver, names, catalog):
        raise InfrastructureError(
            f"the job needs {spec.host_class}, this host has {', '.join(names) or 'no GPU'} "
            f"with driver {host.driver or 'none'}",
            hint="correct the constraint or labels of the fleet file: they lead to another host class",
        )
