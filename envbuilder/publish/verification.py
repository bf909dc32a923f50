"""The document that `verify` prints, and its text for people."""

from __future__ import annotations

from collections import Counter

import msgspec

from envbuilder.attest.requirements import Refusal, Requirement
from envbuilder.support import terminal_text
from envbuilder.verdict import KindStanding, Level, Word

_SHOWN = 12
"""Reasons in the text; the document has all of them."""


class Demanded(msgspec.Struct, frozen=True, kw_only=True):
    """The requirement in words."""

    level: Level = "cpu"
    driver: str | None = None
    gpu: str | None = None
    max_age_s: float = 90 * 86_400.0
    environment: str | None = None
    tensorflow: str | None = None


def demanded(wanted: Requirement) -> Demanded:
    return Demanded(
        level=wanted.level,
        driver=wanted.driver,
        gpu=str(wanted.gpu) if wanted.gpu else None,
        max_age_s=wanted.max_age_s,
        environment=str(wanted.environment) if wanted.environment else None,
        tensorflow=wanted.tensorflow,
    )


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `verify`: accepted because of a verdict, or every reason why not.

    ``notes`` are refusals that changed nothing: a FAILED of other hosts, statements of unknown signers.
    ``unanswered``: refused because the registry failed. ``kinds``: each required host class; ``level``, ``finished``
    and ``age_s`` (seconds) are then those of the weakest verdict, and the fields of one host are empty.
    """

    schema: str = "envbuilder/verify/v1"
    image: str
    digest: str = ""
    accepted: bool
    demanded: Demanded
    verdict: Word | None = None
    level: Level | None = None
    environment: str = ""
    tensorflow: str = ""
    driver: str | None = None
    gpus: tuple[str, ...] = ()
    cpu: str = ""
    kernel: str = ""
    finished: str = ""
    age_s: float | None = None
    signed_by: str = ""
    signers: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[Refusal, ...] = ()
    unanswered: bool = False
    kinds: tuple[KindStanding, ...] = ()


def as_text(found: Verification) -> str:
    """Write the answer for people: the verdict if the image is accepted, host classes, and a line for each reason.

    Anybody can write parts of the reasons: control characters and line ends are removed.
    """
    head = f"{'ACCEPTED' if found.accepted else 'REFUSED'} {found.image}{f' ({found.digest})' if found.digest else ''}"
    lines = [f"{kind.kind}: {_standing(kind)}" for kind in found.kinds]
    if found.accepted:
        what = found.environment or "no environment of envbuilder"
        lines = [f"{what}: {found.verdict} at level {found.level}", *(lines or _host(found))]
    notes = found.notes if found.accepted or found.kinds else ()
    clean = [terminal_text.line(head), *(f"  {terminal_text.line(line)}" for line in lines)]
    return "\n".join([*clean, *_listed("  ", found.refusals), *_listed("  ignored: ", notes)])


def _host(found: Verification) -> tuple[str, str]:
    kernel = f"Linux {found.kernel}" if found.kernel else ""
    host = ", ".join(filter(None, (f"driver {found.driver or 'none'}", *found.gpus, found.cpu, kernel)))
    return (
        f"on {found.finished} ({_age(found.age_s or 0.0)} ago) on a host with {host}",
        f"signed by {', '.join(found.signers or (found.signed_by,))}",
    )


def _standing(kind: KindStanding) -> str:
    if kind.state != "passed":
        return kind.state
    signers = ", ".join(kind.signers)
    return f"passed at level {kind.level} {_age(kind.age_s or 0.0)} ago on driver {kind.ran_on}, signed by {signers}"


def _listed(indent: str, refusals: tuple[Refusal, ...]) -> list[str]:
    """Write each reason once."""
    counted = Counter((one.reason, one.message) for one in refusals)
    steps = {(one.reason, one.message): one.next for one in reversed(refusals)}
    lines: dict[str, None] = {}  # a next step that several reasons share is written once
    for (reason, message), count in list(counted.items())[:_SHOWN]:
        lines[indent + terminal_text.line(f"{reason}: {message}" + (f" ({count} times)" if count > 1 else ""))] = None
        if step := steps[reason, message]:
            lines[f"{indent}  next: {terminal_text.line(step)}"] = None
    more = len(counted) - _SHOWN
    return [*lines, f"{indent}… and {more} more reasons: --format json has them all"] if more > 0 else [*lines]


def _age(seconds: float) -> str:
    for unit, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} seconds"
