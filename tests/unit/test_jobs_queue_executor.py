"""Executors over somebody else's queue: patient while nobody answers, plain where something is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from envbuilder.errors import InfrastructureError
from envbuilder.exits import ExitCode
from envbuilder.jobs.fan_out import fan_out
from envbuilder.jobs.fleet_task import Ended, LostError, Task, is_lost
from envbuilder.jobs.queue_executor import QueueExecutor


def task(name: str) -> Task:
    return Task(name=name, arguments=(), order=b"", gpu="", driver="", arch="x86_64")


@dataclass
class Queue(QueueExecutor):
    """A queue whose controller is away for the next ``away`` questions, and refuses some names."""

    away: int = 0
    refused: frozenset[str] = frozenset()
    ends: dict[str, list[Ended | LostError]] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)
    asked: Callable[[], None] = lambda: None

    def ready(self) -> None:
        self.asked()
        if self.away:
            self.away -= 1
            raise InfrastructureError("away")

    def begin(self, task: Task) -> str:
        self.ready()
        if task.name in self.refused:
            raise InfrastructureError(f"{task.name} is not allowed")
        self.begun.append(task.name)
        return f"{task.name}-{len(self.begun)}"

    def over(self, jobs: Mapping[str, Task]) -> Mapping[str, Ended | LostError]:
        self.ready()
        return {job: ends.pop(0) for job, task in jobs.items() if (ends := self.ends[task.name])}


def queue(**given: object) -> Queue:
    settings = {"every_s": 0.002, "patience_s": 30.0, **given}
    return Queue(**settings)  # type: ignore[arg-type]


def test_a_controller_that_is_away_is_waited_for() -> None:
    """Before a job is submitted and while it runs: it is begun once, and its end is the one that came of it."""
    cluster = queue(ends={"a": [Ended(0)]})
    with cluster:
        cluster.away = 7
        first = cluster.submit(task("a"))
        cluster.away += 5
        assert first.result(20) == Ended(0)
    assert cluster.begun == ["a"]


def test_what_is_refused_has_ended_by_that_and_the_others_go_on() -> None:
    """A queue that answers and says no is not asked again: a mistake is no lost worker."""
    cluster = queue(refused=frozenset({"b"}), ends={"a": [Ended(0)]})
    with cluster:
        came = fan_out([task("a"), task("b")], cluster, is_left=lambda _: True)
    assert came["a"].ended == Ended(0)
    refused = came["b"].ended
    assert refused == Ended(ExitCode.USAGE, "b is not allowed")
    assert not is_lost(ExitCode.USAGE)
    assert cluster.begun == ["a"]


def test_one_that_stays_away_is_given_up_and_says_so() -> None:
    """Nobody concludes anything about an image: a job that ran is lost, and one not begun yet has an error."""
    cluster = queue(patience_s=0.05, ends={"a": [Ended(0)]})
    with cluster:
        future = cluster.submit(task("a"))
        cluster.away = 1_000_000
        lost = future.exception(20)
        assert isinstance(lost, LostError)
        assert lost.message == "away"
        assert cluster.submit(task("c")).result(20).said == "away"


def test_one_that_does_not_answer_at_all_ends_the_command() -> None:
    """Nothing is begun where the first question fails: the user is told at once."""
    cluster = queue(away=1)
    with pytest.raises(InfrastructureError, match="away"), cluster:
        raise AssertionError("it was entered")


def test_what_was_lost_is_begun_again_as_another_job() -> None:
    """An end belongs to one job alone, though two bear the task's name."""
    cluster = queue(ends={"a": [LostError("node"), Ended(1)]})
    with cluster:
        came = fan_out([task("a")], cluster, is_left=lambda _: True)["a"]
    assert (came.ended, came.attempts, cluster.begun) == (Ended(1), 2, ["a", "a"])
