"""Checks that run next to the suite, on this host and in containers of their own, after the suite's timed checks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

import msgspec

from envbuilder.probes.suite.watchdog import Limits
from envbuilder.validation.checks import Check
from envbuilder.validation.judge import Causes
from envbuilder.validation.suite_session import Progress
from envbuilder.verdict import Addition, CheckResult

START_LIMIT_S = 60.0
"""How long a start of the image, with one import, may take; twice as long on a host with a slow import."""

Inspected = tuple[tuple[CheckResult, ...], Causes, tuple[Addition, ...]]


class BackgroundChecks:
    """Runs checks next to the suite; leaving the block stops them.

    ``start_image`` runs one of ``user_checks``, ``inspect`` runs all checks of the image's files. A check is skipped if
    a check that it needs did not pass, or if a check timed out before: one wait is enough.
    """

    def __init__(
        self,
        user_checks: list[Check],
        start_image: Callable[[Check, threading.Event], CheckResult],
        inspect: Callable[[], Inspected],
    ) -> None:
        self._user_checks = user_checks
        self._start_image = start_image
        self._inspect = inspect
        self._passed: set[str] = set()
        self._import_s = 0.0
        self._timed_out = False
        self._stopped = threading.Event()
        self._pool = ThreadPoolExecutor(2)
        self._futures: tuple[Future[list[CheckResult]], Future[Inspected]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._stopped.set()
        self._pool.shutdown()

    def after(self, checks: tuple[Check, ...], on_progress: Callable[[Progress], None]) -> Callable[[Progress], None]:
        """Return an observer of the suite that starts these checks when the last timed one has ended."""
        timed = {check.name for check in checks if check.quiet}

        def follow(progress: Progress) -> None:
            on_progress(progress)
            if progress.kind == "ended":
                timed.discard(progress.name)
                self._passed |= {progress.name} if progress.outcome == "passed" else set()
                self._timed_out = self._timed_out or progress.outcome == "timeout"
                self._import_s = progress.seconds if progress.name == "import" else self._import_s
                if not timed:
                    self._started()

        return follow

    def results(self) -> list[CheckResult]:
        """Wait for the starts of the image."""
        return self._started()[0].result()

    def inspected(self) -> Inspected:
        """Wait for the checks of the files."""
        return self._started()[1].result()

    def _started(self) -> tuple[Future[list[CheckResult]], Future[Inspected]]:
        if self._futures is None:
            files = self._pool.submit(self._inspect)
            self._futures = (self._pool.submit(lambda: [self._result(check) for check in self._user_checks]), files)
        return self._futures

    def _result(self, check: Check) -> CheckResult:
        missing = next((name for name in check.needs if name not in self._passed), None)
        if missing or self._timed_out:
            why = f"needs {missing}, which did not pass" if missing else "a check before it timed out"
            return CheckResult(name=check.name, level=check.level, outcome="skipped", observed=why)
        limit_s = Limits().scaled(min(check.limit_s, START_LIMIT_S), self._import_s)
        return self._start_image(msgspec.structs.replace(check, limit_s=limit_s), self._stopped)
