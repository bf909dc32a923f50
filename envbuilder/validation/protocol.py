"""The order that an honest run's messages keep; whatever departs from it is named, and no such run is PASSED.

The host holds the plan: which checks there are, and their levels, are never taken from a message.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from envbuilder.finding import Finding, Severity
from envbuilder.validation.checks import Check

Kind = Literal["start", "identity", "begin", "result", "spoiled", "end"]
CLOCK_SLACK_S = 2.0
"""By how much the clocks of host and container may differ over one run before a time is impossible."""

_MOST = 40
_MOST_BEGINNINGS = 2
"""A check begins among others and, where that process died, once more alone."""


class Answered(Protocol):
    """What of a result the order is judged by."""

    @property
    def name(self) -> str:
        """Which check's it is."""

    @property
    def outcome(self) -> str:
        """How the check ended, as the message says."""

    @property
    def duration_s(self) -> float:
        """How long it took, by the runner's clock."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What it found."""

    def seconds(self) -> Mapping[str, Iterable[float]]:
        """Return every time that it says it measured, by name, in seconds."""


@dataclass
class Rules:
    """Follows one run; ``violations`` are sentences, the first few of them."""

    checks: Mapping[str, Check]
    violations: list[str] = field(default_factory=list)
    started: bool = False
    identified: bool = False
    ended: bool = False
    began: list[str] = field(default_factory=list)
    answered: dict[str, str] = field(default_factory=dict)
    at_work: dict[str, float] = field(default_factory=dict)

    def violate(self, text: str) -> None:
        """Keep one departure from the order."""
        if len(self.violations) < _MOST:
            self.violations.append(text)

    def take(self, kind: str) -> bool:
        """Take a message of a kind; False where it may not come here and must not be believed."""
        if self.ended:
            self.violate(f"{kind!r} after the end")
            return False
        if (kind == "start") is self.started:
            self.violate("a second start" if self.started else f"{kind!r} before the start")
            self.started = True
            return kind != "start"
        self.started = True
        if kind == "identity":
            if self.identified:
                self.violate("a second identity")
                return False
            self.identified = True
        return True

    def begin(self, name: str, now: float) -> bool:
        """Take the beginning of a check. After a crash among others a check may begin once more, alone."""
        if name not in self.checks or name in self.answered:
            self.violate(f"{name!r} begins, and " + ("is answered" if name in self.answered else "is not in the plan"))
            return False
        if self.began.count(name) >= _MOST_BEGINNINGS:
            self.violate(f"{name} begins for the third time")
            return False
        self.began.append(name)
        self.at_work[name] = now
        return True

    def result(self, result: Answered, elapsed: float) -> bool:
        """Take a result, ``elapsed`` seconds into the run; False where it must not be believed at all."""
        name = result.name
        if name not in self.checks or name in self.answered:
            self.violate(f"{name!r} is " + ("answered twice" if name in self.answered else "not in the plan"))
            return False
        self.answered[name] = result.outcome
        self.at_work.pop(name, None)
        if result.outcome == "passed":
            if name not in self.began:
                self.violate(f"{name} passed and never began")
            for need in self.checks[name].needs:
                if self.answered.get(need, "passed") != "passed":
                    self.violate(f"{name} passed, and {need}, which it needs, did not")
            if any(finding.severity is Severity.ERROR for finding in result.findings):
                self.violate(f"{name} passed with an error among its findings")
            self._fast_enough(self.checks[name], result)
        times = {"it": (result.duration_s,), **result.seconds()}
        for what, values in times.items():
            if not all(math.isfinite(value) and 0 <= value <= elapsed + CLOCK_SLACK_S for value in values):
                self.violate(f"{name}: {what} took an impossible time, {elapsed:.1f} s into the run")
        return True

    def _fast_enough(self, check: Check, result: Answered) -> None:
        """Refuse a pass that came sooner than its work can be done."""
        measured = result.seconds()
        for what, least in check.at_least:
            for value in (result.duration_s, *measured.get(what, (0.0,))):
                if value < least:
                    self.violate(f"{check.name} passed in {value:.3g} s, which is less than its work takes")

    def finish(self, *, stopped: bool) -> None:
        """Judge the run's end; one that was stopped, or died, needs no last message where answers are missing.

        One that said it is done and was stopped all the same, or died, was not: something of it went on.
        """
        missing = [name for name in self.checks if name not in self.answered]
        if not self.ended and not (stopped and (missing or not self.checks)):
            self.violate("the run's last message is missing")
        if self.ended and stopped:
            self.violate("the run said that it is over, and did not end well then")
        if self.ended and missing:
            self.violate("the run ended without an answer for " + ", ".join(missing[:5]))
