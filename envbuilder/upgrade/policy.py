"""The clauses of a policy: the quantities that they compare with their limits, the decision, and what would decide it.

The texts of the quantities are in wording.yaml.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Annotated, Literal, NamedTuple

import msgspec

from envbuilder import versions
from envbuilder.matrix import NameText
from envbuilder.upgrade import compare
from envbuilder.upgrade.document import (
    Clause,
    ClauseState,
    ComparedImage,
    Decision,
    Differences,
    MemoryChange,
    Otherwise,
)
from envbuilder.upgrade.statistics import Interval, RatioResult, Settings
from envbuilder.upgrade.text import details, ratio_text, rows_of, wording, write


class QuantityValue(NamedTuple):
    """A quantity's value as bounds (equal if it is counted), a text, and its details.

    ``low`` None: unknown. ``asked`` False: nothing was requested that could answer it.
    """

    low: float | None
    high: float | None
    found: str
    details: tuple[str, ...] = ()
    asked: bool = True


class ComparedImages(NamedTuple):
    old: ComparedImage
    new: ComparedImage
    differences: Differences


def count(lines: Sequence[str], *, nothing: str = "none") -> QuantityValue:
    return QuantityValue(len(lines), len(lines), str(len(lines)) if lines else nothing, tuple(lines))


def unknown(why: str) -> QuantityValue:
    return QuantityValue(None, None, why)


def not_requested(why: str) -> QuantityValue:
    return QuantityValue(None, None, why, asked=False)


def _counted(images: ComparedImages, clause: ClauseName) -> QuantityValue:
    """Count the rows that wording.yaml names for a clause."""
    text = wording().clauses[clause]
    lines: list[str] = []
    for each in text.rows:
        found = rows_of(images.differences, each)
        if found is None:
            return unknown(text.unknown)
        lines += [write(each.text, row) for row in found]
    return count(lines)


DURATIONS = {"start-up-ratio": "start.total", "work-ratio": "work."}
"""The durations of a clause, by the beginning of their names."""


def _duration(images: ComparedImages, clause: ClauseName) -> QuantityValue:
    return _worst(_durations(images, clause), "timing")


def _durations(images: ComparedImages, clause: str) -> list[RatioResult]:
    return [row for row in images.differences.timings or () if row.name.startswith(DURATIONS[clause])]


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


def _slower(images: ComparedImages) -> QuantityValue:
    """Count the durations that are certainly longer, whatever their limits."""
    timings = images.differences.timings
    if not timings:
        return unknown("not measured")
    if any(row.ratio.low is None for row in timings):
        return unknown("too few rounds to prove a change")
    slower = [row for row in timings if row.change == "slower"]
    return count(details("timing", slower), nothing=f"none of {len(timings)}")


def _image_size(images: ComparedImages) -> QuantityValue:
    ratio, old, new = images.differences.size_ratio, images.old.image, images.new.image
    if ratio is None or old is None or new is None:
        return unknown("an image is missing")
    return QuantityValue(ratio, ratio, f"{ratio:.3f} x ({old.size / 1e6:.0f} MB → {new.size / 1e6:.0f} MB)")


_VERDICT_BOUNDS = {"PASSED": 0, "FAILED": 1, "INCONCLUSIVE": None}


def _verdict(images: ComparedImages) -> QuantityValue:
    verdict = images.new.verdict
    if verdict is None:
        return unknown("not validated")
    bound = _VERDICT_BOUNDS[verdict]
    return QuantityValue(bound, bound, verdict, () if verdict == "PASSED" else images.new.reasons)


def _failed_tests(images: ComparedImages) -> QuantityValue:
    """Count the user's tests that newly fail; a suite without a pass on the old image proves nothing."""
    changes, counted = images.differences.tests, images.differences.tests_counted
    if changes is None or counted is None:
        return not_requested("no --suite given")
    if not counted.total:
        return unknown("no test gave an answer")
    both = f", {counted.passed_both} of {counted.total} pass on both"
    failed = details("outcome", (row for row in changes if compare.newly_failed(row)))
    if failed:
        return QuantityValue(len(failed), len(failed), f"{len(failed)} of {counted.total} tests{both}", failed)
    if counted.passed_old and counted.ended:
        return QuantityValue(0, 0, f"none of {counted.total}{both}")
    none = f"none of {counted.total} passed on the old image"
    return QuantityValue(
        None, None, f"the run did not finish{both}" if counted.passed_old else none, counted.failed_before
    )


def _failed_before(images: ComparedImages) -> QuantityValue:
    """Count the user's tests that did not run and pass on the old image: they prove nothing."""
    counted = images.differences.tests_counted
    if counted is None:
        return not_requested("no --suite given")
    return count(counted.failed_before, nothing=f"none of {counted.total}")


