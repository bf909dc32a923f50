"""Compare the messages of a reproduction run with those of the report, and decide whether the fix is proven."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from envbuilder.finding import Finding, Severity
from envbuilder.reproduce.document import NearestRun, ReproduceDocument, Run
from envbuilder.reproduce.grammar import GRAMMAR
from envbuilder.reproduce.messages.catalog import MessageMatch, error_messages
from envbuilder.verdict import Verdict

Messages = tuple[MessageMatch, ...]
Findings = tuple[Finding, ...]


@dataclass(frozen=True)
class RunObservation:
    image: str
    symptoms: Messages
    text: str
    verdict: Verdict
    simulated: bool

    @property
    def shown(self) -> dict[str, Any]:
        names = ("image", "simulated", "symptoms")
        return {"verdict": self.verdict.verdict, **{name: getattr(self, name) for name in names}}


def proof(document: ReproduceDocument, seen: RunObservation) -> NearestRun:
    """Return whether the messages of the closest environment prove that it fixes the report."""
    run = document.run
    compares = bool(error_messages(document.symptoms)) or (run is not None and bool(run.proof))
    reproduced = run is not None and run.reproduced is True and compares
    again = repeated_messages(document.symptoms, seen.symptoms)
    others = {finding.code for finding in seen.verdict.findings if finding.severity is Severity.ERROR}
    expected = {finding.code for finding in document.predicted if finding.severity is Severity.ERROR}
    failed = bool(again) or bool(expected & others) or seen.verdict.verdict == "FAILED"
    needs = f"the suite also finds {', '.join(sorted(others - expected))}" if others - expected else ""
    if seen.verdict.verdict == "FAILED" and not needs:
        needs = f"the suite fails it: {'; '.join(seen.verdict.reasons)}"
    if not failed and not reproduced:
        needs = "the failure was not reproduced here, so its absence proves nothing"
    return NearestRun(proven=False if failed else reproduced or None, needs=needs, **seen.shown)


def compare(
    reported: Messages, seen: Messages, predicted: Findings, found: Findings, *, with_gpu: bool, with_driver: bool
) -> Run:
    """Compare the messages that can appear on this image and host; without any, findings with the predicted ones."""
    wanted = error_messages(reported)
    if not wanted:
        errors = {row.code: row for row in predicted if row.severity is Severity.ERROR}
        same = tuple((errors[row.code].message, row.message) for row in found if row.code in errors)
        return Run(reproduced=True, proof=same) if same else Run(needs="the report quotes no comparable message")
    shown = {"image"} | ({"driver"} if with_driver else set()) | ({"gpu"} if with_gpu else set())
    possible = [row for row in wanted if row.known.proof in shown]
    pairs = tuple((row.text, twin.text) for row in wanted if (twin := _same_message(row, seen)) is not None)
    if not possible and not pairs:
        kinds = sorted({row.known.proof for row in wanted})
        return Run(needs=f"it takes {', '.join(GRAMMAR.needs[kind] for kind in kinds)}")
    missing = [row for row in possible if _same_message(row, seen) is None]
    if pairs and not missing:
        return Run(reproduced=True, proof=pairs)
    if not pairs:
        return Run(reproduced=False)
    names = ", ".join(sorted({row.signature for row in missing}))
    return Run(proof=pairs, needs=f"partly reproduced; missing here: {names}")


def _same_message(wanted: MessageMatch, seen: Messages) -> MessageMatch | None:
    """Return the same message with the same values (library, versions), or None."""
    same = (row for row in seen if row.signature == wanted.signature)
    return next((row for row in same if row.values | wanted.values == wanted.values | row.values), None)


def repeated_messages(reported: Messages, seen: Messages) -> Messages:
    """Return the reported messages that appeared again; an empty result means that the change fixes the report."""
    names = {row.signature for row in error_messages(reported)}
    return tuple(row for row in seen if row.signature in names)
