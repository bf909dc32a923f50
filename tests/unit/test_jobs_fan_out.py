"""Tasks on an executor: each once, what was lost again, what came to an answer never."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Self

import pytest
from fleet_tasks import plain_task

from envbuilder.compat.fleet import FleetHost
from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.jobs import fan_out as fanning
from envbuilder.jobs.fan_out import ATTEMPTS, fan_out, patiently
from envbuilder.jobs.fleet_task import Ended, LostError, ProofOrder, Task, proof_task


@dataclass
class Workers:
    """An executor whose tasks end as told, attempt by attempt; a text is a worker that was lost."""

    ends: dict[str, list[int | str]]
    begun: Counter[str] = field(default_factory=Counter)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        pass

    def submit(self, task: Task) -> Future[Ended]:
        end = self.ends[task.name][min(self.begun[task.name], len(self.ends[task.name]) - 1)]
        self.begun[task.name] += 1
        future: Future[Ended] = Future()
        if isinstance(end, str):
            future.set_exception(LostError(end))
        else:
            future.set_result(Ended(end))
        return future


@pytest.mark.parametrize("code", [0, 1, 2, 4, 6, 8, 70])
def test_an_answer_is_never_asked_for_again(code: int) -> None:
    """PASSED, FAILED, INCONCLUSIVE, a build that failed, a mistake and a bug: each stands as it came."""
    workers = Workers({"a": [code, 0]})
    came = fan_out([plain_task("a")], workers, is_left=lambda _: True)
    assert workers.begun == {"a": 1}
    assert came["a"].ended == Ended(code)


@pytest.mark.parametrize("lost", ["the worker died", 5, 7, 130, 137, -9])
def test_what_was_lost_is_begun_again_a_bounded_number_of_times(lost: int | str) -> None:
    """A lost worker, a host whose registry or engine failed, and a killed process say nothing about an image."""
    workers = Workers({"a": [lost, lost, 1]})
    assert fan_out([plain_task("a")], workers, is_left=lambda _: True)["a"].ended == Ended(1)
    assert workers.begun == {"a": 3}
    for ever in (workers, Workers({"b": [lost]})):
        ever.ends = {"b": [lost]}
        came = fan_out([plain_task("b")], ever, is_left=lambda _: True)["b"]
        assert (ever.begun["b"], came.attempts) == (ATTEMPTS, ATTEMPTS)


def test_what_was_attached_before_its_worker_was_lost_is_left_alone() -> None:
    """The registry is asked before a lost task is begun again; where it cannot tell, nothing is begun either."""
    workers = Workers({"a": ["lost"], "b": ["lost"]})

    def is_left(one: Task) -> bool:
        if one.name == "a":
            return False
        raise UsageError("no answer that waiting would change")

    came = fan_out([plain_task("a"), plain_task("b"), plain_task("a")], workers, is_left=is_left)
    assert workers.begun == {"a": 1, "b": 1}
    assert came["a"].error == "lost"


def test_a_registry_that_is_away_is_asked_again_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes back: its answer counts. It stays away: its own error. Any other error is raised at once."""
    monkeypatch.setattr(fanning, "PAUSE_S", 0.0)
    asked: list[int] = []

    def coming_back() -> str:
        asked.append(1)
        if len(asked) < 4:
            raise InfrastructureError("away")
        return "here"

    assert patiently(coming_back, lambda _: None) == "here"
    assert len(asked) == 4

    def raising(error: Exception) -> Callable[[], str]:
        def ask() -> str:
            asked.append(1)
            raise error

        return ask

    with pytest.raises(InfrastructureError, match="gone"):
        patiently(raising(InfrastructureError("gone")), lambda _: None, patience_s=-1.0)
    before = len(asked)
    with pytest.raises(UsageError):
        patiently(raising(UsageError("wrong")), lambda _: None)
    assert len(asked) == before + 1


def order(**given: object) -> ProofOrder:
    values = {
        "repository": "registry.example.org/ml/tf",
        "digest": "sha256:" + "0" * 64,
        "environment": "e",
        "level": "gpu",
        "arch": "x86_64",
        "gpu": "H100",
        "driver": "535",
        "suite": "s",
        "max_age_s": 1.0,
    }
    return ProofOrder(**{**values, **given})  # type: ignore[arg-type]


def test_a_tasks_name_is_that_of_its_work() -> None:
    """Same digest, kind, suite and machine: the same task, whoever asks and whomever they believe; else another."""
    hosts = (FleetHost(name="a"),)
    same = proof_task(order(), hosts).name
    assert proof_task(order(trusted=("k",), max_age_s=2.0, profile="full"), ()).name == same
    others = {"digest": "sha256:" + "1" * 64, "gpu": "A100", "driver": "550", "suite": "t", "arch": "aarch64"}
    names = {proof_task(order(**{field: value}), hosts).name for field, value in others.items()}
    assert len(names | {same}) == len(others) + 1
    assert all(name.replace("-", "").isalnum() and name == name.lower() and len(name) < 60 for name in names)


def test_no_kind_waits_for_another_and_a_queue_is_not_flooded() -> None:
    """However many tasks: of each kind no more than the window are under way, and every kind has some at once."""

    @dataclass
    class Slow(Workers):
        """Ends a task when it is told to; remembers how many of each kind were under way."""

        open: list[tuple[Task, Future[Ended]]] = field(default_factory=list)
        most: Counter[str] = field(default_factory=Counter)

        def submit(self, task: Task) -> Future[Ended]:
            future: Future[Ended] = Future()
            self.open.append((task, future))
            now = Counter(one.kind for one, other in self.open if not other.done())
            self.most |= now
            return future

        def end(self) -> None:
            while len(ended) < 900:
                for one, future in list(self.open):
                    if not future.done():
                        ended.append(one.name)
                        future.set_result(Ended(0))

    ended: list[str] = []
    tasks = [Task(f"{gpu}-{number}", (), b"", gpu, "1", "x86_64") for gpu in ("A", "B", "C") for number in range(300)]
    workers = Slow({})
    threading.Thread(target=workers.end, daemon=True).start()
    came = fan_out(tasks, workers, is_left=lambda _: True)
    assert len(came) == len(set(ended)) == 900
    assert max(workers.most.values()) <= fanning.WINDOW
    assert [task.kind for task, _ in workers.open[:: fanning.WINDOW][:3]] == ["A/1", "B/1", "C/1"]
