"""The clauses of a policy: the quantities that they compare with their limits, the decision, and what would decide it.

The texts of the quantities, and the rows that are only counted, are in wording.yaml.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Annotated, NamedTuple

import msgspec

from envbuilder import versions
from envbuilder.matrix import NameText
from envbuilder.upgrade import compare
from envbuilder.upgrade.document import Clause, ClauseState, Decision, MemoryChange, Otherwise, UpgradeDocument
from envbuilder.upgrade.statistics import Interval, RatioResult, Settings
from envbuilder.upgrade.text import details, holds, ratio_text, rows_of, wording, write


class QuantityValue(NamedTuple):
    """A quantity's value as bounds (equal if it is counted), a text, and its details.

    ``low`` None: unknown. ``asked`` False: nothing was requested that could answer it.
    """

    low: float | None
    high: float | None
    found: str
    details: tuple[str, ...] = ()
    asked: bool = True


unknown = partial(QuantityValue, None, None)
not_requested = partial(QuantityValue, None, None, asked=False)


def _counted(document: UpgradeDocument, clause: str) -> QuantityValue:
    text = wording().clauses[clause]
    lines: list[str] = []
    for each in text.rows:
        every = rows_of(document, each.of)
        if every is None:
            return not_requested(text.unasked) if text.unasked else unknown(text.unknown)
        lines += [write(each.text, row) for row in every if holds(row, each.condition)]
        nothing = text.nothing.format(total=len(every), document=document)
    return QuantityValue(len(lines), len(lines), str(len(lines)) if lines else nothing, tuple(lines))


DURATIONS = {"start-up-ratio": "start.total", "work-ratio": "work."}
"""The durations of a clause, by the beginning of their names."""


def _durations(document: UpgradeDocument, clause: str) -> list[RatioResult]:
    timings = document.differences.timings or ()
    return [row for row in timings if row.name.startswith(DURATIONS[clause])]


def _worst(measured: Sequence[RatioResult | MemoryChange], template: str) -> QuantityValue:
    """Bound the largest ratio; unbounded above if an interval is unknown."""
    if not measured:
        return unknown("not measured")
    worst = max(measured, key=lambda row: row.ratio.value)
    highs = [row.ratio.high for row in measured if row.ratio.high is not None]
    lows = [row.ratio.low for row in measured if row.ratio.low is not None and row.change == "slower"]
    high = max(highs) if len(highs) == len(measured) else None
    found = f"{ratio_text(worst.ratio)} {worst.name}"
    return QuantityValue(max(lows, default=None), high, found, details(template, measured))


def _image_size(document: UpgradeDocument) -> QuantityValue:
    ratio, old, new = document.differences.size_ratio, document.old.image, document.new.image
    if ratio is None or old is None or new is None:
        return unknown("an image is missing")
    return QuantityValue(ratio, ratio, f"{ratio:.3f} x ({old.size / 1e6:.0f} MB → {new.size / 1e6:.0f} MB)")


def _verdict(document: UpgradeDocument) -> QuantityValue:
    verdict = document.new.verdict
    if verdict is None:
        return unknown("not validated")
    bound = {"PASSED": 0, "FAILED": 1, "INCONCLUSIVE": None}[verdict]
    return QuantityValue(bound, bound, verdict, () if verdict == "PASSED" else document.new.reasons)


def _failed_tests(document: UpgradeDocument) -> QuantityValue:
    """Count the user's tests that newly fail; a suite without a pass on both images proves nothing."""
    changes, counted = document.differences.tests, document.differences.tests_counted
    if changes is None or counted is None:
        return not_requested("no --suite given")
    if not counted.total:
        return unknown("no test gave an answer")
    both = f"{counted.passed_both or 'none'} of {counted.total} pass on both"
    failed = details("outcome", (row for row in changes if compare.newly_failed(row)))
    if failed:
        return QuantityValue(len(failed), len(failed), f"{len(failed)} of {counted.total} tests, {both}", failed)
    if counted.passed_both and counted.ended:
        return QuantityValue(0, 0, f"none of {counted.total}, {both}")
    return unknown(both if counted.ended else f"the run did not finish, {both}", counted.failed_before)


def _hosts(document: UpgradeDocument, wanted: str, before: tuple[str, ...]) -> QuantityValue:
    hosts = document.differences.hosts
    if hosts is None:
        return not_requested("no --fleet given" if document.flavor == "gpu" else "a CPU image")
    changed = [row for row in hosts if row.old in before and row.new == wanted]
    unclear = [row for row in hosts if row.old in (*before, "unknown") and row.new == "unknown"]
    found = f"{len(changed)} of {len(hosts)}" + (f", no claim on {len(unclear)}" if unclear else "")
    if hosts and wanted == "lost" and all(row.new == "lost" for row in hosts):  # which proves nothing
        return QuantityValue(len(changed), None, f"{found}, the new image runs on none", details("host", hosts))
    return QuantityValue(len(changed), len(changed) + len(unclear), found, details("host", (*changed, *unclear)))


def _driver(document: UpgradeDocument) -> QuantityValue:
    old, new = document.old.environment.minimum_driver, document.new.environment.minimum_driver
    if old is None or new is None:
        return not_requested("a CPU image") if document.flavor == "cpu" else unknown("no claim")
    raised = versions.key(new) > versions.key(old)
    return QuantityValue(raised, raised, f"{old} → {new}" if old != new else old)


def _outputs(document: UpgradeDocument) -> QuantityValue:
    outputs, compared = document.differences.outputs, document.differences.outputs_compared
    if outputs is None or not compared:
        return unknown("not computed on one image")
    lines = details("output", (row for row in outputs if row.outside))
    within = f", {len(outputs) - len(lines)} within tolerance" if len(outputs) > len(lines) else ""
    return QuantityValue(len(lines), len(lines), f"{len(lines) or 'none'} of {compared}{within}", lines)


