"""Validate an image, or the Python of this host: run the suite and evaluate its results. The caller writes files."""

from __future__ import annotations

import os
import platform
import secrets
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Self

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.engine.port import ContainerSpec, Engine, Image
from envbuilder.environment import Environment
from envbuilder.errors import UsageError
from envbuilder.image.build import span
from envbuilder.image.names import BASE_NAME_LABEL
from envbuilder.image.system_lock import needed
from envbuilder.image.wheel_records import Pin, WheelRecords
from envbuilder.matrix import Budgets
from envbuilder.pypi.client import PackageIndex
from envbuilder.simulated.compiler import Simulation
from envbuilder.support import decoding
from envbuilder.validation import expectations as facts_of
from envbuilder.validation import known_image, suite_plan
from envbuilder.validation.additions import additions
from envbuilder.validation.background_checks import BackgroundChecks, Inspected
from envbuilder.validation.challenge import check_product, product
from envbuilder.validation.checks import Check, Profile
from envbuilder.validation.entrypoint_check import check_entrypoint
from envbuilder.validation.host_checks import run_host_checks
from envbuilder.validation.image_claims import (
    DOCUMENT,
    ENVIRONMENT_LABEL,
    carried_lock,
    contradicts_itself,
    document,
    left_out_of,
    libraries_left_out,
)
from envbuilder.validation.image_context import ImageContext
from envbuilder.validation.image_files import ImageFiles, read_image
from envbuilder.validation.image_loader import InstalledFramework, LocalPython
from envbuilder.validation.judge import Causes, budget_results, judge, mark_consequences
from envbuilder.validation.known_image import KnownImage
from envbuilder.validation.suite_launcher import PROBES, START, SUITE_S, here, in_container
from envbuilder.validation.suite_plan import Facts
from envbuilder.validation.suite_session import Progress, Session, Unfinished, check_protocol
from envbuilder.validation.system_locks import carried
from envbuilder.verdict import LEVELS, Addition, CheckResult, EngineRef, HostRef, ImageRef, Verdict, any_simulated

if TYPE_CHECKING:
    from envbuilder.image.build import Built


@dataclass(frozen=True)
class ValidationRequest:
    """What to validate and how.

    ``image`` is a tag, id or digest in the engine's store. ``environment`` is None for a foreign image: then its Python
    is queried, and ``catalog`` provides the expectations. ``lock`` and ``removed`` are the texts of its lock and of
    its list of removed files, ``system`` the locks of system packages by name. ``gpus`` is ``none``, ``all``, a list of
    indices, or ``auto`` (all that the engine can pass on). ``base`` and ``base_id`` are reference and id of its base
    image, if known. ``extra`` are checks that the table lacks (of the controls), ``probes`` their files by name.
    ``index`` is queried for the contents of locked wheels that this host does not know. ``built`` is the id of the
    image that a build on this host made of the lock ('' if none), ``context`` the key of the build's files.
    ``known`` is the record of such an image, ``pins`` are proved contents of large wheels by hash. ``fresh`` repeats
    all checks: it ignores the stored verdict and the record, as the profile ``full`` ignores the record.
    """

    image: str = ""
    environment: Environment | None = None
    catalog: Catalog | None = None
    profile: Profile = "quick"
    budgets: Budgets = field(default_factory=Budgets)
    gpus: str = "auto"
    base: str = ""
    base_id: str = ""
    lock: str = ""
    removed: str = ""
    simulate: Simulation | None = None
    extra: tuple[Check, ...] = ()
    probes: Mapping[str, bytes] = field(default_factory=dict)
    index: PackageIndex | None = None
    built: str = ""
    pins: Mapping[str, Pin] = field(default_factory=dict)
    system: Mapping[str, str] = field(default_factory=dict)
    context: str = ""
    known: KnownImage | None = None
    fresh: bool = False

    def of(self, built: Built, *, image: str = "") -> Self:
        """Return the request for a built image; ``image`` is another reference to it, such as a registry's."""
        context = known_image.key_of(built.record.context)
        return replace(
            self,
            image=image or built.record.image,
            environment=built.environment,
            base=built.record.base,
            base_id=built.record.base_id,
            lock=built.lock,
            removed=built.removed,
            built=built.record.image,
            pins=built.pins,
            system=built.system,
            context=context,
            known=known_image.parse(built.known, context),
        )


