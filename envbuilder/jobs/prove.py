"""Do one proof on this host, as an order asks for it: look whether it stands already, run it, attach it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.compat.fleet import is_of_kind
from envbuilder.errors import ExitCode, InfrastructureError, PublishError, UsageError, verdict_exit_code
from envbuilder.jobs.fleet_document import code_of
from envbuilder.jobs.fleet_proofs import is_left
from envbuilder.jobs.fleet_task import ProofOrder
from envbuilder.verdict import HostRef, ImageStanding, KindState, Level, Verdict, Word


class ProofDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What `fleet prove` answers: what it did, on which host, and the verdict's word where it ran the suite.

    ``did`` is ``stands`` where a trusted key had said it before, so that nothing was run; ``state`` is how it stood.
    """

    schema: str = "envbuilder/proof/v1"
    image: str
    environment: str
    kind: str
    did: Literal["stands", "attached", "rehearsed"]
    driver: str | None = None
    state: KindState | None = None
    verdict: Word | None = None
    level: Level | None = None
    exit_code: int = 0


class Ask(Protocol):
    """How a digest stands, at a level, on each GPU with a driver; None where the registry has no such digest."""

    def __call__(
        self, environment: str, level: Level, kinds: Iterable[tuple[str, str]], digest: str
    ) -> ImageStanding | None:
        """Ask the registry."""


@dataclass(frozen=True)
class Here:
    """This host as it is now, and the suite that is installed on it.

    ``host`` is None where only the container that runs the image sees the GPUs: the verdict then says which they are.
    """

    host: HostRef | None
    arch: str
    suite: str
    catalog: Catalog


def prove(order: ProofOrder, here: Here, ask: Ask, attach: Callable[[], Verdict]) -> ProofDocument:
    """Run the suite where nobody has yet, and attach what comes of it.

    Raises InfrastructureError where this host is not of the kind that was asked for, UsageError where another version
    of envbuilder is installed here, PublishError for an image that is not there.
    """
    check_host(order, here)
    bare = ProofDocument(
        image=f"{order.repository}@{order.digest}",
        environment=order.environment,
        kind=f"{order.gpu}/{order.driver}" if order.gpu else "any host",
        did="stands",
        driver=here.host.driver if here.host is not None else None,
    )
    found = ask(order.environment, order.level, [(order.gpu, order.driver)], order.digest)
    if found is None:
        raise PublishError(f"the registry has no {bare.image}")
    stands = found.kinds[0]
    if order.simulate and order.suite in stands.rehearsed:
        return msgspec.structs.replace(bare, did="rehearsed", state=stands.state, exit_code=ExitCode.NO_CLAIM)
    if not is_left(stands, order.suite, again=order.again):
        return msgspec.structs.replace(bare, state=stands.state, exit_code=code_of(stands.state))
    verdict = attach()
    if not order.simulate:
        _check_kind(order, verdict.host, here.catalog)
    return msgspec.structs.replace(
        bare,
        did="rehearsed" if order.simulate else "attached",
        driver=verdict.host.driver,
        verdict=verdict.verdict,
        level=verdict.level,
        exit_code=verdict_exit_code(verdict.verdict),
    )


def check_host(order: ProofOrder, here: Here) -> None:
    """Hold this host to what was asked for, by its own facts: a scheduler's word for a node proves nothing."""
    if order.suite != here.suite:
        raise UsageError(
            f"the suite that is asked for is {order.suite[:19]}, the one here {here.suite[:19]}",
            hint="install the same version of envbuilder on every host",
        )
    if order.arch != here.arch:
        raise InfrastructureError(f"this host is {here.arch}, and {order.arch} was asked for")
    if here.host is not None and not order.simulate:
        _check_kind(order, here.host, here.catalog)


def _check_kind(order: ProofOrder, host: HostRef, catalog: Catalog) -> None:
    names = [gpu.name for gpu in host.gpus]
    if order.gpu and not is_of_kind(order.gpu, order.driver, host.driver, names, catalog):
        raise InfrastructureError(
            f"this host has {', '.join(names) or 'no GPU'} with driver {host.driver or 'none'}, "
            f"and {order.gpu}/{order.driver} was asked for",
            hint="the fleet file's constraint or labels lead to another kind of host",
        )


def as_text(document: ProofDocument) -> str:
    """Write the answer in a line."""
    said = document.verdict or document.state or ""
    return f"{document.image} on {document.kind}: {document.did}, {said} (driver {document.driver or 'none'})"