BY_FACTS = ("hosts-lost", "hosts-falling-to-ptx", "capabilities-lost", "pythons-lost", "minimum-driver-raised")
"""Clauses that the catalogue answers before anything is built."""

COMPUTED: dict[str, Callable[[UpgradeDocument], QuantityValue]] = {
    "verdict": _verdict,
    "tests-newly-failed": _failed_tests,
    "hosts-lost": partial(_hosts, wanted="lost", before=("native", "ptx")),
    "hosts-falling-to-ptx": partial(_hosts, wanted="ptx", before=("native",)),
    "minimum-driver-raised": _driver,
    "start-up-ratio": lambda document: _worst(_durations(document, "start-up-ratio"), "timing"),
    "work-ratio": lambda document: _worst(_durations(document, "work-ratio"), "timing"),
    "size-ratio": _image_size,
    "outputs-outside": _outputs,
    "memory-ratio": lambda document: _worst(document.differences.memory or (), "memory"),
}
"""The quantities that are more than a number of rows."""


class ClauseRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    clause: str
    at_most: Annotated[float, msgspec.Meta(ge=0)]
    otherwise: Otherwise

    def __post_init__(self) -> None:
        if self.clause not in wording().clauses:
            (near,) = get_close_matches(self.clause, wording().clauses, 1, cutoff=0.0)
            raise ValueError(f"{self.clause!r} is not a clause; did you mean {near}?")


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rules for an upgrade; ``statistics`` define a changed duration."""

    name: NameText
    clauses: tuple[ClauseRule, ...]
    statistics: Settings = Settings()
    description: str = ""

    def __post_init__(self) -> None:
        limits = [(rule.clause, rule.otherwise) for rule in self.clauses]
        if twice := [clause for clause, otherwise in limits if limits.count((clause, otherwise)) > 1]:
            raise ValueError(f"the clause {twice[0]} has two limits for one answer")

    def only(self, *names: str) -> Policy:
        return msgspec.structs.replace(self, clauses=tuple(each for each in self.clauses if each.clause in names))


def judge(document: UpgradeDocument, policy: Policy) -> UpgradeDocument:
    """Return the document with every clause evaluated, the decision, and what would decide an undecided one."""
    clauses = tuple(_clause(rule, document) for rule in policy.clauses)
    found = msgspec.structs.replace(document, policy=policy.name, clauses=clauses, decision=decide(clauses))
    advice = tuple(_advice(c, found) for c in clauses if (c.otherwise, c.state) == ("reject", "unknown"))
    return msgspec.structs.replace(found, would_decide=advice if found.decision == "UNDECIDED" else ())


def decide(clauses: Sequence[Clause]) -> Decision:
    """Decide by the states of the clauses; an unknown value in one that rejects is never acceptable."""
    states = {(clause.otherwise, clause.state) for clause in clauses}
    if ("reject", "violated") in states:
        return "REJECT"
    if ("reject", "unknown") in states:
        return "UNDECIDED"
    return "ADOPT_WITH_NOTES" if states & {("note", "violated"), ("note", "unknown")} else "ADOPT"


def _clause(rule: ClauseRule, document: UpgradeDocument) -> Clause:
    figures = COMPUTED.get(rule.clause, partial(_counted, clause=rule.clause))(document)
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


def _advice(clause: Clause, document: UpgradeDocument) -> str:
    """Say what would decide a clause; the texts are in wording.yaml."""
    said = wording().clauses[clause.clause].decides
    rows = _durations(document, clause.clause) if clause.clause in DURATIONS else []
    if rows:
        said = _more_rounds(rows, clause.limit, document.rounds)
    elif clause.clause == "verdict" and document.flavor == "gpu":
        driver = document.new.environment.minimum_driver or "any"
        said = f"the same command on a host with a GPU and driver {driver} or newer"
    elif said:
        said = f"{write(said, document)}: {'; '.join(clause.details[:3]) or clause.found}"
    else:
        said = f"an answer of both images ({clause.found}): see gaps"
    return f"{clause.clause}: {said}"


def _more_rounds(rows: Sequence[RatioResult], limit: float, rounds: int) -> str:
    """Estimate the rounds that resolve the worst duration: the interval narrows with their square root."""
    if any(row.ratio.low is None for row in rows):
        return f"at least {FEWEST} rounds, better 15 (--rounds 15): with {rounds} no change can be proved"
    straddling = [row for row in rows if row.ratio.high is None or row.ratio.high > limit]
    worst = max(straddling or rows, key=lambda row: needed(row.ratio, limit, rounds))
    wanted = needed(worst.ratio, limit, rounds)
    said = f"{worst.name} is {ratio_text(worst.ratio)}, the limit {limit:g}"
    if wanted > MOST:
        return f"{said}: use an idle machine; this one would need more than {MOST} rounds"
    return f"{said}: about {wanted} rounds here (--rounds {wanted}; measured rounds are reused), or an idle machine"


def needed(ratio: Interval, limit: float, rounds: int) -> int:
    """Return how many rounds move the interval off the limit, in fives; above `MOST` is "too many"."""
    if ratio.low is None or ratio.high is None:
        return MOST + 1
    distance = abs(math.log(limit / ratio.value))
    width = math.log(ratio.high / ratio.value) if ratio.value <= limit else math.log(ratio.value / ratio.low)
    if not distance or (width / distance) ** 2 * rounds > MOST:
        return MOST + 1
    return max(rounds + 5, 5 * math.ceil((width / distance) ** 2 * rounds / 5))
