"""The document that `verify` prints, and the same written for people."""

from __future__ import annotations

from collections import Counter

import msgspec

from envbuilder.attest.demand import Demand, Refusal
from envbuilder.support import terminal_text
from envbuilder.verdict import KindStanding, Level, Word

_SHOWN = 12
"""Lines of reasons that are written out; the document holds them all."""


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `verify`: accepted, with the verdict that it rests on, or every reason why not.

    ``notes`` is what was passed over on the way to a yes: a FAILED on other hosts, statements of strangers.
    ``unanswered``: no, because the registry failed, and not because of anything that it said. ``age_s`` in seconds.
    ``kinds``: each kind of host that was asked for; ``level``, ``finished`` and ``age_s`` are then those of the weakest
    of their verdicts, and what is one host's is left out.
    """

    schema: str = "envbuilder/verify/v1"
    image: str
    digest: str = ""
    accepted: bool
    demanded: Demand
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
    """Write the answer for people: what it rests on where it is accepted, a line a reason where it is not.

    Strangers write parts of the reasons: nothing of them moves a terminal's cursor or makes a line of its own.
    """
    if found.kinds:
        return _on_kinds(found)
    if not found.accepted:
        lines = [f"REFUSED {found.image}" + (f" ({found.digest})" if found.digest else "")]
        return "\n".join([*map(terminal_text.line, lines), *_listed("  ", found.refusals)])
    host = ", ".join(filter(None, (f"driver {found.driver or 'none'}", *found.gpus, found.cpu, _kernel(found.kernel))))
    lines = [
        f"ACCEPTED {found.image} ({found.digest})",
        f"{found.environment or 'no environment of ours'}: {found.verdict} at level {found.level}",
        f"on {found.finished} ({_age(found.age_s or 0.0)} ago) on a host with {host}",
        f"signed by {', '.join(found.signers or (found.signed_by,))}",
    ]
    return "\n".join(["\n  ".join(map(terminal_text.line, lines)), *_listed("  passed over: ", found.notes)])


def _on_kinds(found: Verification) -> str:
    """Write a line a kind, then every reason under its kind's name, and what was passed over last."""
    word = "ACCEPTED" if found.accepted else "REFUSED"
    lines = [f"{found.environment or 'no environment of ours'}: {found.verdict} at level {found.level}"]
    lines = [*(lines if found.accepted else ()), *(f"{kind.kind}: {_standing(kind)}" for kind in found.kinds)]
    head = terminal_text.line(f"{word} {found.image} ({found.digest})")
    against = [*_listed("  ", found.refusals), *_listed("  passed over: ", found.notes)]
    return "\n".join([head, *(f"  {terminal_text.line(line)}" for line in lines), *against])


def _standing(kind: KindStanding) -> str:
    if kind.state != "passed":
        return kind.state
    signers = ", ".join(kind.signers)
    return f"passed at level {kind.level} {_age(kind.age_s or 0.0)} ago on driver {kind.ran_on}, signed by {signers}"


def _listed(indent: str, refusals: tuple[Refusal, ...]) -> list[str]:
    """Write reasons, the same one of many statements once."""
    counted = Counter((refusal.reason, refusal.message) for refusal in refusals)
    lines = [
        indent + terminal_text.line(f"{reason}: {message}" + (f" ({count} times)" if count > 1 else ""))
        for (reason, message), count in list(counted.items())[:_SHOWN]
    ]
    more = len(counted) - len(lines)
    return [*lines, f"{indent}… and {more} more reasons: --format json has them all"] if more else lines


def _kernel(version: str) -> str:
    return f"Linux {version}" if version else ""


def _age(seconds: float) -> str:
    for unit, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} seconds"
