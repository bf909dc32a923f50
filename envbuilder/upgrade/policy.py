"""Evaluate differences by a policy; the clauses alone make the decision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from envbuilder.matrix import NameText
from envbuilder.upgrade.document import Clause, ClauseState, Decision, Otherwise
from envbuilder.upgrade.quantities import QUANTITIES, ClauseName, ComparedImages, QuantityValue
from envbuilder.upgrade.statistics import Settings


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


def _state(figures: QuantityValue, limit: float) -> ClauseState:
    """Compare bounds with a limit: a value certainly above violates, one certainly within is ok, others are unknown."""
    if not figures.asked:
        return "not asked"
    if figures.low is not None and figures.low > limit:
        return "violated"
    return "ok" if figures.high is not None and figures.high <= limit else "unknown"
