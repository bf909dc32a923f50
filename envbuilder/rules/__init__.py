"""The compatibility rules: one ordered table, asked by every command that predicts or explains."""

from __future__ import annotations

from envbuilder.rules.facts import Facts, facts
from envbuilder.rules.question import Candidate, Device, Install, Question
from envbuilder.rules.table import RULES, Rule, joined, judge, ordered

__all__ = [
    "RULES",
    "Candidate",
    "Device",
    "Facts",
    "Install",
    "Question",
    "Rule",
    "facts",
    "joined",
    "judge",
    "ordered",
]
