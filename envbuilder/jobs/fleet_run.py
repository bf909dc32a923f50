"""Do what is left of a fleet's proofs: on this host, or on hosts that an executor reaches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import msgspec

from envbuilder.compat.fleet import simulated_host
from envbuilder.errors import EnvbuilderError, ExitCode
from envbuilder.jobs.fan_out import Came, fan_out, patiently
from envbuilder.jobs.fleet_document import FleetDocument, ProofRow
from envbuilder.jobs.fleet_make import order_of
from envbuilder.jobs.fleet_proofs import Ask, Survey, is_left, level_of, survey
from envbuilder.jobs.fleet_task import Ended, Executor, ProofOrder, Task, is_lost, proof_task
from envbuilder.jobs.local_executor import LocalExecutor
from envbuilder.support import decoding


@dataclass(frozen=True)
class ProofTerms:
    """What every proof of a run is done by: whom to believe, how old a PASSED may be (seconds), and how to validate.

    ``trusted`` are public keys (PEM). ``rehearse`` plays each kind's driver by a simulated one.
    """

    max_age_s: float
    trusted: tuple[str, ...] = ()
    identity: str = ""
    issuer: str = ""
    profile: str = "quick"
    gpus: str = "auto"
    rehearse: bool = False


def run_here(what: Survey, ask: Ask, attach: Callable[[str], object]) -> FleetDocument:
    """Run what is left and fits this host, each digest once, and say how all stands then.

    ``attach`` validates a digest and attaches the verdict. What cannot be run is its rows' error; the others go on.
    """

    def do(task: Task) -> Ended:
        try:
            attach(task.name)
        except EnvbuilderError as error:
            return Ended(error.exit_code, str(error))
        return Ended(ExitCode.DONE)

    before = survey("run", what, ask)
    digests = dict.fromkeys(row.digest for row in before.rows if row.left and row.here)
    tasks = [Task(digest, (), b"", "", "", what.arch) for digest in digests]
    came = fan_out(tasks, LocalExecutor(do), is_left=lambda _: True, attempts=1)
    after = survey("run", what, ask)
    rows = tuple(_with_end(row, came.get(row.digest)) if row.here else row for row in after.rows)
    ran = tuple(name for name, one in came.items() if one.ended is not None and one.ended.code == ExitCode.DONE)
    return msgspec.structs.replace(after, rows=rows, ran=ran)


def run_on(
    executor: Executor,
    what: Survey,
    ask: Ask,
    terms: ProofTerms,
    *,
    say: Callable[[str], None] = lambda _: None,
    make: Callable[[FleetDocument], Iterable[Task]] = lambda _: (),
) -> FleetDocument:
    """Run what is left wherever the executor finds a host of the kind, and say how all stands then.

    ``make`` gives the tasks that build and publish what the repository lacks: they come first. A registry that is away
    for a minute is waited for; a task whose worker was lost is begun again, if still left.
    """

    def look() -> FleetDocument:
        return patiently(lambda: survey("run", what, ask), say)

    before = look()
    with executor:
        making = {order_of(task).environment: task for task in make(before)}
        made = fan_out(making.values(), executor, is_left=lambda task: not _is_there(task, ask), say=say)
        before = look() if making else before
        tasks = dict(tasks_of(before, what, terms))
        came = fan_out(tasks.values(), executor, is_left=lambda task: _is_left(task, what, ask), say=say)
    after = look()
    ends = {place: came[task.name] for place, task in tasks.items()}
    lacking = {name: made[task.name] for name, task in making.items()}
    rows = tuple(
        _with_end(row, lacking.get(row.environment) if row.state == "unpublished" else ends.get((row.digest, row.kind)))
        for row in after.rows
    )
    ran = [task.name for task in tasks.values() if (end := came[task.name].ended) and not is_lost(end.code)]
    digests = dict.fromkeys(digest for (digest, _), task in tasks.items() if task.name in ran)
    return msgspec.structs.replace(after, rows=rows, ran=tuple(digests))


def _is_there(task: Task, ask: Ask) -> bool:
    """Tell whether an image is in the repository by now."""
    return ask(order_of(task).environment, "none", [("", "")]) is not None


def tasks_of(document: FleetDocument, what: Survey, terms: ProofTerms) -> Iterator[tuple[tuple[str, str], Task]]:
    """Make a task of each proof that is left, by its digest and kind."""
    environments = {environment.id: environment for environment in what.choice.environments}
    for row in document.rows:
        simulate = simulated_host(row.gpu, row.driver, what.choice.catalog) if terms.rehearse and row.gpu else ""
        if not row.left or (simulate and row.rehearsed):
            continue
        environment = environments[row.environment]
        order = ProofOrder(
            repository=what.repository,
            digest=row.digest,
            environment=row.environment,
            level=level_of(environment),
            arch=environment.arch,
            gpu=row.gpu,
            driver=row.driver,
            suite=what.suite,
            profile=terms.profile,
            gpus=terms.gpus,
            simulate=simulate,
            again=what.again,
            max_age_s=terms.max_age_s,
            trusted=terms.trusted,
            identity=terms.identity,
            issuer=terms.issuer,
        )
        yield (row.digest, row.kind), proof_task(order, (host for host in what.fleet if host.name in row.hosts))


def _is_left(task: Task, what: Survey, ask: Ask) -> bool:
    """Tell whether a proof is still left: it may have been attached before its worker was lost."""
    order = decoding.from_json(task.order, ProofOrder)
    found = ask(order.environment, order.level, [(order.gpu, order.driver)])
    if found is None or found.digest != order.digest:
        return False  # the tag has moved on: a later run asks for what it names now
    stands = found.kinds[0]
    return is_left(stands, what.suite, again=what.again) and not (order.simulate and what.suite in stands.rehearsed)


def _with_end(row: ProofRow, came: Came | None) -> ProofRow:
    """Say on a row that is still left what kept its run from a verdict."""
    waits = row.left or row.state == "unpublished"
    if came is None or not waits or (came.ended is not None and came.ended.code == ExitCode.DONE):
        return row
    ended = came.ended
    if ended is not None and row.rehearsed and not is_lost(ended.code):
        return row
    error = came.error or (ended.said if ended else "") or f"ended with exit code {ended.code if ended else '?'}"
    code = ended.code if ended is not None and ended.code in set(ExitCode) else ExitCode.INFRASTRUCTURE
    return msgspec.structs.replace(row, error=error, exit_code=code)
