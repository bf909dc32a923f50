"""Run a fleet's pending validations: on this host, or as jobs that are repeated only if their worker was lost."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from queue import SimpleQueue
from typing import TypeVar

import msgspec

from envbuilder.errors import EnvbuilderError, ExitCode, InfrastructureError
from envbuilder.jobs.fleet.document import FleetDocument, FleetRow
from envbuilder.jobs.fleet.job import Job, JobEnd, JobTerms, LostJobError, ValidationSpec, is_lost, job_of
from envbuilder.jobs.fleet.record import required
from envbuilder.jobs.fleet.survey import FleetQuery, Lookup, is_pending, level_of, survey
from envbuilder.support import decoding
from envbuilder.workspace import Workspace

ATTEMPTS = 4
"""How often a job is started if its workers are lost: a fifth host is unlikely to do better."""

PATIENCE_S, PAUSE_S = 180.0, 2.0
"""How long a registry may be away before a lookup fails, and the pause between two lookups."""

_Answer = TypeVar("_Answer")
Submit = Callable[[Job], Future[JobEnd]]
"""Starts a job, or joins the same job if it runs already. The future raises LostJobError if the worker was lost."""


@dataclass(frozen=True)
class Outcome:
    """End of a job after its last attempt; ``end`` is None if nothing is known about it, ``error`` says why."""

    end: JobEnd | None
    error: str = ""
    attempts: int = 1

    @property
    def is_lost(self) -> bool:
        return self.end is None or is_lost(self.end.code)


def run_here(query: FleetQuery, lookup: Lookup, attach: Callable[[FleetRow], object]) -> FleetDocument:
    """Run the pending validations that fit this host, each digest once, and return the resulting state.

    ``attach`` validates a row's digest and attaches the verdict. Its error is reported on the rows of that digest.
    """
    before = survey("run", query, lookup)
    outcomes: dict[str, Outcome] = {}
    for digest, row in {row.digest: row for row in before.rows if row.left and row.here}.items():
        try:
            attach(row)
            outcomes[digest] = Outcome(JobEnd(ExitCode.DONE))
        except EnvbuilderError as error:
            outcomes[digest] = Outcome(JobEnd(error.exit_code, str(error)))
    after = survey("run", query, lookup)
    rows = tuple(_with_outcome(row, outcomes.get(row.digest)) if row.here else row for row in after.rows)
    ran = tuple(name for name, one in outcomes.items() if one.end is not None and one.end.code == ExitCode.DONE)
    return msgspec.structs.replace(after, rows=rows, ran=ran)


def run_jobs(
    submit: Submit,
    query: FleetQuery,
    lookup: Lookup,
    terms: JobTerms,
    workspace: Workspace,
    *,
    say: Callable[[str], None] = lambda _: None,
    build_jobs: Callable[[FleetDocument], Iterable[Job]] = lambda _: (),
    local: bool = False,
) -> FleetDocument:
    """Run the pending validations, with ``local`` those for this host, as jobs and return the resulting state.

    ``build_jobs`` returns the jobs that build and publish missing images; they run first.
    """

    def state() -> FleetDocument:
        return with_patience(lambda: survey("run", query, lookup), say)

    before = state()
    builds = {job.environment: job for job in build_jobs(before)}
    built = run_all(builds.values(), submit, is_pending=lambda job: not _is_published(job, lookup), say=say)
    before = state() if builds else before
    jobs = jobs_of(before, query, terms, workspace, local=local)
    outcomes = run_all(jobs.values(), submit, is_pending=lambda job: _is_pending(job, query, lookup), say=say)
    after = state()
    by_row = {place: outcomes[job.name] for place, job in jobs.items()}
    failed_builds = {name: built[job.name] for name, job in builds.items()}
    rows = tuple(
        _with_outcome(
            row,
            failed_builds.get(row.environment) if row.state == "unpublished" else by_row.get((row.digest, row.kind)),
        )
        for row in after.rows
    )
    ran = dict.fromkeys(digest for (digest, _), job in jobs.items() if not outcomes[job.name].is_lost)
    return msgspec.structs.replace(after, rows=rows, ran=tuple(ran))


def jobs_of(
    document: FleetDocument, query: FleetQuery, terms: JobTerms, workspace: Workspace, *, local: bool = False
) -> dict[tuple[str, str], Job]:
    """Return the job of each pending validation, by digest and host class; with ``local`` only those for this host.

    The records of the environments are those of the workspace. Raises UsageError if it lacks one that is necessary.
    """
    environments = {environment.id: environment for environment in query.choice.environments}
    record = cache(lambda name: required(environments[name], workspace))
    jobs = {}
    for row in document.rows:
        if not row.left or (local and not row.here):
            continue
        environment = environments[row.environment]
        spec = ValidationSpec(
            repository=query.repository,
            digest=row.digest,
            environment=row.environment,
            level=level_of(environment),
            arch=environment.arch,
            gpu=row.gpu,
            driver=row.driver,
            suite=query.suite,
            record=record(row.environment),
            **msgspec.structs.asdict(terms),
        )
        hosts = (host for host in query.fleet if host.name in row.hosts)
        jobs[row.digest, row.kind] = job_of(spec, environment.arch, hosts)
    return jobs


def run_all(
    jobs: Iterable[Job],
    submit: Submit,
    *,
    is_pending: Callable[[Job], bool],
    say: Callable[[str], None] = lambda _: None,
) -> Mapping[str, Outcome]:
    """Run every job and return the outcomes by job name; jobs with the same name are one job.

    A lost job is started again, unless ``is_pending`` says that it attached its verdict before it was lost.
    """
    by_name = {job.name: job for job in jobs}
    started: Counter[str] = Counter()
    outcomes: dict[str, Outcome] = {}
    done: SimpleQueue[tuple[Job, Future[JobEnd]]] = SimpleQueue()

    def start(job: Job) -> None:
        started[job.name] += 1
        submit(job).add_done_callback(lambda future: done.put((job, future)))

    for job in by_name.values():
        start(job)
    while len(outcomes) < len(by_name):
        job, future = done.get()
        outcome = _outcome(future, started[job.name])
        if outcome.is_lost and outcome.attempts < ATTEMPTS and _is_known_pending(job, is_pending, say):
            say(f"{job.name} on {job.host_class} was lost ({outcome.error}); starting it again")
            start(job)
        else:
            outcomes[job.name] = outcome
    return outcomes


def _outcome(future: Future[JobEnd], attempts: int) -> Outcome:
    try:
        end = future.result()
    except LostJobError as error:
        return Outcome(None, error.message, attempts)
    return Outcome(end, end.output if is_lost(end.code) else "", attempts)


def _is_known_pending(job: Job, is_pending: Callable[[Job], bool], say: Callable[[str], None]) -> bool:
    """Return False if the registry does not answer: the job might be done already."""
    try:
        return with_patience(lambda: is_pending(job), say)
    except EnvbuilderError as error:
        say(f"{job.name}: cannot find out whether it is pending: {error.message}")
        return False


def with_patience(
    lookup: Callable[[], _Answer], say: Callable[[str], None], *, patience_s: float = PATIENCE_S
) -> _Answer:
    """Repeat a lookup for ``patience_s`` seconds while the registry does not answer.

    Raises the last InfrastructureError after that, and any other error at once.
    """
    until = time.monotonic() + patience_s
    while True:
        try:
            return lookup()
        except InfrastructureError as error:
            if time.monotonic() + PAUSE_S > until:
                raise
            say(f"{error.message}; asking again")
        time.sleep(PAUSE_S)


def _is_published(job: Job, lookup: Lookup) -> bool:
    return lookup(job.environment, "none", [("", "")]) is not None


def _is_pending(job: Job, query: FleetQuery, lookup: Lookup) -> bool:
    """Return True if a validation is still pending; False if the tag names another digest by now."""
    spec = decoding.from_json(job.spec, ValidationSpec)
    image = lookup(spec.environment, spec.level, [(spec.gpu, spec.driver)])
    if image is None or image.digest != spec.digest:
        return False
    return is_pending(image.kinds[0], query.suite, again=query.again)


def _with_outcome(row: FleetRow, outcome: Outcome | None) -> FleetRow:
    """Report on a row without a verdict why its job reached none."""
    waits = row.left or row.state == "unpublished"
    if outcome is None or not waits or (outcome.end is not None and outcome.end.code == ExitCode.DONE):
        return row
    end = outcome.end
    error = outcome.error or (end.output if end else "") or f"ended with exit code {end.code if end else '?'}"
    code = end.code if end is not None and end.code in set(ExitCode) else ExitCode.INFRASTRUCTURE
    return msgspec.structs.replace(row, error=error, exit_code=code)
