"""Jobs of a fleet: an answer is final, a lost job is repeated, and its name depends on the work alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

import pytest
from fleet_jobs import job

from envbuilder.compat.fleet import FleetHost
from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.jobs.fleet import run
from envbuilder.jobs.fleet.job import Job, JobEnd, LostJobError
from envbuilder.jobs.fleet.run import ATTEMPTS, run_all, with_patience

A = job("a")


@dataclass
class Workers:
    """Ends each job as listed, attempt by attempt; a text is a lost worker."""

    ends: dict[str, list[int | str]]
    started: Counter[str] = field(default_factory=Counter)

    def submit(self, one: Job) -> Future[JobEnd]:
        ends = self.ends[one.name]
        end = ends[min(self.started[one.name], len(ends) - 1)]
        self.started[one.name] += 1
        future: Future[JobEnd] = Future()
        if isinstance(end, str):
            future.set_exception(LostJobError(end))
        else:
            future.set_result(JobEnd(end))
        return future


@pytest.mark.parametrize("code", [0, 1, 2, 4, 6, 8, 70])
def test_an_answer_is_not_repeated(code: int) -> None:
    """PASSED, FAILED, INCONCLUSIVE, a failed build, a mistake and a bug are answers."""
    workers = Workers({A.name: [code, 0]})
    outcomes = run_all([A], workers.submit, is_pending=lambda _: True)
    assert workers.started == {A.name: 1}
    assert outcomes[A.name].end == JobEnd(code)


@pytest.mark.parametrize("lost", ["the worker died", 5, 7, 126, 127, 130, 137, -9])
def test_a_lost_job_is_repeated_a_limited_number_of_times(lost: int | str) -> None:
    """A lost worker, a broken host, no envbuilder there, and a killed process say nothing about an image."""
    workers = Workers({A.name: [lost, lost, 1]})
    assert run_all([A], workers.submit, is_pending=lambda _: True)[A.name].end == JobEnd(1)
    assert workers.started == {A.name: 3}
    workers = Workers({A.name: [lost]})
    outcome = run_all([A], workers.submit, is_pending=lambda _: True)[A.name]
    assert (workers.started[A.name], outcome.attempts, outcome.is_lost) == (ATTEMPTS, ATTEMPTS, True)


def test_a_lost_job_is_not_repeated_if_its_verdict_is_attached_or_unknown() -> None:
    other = job("b")
    workers = Workers({A.name: ["lost"], other.name: ["lost"]})

    def is_pending(one: Job) -> bool:
        if one == A:
            return False
        raise UsageError("an error that waiting does not change")

    outcomes = run_all([A, other, A], workers.submit, is_pending=is_pending)
    assert workers.started == {A.name: 1, other.name: 1}
    assert outcomes[A.name].error == "lost"


def test_a_lookup_is_repeated_while_the_registry_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "PAUSE_S", 0.0)
    calls: list[int] = []

    def returning() -> str:
        calls.append(1)
        if len(calls) < 4:
            raise InfrastructureError("away")
        return "here"

    assert with_patience(returning, lambda _: None) == "here"
    assert len(calls) == 4

    def raising(error: Exception) -> Callable[[], str]:
        def lookup() -> str:
            calls.append(1)
            raise error

        return lookup

    with pytest.raises(InfrastructureError, match="gone"):
        with_patience(raising(InfrastructureError("gone")), lambda _: None, patience_s=-1.0)
    before = len(calls)
    with pytest.raises(UsageError):
        with_patience(raising(UsageError("wrong")), lambda _: None)
    assert len(calls) == before + 1


def test_a_jobs_name_depends_on_all_that_it_does() -> None:
    """Digest, host class, suite, machine, record and terms: the same work has the same name, whoever starts it."""
    hosts = (FleetHost(name="a"),)
    same = job("a", "H100/535", hosts).name
    assert job("a", "H100/535").name == same
    others = {
        job("b", "H100/535").name,
        job("a", "A100/535").name,
        job("a", "H100/550").name,
        job("a", "H100/535", suite="t").name,
        job("a", "H100/535", arch="aarch64").name,
        job("a", "H100/535", record=b"r").name,
        job("a", "H100/535", profile="full").name,
        job("a", "H100/535", gpus="none").name,
        job("a", "H100/535", again=True).name,
        job("a", "H100/535", max_age_s=2.0).name,
        job("a", "H100/535", trusted=("k",)).name,
        job("a", "H100/535", identity="i").name,
        job("a", "H100/535", issuer="i").name,
    }
    assert len(others | {same}) == 14
    assert all(name.replace("-", "").isalnum() and name == name.lower() and len(name) < 60 for name in others)