def _ignore(_: object) -> None:
    """Report nothing."""


def validate(
    engine: Engine,
    request: ValidationRequest,
    *,
    on_progress: Callable[[Progress], None] = _ignore,
    on_look: Callable[[KnownImage], None] = _ignore,
) -> Verdict:
    """Run the suite in an image's container and evaluate the results.

    ``on_look`` gets the record of an image whose files were read, if all checks of them passed.
    Raises UsageError if the image is missing or has no TensorFlow, InfrastructureError if the engine fails.
    """
    image = engine.image(request.image)
    if image is None:
        raise UsageError(f"{request.image}: no such image", hint="build it (envbuilder build) or pull it first")
    began = time.monotonic()
    spec = _container(engine, image, request)
    files = cache(lambda: read_image(engine, image))  # takes seconds: while the suite runs, if nothing needs it before
    subject = _subject(image, files, spec.gpus, request)
    inspect = partial(_inspect, engine, image, files, subject, request, on_look)
    foreign = "" if subject.environment else request.image
    session, results, added = _checked(
        (*suite_plan.select(subject.facts), *request.extra),
        subject.facts,
        on_progress,
        lambda plan, session: in_container(engine, spec, plan, session, foreign=foreign),
        lambda check, stopped: check_entrypoint(engine, image, check, stopped),
        inspect,
    )
    results += budget_results(results, request.budgets, image.size)
    info = engine.info()
    return _verdict(
        session,
        results,
        subject,
        image=ImageRef(
            id=image.id,
            digest=image.digest(request.image),
            size=image.size,
            reference=request.image,
            base=f"{request.base} {request.base_id}".strip() or image.labels.get(BASE_NAME_LABEL, ""),
        ),
        engine=EngineRef(name=info.name, version=info.version, builder=info.builder),
        times=span(began),
        added=added,
    )


def validate_here(
    catalog: Catalog,
    *,
    python: str = sys.executable,
    profile: Profile = "quick",
    budgets: Budgets | None = None,
    on_progress: Callable[[Progress], None] = _ignore,
) -> Verdict:
    """Run the suite with a Python of this host, without a container: a cluster's node, a notebook.

    Raises UsageError if that Python has no TensorFlow.
    """
    began = time.monotonic()
    installed = _identify(python)
    facts = facts_of.of_foreign(installed, catalog, None, profile=profile, simulated=False)
    local = LocalPython(installed)
    image = Image("", (), (), 0, labels={}, env=os.environ, user="", architecture=platform.machine())
    context = ImageContext(image, ImageFiles(()), facts, "", WheelRecords(None), local=local)
    session, results, _ = _checked(
        suite_plan.select(facts),
        facts,
        on_progress,
        lambda plan, session: here(python, plan, session),
        _no_start,
        lambda checks: (*run_host_checks(context, checks), ()),
    )
    results += budget_results(results, budgets or Budgets(), None)
    return _verdict(
        session,
        results,
        _Subject(None, facts),
        image=ImageRef(id="", reference="here"),
        engine=EngineRef(name="here", version=installed.python),
        times=span(began),
    )


IDENTITY = Check(
    name="identity",
    level="static",
    group="static",
    probe="identity:answer",
    proves="a Python of this host describes its TensorFlow",
    codes=(),
)
CHALLENGE = "challenge"
"""The check whose product the host computes too."""

Runner = Callable[[bytes, Session], Unfinished | None]


@dataclass(frozen=True)
class _Subject:
    """The subject of a validation: its environment if it is a managed image, and its expected contents."""

    environment: Environment | None
    facts: Facts
    lock: str = ""


def lower_image(engine: Engine, image: Image, name: str) -> Image | None:
    """Return the image of a name if its layers are exactly the lowest ones of an image; None if not, or if unknown."""
    lower = engine.image(name) if name else None
    diff_ids = [layer.diff_id for layer in lower.layers] if lower is not None else []
    return lower if diff_ids and diff_ids == [layer.diff_id for layer in image.layers[: len(diff_ids)]] else None


