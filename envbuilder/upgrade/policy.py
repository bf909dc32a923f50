"""Judge differences by a policy: every clause with its figures, and the decision that follows from them alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from envbuilder.matrix import NameText
from envbuilder.upgrade.document import Clause, ClauseState, Decision, Otherwise
from envbuilder.upgrade.quantities import QUANTITIES, ClauseName, Figures, Sides
from envbuilder.upgrade.statistics import Settings


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One clause of a policy: a quantity, the most that is accepted of it, and what follows where there is more."""

    clause: ClauseName
    at_most: Annotated[float, msgspec.Meta(ge=0)]
    otherwise: Otherwise


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an upgrade has to fulfil; ``statistics`` say what counts as a changed duration."""

    name: NameText
    clauses: tuple[Rule, ...]
    statistics: Settings = Settings()
    description: str = ""


def judge(sides: Sides, policy: Policy) -> tuple[Decision, tuple[Clause, ...]]:
    """Evaluate every clause and decide.

    A violated clause that rejects gives REJECT. Otherwise one whose figures are unknown gives UNDECIDED: what could
    not be found out is never taken for good. Otherwise any note gives ADOPT_WITH_NOTES.
    """
    clauses = tuple(_clause(rule, sides) for rule in policy.clauses)
    return decide(clauses), clauses


def decide(clauses: Sequence[Clause]) -> Decision:
    """Return the decision that clauses amount to."""
    states = {(clause.otherwise, clause.state) for clause in clauses}
    if ("reject", "violated") in states:
        return "REJECT"
    if ("reject", "unknown") in states:
        return "UNDECIDED"
    if ("note", "violated") in states or ("note", "unknown") in states:
        return "ADOPT_WITH_NOTES"
    return "ADOPT"


def _clause(rule: Rule, sides: Sides) -> Clause:
    says, quantity = QUANTITIES[rule.clause]
    figures = quantity(sides)
    return Clause(
        clause=rule.clause,
        says=says,
        otherwise=rule.otherwise,
        state=_state(figures, rule.at_most),
        limit=rule.at_most,
        found=figures.found,
        details=figures.details,
    )


def _state(figures: Figures, limit: float) -> ClauseState:
    """Compare bounds with a limit: only a value that is surely above violates, only one surely within is ok."""
    if not figures.asked:
        return "not asked"
    if figures.low is not None and figures.low > limit:
        return "violated"
    return "ok" if figures.high is not None and figures.high <= limit else "unknown"
