"""The stage: from an image (or the environment at hand) to a verdict. Returns values; the caller writes files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from envbuilder.catalog.model import Catalog
from envbuilder.engine.port import Engine, Image
from envbuilder.environment import Environment
from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.image.names import BASE_NAME_LABEL
from envbuilder.image.wheel_records import WheelRecords
from envbuilder.matrix import Budgets
from envbuilder.pypi.package_index import PackageIndex
from envbuilder.simulated.compiler import Simulation
from envbuilder.validation import expectations as facts_of
from envbuilder.validation.checks import suite_plan
from envbuilder.validation.checks.specification import Check, Profile
from envbuilder.validation.checks.suite_plan import Facts
from envbuilder.validation.events import Identity, Progress, Session
from envbuilder.validation.host_checks import check_outside
from envbuilder.validation.image_claims import DOCUMENT, ENVIRONMENT_LABEL, brings_cuda, carried_lock, document
from envbuilder.validation.image_files import ImageFiles, read_image
from envbuilder.validation.judge import budget_results, judge
from envbuilder.validation.launcher import PROBES, Place, here, in_container
from envbuilder.validation.outside import Outside
from envbuilder.verdict import CheckResult, EngineRef, HostRef, ImageRef, Verdict

if TYPE_CHECKING:
    from envbuilder.image.build import Built


@dataclass(frozen=True)
class ValidationRequest:
    """What to validate and how.

    ``image`` is a tag, id or digest in the engine's store. ``environment`` is None for an image of others: what it
    holds is then asked of it, and ``catalog`` says what that should come to. ``lock`` is the text of the lock that it
    was made from. ``gpus`` is ``none``, ``all``, a list of indices, or ``auto``: those that the engine can hand over.
    ``base`` and ``base_id`` are the reference and the image id of what it was built on, where that is known. ``extra``
    are checks beside the table's (the suite's own controls), ``probes`` the files that those need beside the suite's,
    by name. ``index`` is asked what the locked wheels hold, where that is not known on this host yet.
    """

    image: str
    environment: Environment | None = None
    catalog: Catalog | None = None
    profile: Profile = "quick"
    budgets: Budgets = field(default_factory=Budgets)
    gpus: str = "auto"
    base: str = ""
    base_id: str = ""
    lock: str = ""
    simulate: Simulation | None = None
    extra: tuple[Check, ...] = ()
    probes: Mapping[str, bytes] = field(default_factory=dict)
    index: PackageIndex | None = None

    @classmethod
    def of(  # noqa: PLR0913 - how to validate, each from the command's own options
        cls,
        built: Built,
        *,
        image: str = "",
        profile: Profile = "quick",
        budgets: Budgets | None = None,
        gpus: str = "auto",
        simulate: Simulation | None = None,
        index: PackageIndex | None = None,
    ) -> Self:
        """Ask for the validation of a built image; ``image`` is another reference to it, such as a registry's."""
        return cls(
            image=image or built.record.image,
            environment=built.environment,
            profile=profile,
            budgets=budgets or Budgets(),
            gpus=gpus,
            base=built.record.base,
            base_id=built.record.base_id,
            lock=built.lock,
            simulate=simulate,
            index=index,
        )