def _container(engine: Engine, image: Image, request: ValidationRequest) -> ContainerSpec:
    """Return the container for the suite: with the simulated host, or with this host's GPUs."""
    files = {f"{PROBES}/{name}": content for name, content in request.probes.items()}
    env: Mapping[str, str] = {}
    gpus = request.gpus
    if (host := request.simulate) is not None:
        gpus, env, files = "none", host.environment(image.env), {**host.files, **files}
    elif gpus == "auto":
        gpus = "all" if engine.info().gpu_runtime else "none"
    return ContainerSpec(image.id, START, env=env, files=files, gpus=gpus, time_limit=SUITE_S)


def _context(
    engine: Engine, image: Image, files: ImageFiles, subject: _Subject, request: ValidationRequest, below: int
) -> ImageContext:
    """Return what the checks on the host need; ``below`` is the number of layers from the base."""
    environment = request.environment  # this host's word, never the image's
    whole = lower_image(engine, image, request.built) if environment is not None else None
    own = environment.added.indexes if environment else ()
    has_no_word = environment is None or (bool(needed(environment)) and not request.system)
    is_locked = environment is not None and not (environment.on_registry_base or environment.added.template)
    return ImageContext(
        image,
        files,
        subject.facts,
        subject.lock,
        WheelRecords(request.index, pins=request.pins, own=own),
        request.removed,
        is_built_here=image.id == request.built,
        of_base=below if environment is not None and environment.on_registry_base else 0,
        lock_is_carried=environment is None,
        system=carried(files) if has_no_word else request.system,
        system_is_carried=has_no_word,
        locked_above=below if is_locked else 0,
        own_layers=len(whole.layers) if whole is not None else 0,
    )


def _inspect(
    engine: Engine,
    image: Image,
    files: Callable[[], ImageFiles],
    subject: _Subject,
    request: ValidationRequest,
    on_look: Callable[[KnownImage], None],
    checks: tuple[Check, ...],
) -> Inspected:
    """Return the results of the checks on the host: by the image's record if it equals that, else by its files."""
    base = lower_image(engine, image, request.base_id) if request.environment is not None else None
    known = request.known
    different = known_image.differences(known, image, base, checks, files) if known else ()
    if known and not (different or request.fresh or request.profile == "full"):
        return known_image.passed(known, checks), Causes(), ()
    context = _context(engine, image, files(), subject, request, len(base.layers) if base is not None else 0)
    results, causes = run_host_checks(context, checks)
    if base is not None and request.context and all(one.outcome == "passed" for one in results):
        on_look(known_image.describe(image, base, files(), results, request.context))
    hint = " (to renew it, delete image.json next to the lock and validate with --fresh)"
    results = known_image.noted(results, different, hint if image.id == request.built else "")
    return results, causes, additions(context)


def _checked(
    checks: tuple[Check, ...],
    facts: Facts,
    on_progress: Callable[[Progress], None],
    run: Runner,
    start_image: Callable[[Check, threading.Event], CheckResult],
    inspect: Callable[[tuple[Check, ...]], Inspected],
) -> tuple[Session, tuple[CheckResult, ...], tuple[Addition, ...]]:
    """Run the suite, with the checks of the host and of the users' start next to it."""
    with BackgroundChecks(
        [check for check in checks if check.group == "users"],
        start_image,
        lambda: inspect(tuple(check for check in checks if check.group == "host")),
    ) as beside:
        session, results = _run(checks, facts, beside.after(checks, on_progress), run)
        results = (*results, *beside.results())
        looked, causes, added = beside.inspected()
    return session, mark_consequences(_in_order(checks, results, looked), causes), added


def _no_start(check: Check, _: threading.Event) -> CheckResult:
    raise NotImplementedError(f"{check.name} starts an image, and there is none")


