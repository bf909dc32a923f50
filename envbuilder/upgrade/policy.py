"""Evaluate differences by a policy, and suggest what would decide an undecided upgrade."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from envbuilder.matrix import NameText
from envbuilder.upgrade.document import Clause, ClauseState, Decision, Otherwise
from envbuilder.upgrade.quantities import ClauseName, ComparedImages, QuantityValue, quantity
from envbuilder.upgrade.statistics import Interval, RatioResult, Settings
from envbuilder.upgrade.text import ratio_text, wording


class ClauseRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One clause of a policy: a quantity, its limit, and the consequence of exceeding it."""

    clause: ClauseName
    at_most: Annotated[float, msgspec.Meta(ge=0)]
    otherwise: Otherwise


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rules for an upgrade; ``statistics`` define a changed duration."""

    name: NameText
    clauses: tuple[ClauseRule, ...]
    statistics: Settings = Settings()
    description: str = ""

    def only(self, *names: ClauseName) -> Policy:
        """Return the policy with these of its clauses."""
        return msgspec.structs.replace(self, clauses=tuple(each for each in self.clauses if each.clause in names))


def judge(sides: ComparedImages, policy: Policy) -> tuple[Decision, tuple[Clause, ...]]:
    """Evaluate every clause and decide.

    An exceeded clause that rejects gives REJECT. Otherwise an unknown value in such a clause gives UNDECIDED: unknown
    is never acceptable. Otherwise any note gives ADOPT_WITH_NOTES.
    """
    clauses = tuple(_clause(rule, sides) for rule in policy.clauses)
    return decide(clauses), clauses


def decide(clauses: Sequence[Clause]) -> Decision:
    states = {(clause.otherwise, clause.state) for clause in clauses}
    if ("reject", "violated") in states:
        return "REJECT"
    if ("reject", "unknown") in states:
        return "UNDECIDED"
    if ("note", "violated") in states or ("note", "unknown") in states:
        return "ADOPT_WITH_NOTES"
    return "ADOPT"


def _clause(rule: ClauseRule, sides: ComparedImages) -> Clause:
    figures = quantity(rule.clause, sides)
    return Clause(
        clause=rule.clause,
        says=wording().clauses[rule.clause].says,
        otherwise=rule.otherwise,
        state=_state(figures, rule.at_most),
        limit=rule.at_most,
        found=figures.found,
        details=figures.details,
    )


def _state(figures: QuantityValue, limit: float) -> ClauseState:
    """Compare bounds with a limit: a value certainly above violates, one certainly within is ok, others are unknown."""
    if not figures.asked:
        return "not asked"
    if figures.low is not None and figures.low > limit:
        return "violated"
    return "ok" if figures.high is not None and figures.high <= limit else "unknown"


FEWEST = 8
"""The fewest rounds that can prove a change of any duration."""
MOST = 200
"""Rounds beyond which another machine is the better advice."""
DURATIONS = {"start-up-ratio": "start.total", "work-ratio": "work."}


def would_decide(clauses: Sequence[Clause], sides: ComparedImages, rounds: int) -> tuple[str, ...]:
    """Return a sentence for each unknown clause that would reject."""
    return tuple(
        f"{clause.clause}: {said}"
        for clause in clauses
        if (clause.otherwise, clause.state) == ("reject", "unknown")
        for said in _said(clause, sides, rounds)
    )


def _said(clause: Clause, sides: ComparedImages, rounds: int) -> Iterator[str]:
    match clause.clause:
        case "verdict" if sides.new.environment.flavor == "gpu":
            driver = sides.new.environment.minimum_driver or "any"
            yield f"the same command on a host with a GPU and driver {driver} or newer"
        case "verdict":
            yield "a complete validation: " + "; ".join(sides.new.reasons[:3])
        case "tests-newly-failed":
            yield f"a suite that passes on {sides.old.tensorflow}: {clause.found}"
        case "hosts-lost":
            yield "a run on the hosts without a claim in the catalogue: " + "; ".join(clause.details[:3])
        case "start-up-ratio" | "work-ratio":
            rows = [row for row in sides.differences.timings or () if row.name.startswith(DURATIONS[clause.clause])]
            yield _more_rounds(rows, clause.limit, rounds) if rows else "a measurement of both images: see gaps"
        case _:
            yield f"an answer of both images ({clause.found}): see gaps"


def _more_rounds(rows: Sequence[RatioResult], limit: float, rounds: int) -> str:
    """Estimate the rounds that resolve the worst duration: the interval narrows with their square root."""
    if any(row.ratio.low is None for row in rows):
        return f"at least {FEWEST} rounds, better 15 (--rounds 15): with {rounds} no change can be proved"
    straddling = [row for row in rows if not _within(row.ratio, limit)]
    worst = max(straddling or rows, key=lambda row: needed(row.ratio, limit, rounds))
    wanted = needed(worst.ratio, limit, rounds)
    said = f"{worst.name} is {ratio_text(worst.ratio)}, the limit {limit:g}"
    if wanted > MOST:
        return f"{said}: use an idle machine; this one would need more than {MOST} rounds"
    reused = "measured rounds are reused"
    return f"{said}: about {wanted} rounds on this machine (--rounds {wanted}; {reused}), or an idle machine"


def _within(ratio: Interval, limit: float) -> bool:
    return ratio.high is not None and ratio.high <= limit


def needed(ratio: Interval, limit: float, rounds: int) -> int:
    """Return how many rounds move the interval to one side of the limit, in fives; above `MOST` is "too many"."""
    if ratio.low is None or ratio.high is None:
        return MOST + 1
    distance = abs(math.log(limit / ratio.value))
    width = math.log(ratio.high / ratio.value) if ratio.value <= limit else math.log(ratio.value / ratio.low)
    if not distance or (width / distance) ** 2 * rounds > MOST:
        return MOST + 1
    return max(rounds + 5, 5 * math.ceil((width / distance) ** 2 * rounds / 5))
