"""Compare the messages of a reproduction run with those of the report."""

from __future__ import annotations

from dataclasses import dataclass

from envbuilder.finding import Finding, Severity
from envbuilder.reproduce.messages.catalog import MessageMatch, get

_NEEDS = {
    "gpu": "a GPU",
    "architecture": "a GPU of the reporter's architecture",
    "host": "a host with the reporter's driver and kernel",
    "other-system": "the reporter's system or processor",
    "driver": "the reporter's driver",
    "image": "nothing but the image",
}


@dataclass(frozen=True)
class ComparisonResult:
    """The result, its proof (reported and observed messages in pairs), and what is needed for a full reproduction."""

    reproduced: bool | None
    proof: tuple[tuple[str, str], ...] = ()
    needs: str = ""


def error_messages(symptoms: tuple[MessageMatch, ...]) -> tuple[MessageMatch, ...]:
    """Keep messages about errors, without an empty GPU list if another message explains it."""
    wrong = tuple(
        row
        for row in symptoms
        if get(row.signature).severity is not Severity.INFO and get(row.signature).layer != "code"
    )
    causes = tuple(row for row in wrong if get(row.signature).layer != "symptom")
    return causes or wrong


def compare(
    reported: tuple[MessageMatch, ...],
    seen: tuple[MessageMatch, ...],
    predicted: tuple[Finding, ...],
    found: tuple[Finding, ...],
    *,
    with_gpu: bool,
    with_driver: bool,
) -> ComparisonResult:
    """Compare the messages of a run with the report.

    Only messages that can appear on this image and host count. If the report quotes none, the suite's findings are
    compared with the predicted ones.
    """
    wanted = error_messages(reported)
    if not wanted:
        return _by_findings(predicted, found)
    shown = {"image"} | ({"driver"} if with_driver else set()) | ({"gpu"} if with_gpu else set())
    possible = [row for row in wanted if get(row.signature).proof in shown]
    pairs = tuple((row.text, twin.text) for row in wanted if (twin := _same_message(row, seen)) is not None)
    if not possible and not pairs:
        kinds = sorted({get(row.signature).proof for row in wanted})
        return ComparisonResult(None, (), f"it takes {', '.join(_NEEDS[kind] for kind in kinds)}")
    missing = [row for row in possible if _same_message(row, seen) is None]
    if pairs and not missing:
        return ComparisonResult(True, pairs)
    if not pairs:
        return ComparisonResult(False)
    names = ", ".join(sorted({row.signature for row in missing}))
    return ComparisonResult(None, pairs, f"partly reproduced; missing here: {names}")


def _by_findings(predicted: tuple[Finding, ...], found: tuple[Finding, ...]) -> ComparisonResult:
    wanted = {row.code: row for row in predicted if row.severity is Severity.ERROR}
    same = [(wanted[row.code].message, row.message) for row in found if row.code in wanted]
    if same:
        return ComparisonResult(True, tuple(same))
    return ComparisonResult(None, (), "the report quotes no comparable message")


def _same_message(wanted: MessageMatch, seen: tuple[MessageMatch, ...]) -> MessageMatch | None:
    """Return the same message with the same values (library, versions), or None."""
    for row in seen:
        shared = wanted.values.keys() & row.values.keys()
        if row.signature == wanted.signature and all(row.values[name] == wanted.values[name] for name in shared):
            return row
    return None


def repeated_messages(reported: tuple[MessageMatch, ...], seen: tuple[MessageMatch, ...]) -> tuple[MessageMatch, ...]:
    """Return the reported messages that appeared again; an empty result means that the change fixes the report."""
    names = {row.signature for row in error_messages(reported)}
    return tuple(row for row in seen if row.signature in names)
