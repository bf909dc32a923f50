"""Run one validation on this host, as a job's specification says, and attach the verdict to the image's digest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.compat.fleet import is_of_kind
from envbuilder.errors import InfrastructureError, PublishError, UsageError, verdict_exit_code
from envbuilder.jobs.fleet.document import code_of
from envbuilder.jobs.fleet.job import ValidationSpec
from envbuilder.jobs.fleet.survey import is_pending
from envbuilder.verdict import HostRef, ImageStanding, KindState, Level, Verdict, Word


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


class DigestLookup(Protocol):
    """Returns the state of a digest, at a level, on each (GPU, driver); None if the registry lacks the digest."""

    def __call__(
        self, environment: str, level: Level, kinds: Iterable[tuple[str, str]], name: str
    ) -> ImageStanding | None: ...


@dataclass(frozen=True)
class LocalHost:
    """This host, and the digest of the suite that is installed on it."""

    host: HostRef
    arch: str
    suite: str
    catalog: Catalog


def prove(spec: ValidationSpec, local: LocalHost, lookup: DigestLookup, attach: Callable[[], Verdict]) -> ProofDocument:
    """Run the suite if no trusted result exists, and attach the verdict.

    Raises InfrastructureError if this host belongs to another class, UsageError if another version of envbuilder is
    installed here, PublishError if the registry lacks the image.
    """
    check_host(spec, local)
    document = ProofDocument(
        image=f"{spec.repository}@{spec.digest}",
        environment=spec.environment,
        kind=f"{spec.gpu}/{spec.driver}" if spec.gpu else "any host",
        did="stands",
        driver=local.host.driver,
    )
    image = lookup(spec.environment, spec.level, [(spec.gpu, spec.driver)], spec.digest)
    if image is None:
        raise PublishError(f"the registry has no {document.image}")
    standing = image.kinds[0]
    if not is_pending(standing, spec.suite, again=spec.again):
        return msgspec.structs.replace(document, state=standing.state, exit_code=code_of(standing.state))
    verdict = attach()
    _check_class(spec, verdict.host, local.catalog)
    return msgspec.structs.replace(
        document,
        did="attached",
        driver=verdict.host.driver,
        verdict=verdict.verdict,
        level=verdict.level,
        reasons=verdict.reasons,
        exit_code=verdict_exit_code(verdict.verdict),
    )


def check_host(spec: ValidationSpec, local: LocalHost) -> None:
    """Compare this host with a specification by its own facts: a scheduler's label proves nothing."""
    check_suite(spec.suite, local.suite)
    if spec.arch != local.arch:
        raise InfrastructureError(f"the job needs {spec.arch}, this host is {local.arch}")
    _check_class(spec, local.host, local.catalog)


def check_suite(wanted: str, here: str) -> None:
    if wanted != here:
        raise UsageError(
            f"the job needs suite {wanted[:19]}, this host has {here[:19]}",
            hint="install the same version of envbuilder on every host",
        )


def _check_class(spec: ValidationSpec, host: HostRef, catalog: Catalog) -> None:
    names = [gpu.name for gpu in host.gpus]
    if spec.gpu and not is_of_kind(spec.gpu, spec.driver, host.driver, names, catalog):
        raise InfrastructureError(
            f"the job needs {spec.gpu}/{spec.driver}, this host has {', '.join(names) or 'no GPU'} "
            f"with driver {host.driver or 'none'}",
            hint="correct the constraint or labels of the fleet file: they lead to another host class",
        )


def as_text(document: ProofDocument) -> str:
    result = document.verdict or document.state or ""
    return f"{document.image} on {document.kind}: {document.did}, {result} (driver {document.driver or 'none'})"
