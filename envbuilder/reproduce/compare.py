"""Compare the messages of a reproduction run with those of the report."""

from __future__ import annotations

from dataclasses import dataclass

from envbuilder.finding import Finding, Severity
from envbuilder.reproduce.messages.catalog import Signature, Symptom, get

_NEEDS = {
    "gpu": "a GPU",
    "architecture": "a GPU of the reporter's architecture",
    "host": "a host in the reporter's state (its driver, its kernel)",
    "other-system": "the reporter's system or processor",
    "driver": "the reporter's driver",
    "image": "nothing but the image",
}


@dataclass(frozen=True)
class Compared:
    """The answer, the pairs of messages (reported, seen) that it rests on, and what else it would take."""

    reproduced: bool | None
    proof: tuple[tuple[str, str], ...] = ()
    needs: str = ""


def telling(symptoms: tuple[Symptom, ...]) -> tuple[Symptom, ...]:
    """Keep the messages that mean something is wrong; an empty list follows from them where there are others."""
    wrong = tuple(row for row in symptoms if get(row.signature).severity is not Severity.INFO)
    causes = tuple(row for row in wrong if get(row.signature).layer != "symptom")
    return causes or wrong


def compare(
    reported: tuple[Symptom, ...],
    seen: tuple[Symptom, ...],
    predicted: tuple[Finding, ...],
    found: tuple[Finding, ...],
    *,
    with_gpu: bool,
    with_driver: bool,
) -> Compared:
    """Judge a run.

    Of the reported messages those count that can show here: with this image, and with a driver or GPU where there is
    one. Where the report quotes none, the suite's findings are held against the predicted ones.
    """
    wanted = telling(reported)
    if not wanted:
        return _by_findings(predicted, found)
    possible = [row for row in wanted if _can_show(get(row.signature), with_gpu=with_gpu, with_driver=with_driver)]
    pairs = tuple((row.text, twin.text) for row in wanted if (twin := _twin(row, seen)) is not None)
    if not possible and not pairs:
        return Compared(None, (), _needed(wanted))
    missing = [row for row in possible if _twin(row, seen) is None]
    if pairs and not missing:
        return Compared(True, pairs)
    if not pairs:
        return Compared(False)
    names = ", ".join(sorted({row.signature for row in missing}))
    return Compared(None, pairs, f"some of it was seen; not seen here: {names}")


def _by_findings(predicted: tuple[Finding, ...], found: tuple[Finding, ...]) -> Compared:
    wanted = {row.code: row for row in predicted if row.severity is Severity.ERROR}
    same = [(wanted[row.code].message, row.message) for row in found if row.code in wanted]
    if same:
        return Compared(True, tuple(same))
    return Compared(None, (), "the report quotes no message that could be compared")


def _can_show(signature: Signature, *, with_gpu: bool, with_driver: bool) -> bool:
    return (
        signature.proof == "image"
        or (signature.proof == "driver" and with_driver)
        or (signature.proof == "gpu" and with_gpu)
    )


def _needed(wanted: tuple[Symptom, ...]) -> str:
    kinds = sorted({get(row.signature).proof for row in wanted})
    return "it takes " + ", ".join(_NEEDS[kind] for kind in kinds)


def _twin(wanted: Symptom, seen: tuple[Symptom, ...]) -> Symptom | None:
    """Find the same message with the same values (the same library, the same versions)."""
    for row in seen:
        shared = wanted.values.keys() & row.values.keys()
        if row.signature == wanted.signature and all(row.values[name] == wanted.values[name] for name in shared):
            return row
    return None


def gone(reported: tuple[Symptom, ...], seen: tuple[Symptom, ...]) -> tuple[Symptom, ...]:
    """List the reported messages that occurred again. None means that the change fixes it."""
    names = {row.signature for row in telling(reported)}
    return tuple(row for row in seen if row.signature in names)
