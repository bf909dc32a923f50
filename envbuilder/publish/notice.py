"""A person's signed decision about an image in a registry: withdraw it, or answer a statement that refuses it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from envbuilder.attest.envelope import Sealer
from envbuilder.attest.statements import Notice, notice_statement
from envbuilder.errors import PublishError, UsageError
from envbuilder.publish.attached_statements import read_statements
from envbuilder.publish.attestation import attach_signed, by_digest, links
from envbuilder.publish.results import PublishDocument, PublishRow
from envbuilder.registry.client import Repository
from envbuilder.registry.referrers import confirm

LONGEST_REASON = 1_000
"""Characters of a reason: it is shown in one line."""


def publish_notice(
    image: str,
    answers: tuple[str, ...],
    reason: str | None,
    sealer: Sealer,
    environment: Mapping[str, str],
    now: datetime,
) -> PublishDocument:
    """Withdraw the image of a digest, or answer statements about it. Raises UsageError without a reason.

    Raises PublishError if the registry has no such image, or if no statement about it has such a digest: a notice about
    a lost statement would refuse the image.
    """
    if not reason or not reason.isprintable() or len(reason) > LONGEST_REASON:
        hint = "--reason 'crashes on A100 after an hour, see ticket 17'"
        raise UsageError(f"a reason of one line is needed, at most {LONGEST_REASON} characters", hint=hint)
    reference = by_digest(image)
    repository = Repository(reference, environment)
    manifest = repository.manifest(reference.digest)
    if manifest is None:
        raise PublishError(f"the registry has no {reference}", hint="is its digest right?")
    known = {one.stored for one in read_statements(repository, manifest, sealer.openers).documents}
    if unknown := [one for one in answers if one not in known]:
        raise PublishError(
            f"no statement about {reference} has the digest {unknown[0]}",
            hint=f"envbuilder verify {reference} --format json names statements by their digests",
        )
    _, previous = links(repository, sealer.openers, manifest, None, now)
    time = now.isoformat(timespec="seconds")
    statement = notice_statement(
        reference.name,
        manifest.digest,
        Notice(
            reason=reason, time=time, answers=answers, previous=tuple(one for one in previous if one not in answers)
        ),
    )
    attached = attach_signed(repository, sealer, manifest, statement)
    confirm(repository, manifest.digest, attached)
    row = PublishRow(
        environment="",
        repository=reference.name,
        digest=manifest.digest,
        notice="answered" if answers else "withdrawn",
        reason=reason,
        statements=tuple(one.digest for one in attached),
    )
    return PublishDocument(rows=(row,))