def _flaky(images: ComparedImages) -> QuantityValue:
    changes = images.differences.tests
    if changes is None:
        return not_requested("no --suite given")
    return count(details("flaky", (row for row in changes if row.flaky)))


def _models(images: ComparedImages, saved_by: str) -> QuantityValue:
    """Count the formats that one image saved and the other cannot load, or predicts differently from."""
    models = images.differences.models
    if models is None:
        return unknown("not exchanged")
    own = [row for row in models if row.saved_by == saved_by]
    return count(details("model", (row for row in own if row.wrong)), nothing=f"none of {len(own)} formats")


def _hosts(images: ComparedImages, wanted: str, before: tuple[str, ...]) -> QuantityValue:
    hosts = images.differences.hosts
    if hosts is None:
        return not_requested("no --fleet given" if images.new.environment.flavor == "gpu" else "a CPU image")
    changed = [row for row in hosts if row.old in before and row.new == wanted]
    unclear = [row for row in hosts if row.old in before and row.new == "unknown"]
    found = f"{len(changed)} of {len(hosts)}" + (f", no claim on {len(unclear)}" if unclear else "")
    return QuantityValue(len(changed), len(changed) + len(unclear), found, details("host", (*changed, *unclear)))


def _lost(images: ComparedImages, names: tuple[str, ...]) -> QuantityValue:
    return count([text for change in images.differences.sets if change.name in names for text in change.lost])


def _pythons(images: ComparedImages) -> QuantityValue:
    if not images.old.pythons or not images.new.pythons:
        return not_requested("unknown for a local wheel file")
    return _lost(images, (compare.PYTHONS,))


def _driver(images: ComparedImages) -> QuantityValue:
    old, new = images.old.environment.minimum_driver, images.new.environment.minimum_driver
    if old is None or new is None:
        return not_requested("a CPU image") if images.new.environment.flavor == "cpu" else unknown("no claim")
    raised = versions.key(new) > versions.key(old)
    return QuantityValue(raised, raised, f"{old} → {new}" if old != new else old)


def _outputs(images: ComparedImages) -> QuantityValue:
    outputs, compared = images.differences.outputs, images.differences.outputs_compared
    if outputs is None or not compared:
        return unknown("not computed on one image")
    lines = details("output", (row for row in outputs if row.outside))
    within = f", {len(outputs) - len(lines)} within tolerance" if len(outputs) > len(lines) else ""
    return QuantityValue(len(lines), len(lines), f"{len(lines) or 'none'} of {compared}{within}", lines)


ClauseName = Literal[
    "verdict", "checks-newly-failed", "tests-newly-failed", "hosts-lost", "hosts-falling-to-ptx", "capabilities-lost",
    "pythons-lost", "minimum-driver-raised", "start-up-ratio", "work-ratio", "size-ratio", "numerics-outside",
    "numerics-changed", "names-removed", "calls-that-break", "warnings-new", "licences-new", "packages-new-major",
    "outputs-outside", "random-streams-changed", "durations-slower", "memory-ratio", "models-not-loading",
    "models-not-loading-back", "names-deprecated", "tests-failed-before", "tests-flaky",
]  # fmt: skip

BY_FACTS: tuple[ClauseName, ...] = (
    "hosts-lost", "hosts-falling-to-ptx", "capabilities-lost", "pythons-lost", "minimum-driver-raised",
)  # fmt: skip
"""Clauses that the catalogue answers before anything is built."""

COMPUTED: dict[ClauseName, Callable[[ComparedImages], QuantityValue]] = {
    "verdict": _verdict,
    "tests-newly-failed": _failed_tests,
    "hosts-lost": partial(_hosts, wanted="lost", before=("native", "ptx")),
    "hosts-falling-to-ptx": partial(_hosts, wanted="ptx", before=("native",)),
    "capabilities-lost": partial(_lost, names=(compare.CUBINS, compare.PTX)),
    "pythons-lost": _pythons,
    "minimum-driver-raised": _driver,
    "start-up-ratio": partial(_duration, clause="start-up-ratio"),
    "work-ratio": partial(_duration, clause="work-ratio"),
    "size-ratio": _image_size,
    "outputs-outside": _outputs,
    "durations-slower": _slower,
    "memory-ratio": lambda images: _worst(images.differences.memory or (), "memory"),
    "models-not-loading": partial(_models, saved_by="old"),
    "models-not-loading-back": partial(_models, saved_by="new"),
    "tests-failed-before": _failed_before,
    "tests-flaky": _flaky,
}


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
    computed = COMPUTED.get(rule.clause)
    figures = computed(sides) if computed else _counted(sides, rule.clause)
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


def would_decide(clauses: Sequence[Clause], sides: ComparedImages, rounds: int) -> tuple[str, ...]:
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
            rows = _durations(sides, clause.clause)
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