def _subject(image: Image, files: Callable[[], ImageFiles], gpus: str, request: ValidationRequest) -> _Subject:
    """Return the expectations for an image: from the host's record, else from its labels, else from its files.

    An environment document in the image counts only if its label names it; `claims` reports other contradictions.
    """
    environment, lock = request.environment, request.lock
    profile, simulated = request.profile, request.simulate is not None
    label = image.labels.get(ENVIRONMENT_LABEL, "")
    found = document(files()) if environment is None else None
    if found is not None and found.id == label and not contradicts_itself(found):
        environment, lock = found, carried_lock(files())
    if environment is not None:
        # Only this host's record of an environment may say that a base has no tools, never the image's document.
        own = facts_of.of_environment(environment, lock, profile=profile, simulated=simulated)
        own = facts_of.with_base(own, request.environment)
        by_host = request.environment is not None or request.removed
        left_out = libraries_left_out(request.removed) if by_host else left_out_of(files(), image.labels, lock)
        own = msgspec.structs.replace(own, left_out=left_out)
        return _Subject(environment, facts_of.with_gpus(own, gpus), lock)
    if request.catalog is None:
        raise ValueError("a foreign image needs a catalogue")
    installed = facts_of.installed_framework(files(), image, gpus)
    foreign = facts_of.of_foreign(installed, request.catalog, image, profile=profile, simulated=simulated)
    if label or files().file(DOCUMENT) is not None:
        foreign = facts_of.of_claimed(foreign, files(), image)
    return _Subject(None, facts_of.with_gpus(foreign, gpus), carried_lock(files()) if label else "")


def _in_order(
    checks: tuple[Check, ...], results: tuple[CheckResult, ...], looked: tuple[CheckResult, ...]
) -> tuple[CheckResult, ...]:
    """Return all results in the order of the table, those of the host's checks included."""
    made = {result.name: result for result in (*results, *looked)}
    return tuple(made[check.name] for check in checks if check.name in made)


def _identify(python: str) -> InstalledFramework:
    """Ask a Python of this host for its TensorFlow; empty if it does not answer. Raises UsageError if it has none."""
    session = Session((IDENTITY,), _ignore)
    here(python, suite_plan.plan((IDENTITY,), Facts(flavor="cpu")), session, time_limit=2 * IDENTITY.limit_s)
    data = session.data(IDENTITY.name)
    if data is None and session.results()[0].outcome == "passed":
        raise UsageError(f"{python}: this Python has no TensorFlow", hint="give --python, or install it there")
    return InstalledFramework() if data is None else decoding.converted(data, InstalledFramework)


def _run(
    checks: tuple[Check, ...], facts: Facts, on_progress: Callable[[Progress], None], run: Runner
) -> tuple[Session, tuple[CheckResult, ...]]:
    """Run the checks of the container, and check the messages of the run."""
    session = Session(checks, on_progress)
    nonce = secrets.token_hex(16)
    with ThreadPoolExecutor(1) as pool:
        expected = pool.submit(product, nonce) if any(check.name == CHALLENGE for check in checks) else None
        why = run(suite_plan.plan(checks, msgspec.structs.replace(facts, challenge=nonce)), session)
    results = session.results(why)
    if expected is not None:
        results = tuple(
            check_product(result, session.data(CHALLENGE), expected.result()) if result.name == CHALLENGE else result
            for result in results
        )
    results += tuple(check_protocol(session, why, check) for check in checks if check.group == "protocol")
    return session, tuple(sorted(results, key=lambda result: LEVELS.index(result.level)))


def _verdict(
    session: Session,
    results: tuple[CheckResult, ...],
    subject: _Subject,
    *,
    image: ImageRef,
    engine: EngineRef,
    times: tuple[str, str],
    added: tuple[Addition, ...] = (),
) -> Verdict:
    facts, driver, host = subject.facts, session.driver(), session.host
    # The simulated driver may be installed on the host itself: the UUIDs of its GPUs show it.
    simulated = facts.simulated or any_simulated(driver.seen)
    judgement = judge(results, flavor=facts.flavor, gpus=driver.count, simulated=simulated)
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
            kernel=host.kernel,
            cpus=host.cpus,
            cpu_model=host.cpu_model,
            memory=host.memory,
            persistence=driver.persistence,
        ),
        simulated=simulated,
        verdict=judgement.verdict,
        level=judgement.level,
        requires=judgement.requires,
        checks=results,
        timeline=session.timeline(),
        findings=judgement.findings,
        reasons=judgement.reasons,
        additions=added,
        started=times[0],
        finished=times[1],
    )
