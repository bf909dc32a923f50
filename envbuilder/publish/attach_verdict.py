"""Validate on this host an image that a registry holds, and attach the verdict to its digest: no push, no tag."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from envbuilder.attest.envelope import Sealer
from envbuilder.errors import PublishError, UsageError
from envbuilder.publish.journal import Entry, Journal, exclusively
from envbuilder.publish.publish_all import Session
from envbuilder.publish.stating import Terms, Tools, state, state_rehearsal, validated
from envbuilder.registry.client import Repository
from envbuilder.registry.reference import Reference, parse
from envbuilder.validation.history import History
from envbuilder.verdict import HostRef, Verdict


@dataclass(frozen=True)
class Attachment:
    """What to attach a verdict to, and what the verdict is reached with; ``folder`` keeps it until it is attached.

    ``terms`` are of this host as it is now: a verdict that was kept when it had another driver is none of it.
    ``rehearsal`` says that a simulated driver is meant: what comes of it is attached as that, and not at all where it
    was real.
    """

    reference: Reference
    folder: Path
    terms: Terms
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


def attach_verdict(attachment: Attachment, tools: Tools) -> Verdict:
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
        journal.note(Entry(step="stated", digest=manifest.digest))
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


def tools_for(reference: Reference, session: Session, sealer: Sealer, judge: Callable[[Reference], Verdict]) -> Tools:
    """Bring the ports together; what ``judge`` comes to is kept in the history before anything is attached."""

    def validate(asked: Reference) -> Verdict:
        verdict = _on_slices(judge(asked), session.host)
        History(session.workspace.history).add((verdict,))
        return verdict

    return Tools(
        engine=session.engine,
        repository=Repository(reference, session.environment),
        sealer=sealer,
        validate=validate,
        now=lambda: datetime.now(UTC),
        say=session.say,
    )
