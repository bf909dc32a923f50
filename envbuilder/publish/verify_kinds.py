"""Answer for several kinds of host at once: yes where every one of them is proven, else which is not, and why."""

from __future__ import annotations

import msgspec

from envbuilder.attest.demand import Refusal, rank
from envbuilder.attest.kinds import Added, reasons
from envbuilder.attest.trust import ELSEWHERE
from envbuilder.publish.verification import Verification
from envbuilder.verdict import KindStanding, Verdict


def answer(
    bare: Verification, added: tuple[Added, ...], unknown: tuple[Refusal, ...], passed_over: tuple[Refusal, ...]
) -> Verification:
    """Fill an answer. ``unknown`` is what nobody knows the meaning of: it forbids a yes on every kind.

    A yes is worth what the weakest of its parts is: it has the lowest level and the oldest verdict's time.
    ``passed_over`` are the statements of strangers, which change nothing.
    """
    kinds = tuple(unless_unknown(one.standing, unknown) for one in added)
    refusals = (*bare.refusals, *unknown, *(refusal for one in added for refusal in reasons(one)))
    accepted = not refusals
    notes = tuple(dict.fromkeys((*(note for one in added for note in _notes(one)), *passed_over)))
    verdicts = [one.decision.verdict for one in added if one.decision.verdict is not None]
    found = msgspec.structs.replace(bare, accepted=accepted, kinds=kinds, refusals=refusals, notes=notes)
    return _resting_on(found, verdicts, kinds) if accepted else found


def unless_unknown(standing: KindStanding, unknown: tuple[Refusal, ...]) -> KindStanding:
    """Take a yes back where something was attached that nobody knows the meaning of."""
    if not unknown or standing.state != "passed":
        return standing
    return msgspec.structs.replace(standing, state="refused", why=unknown[0].message)


def _notes(one: Added) -> tuple[Refusal, ...]:
    """Return what was passed over for a kind: a FAILED elsewhere too, but not that elsewhere is elsewhere."""
    decision = one.decision
    counted = {refusal.statement for refusal in reasons(one)}
    seen = decision.notes if decision.accepted else decision.refusals
    return tuple(refusal for refusal in seen if refusal.reason not in ELSEWHERE and refusal.statement not in counted)


def _resting_on(found: Verification, verdicts: list[Verdict], kinds: tuple[KindStanding, ...]) -> Verification:
    lowest, oldest = min(verdicts, key=lambda one: rank(one.level)), max(kinds, key=lambda kind: kind.age_s or 0.0)
    environment = lowest.environment
    signers = tuple(dict.fromkeys(name for kind in kinds for name in kind.signers))
    return msgspec.structs.replace(
        found,
        verdict=lowest.verdict,
        level=lowest.level,
        environment=environment.id if environment else "",
        tensorflow=environment.tensorflow if environment else "",
        finished=oldest.finished,
        age_s=oldest.age_s,
        signed_by=signers[0],
        signers=signers,
    )
