"""What a verdict of an image in another form leans on: the digest that the suite ran on, and the same configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from envbuilder.attest import statement
from envbuilder.attest.demand import Refusal, Refused
from envbuilder.attest.predicates import VerdictPredicate
from envbuilder.attest.trust import Evidence
from envbuilder.registry.bounded_json import MalformedError, parsed
from envbuilder.registry.client import Manifest
from envbuilder.registry.shapes import config_digest
from envbuilder.verdict import Verdict

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")


def verdicts_of(evidence: Iterable[Evidence]) -> Iterator[tuple[str, Verdict]]:
    """Return every verdict that can be read, with the digest that it is stored under."""
    for item in evidence:
        if item.statement.predicate_type == statement.VERDICT:
            try:
                yield item.stored, parsed(item.statement.predicate, VerdictPredicate, "a verdict").verdict
            except MalformedError:
                continue  # of another version


def judged_as(manifest: Manifest, evidence: Iterable[Evidence]) -> tuple[tuple[str, ...], tuple[Refusal, ...]]:
    """Return the digests that this image's verdicts were reached on, and why a verdict is not about this image.

    A verdict that was restated is about whatever has the judged configuration, and about nothing else, whoever says so.
    """
    digests: dict[str, None] = {}
    wrong = []
    held = config_digest(manifest)
    for stored, verdict in verdicts_of(evidence):
        first = verdict.image.repacked
        if not first:
            continue
        if not _DIGEST.match(first) or verdict.image.id != held:
            text = f"the verdict was reached on {first[:80]}, the image {verdict.image.id[:80]}; this one is {held}"
            wrong.append(Refusal(reason=Refused.WRONG_SUBJECT, statement=stored, message=text))
        elif first != manifest.digest:
            digests[first] = None
    return tuple(digests), tuple(wrong)
