"""Executors over somebody else's queue: patient while nobody answers, plain where something is refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest
from fleet_tasks import plain_task

from envbuilder.errors import ExitCode, InfrastructureError, UsageError
from envbuilder.jobs.fan_out import fan_out
from envbuilder.jobs.fleet_task import Ended, LostError, Task, is_lost
from envbuilder.jobs.queue_executor import End, QueueExecutor
from envbuilder.support import subprocesses


@dataclass
class Queue(QueueExecutor):
    """A queue whose controller is away for the next ``away`` questions, and refuses some names."""

    away: int = 0
    refused: frozenset[str] = frozenset()
    ends: dict[str, list[End]] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)
    asked: Callable[[], None] = lambda: None
    errors: dict[str, list[Exception]] = field(default_factory=dict)
    broken: Exception | None = None

    def ready(self) -> None:
        self.asked()
        if self.away:
            self.away -= 1
            raise InfrastructureError("away")

    def begin(self, task: Task) -> str:
        self.ready()
        if task.name in self.refused:
            raise InfrastructureError(f"{task.name} is not allowed")
        if self.errors.get(task.name):
            raise self.errors[task.name].pop(0)
        self.begun.append(task.name)
        return f"{task.name}-{len(self.begun)}"

    def over(self, jobs: Mapping[str, Task]) -> Mapping[str, End]:
        self.ready()
        if self.broken is not None:
            raise self.broken
        return {job: ends.pop(0) for job, task in jobs.items() if (ends := self.ends.get(task.name))}


def queue(**given: object) -> Queue:
    settings = {"every_s": 0.002, "patience_s": 30.0, **given}
    return Queue(**settings)  # type: ignore[arg-type]


def test_a_controller_that_is_away_is_waited_for() -> None:
    """Before a job is submitted and while it runs: it is begun once, and its end is the one that came of it."""
    cluster = queue(ends={"a": [Ended(0)]})
    with cluster:
        cluster.away = 7
        first = cluster.submit(plain_task("a"))
        cluster.away += 5
        assert first.result(20) == Ended(0)
    assert cluster.begun == ["a"]


def test_what_is_refused_has_ended_by_that_and_the_others_go_on() -> None:
    """A queue that answers and says no is not asked again: a mistake is no lost worker."""
    cluster = queue(refused=frozenset({"b"}), ends={"a": [Ended(0)]})
    with cluster:
        came = fan_out([plain_task("a"), plain_task("b")], cluster, is_left=lambda _: True)
    assert came["a"].ended == Ended(0)
    refused = came["b"].ended
    assert refused == Ended(ExitCode.USAGE, "b is not allowed")
    assert not is_lost(ExitCode.USAGE)
    assert is_lost(127), "a host without envbuilder says nothing of an image, and another may have it"
    assert cluster.begun == ["a"]


def test_one_that_stays_away_is_given_up_and_says_so() -> None:
    """Nobody concludes anything about an image: a job that ran is lost, and so is one that was not begun yet."""
    cluster = queue(patience_s=0.05, ends={"a": [Ended(0)]})
    with cluster:
        future = cluster.submit(plain_task("a"))
        cluster.away = 1_000_000
        lost = future.exception(20)
        assert isinstance(lost, LostError)
        assert lost.message == "away"
        unbegun = cluster.submit(plain_task("c")).exception(20)
        assert isinstance(unbegun, LostError)
        assert unbegun.message == "away"


def test_one_that_does_not_answer_at_all_ends_the_command() -> None:
    """Nothing is begun where the first question fails: the user is told at once."""
    cluster = queue(away=1)
    with pytest.raises(InfrastructureError, match="away"), cluster:
        raise AssertionError("it was entered")


def test_what_was_lost_is_begun_again_as_another_job() -> None:
    """An end belongs to one job alone, though two bear the task's name."""
    cluster = queue(ends={"a": [LostError("node"), Ended(1)]})
    with cluster:
        came = fan_out([plain_task("a")], cluster, is_left=lambda _: True)["a"]
    assert (came.ended, came.attempts, cluster.begun) == (Ended(1), 2, ["a", "a"])


def test_patience_is_the_executors_and_not_each_tasks() -> None:
    """A controller that was away for too long is not waited for once more for every task that is left."""
    cluster = queue(patience_s=0.3)
    with cluster:
        cluster.away = 1_000_000
        began = time.monotonic()
        ends = [cluster.submit(plain_task(f"t{number}")).exception(20) for number in range(20)]
        taken = time.monotonic() - began
    assert all(isinstance(end, LostError) for end in ends)
    assert 0.3 < taken < 20 * 0.3 / 2


def test_one_that_is_busy_has_refused_nothing() -> None:
    """A submission that did not end in time while the controller answers otherwise is lost, and begun again."""
    slow = [subprocesses.ProgramError("sbatch did not end within 60 s") for _ in range(2)]
    cluster = queue(errors={"a": list(slow)}, ends={"a": [Ended(0)]})
    with cluster:
        came = fan_out([plain_task("a")], cluster, is_left=lambda _: True)["a"]
    assert (came.ended, came.attempts, cluster.begun) == (Ended(0), 2, ["a"])


def test_what_no_job_can_be_ends_its_row_alone() -> None:
    """A kind that the fleet file gives no constraint is that row's error, before and after others are under way."""
    cluster = queue(
        errors={"b": [UsageError("no row says how", hint="give one")]}, ends={"a": [Ended(0)], "c": [Ended(1)]}
    )
    with cluster:
        came = fan_out([plain_task("a"), plain_task("b"), plain_task("c")], cluster, is_left=lambda _: True)
    assert came["b"].ended == Ended(ExitCode.USAGE, "no row says how")
    assert (came["a"].ended, came["c"].ended) == (Ended(0), Ended(1))


def test_commands_that_are_gone_are_a_lost_controller() -> None:
    """A program that was removed meanwhile is waited for like a controller; then the jobs are lost, not for ever."""
    cluster = queue(patience_s=0.05)
    with cluster:
        future = cluster.submit(plain_task("a"))
        cluster.broken = UsageError("there is no squeue here")
        lost = future.exception(20)
    assert isinstance(lost, LostError)
    assert lost.message == "there is no squeue here"


def test_a_bug_while_looking_reaches_whoever_waits() -> None:
    """Every future raises it, one submitted afterwards too: a run whose watcher is dead does not wait for ever."""
    cluster = queue()
    with cluster:
        futures = [cluster.submit(plain_task("a")), cluster.submit(plain_task("b"))]
        cluster.broken = KeyError("bug")
        assert [type(future.exception(20)) for future in futures] == [KeyError, KeyError]
        assert isinstance(cluster.submit(plain_task("c")).exception(20), KeyError)


def test_what_is_not_told_of_one_job_is_asked_again_and_not_for_ever() -> None:
    """A refusal about one job is no end of it; where it stays, that job is lost, and the others had theirs long ago."""
    refused: list[End] = [InfrastructureError("pods are forbidden")]
    cluster = queue(patience_s=0.2, ends={"a": [*refused, Ended(0)], "b": refused * 10_000, "c": [Ended(1)]})
    with cluster:
        futures = [cluster.submit(plain_task(name)) for name in "abc"]
        assert (futures[0].result(20), futures[2].result(20)) == (Ended(0), Ended(1))
        lost = futures[1].exception(20)
    assert isinstance(lost, LostError)
    assert lost.message == "pods are forbidden"