def now() -> str:
    """Return the time in UTC to the second, as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _ignore(_: Progress) -> None:
    """Follow nothing."""


def validate(
    engine: Engine,
    request: ValidationRequest,
    *,
    on_progress: Callable[[Progress], None] = _ignore,
    clock: Callable[[], str] = now,
) -> Verdict:
    """Run the suite in an image's container and judge the results.

    Raises UsageError for an image that is not there or has no TensorFlow, InfrastructureError where the engine fails.
    """
    image = engine.image(request.image)
    if image is None:
        raise UsageError(f"{request.image}: no such image", hint="build it (envbuilder build) or pull it first")
    started = clock()
    place = _place(engine, image, request)
    files = read_image(engine, image)
    subject = _subject(engine, place, image, files, request)
    selected = suite_plan.select(subject.facts)
    checks = (*(check for check in selected if check.group != "host"), *request.extra)
    session, results = _run(
        checks, subject.facts, on_progress, lambda plan, take: in_container(engine, place, plan, take)
    )
    outside = Outside(image, files, subject.facts, subject.lock, WheelRecords(request.index))
    looked = {check.name: check_outside(outside, check) for check in selected if check.group == "host"}
    results = _in_order(selected, results, looked)
    results += budget_results(results, request.budgets, image.size)
    info = engine.info()
    return _verdict(
        session,
        results,
        subject,
        image=ImageRef(
            id=image.id,
            digest=_digest(image, request.image),
            size=image.size,
            reference=request.image,
            base=f"{request.base} {request.base_id}".strip() or image.labels.get(BASE_NAME_LABEL, ""),
        ),
        engine=EngineRef(name=info.name, version=info.version, builder=info.builder),
        times=(started, clock()),
    )


def validate_here(  # noqa: PLR0913 - what is there, how to judge it, whom to tell
    catalog: Catalog,
    *,
    python: str = sys.executable,
    profile: Profile = "quick",
    budgets: Budgets | None = None,
    on_progress: Callable[[Progress], None] = _ignore,
    clock: Callable[[], str] = now,
) -> Verdict:
    """Run the suite in the environment at hand, with no container: a cluster's node, a notebook.

    Raises UsageError where that Python has no TensorFlow.
    """
    started = clock()
    identity = _identify(lambda plan, take: here(python, plan, take), python)
    subject = facts_of.of_foreign(identity, catalog, None, profile=profile, simulated=False)
    checks = suite_plan.select(subject)
    session, results = _run(checks, subject, on_progress, lambda plan, take: here(python, plan, take))
    results += budget_results(results, budgets or Budgets(), None)
    return _verdict(
        session,
        results,
        _Subject(None, subject),
        image=ImageRef(id="", reference="here"),
        engine=EngineRef(name="here", version=identity.python),
        times=(started, clock()),
    )


Runner = Callable[[bytes, Callable[[bytes], None]], str]


@dataclass(frozen=True)
class _Subject:
    """What is validated: its environment where it is one of ours, and what it should hold."""

    environment: Environment | None
    facts: Facts
    lock: str = ""


def _place(engine: Engine, image: Image, request: ValidationRequest) -> Place:
    probes = {f"{PROBES}/{name}": content for name, content in request.probes.items()}
    if (host := request.simulate) is not None:
        return Place(image.id, gpus="none", env=host.environment(image.env), files={**host.files, **probes})
    gpus = request.gpus
    if gpus == "auto":
        gpus = "all" if engine.info().gpu_runtime else "none"
    return Place(image.id, gpus=gpus, files=probes)


def _subject(engine: Engine, place: Place, image: Image, files: ImageFiles, request: ValidationRequest) -> _Subject:
    """Say what the image is to be judged as: the host's word, then the labels that the engine reports, then its files.

    An environment document in the image counts only where the label names it; what else disagrees, `claims` finds.
    """
    environment, lock = request.environment, request.lock
    profile, simulated = request.profile, request.simulate is not None
    label = image.labels.get(ENVIRONMENT_LABEL, "")
    if environment is None and (found := document(files)) is not None and found.id == label:
        environment, lock = found, carried_lock(files)
    if environment is not None:
        own = facts_of.of_environment(environment, lock, image, profile=profile, simulated=simulated)
        return _Subject(environment, facts_of.with_gpus(own, place.gpus), lock)
    identity = _identify(lambda plan, take: in_container(engine, place, plan, take), request.image)
    if request.catalog is None:
        raise ValueError("an image of others is judged by the catalogue: give one")
    foreign = facts_of.of_foreign(
        identity, request.catalog, image, profile=profile, simulated=simulated, for_gpus=brings_cuda(files)
    )
    if label or files.file(DOCUMENT) is not None:
        foreign = facts_of.of_claimed(foreign, files, image)
    return _Subject(None, facts_of.with_gpus(foreign, place.gpus), carried_lock(files) if label else "")


def _in_order(
    selected: tuple[Check, ...], results: tuple[CheckResult, ...], looked: Mapping[str, CheckResult]
) -> tuple[CheckResult, ...]:
    """Put what was looked at from outside where the table has it."""
    ran = {result.name: result for result in results}
    named = [check.name for check in selected]
    table = tuple(looked.get(name) or ran[name] for name in named if name in looked or name in ran)
    return (*table, *(result for result in results if result.name not in named))


def _identify(run: Runner, subject: str) -> Identity:
    session = Session((), _ignore)
    why = run(suite_plan.plan((), Facts(flavor="cpu")), session.feed)
    if session.identity is None:
        raise InfrastructureError(f"{subject}: cannot be asked what it holds: {why}", hint="see the engine's log")
    if session.identity.tensorflow is None:
        raise UsageError(f"{subject}: this Python has no TensorFlow", hint="give --python, or install it there")
    return session.identity


def _run(
    checks: tuple[Check, ...], facts: Facts, on_progress: Callable[[Progress], None], run: Runner
) -> tuple[Session, tuple[CheckResult, ...]]:
    session = Session(checks, on_progress)
    why = run(suite_plan.plan(checks, facts), session.feed)
    if not session.identity:
        raise InfrastructureError(
            f"the probes did not start: {why or 'no output'}", hint="see the engine's log; nothing was judged"
        )
    return session, session.results(why or "not run: the runner gave no answer for it")


def _verdict(  # noqa: PLR0913 - one document, from its parts
    session: Session,
    results: tuple[CheckResult, ...],
    subject: _Subject,
    *,
    image: ImageRef,
    engine: EngineRef,
    times: tuple[str, str],
) -> Verdict:
    facts, driver = subject.facts, session.driver()
    judgement = judge(results, flavor=facts.flavor, gpus=driver.count, simulated=facts.simulated)
    identity = session.identity
    return Verdict(
        environment=subject.environment,
        image=image,
        lock=facts.lock,
        suite=suite_plan.digest(),
        profile=facts.profile,
        engine=engine,
        host=HostRef(
            driver=driver.driver,
            gpus=driver.seen,
            kernel=identity.kernel if identity else "",
            cpus=identity.cpus if identity else 0,
            cpu_model=identity.cpu_model if identity else "",
            memory=identity.memory if identity else 0,
            persistence=driver.persistence,
        ),
        simulated=facts.simulated,
        verdict=judgement.verdict,
        level=judgement.level,
        requires=judgement.requires,
        checks=results,
        timeline=session.timeline(),
        findings=judgement.findings,
        reasons=judgement.reasons,
        started=times[0],
        finished=times[1],
    )


def _digest(image: Image, name: str) -> str | None:
    pinned = image.pinned(name)
    return pinned.rpartition("@")[2] if pinned else None
