"""Run a fleet's pending validations: on this host, or as jobs on the workers of a scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

import msgspec

from envbuilder.errors import EnvbuilderError, ExitCode
from envbuilder.jobs.fleet.dispatch import Dispatcher, Outcome, with_patience
from envbuilder.jobs.fleet.document import FleetDocument, FleetRow
from envbuilder.jobs.fleet.job import Job, JobEnd, JobTerms, ValidationSpec, job_of, reason_of
from envbuilder.jobs.fleet.record import required
from envbuilder.jobs.fleet.survey import FleetQuery, Lookup, is_pending, level_of, survey
from envbuilder.support import decoding
from envbuilder.verdict import Verdict
from envbuilder.workspace import Workspace


def run_here(query: FleetQuery, lookup: Lookup, attach: Callable[[FleetRow], Verdict]) -> FleetDocument:
    """Run the pending validations that fit this host, each digest once, and return the resulting state.

    ``attach`` validates a row's digest and attaches the verdict. Its error is reported on the rows of that digest.
    """
    before = survey("run", query, lookup)
    outcomes: dict[tuple[str, str], Outcome] = {}
    for row in {row.digest: row for row in before.rows if row.left and row.here}.values():
        try:
            answer: object = {"did": "attached", "reasons": attach(row).reasons}
            end = JobEnd(ExitCode.DONE, msgspec.json.encode(answer))
        except EnvbuilderError as error:
            end = JobEnd(error.exit_code, errors=f"error: {error}")
        outcomes |= {
            (one.digest, one.kind): Outcome(end) for one in before.rows if one.here and one.digest == row.digest
        }
    return _with_outcomes(survey("run", query, lookup), outcomes, {})


def run_jobs(
    dispatcher: Dispatcher,
    query: FleetQuery,
    lookup: Lookup,
    terms: JobTerms,
    workspace: Workspace,
    *,
    build_jobs: Callable[[FleetDocument], Iterable[Job]] = lambda _: (),
    local: bool = False,
) -> FleetDocument:
    """Run the pending validations, with ``local`` those for this host, as jobs and return the resulting state.

    ``build_jobs`` returns the jobs that build and publish missing images; they run first.
    """

    def state() -> FleetDocument:
        return with_patience(lambda: survey("run", query, lookup), dispatcher.say)

    before = state()
    builds = tuple(build_jobs(before))
    built = dispatcher.run(builds)
    before = state() if builds else before
    jobs = jobs_of(before, query, terms, workspace, local=local)
    ended = dispatcher.run(jobs.values())
    return _with_outcomes(
        state(),
        {place: ended[job.name] for place, job in jobs.items()},
        {job.environment: built[job.name] for job in builds},
    )


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


def is_still_pending(job: Job, query: FleetQuery, lookup: Lookup) -> bool:
    """Return True if a job's result is not in the registry; False if the tag names another digest by now."""
    if job.arguments[1] == "make":
        return lookup(job.environment, "none", [("", "")]) is None
    spec = decoding.from_json(job.spec, ValidationSpec)
    image = lookup(spec.environment, spec.level, [(spec.gpu, spec.driver)])
    if image is None or image.digest != spec.digest:
        return False
    return is_pending(image.kinds[0], query.suite, again=query.again)


def _with_outcomes(
    document: FleetDocument, proven: dict[tuple[str, str], Outcome], built: dict[str, Outcome]
) -> FleetDocument:
    """Report why jobs reached no verdict, and which digests were validated."""
    rows = []
    for row in document.rows:
        is_missing = row.state == "unpublished"
        outcome = built.get(row.environment) if is_missing else proven.get((row.digest, row.kind))
        rows.append(_with_outcome(row, outcome) if outcome is not None and (row.left or is_missing) else row)
    ran = (digest for (digest, _), one in proven.items() if one.end is not None and one.end.answer.did == "attached")
    return msgspec.structs.replace(document, rows=tuple(rows), ran=tuple(dict.fromkeys(ran)))


def _with_outcome(row: FleetRow, outcome: Outcome) -> FleetRow:
    """Report on a pending row why its job changed nothing: the reasons of a verdict, or an error."""
    end = outcome.end
    if end is not None and end.answer.did:
        return msgspec.structs.replace(row, why="; ".join((*end.answer.reasons, row.why)))
    if end is not None and end.code == ExitCode.DONE:
        return row
    error = outcome.error or (reason_of(end) if end is not None else "nothing is known about its end")
    code = end.code if end is not None and end.code in set(ExitCode) else ExitCode.INFRASTRUCTURE
    return msgspec.structs.replace(row, error=error, exit_code=code)
