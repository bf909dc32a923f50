"""Validate the very digest that a registry holds, then state what came of it: signed, attached and read back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

import msgspec

from envbuilder.attest import statement
from envbuilder.attest.demand import CLOCK_SKEW, moment
from envbuilder.attest.envelope import BUNDLE, ENVELOPE, Sealer, bundled
from envbuilder.attest.predicates import Allowance, rehearsal_statement, result_statement, verdict_statement
from envbuilder.engine.port import Engine, Image
from envbuilder.errors import PublishError
from envbuilder.publish.journal import Entry, Journal
from envbuilder.publish.zstd_form import Repacker
from envbuilder.registry.client import Manifest, Repository
from envbuilder.registry.reference import Reference
from envbuilder.registry.referrers import attach, confirm
from envbuilder.registry.shapes import ambiguity, platforms
from envbuilder.support import decoding
from envbuilder.validation import suite_plan
from envbuilder.verdict import HostRef, Verdict
from envbuilder.workspace import content_key, read_document, write_document

REUSE_WITHIN = timedelta(hours=24)
"""How old a verdict that an interrupted run left may be; an older one is made anew."""

PREDICATE_TYPE = "in-toto.io/predicate-type"
"""The annotation by which tools find a statement of one type without opening it."""


_CONTENT, _BUNDLED = "dev.sigstore.bundle.content", "dev.sigstore.bundle.predicateType"
"""The annotations by which cosign finds the bundles of one type."""


class Describe(Protocol):
    """What makes the further statements about an image: what is in it, and where it came from."""

    def __call__(self, name: str, digest: str, image: Image) -> tuple[statement.Statement, ...]:
        """State what is known about a manifest digest."""


@dataclass(frozen=True)
class Tools:
    """The outside world: the engine, the repository, who signs, what validates a reference by digest, and the time.

    ``repacker`` packs layers in zstd, where that was asked for.
    """

    engine: Engine
    repository: Repository
    sealer: Sealer
    validate: Callable[[Reference], Verdict]
    now: Callable[[], datetime]
    describe: Describe = field(default=lambda name, digest, image: ())  # noqa: ARG005 - the port's names
    say: Callable[[str], None] = field(default=lambda text: None)  # noqa: ARG005 - likewise
    repacker: Repacker | None = None


@dataclass(frozen=True)
class Terms:
    """What a verdict of now is reached under: this host as it is now, and how it is asked.

    A verdict that an interrupted run left stands for a run of now where it was reached under the same: the suite, the
    driver, the kind and number of GPUs, and what was asked of them.
    """

    host: HostRef
    profile: str = "quick"
    gpus: str = "auto"
    budgets: msgspec.Struct | None = None

    @property
    def key(self) -> str:
        """Name the terms by a digest."""
        gpus = sorted(gpu.name for gpu in self.host.gpus)
        parts = (suite_plan.digest(), self.host.driver, gpus, self.profile, self.gpus, self.budgets)
        return content_key({"terms": msgspec.json.encode(parts)})


def validated(
    folder: Path,
    to: Reference,
    manifest: Manifest,
    journal: Journal,
    tools: Tools,
    terms: Terms,
    *,
    anew: bool = False,
) -> Verdict:
    """Validate the digest that the registry holds, unless a run did so a short while ago under the same terms.

    With ``anew`` it is validated whatever is kept. Raises PublishError for a digest of which it is not certain what
    image it is: a verdict would speak of one, and others run another.
    """
    if why := ambiguity(manifest):
        raise PublishError(f"{manifest.digest}: {why}", hint="push the image again, as one image")
    if len(named := platforms(manifest)) > 1:
        raise PublishError(
            f"{manifest.digest} is {len(named)} images ({', '.join(named[:5])}), and a verdict is about one",
            hint="name the image of one platform by its own digest",
        )
    path = folder / f"{manifest.digest.removeprefix('sha256:')[:16]}.verdict.json"
    kept = journal.last("validated")
    same = kept is not None and (kept.digest, kept.terms) == (manifest.digest, terms.key)
    verdict = read_document(path, Verdict) if same and not anew else None
    if verdict is not None and _is_fresh(verdict, tools.now()):
        tools.say(f"already validated: {verdict.verdict}")
    else:
        reference = to.at(manifest.digest)
        tools.say(f"validating {reference}")
        if tools.engine.image(str(reference)) is None:
            tools.engine.pull(str(reference))
        verdict = tools.validate(reference)
        write_document(path, verdict)
        journal.note(Entry(step="validated", digest=manifest.digest, verdict=path.name, terms=terms.key))
    if verdict.image.digest != manifest.digest:
        raise PublishError(f"the verdict is about {verdict.image.digest}, not about {manifest.digest}")
    return verdict


def _is_fresh(verdict: Verdict, now: datetime) -> bool:
    """Tell whether a kept verdict may stand for the run that was interrupted; one whose time is none may not.

    Neither may one of a clock that was ahead: nobody would believe it before its time has come.
    """
    with suppress(decoding.DamagedError):
        return -CLOCK_SKEW < now - moment(verdict.finished) < REUSE_WITHIN
    return False


def state(
    name: str,
    manifest: Manifest,
    verdict: Verdict,
    tools: Tools,
    allowed: tuple[Allowance, ...] = (),
    further: tuple[statement.Statement, ...] = (),
) -> tuple[str, ...]:
    """Sign and attach every statement, and read back that all are listed; what is attached already stays.

    Returns the digests that they are stored under. Raises PublishError for a verdict that was simulated, before
    anything is signed.
    """
    result = result_statement(name, verdict, allowed=allowed)
    statements = (verdict_statement(name, verdict, allowed=allowed), *((result,) if result else ()), *further)
    return _stated(manifest, statements, tools)


def state_rehearsal(name: str, manifest: Manifest, verdict: Verdict, tools: Tools) -> tuple[str, ...]:
    """Sign and attach what came of a simulated driver, which counts nowhere. Raises PublishError for a real one."""
    return _stated(manifest, (rehearsal_statement(name, verdict),), tools)


def _stated(manifest: Manifest, statements: tuple[statement.Statement, ...], tools: Tools) -> tuple[str, ...]:
    made = []
    for each in statements:
        tools.say(f"attaching {each.predicate_type}")
        sealed = tools.sealer.seal(statement.encode(each))
        annotations = {PREDICATE_TYPE: each.predicate_type}
        made.append(attach(tools.repository, manifest, sealed, tools.sealer.media_type, annotations))
        if each.predicate_type == statement.VERDICT and tools.sealer.media_type == ENVELOPE:
            annotations |= {_CONTENT: "dsse-envelope", _BUNDLED: statement.VERDICT}
            made.append(attach(tools.repository, manifest, bundled(sealed), BUNDLE, annotations))
    confirm(tools.repository, manifest.digest, tuple(made))
    return tuple(one.digest for one in made)
