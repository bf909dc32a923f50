"""Jobs of a fleet: an answer is final, a lost job goes to another worker, and its name depends on the work only."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from unittest.mock import MagicMock

import msgspec
import pytest
from fleet_jobs import job

from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.jobs.fleet import job as fleet_job
from envbuilder.jobs.fleet import workers as module
from envbuilder.jobs.fleet.job import Job, ProofDocument, no_result, with_patience
from envbuilder.jobs.fleet.workers import ATTEMPTS, DaskEngine, Dispatcher, Worker, check_address, end_of

A, B = job("a"), job("b")
GPU = job("gpu", "A100/550")


def worker(name: str, *classes: str) -> Worker:
    return Worker(f"tcp://{name}", name, classes or (A.worker_class,))


@dataclass
class Attempt:
    """What Dask knows of a job: its worker, and its end as listed."""

    key: str
    to: Worker
    end: int | str | None
    cancelled: bool = False

    @property
    def status(self) -> str:
        return "cancelled" if self.cancelled else "pending" if self.end is None else "finished"


REFUSED = "refused"


@dataclass
class Workers:
    """A scheduler whose workers end each job as listed, attempt by attempt.

    A number is an exit code, a text a lost worker, REFUSED a worker that fails its check, None no end. With
    ``by_worker`` the end depends on the worker's name only. Several runs may share it, by ``attempts`` and ``numbers``.
    """

    there: list[Worker]
    ends: Mapping[str, list[int | str | None]] = field(default_factory=dict)
    by_worker: Mapping[str, int | str | None] = field(default_factory=dict)
    started: list[tuple[str, str]] = field(default_factory=list)
    attempts: dict[str, Attempt] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    looks: int = 0
    at_look: Callable[[int], None] = lambda _: None

    def workers(self) -> tuple[Worker, ...]:
        self.looks += 1
        self.at_look(self.looks)
        running = [(one.to.address, key) for key, one in self.attempts.items() if one.end is None]
        found = []
        for one in self.there:
            has = dict(key.rsplit("-", 1) for address, key in running if address == one.address)
            found.append(replace(one, tasks={**one.tasks, **has}))
        return tuple(found)

    def start(self, one: Job, to: Worker, least: int) -> tuple[int, Attempt]:
        number = self.numbers[one.name] = int(to.tasks.get(one.name, max(self.numbers.get(one.name, 0), least)))
        key = f"{one.name}-{number}"
        if one.name in to.tasks and key in self.attempts:
            self.attempts[key] = replace(self.attempts[key], cancelled=False)
            return number, self.attempts[key]
        self.started.append((one.name, to.name))
        ends = self.ends.get(one.name, [0])
        times = sum(name == one.name for name, _ in self.started)
        self.attempts[key] = Attempt(key, to, self.by_worker.get(to.name, ends[min(times, len(ends)) - 1]))
        return number, self.attempts[key]

    def end(self, attempt: Attempt, lost: str) -> ProofDocument:
        if attempt.end == REFUSED:
            return ProofDocument(did="refused", reasons=("broken",), exit_code=5)
        return ended(attempt.end) if isinstance(attempt.end, int) else no_result(lost or str(attempt.end))

    def names(self, one: Job) -> list[str]:
        return [name for started, name in self.started if started == one.name]


def ended(code: int) -> ProofDocument:
    return ProofDocument(did="failed" if code else "attached", reasons=("broken",) if code else (), exit_code=code)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LOOK_S": 0.02, "SILENT_S": 0.02, "REPEAT_S": 0.05}.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(fleet_job, "PAUSE_S", 0.0)


def run(workers: Workers, *jobs: Job, timeout_s: float = 0.2) -> tuple[Mapping[str, ProofDocument], list[str]]:
    said: list[str] = []
    return Dispatcher(workers, said.append, timeout_s).run({one.name: one for one in jobs}), said  # type: ignore[arg-type]


@pytest.mark.parametrize("code", [0, 1, 2, 4, 6, 8, 70])
def test_answer_is_not_repeated(code: int) -> None:
    """PASSED, FAILED, INCONCLUSIVE, a failed build, a mistake and a bug are answers."""
    workers = Workers([worker("w1")], {A.name: [code, 0]})
    outcomes, said = run(workers, A)
    assert workers.names(A) == ["w1"]
    assert outcomes[A.name] == ended(code)
    assert [line.removeprefix(A.title) for line in said] == [": started on w1", ": ended on w1"]


@pytest.mark.parametrize("lost", ["it died", 5, 7, 126, 127, 130, 137, -9])
def test_lost_job_is_started_four_times_at_most_and_names_its_workers(lost: int | str) -> None:
    """A lost worker, a broken host, no envbuilder there, and a killed process say nothing about an image."""
    workers = Workers([worker("w1"), worker("w2")], {A.name: [lost, lost, 1]})
    outcomes, _ = run(workers, A)
    assert outcomes[A.name] == ended(1)
    assert workers.names(A) == ["w1", "w2", "w1"], "never again on the worker that just lost it"
    workers = Workers([worker("w1"), worker("w2")], {A.name: [lost]})
    outcomes, _ = run(workers, A)
    assert workers.names(A) == ["w1", "w2", "w1", "w2"]
    assert len(workers.names(A)) == ATTEMPTS
    assert outcomes[A.name].is_lost
    why = lost if isinstance(lost, str) else "broken"
    assert outcomes[A.name].reasons == ("; ".join(f"{name}: {why}" for name in ("w1", "w2", "w1", "w2")),)


def test_job_goes_to_the_worker_that_had_it_least() -> None:
    workers = Workers([worker("w1"), worker("w2"), worker("w3")], {A.name: [5, 5, 0]})
    run(workers, A)
    assert workers.names(A) == ["w1", "w2", "w3"]


def test_job_that_kills_its_workers_names_them() -> None:
    workers = Workers([worker("w1"), worker("w2")], {A.name: [None]})

    def die(look: int) -> None:
        workers.there = [replace(worker(f"w{look // 2 % 2}"), address=f"tcp://{look // 2}")]

    workers.at_look = die
    outcomes, said = run(workers, A)
    assert sum(" lost on w" in line and line.endswith("the worker died") for line in said) == ATTEMPTS
    assert outcomes[A.name].reasons == ("; ".join(f"{name}: the worker died" for name in workers.names(A)),)


def test_only_worker_of_a_class_gets_a_lost_job_again() -> None:
    workers = Workers([worker("w1"), worker("other", "A100/550")], {A.name: [5, 0]})
    run(workers, A)
    assert workers.names(A) == ["w1", "w1"]


def test_one_worker_has_one_job_at_a_time_and_an_attempt_of_another_run_is_joined() -> None:
    """Whatever its number is: the first run may have lost some before."""
    busy = replace(worker("w1"), tasks={A.name: "2"})
    workers = Workers([busy, worker("w2")], {A.name: [0], B.name: [0]})
    _, said = run(workers, A, B)
    assert (workers.names(A), workers.names(B)) == (["w1"], ["w2"])
    assert list(workers.attempts) == [f"{A.name}-2", f"{B.name}-0"]
    assert any("joined on w1" in line for line in said)


def test_runs_give_an_attempt_the_same_key() -> None:
    """The scheduler starts a key once, even if two runs ask for it at the same moment."""
    workers = Workers([worker("w1"), worker("w2")], {A.name: [5, 5, 0]})
    run(workers, A)
    run(workers, A)
    assert list(workers.attempts) == [f"{A.name}-{number}" for number in (0, 1, 2)]


def test_run_that_was_disconnected_joins_its_job_again() -> None:
    workers = Workers([worker("w1"), worker("w2")], {A.name: [None]})

    def disconnect(look: int) -> None:
        for one in workers.attempts.values():
            if look == 3:
                one.cancelled = True
            if look == 5:
                one.end = 0

    workers.at_look = disconnect
    outcomes, said = run(workers, A)
    assert (workers.names(A), outcomes[A.name], any(" lost on" in line for line in said)) == (["w1"], ended(0), False)


def test_worker_that_refuses_a_job_gets_no_other_and_it_is_no_attempt() -> None:
    """It is named once, with the reason; with no other worker the job is given up, and the reason is its error."""
    workers = Workers([worker("bad"), worker("good")], by_worker={"bad": REFUSED, "good": 0})
    outcomes, said = run(workers, A, B)
    assert [workers.names(one)[-1] for one in (A, B)] == ["good", "good"]
    assert [line for line in said if "not used" in line] == ["bad is not used: broken"]
    assert not any(one.is_lost for one in outcomes.values())
    workers = Workers([worker("bad")], by_worker={"bad": REFUSED})
    outcomes, _ = run(workers, A)
    assert outcomes[A.name].reasons == ("no usable worker of host class any host: bad: broken in 0 s",)
    assert len(workers.names(A)) > 1, "it is tried again: it may have been repaired, or its registry be back"


def test_worker_that_was_repaired_is_used() -> None:
    workers = Workers([worker("bad")], {A.name: [REFUSED, REFUSED, 0]})
    outcomes, said = run(workers, A, timeout_s=5.0)
    assert (outcomes[A.name], any(" lost on" in line for line in said)) == (ended(0), False)
    assert said.count("bad is not used: broken") == 1


def test_class_without_a_worker_is_reported_with_those_that_are_there_and_given_up() -> None:
    outcomes, said = run(Workers([worker("w1"), worker("w2")]), GPU, A)
    text = "no worker of host class A100/550; there are: 2 of host/x86_64"
    assert f"{text}; waiting" in said
    assert outcomes[GPU.name].reasons == (f"{text} in 0 s",)
    assert not outcomes[A.name].is_lost


def test_worker_that_comes_late_gets_the_job() -> None:
    workers = Workers([])
    workers.at_look = lambda look: workers.there.append(worker("late")) if look == 3 else None
    assert not run(workers, A)[0][A.name].is_lost


def test_scheduler_that_stays_away_ends_every_job_with_the_reason() -> None:
    """It is waited for; what ended before is kept, what runs and what waits is given up."""
    workers = Workers([worker("w1"), worker("w2")], {B.name: [None], GPU.name: [0]})

    def away(look: int) -> None:
        if look > 4:
            raise InfrastructureError("the scheduler tcp://x does not answer")

    workers.at_look = away
    outcomes, said = run(workers, A, B, GPU, timeout_s=0.3)
    assert [outcomes[one.name].is_lost for one in (A, B, GPU)] == [False, True, True]
    assert {one.reasons for one in outcomes.values() if one.is_lost} == {("the scheduler tcp://x does not answer",)}
    assert any("asking again" in line for line in said)


@pytest.mark.parametrize(("status", "expected"), [("running", KeyError), ("closed", InfrastructureError)])
def test_bug_is_not_reported_as_a_scheduler_that_does_not_answer(status: str, expected: type[Exception]) -> None:
    client, engine = MagicMock(status="running"), object.__new__(DaskEngine)

    def processing() -> None:
        client.status = status  # it may be lost between two questions
        raise KeyError

    client.processing = processing
    vars(engine).update(address="tcp://x", _client=client)
    with pytest.raises(expected):
        engine.workers()


@pytest.mark.parametrize("address", ["tls://a:1", "tcp://127.0.0.1:1", "localhost:1", "tcp://[::1]:1"])
def test_address_with_tls_or_of_this_host_is_accepted(address: str) -> None:
    check_address(address, insecure=False)


@pytest.mark.parametrize("address", ["bla", "a:1", "tcp://192.0.2.1:1", "ucx://a:1", "tcp://127.0.0.1.example.org:1"])
def test_address_that_anybody_may_listen_to_is_refused_unless_on_purpose(address: str) -> None:
    with pytest.raises(UsageError, match="no TLS"):
        check_address(address, insecure=False)
    check_address(address, insecure=True)


def test_end_of_a_job_is_its_document_or_the_code_of_its_process() -> None:
    document = ProofDocument(did="attached", reasons=("no GPU",), exit_code=8)
    assert end_of(8, msgspec.json.encode(document)) == document
    killed = end_of(137, b"")
    assert (killed.did, killed.reasons, killed.is_lost) == ("failed", ("ended with exit code 137",), True)


def test_lookup_is_repeated_while_the_registry_is_away() -> None:
    calls: list[int] = []

    def lookup(error: Exception, until: int = 1000) -> str:
        calls.append(1)
        if len(calls) < until:
            raise error
        return "here"

    assert with_patience(lambda: lookup(InfrastructureError("away"), 4), lambda _: None) == "here"
    assert len(calls) == 4
    for error in (InfrastructureError("gone"), UsageError("wrong")):
        with pytest.raises(type(error)):
            with_patience(lambda: lookup(error), lambda _: None, -1.0)  # noqa: B023 - called at once
    assert len(calls) == 6


def test_jobs_name_depends_on_all_that_it_does() -> None:
    """Digest, host class, suite, machine, record and terms: the same work has the same name, whoever starts it."""
    same = job("a", "H100/535").name
    others: tuple[dict[str, object], ...] = (
        {"image": "b"},
        {"host_class": "A100/535"},
        {"host_class": "H100/550"},
        {"suite": "t"},
        {"arch": "aarch64"},
        {"record": b"r"},
        {"profile": "full"},
        {"again": True},
        {"max_age_s": 2.0},
        {"trusted": ("k",)},
    )
    names = {same, *(job(**{"image": "a", "host_class": "H100/535", **one}).name for one in others)}  # type: ignore[arg-type]
    assert len(names) == len(others) + 1
    assert all(name.replace("-", "").isalnum() and name == name.lower() and len(name) < 60 for name in names)
