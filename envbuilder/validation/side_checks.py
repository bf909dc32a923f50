"""Checks that are made beside a run, on this host and in containers of their own, once its timed checks are over."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

import msgspec

from envbuilder.probes.suite import pace
from envbuilder.validation.causes import Causes
from envbuilder.validation.checks import Check
from envbuilder.validation.events import Progress
from envbuilder.verdict import CheckResult

_START_S, _PART = 15.0, 0.75
_NEEDS = "needs {0}, which did not pass"
_HUNG = "a check before it hung"


class SideChecks:
    """Makes further checks beside a run, from when its timed checks are over; left early, it ends them at once.

    ``make`` makes one of ``checks``, in turn; ``look`` makes all of those that look at the image's files.

    One whose needs did not pass is skipped: what keeps TensorFlow from importing has been named already. So it is where
    a check hung before it began: one wait is enough.
    """

    def __init__(
        self,
        checks: list[Check],
        make: Callable[[Check, threading.Event], CheckResult],
        look: Callable[[], tuple[tuple[CheckResult, ...], Causes]],
    ) -> None:
        self._checks = checks
        self._make = make
        self._look = look
        self._passed: set[str] = set()
        self._import_s = 0.0
        self._hung = False
        self._stopped = threading.Event()
        self._pool = ThreadPoolExecutor(2)
        self._made: Future[list[CheckResult]] | None = None
        self._looked: Future[tuple[tuple[CheckResult, ...], Causes]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._stopped.set()
        self._pool.shutdown()

    def after(self, checks: tuple[Check, ...], on_progress: Callable[[Progress], None]) -> Callable[[Progress], None]:
        """Return what follows a run, and starts these checks when the last of its timed ones has ended."""
        timed = {check.name for check in checks if check.quiet}

        def follow(progress: Progress) -> None:
            on_progress(progress)
            if progress.kind == "ended":
                timed.discard(progress.name)
                self._passed |= {progress.name} if progress.outcome == "passed" else set()
                self._hung = self._hung or progress.outcome == "timeout"
                self._import_s = progress.seconds if progress.name == "import" else self._import_s
                if not timed:
                    self._start()

        return follow

    def results(self) -> list[CheckResult]:
        """Wait for what they come to."""
        return self._start()[0].result()

    def looked(self) -> tuple[tuple[CheckResult, ...], Causes]:
        """Wait for what the files come to, and for what others may follow from."""
        return self._start()[1].result()

    def _start(self) -> tuple[Future[list[CheckResult]], Future[tuple[tuple[CheckResult, ...], Causes]]]:
        if self._made is None or self._looked is None:
            self._looked = self._pool.submit(self._look)
            self._made = self._pool.submit(self._all)
        return self._made, self._looked

    def _all(self) -> list[CheckResult]:
        return [self._skipped(check) or self._make(self._limited(check), self._stopped) for check in self._checks]

    def _skipped(self, check: Check) -> CheckResult | None:
        """Say why a check is not made; None for one that is."""
        if self._passed.issuperset(check.needs) and not self._hung:
            return None
        why = _HUNG if self._passed.issuperset(check.needs) else _NEEDS.format(check.needs[0])
        return CheckResult(name=check.name, level=check.level, outcome="skipped", observed=why)

    def _limited(self, check: Check) -> Check:
        """Give a start the time of some of this run's own imports: it does one, and a hang is known the sooner."""
        limit_s = _START_S + _PART * pace.lane_limit(self._import_s)
        return msgspec.structs.replace(check, limit_s=min(check.limit_s, limit_s))
