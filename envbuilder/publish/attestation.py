"""Validate the very digest that a registry holds, then state what came of it: signed, attached and read back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

import msgspec

from envbuilder.attest import statement
from envbuilder.attest.demand import CLOCK_SKEW, moment
from envbuilder.attest.envelope import BUNDLE, ENVELOPE, Sealer, bundled
from envbuilder.attest.predicates import Allowance, rehearsal_statement, result_statement, verdict_statement
from envbuilder.engine.port import Engine, Image
from envbuilder.errors import PublishError, UsageError
from envbuilder.publish.journal import Journal, JournalEntry, exclusively
from envbuilder.publish.results import Compression
from envbuilder.publish.zstd_push import ZstdPusher
from envbuilder.registry.client import Repository
from envbuilder.registry.manifests import Manifest, ambiguity, platforms
from envbuilder.registry.reference import Reference, parse
from envbuilder.registry.referrers import attach, confirm
from envbuilder.support import decoding
from envbuilder.validation import suite_plan
from envbuilder.validation.verdict_store import History
from envbuilder.verdict import HostRef, Verdict
from envbuilder.workspace import Workspace, content_key, read_document, write_document

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
class PublishTools:
    """The services that publishing one image needs; ``zstd`` pushes in the place of the engine if it is set."""

    engine: Engine
    repository: Repository
    sealer: Sealer
    validate: Callable[[Reference], Verdict]
    now: Callable[[], datetime]
    describe: Describe = field(default=lambda name, digest, image: ())  # noqa: ARG005 - the port's names
    say: Callable[[str], None] = field(default=lambda text: None)  # noqa: ARG005 - likewise
    zstd: ZstdPusher | None = None

    @property
    def compression(self) -> Compression:
        """Return how the layers of what is pushed are compressed."""
        return "zstd" if self.zstd else "gzip"


@dataclass(frozen=True)
class ValidationTerms:
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
    tools: PublishTools,
    terms: ValidationTerms,
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
        journal.note(JournalEntry(step="validated", digest=manifest.digest, verdict=path.name, terms=terms.key))
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
    tools: PublishTools,
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


def state_rehearsal(name: str, manifest: Manifest, verdict: Verdict, tools: PublishTools) -> tuple[str, ...]:
    """Sign and attach what came of a simulated driver, which counts nowhere. Raises PublishError for a real one."""
    return _stated(manifest, (rehearsal_statement(name, verdict),), tools)


def _stated(manifest: Manifest, statements: tuple[statement.Statement, ...], tools: PublishTools) -> tuple[str, ...]:
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


@dataclass(frozen=True)
class PublishSession:
    """The services of one command and the host that it runs on; ``say`` takes progress."""

    engine: Engine
    workspace: Workspace
    say: Callable[[str], None]
    environment: Mapping[str, str]
    host: HostRef


@dataclass(frozen=True)
class Attachment:
    """What to attach a verdict to, and what the verdict is reached with; ``folder`` keeps it until it is attached.

    ``terms`` are of this host as it is now: a verdict that was kept when it had another driver is none of it.
    ``rehearsal`` says that a simulated driver is meant: what comes of it is attached as that, and not at all where it
    was real.
    """

    reference: Reference
    folder: Path
    terms: ValidationTerms
    fresh: bool = False
    rehearsal: bool = False


def by_digest(target: str | None) -> Reference:
    """Read what a verdict is attached to. Raises UsageError for what may mean another image tomorrow."""
    reference = parse(target or "")
    if not reference.digest:
        raise UsageError(
            f"{target!r} names no digest, and a verdict is attached to one",
            hint="registry.example.org/team/image@sha256:…, as `envbuilder verify --format json` names it",
        )
    return reference


def attach_verdict(attachment: Attachment, tools: PublishTools) -> Verdict:
    """Validate the image and attach the verdict, whatever it says: a FAILED is to be known as well.

    Where an interrupted run reached a verdict under the same terms, that one is attached: the suite is not run until it
    passes. Once it is attached, whoever asks again has it run again. Raises PublishError for an image that is not there
    and for a simulated verdict where no rehearsal is meant, which is never attached, InfrastructureError where the
    registry or the engine fails.
    """
    reference = attachment.reference
    manifest = tools.repository.manifest(reference.digest)
    if manifest is None:
        raise PublishError(f"the registry has no {reference}", hint="`envbuilder publish` puts it there")
    with exclusively(attachment.folder):
        journal = Journal(attachment.folder / "journal.jsonl")
        anew = attachment.fresh or not _waits(journal)
        verdict = validated(attachment.folder, reference, manifest, journal, tools, attachment.terms, anew=anew)
        stated = state_rehearsal if attachment.rehearsal else state
        stored = stated(reference.name, manifest, verdict, tools)
        journal.note(JournalEntry(step="stated", digest=manifest.digest))
    tools.say(f"attached to {reference}: {', '.join(stored)}")
    return verdict


def _waits(journal: Journal) -> bool:
    """Tell whether a verdict waits to be attached."""
    return bool(journal.entries) and journal.entries[-1].step == "validated"


def _on_slices(verdict: Verdict, host: HostRef) -> Verdict:
    """Say on which slices of a GPU a verdict was reached: inside the container NVML names the whole board."""
    if not any(" MIG " in gpu.name for gpu in host.gpus) or verdict.unreal:
        return verdict
    return msgspec.structs.replace(verdict, host=msgspec.structs.replace(verdict.host, gpus=host.gpus))


def tools_for(
    reference: Reference, session: PublishSession, sealer: Sealer, judge: Callable[[Reference], Verdict]
) -> PublishTools:
    """Bring the ports together; what ``judge`` comes to is kept in the history before anything is attached."""

    def validate(asked: Reference) -> Verdict:
        verdict = _on_slices(judge(asked), session.host)
        History(session.workspace.history).add((verdict,))
        return verdict

    return PublishTools(
        engine=session.engine,
        repository=Repository(reference, session.environment),
        sealer=sealer,
        validate=validate,
        now=lambda: datetime.now(UTC),
        say=session.say,
    )
