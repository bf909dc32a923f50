"""Validate an image, or the Python of this host: run the suite and evaluate its results. The caller writes files."""

from __future__ import annotations

import os
import platform
import posixpath
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Literal, Self

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.engine.port import FILES_AT, ContainerSpec, Engine, Image
from envbuilder.environment import Additions, Environment
from envbuilder.errors import UsageError
from envbuilder.finding import Severity
from envbuilder.image.names import BASE_NAME_LABEL, ENVIRONMENT_LABEL
from envbuilder.image.wheel_records import Pin, WheelRecords
from envbuilder.matrix import Budgets
from envbuilder.pypi.client import PackageIndex
from envbuilder.simulated import compiler, profile
from envbuilder.support import decoding
from envbuilder.validation import image_claims, image_loader, known_image, suite_plan, suite_session
from envbuilder.validation.entrypoint_check import check_entrypoint
from envbuilder.validation.image_context import CheckOutput, ImageContext, found
from envbuilder.validation.image_files import ImageFiles, read_image
from envbuilder.validation.image_loader import ImagePython, InstalledFramework, LocalPython, distributions, site_of
from envbuilder.validation.judge import budget_results, judge, mark_consequences
from envbuilder.validation.known_image import KnownImage
from envbuilder.validation.suite_plan import Check, Facts, Profile
from envbuilder.validation.suite_session import PROBES, START, SUITE_S, Progress, Session, Unfinished
from envbuilder.verdict import Addition, CheckResult, EngineRef, ImageRef, Verdict, any_simulated, span

if TYPE_CHECKING:
    from envbuilder.image.build import Built

# A check in which a Python of this host describes its TensorFlow.
IDENTITY = Check(name="identity", level="static", group="static", probe="build_info:identity", proves="", codes=())
# The checks that find defects of files, variables, packages and stubs; errors of other checks may follow from these.
_CAUSES = ("files", "binaries", "configuration", "no-stub", "packages", "locked", "symbol-versions")
Inspected = tuple[tuple[CheckResult, ...], CheckOutput, tuple[Addition, ...]]

_Owner = tuple[Literal["package", "system package", "files"], str, str]
_FEW = 3  # So many files of a folder are listed by name


@dataclass(frozen=True)
class ValidationRequest:
    """What to validate, by this host's word, and how.

    ``image`` is a tag, id or digest in the engine's store. ``environment`` is None for a foreign image: then
    ``catalog`` provides the expectations. ``lock`` and ``removed`` are the texts of its lock and of its list of removed
    files (``list_of``: of another environment), ``system`` the locks of system packages by name, ``base`` and
    ``base_id`` reference and id of its base image, ``base_layers`` that image's diff ids if this host may lack it.
    ``built`` is the id of the image that this host built of the lock, or of the environment's image below another;
    ``context`` the key of the build's files, ``known`` the record of such an image, ``authorities`` the certificates
    of the matrix. ``pins`` are proved contents of large wheels by hash; ``index`` is queried for others. ``gpus`` is
    ``none``, ``all``, a list of indices, or ``auto`` (all that the engine can pass on). ``extra`` are checks of the
    controls, ``probes`` their files by name. ``fresh`` ignores the stored verdict and the record.
    """

    image: str = ""
    environment: Environment | None = None
    catalog: Catalog | None = None
    profile: Profile = "quick"
    budgets: Budgets = field(default_factory=Budgets)
    gpus: str = "auto"
    base: str = ""
    base_id: str = ""
    base_layers: tuple[str, ...] = ()
    lock: str = ""
    removed: str = ""
    list_of: Callable[[str], str] = lambda _: ""
    simulate: compiler.Simulation | None = None
    extra: tuple[Check, ...] = ()
    probes: Mapping[str, bytes] = field(default_factory=dict)
    index: PackageIndex | None = None
    built: str = ""
    pins: Mapping[str, Pin] = field(default_factory=dict)
    system: Mapping[str, str] = field(default_factory=dict)
    context: str = ""
    known: KnownImage | None = None
    authorities: frozenset[bytes] = frozenset()
    fresh: bool = False

    def of(self, built: Built, *, image: str = "") -> Self:
        """Return the request for a built image; ``image`` is another reference to it, such as a registry's."""
        record, context = built.record, known_image.key_of(built.record.context)
        known = known_image.parse(built.known, context)
        request = replace(self, image=image or record.image, base=record.base, base_id=record.base_id)
        names = ("environment", "lock", "removed", "pins", "system", "authorities")
        same = {name: getattr(built, name) for name in names}
        return replace(request, built=record.image, context=context, known=known, **same)


def validate(
    engine: Engine,
    request: ValidationRequest,
    *,
    on_progress: Callable[[Progress], None] = lambda _: None,
    on_look: Callable[[KnownImage], None] = lambda _: None,
) -> Verdict:
    """Run the suite in an image's container; ``on_look`` gets the record of one whose files passed all checks.

    Raises UsageError if the image is missing or has no TensorFlow, InfrastructureError if the engine fails.
    """
    began = time.monotonic()
    image, info = engine.image(request.image), engine.info()
    if image is None:
        raise UsageError(f"{request.image}: no such image", hint="build it (envbuilder build) or pull it first")
    target = _Target(engine, image, request, has_gpus=info.gpu_runtime)
    foreign = "" if target.environment or target.facts.tensorflow else request.image  # its files say that it has one
    reference = ImageRef(
        id=image.id,
        digest=image.digest(request.image),
        size=image.size,
        reference=request.image,
        base=f"{request.base} {request.base_id}".strip() or image.labels.get(BASE_NAME_LABEL, ""),
    )
    run = _Run(
        target.facts,
        (*suite_plan.select(target.facts), *request.extra),
        lambda plan, session: suite_session.in_container(engine, target.spec, plan, session, foreign=foreign),
        partial(check_entrypoint, engine, image),
        partial(target.inspect, on_look),
        on_progress,
    )
    used = EngineRef(name=info.name, version=info.version, builder=info.builder)
    return run.verdict(target.environment, reference, used, request.budgets, began)


def validate_here(
    catalog: Catalog, python: str, profile: Profile = "quick", on_progress: Callable[[Progress], None] = lambda _: None
) -> Verdict:
    """Run the suite with a Python of this host, without a container. Raises UsageError if it has no TensorFlow."""
    began = time.monotonic()
    installed = _identify(python)
    facts = msgspec.structs.replace(image_claims.of_foreign(installed, catalog), profile=profile)
    local = LocalPython(installed)
    image = Image("", (), (), 0, labels={}, env=os.environ, user="", architecture=platform.machine())
    context = ImageContext(image, ImageFiles(()), facts, "", WheelRecords(None), local=local)
    run = _Run(
        facts,
        suite_plan.select(facts),
        partial(suite_session.here, python),
        lambda check, _: check.result("skipped", "there is no image"),
        lambda checks: (*run_host_checks(context, checks), ()),
        on_progress,
    )
    used = EngineRef(name="here", version=installed.python)
    return run.verdict(None, ImageRef(id="", reference="here"), used, Budgets(), began)


def _identify(python: str) -> InstalledFramework:
    """Ask a Python of this host for its TensorFlow; empty if it does not answer. Raises UsageError if it has none."""
    session = Session((IDENTITY,), lambda _: None)
    order = suite_plan.plan((IDENTITY,), Facts(flavor="cpu"))
    suite_session.here(python, order, session, time_limit=2 * IDENTITY.limit_s)
    data = session.data(IDENTITY.name)
    if data is None and session.results()[0].outcome == "passed":
        raise UsageError(f"{python}: this Python has no TensorFlow", hint="give --python, or install it there")
    return decoding.converted({} if data is None else data, InstalledFramework)


@dataclass
class _Run:
    """One run: ``suite`` in the container; ``start_image`` and ``inspect`` next to it after its last timed check."""

    facts: Facts
    checks: tuple[Check, ...]
    suite: Callable[[bytes, Session], Unfinished | None]
    start_image: Callable[[Check, threading.Event], CheckResult]
    inspect: Callable[[tuple[Check, ...]], Inspected]
    on_progress: Callable[[Progress], None]
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2))
    stopped: threading.Event = field(default_factory=threading.Event)
    futures: tuple[Future[list[CheckResult]], Future[Inspected]] | None = None

    @cached_property
    def session(self) -> Session:
        return Session(self.checks, self._follow)

    def verdict(
        self, environment: Environment | None, image: ImageRef, engine: EngineRef, budgets: Budgets, began: float
    ) -> Verdict:
        session, nonce = self.session, secrets.token_hex(16)
        facts = msgspec.structs.replace(self.facts, challenge=nonce)
        with self.pool:
            try:
                why = self.suite(suite_plan.plan(self.checks, facts), session)
                checks = (check for check in self.checks if check.group == "protocol")
                results = [suite_session.check_protocol(session, why, check) for check in checks]
                own = session.results(why)
                results += (suite_session.check_product(one, session.data(one.name), nonce) for one in own)
                starts, inspected = self._begun()
                results += starts.result()
                looked, causes, added = inspected.result()
            finally:
                self.stopped.set()
        by_name = {result.name: result for result in (*results, *looked)}
        ordered = mark_consequences((by_name[one.name] for one in self.checks if one.name in by_name), causes)
        every = (*ordered, *budget_results(ordered, budgets, image.size))
        host = session.driver.on(session.host)
        # The simulated driver may be installed on the host itself: the UUIDs of its GPUs show it.
        simulated = self.facts.simulated or any_simulated(host.gpus)
        judgement = judge(every, flavor=self.facts.flavor, gpus=session.driver.count, simulated=simulated)
        started, finished = span(began)
        return Verdict(
            environment=environment,
            image=image,
            lock=self.facts.lock,
            suite=suite_plan.digest(),
            profile=self.facts.profile,
            engine=engine,
            host=host,
            simulated=simulated,
            checks=every,
            timeline=session.timeline(),
            additions=added,
            started=started,
            finished=finished,
            **msgspec.structs.asdict(judgement),
        )

    def _follow(self, progress: Progress) -> None:
        self.on_progress(progress)
        ended = self.session.outcomes()
        if progress.kind == "ended" and all(check.name in ended for check in self.checks if check.quiet):
            self._begun()

    def _begun(self) -> tuple[Future[list[CheckResult]], Future[Inspected]]:
        if self.futures is None:
            users, host = (tuple(one for one in self.checks if one.group == name) for name in ("users", "host"))
            inspected = self.pool.submit(self.inspect, host)
            self.futures = self.pool.submit(lambda: [self._start(check) for check in users]), inspected
        return self.futures

    def _start(self, check: Check) -> CheckResult:
        """Start the image, unless a check that it needs did not pass, or one timed out: one wait is enough."""
        outcomes = self.session.outcomes()
        missing = next((name for name in check.needs if outcomes.get(name) != "passed"), None)
        if missing or "timeout" in outcomes.values():
            why = f"needs {missing}, which did not pass" if missing else "a check before it timed out"
            return check.result("skipped", why)
        return self.start_image(msgspec.structs.replace(check, limit_s=self.session.limit(check.limit_s)), self.stopped)


class _Target:
    """The image of a request, with its environment, lock and expected contents: by the host's record, else its own.

    An environment document in the image counts only if its label names it, or if it has no label of envbuilder;
    `claims` reports other contradictions.
    """

    def __init__(self, engine: Engine, image: Image, request: ValidationRequest, *, has_gpus: bool) -> None:
        self.engine, self.image, self.request = engine, image, request
        self.spec = _container(image, request, has_gpus=has_gpus)
        self.environment, self.lock, self.removed = request.environment, request.lock, request.removed
        label, carried = image.labels.get(ENVIRONMENT_LABEL, ""), ""
        if self.environment is None:
            found, is_labelled = image_claims.document(self.files), image_claims.is_labelled(image.labels)
            self.environment = found if found is not None and (found.id == label or not is_labelled) else None
            self.lock = image_claims.carried_lock(self.files) if label or self.environment is not None else ""
            carried = image_claims.carried_list(self.files, image.labels, self.lock)
            if self.environment is not None and not is_labelled:  # a flattened image: this host may know its list
                self.removed = carried if carried == request.list_of(self.environment.id) else ""
        if self.environment is not None:
            left_out = image_claims.libraries_left_out(self.removed or carried)
            facts = image_claims.of_environment(self.environment, self.lock, request.environment)
            facts = msgspec.structs.replace(facts, left_out=left_out)
        elif request.catalog is not None:
            facts = image_claims.of_foreign(ImagePython(self.files, image).framework, request.catalog, self.spec.gpus)
            if label or self.files.file(image_claims.DOCUMENT) is not None:
                facts = image_claims.of_claimed(facts, self.files, image)
        else:
            raise ValueError("a foreign image needs a catalogue")
        gpus = {"none": 0, "all": 1}.get(self.spec.gpus, len(self.spec.gpus.split(",")))  # all: at least one
        is_simulated = request.simulate is not None
        self.facts = msgspec.structs.replace(facts, gpus_expected=gpus, profile=request.profile, simulated=is_simulated)
        if self.environment is None:
            context, command = self._context(0), self.spec.command
            # Where `pip install --user` puts packages; HOME is another here.
            base = image.env.get("PYTHONUSERBASE", f"{context.home}/.local")
            if self.files.file("bin/sh") is None and context.interpreter:
                command = (context.interpreter, "-I", "-S", f"{FILES_AT}/{PROBES}")
            self.spec = replace(self.spec, env={**self.spec.env, "PYTHONUSERBASE": base}, command=command)

    @cached_property
    def files(self) -> ImageFiles:
        return read_image(self.engine, self.image)

    def inspect(self, on_look: Callable[[KnownImage], None], checks: tuple[Check, ...]) -> Inspected:
        """Return the results of the checks on the host: by the image's record if it equals that, else by its files."""
        request, image, known = self.request, self.image, self.request.known
        base = lower_image(self.engine, image, request.base_id) if request.environment is not None else None
        different = known_image.differences(known, image, base, checks, lambda: self.files) if known else ()
        if known and not (different or request.fresh or request.profile == "full"):
            return known_image.passed(known, checks), CheckOutput(), ()
        below = tuple(layer.diff_id for layer in base.layers) if base is not None else request.base_layers
        is_above = below == tuple(layer.diff_id for layer in image.layers[: len(below)])
        context = self._context(len(below) if is_above else 0)
        results, causes = run_host_checks(context, checks)
        if base is not None and request.context and all(one.outcome == "passed" for one in results):
            on_look(known_image.describe(image, base, self.files, results, request.context))
        text = self._next(different, is_based=bool(below) and is_above) if different else ""
        noted = ((one.observed + text if one.name == "claims" else one.observed, one) for one in results)
        results = tuple(msgspec.structs.replace(one, observed=shown[:4000]) for shown, one in noted)
        return results, causes, additions(context)

    def _next(self, different: tuple[str, ...], *, is_based: bool) -> str:
        """Say why the record does not prove the image, and what to do; ``is_based``: this host knows its base."""
        environment, then = self.request.environment, "about the record nothing needs to be done"
        if self.image.id == self.request.built:
            then = "to renew the record, delete image.json next to the lock and validate with --fresh"
        elif environment is not None and not is_based:
            base = environment.on_registry_base
            command = f"docker pull {base.image}" if base else f"envbuilder build {environment.id}"
            then = f"files of the base were compared with digests of their packages only: {command}, and validate again"
        why = f"the environment's record does not prove the image ({', '.join(different)})"
        return f"; every file was read, because {why}; {then}"

    def _context(self, below: int) -> ImageContext:
        request, environment = self.request, self.request.environment  # this host's word, never the image's
        whole = lower_image(self.engine, self.image, request.built)
        own = known_image.place(request.known, self.image)
        is_proven = own and own.start == below and request.profile == "quick" and not request.fresh
        added = environment.added if environment is not None else Additions()
        is_on_registry_base = environment is not None and bool(environment.on_registry_base)
        is_locked = environment is not None and not (is_on_registry_base or added.template)
        return ImageContext(
            self.image,
            self.files,
            self.facts,
            self.lock,
            WheelRecords(request.index, pins=request.pins, own=added.indexes),
            self.removed,
            is_built_here=self.image.id == request.built,
            of_base=below if is_on_registry_base else 0,
            lock_is_carried=environment is None,
            system=image_claims.carried_system_locks(self.files) if environment is None else request.system,
            locked_above=below if is_locked else 0,
            own_layers=max(len(whole.layers) if whole is not None else 0, own.stop),
            proven=own.stop if is_proven else 0,
            base_layers=len(self.image.layers) if added.template else below,
            declared=frozenset(place.strip("/") for _, place in added.files),
            authorities=request.authorities,
        )


def lower_image(engine: Engine, image: Image, name: str) -> Image | None:
    """Return the image of a name if its layers are exactly the lowest ones of an image; None if not, or if unknown."""
    lower = engine.image(name) if name else None
    diff_ids = [layer.diff_id for layer in lower.layers] if lower is not None else []
    return lower if diff_ids and diff_ids == [layer.diff_id for layer in image.layers[: len(diff_ids)]] else None


def simulation(text: str, catalog: Catalog) -> compiler.Simulation:
    return compiler.simulation(profile.parse(text, catalog))


def _container(image: Image, request: ValidationRequest, *, has_gpus: bool) -> ContainerSpec:
    files = {f"{PROBES}/{name}": content for name, content in request.probes.items()}
    if (host := request.simulate) is not None:
        env, files = host.environment(image.env), {**host.files, **files}
        return ContainerSpec(image.id, START, env=env, files=files, time_limit=SUITE_S)
    gpus = ("all" if has_gpus else "none") if request.gpus == "auto" else request.gpus
    return ContainerSpec(image.id, START, files=files, gpus=gpus, time_limit=SUITE_S)


def run_host_checks(subject: ImageContext, checks: Sequence[Check]) -> tuple[tuple[CheckResult, ...], CheckOutput]:
    results, outputs, bound = [], [], subject.files.budget.reached
    for check in checks:
        begun = time.monotonic()
        output = output_of(check, subject)
        failed = any(finding.severity is Severity.ERROR for finding in output.findings)
        undecided = "" if failed else output.undecided
        result = check.result(
            "failed" if failed else "skipped" if undecided else "passed",
            (undecided or output.observed)[:4000],
            duration_s=round(time.monotonic() - begun, 3),
            findings=output.findings,
            measurements=output.measurements,
        )
        results.append(result)
        outputs += [output] if check.name in _CAUSES else []
        if subject.files.budget.reached != bound:  # by this check: those before it saw too little
            return run_host_checks(subject, checks)
    causes = CheckOutput(
        tuple(finding for output in outputs for finding in output.findings),
        blamed=frozenset().union(*(output.blamed for output in outputs)),
        follow={name: codes for output in outputs for name, codes in output.follow.items()},
        owners=image_loader.owners(subject.files) if any(one.outcome == "failed" for one in results) else {},
    )
    return tuple(results), causes


def output_of(check: Check, subject: ImageContext) -> CheckOutput:
    if subject.files.budget.reached:  # the check `files` reports it
        why = f"the image cannot be checked: {subject.files.budget.reached}"
        findings = (found("unread", subject.severity, why=why),) if check.name == "files" else ()
        return CheckOutput(findings, why, undecided=why)
    module, _, name = check.probe.partition(":")
    output: CheckOutput = getattr(import_module(f"envbuilder.validation.{module}"), name)(subject)
    return output


def additions(subject: ImageContext) -> tuple[Addition, ...]:
    """List what layers above envbuilder's own brought, few files of a folder by name; nothing if these are unknown."""
    if not subject.own_layers:
        return ()
    owner, found = dict(_owners(subject)), defaultdict[_Owner, dict[str, int]](dict)
    for path, entry in subject.files.paths.items():
        if entry.layer >= subject.own_layers and entry.row.kind in ("file", "link"):
            area = "/" + "/".join(posixpath.dirname(path).split("/")[:2])
            found[owner.get(path, ("files", area, ""))][path] = entry.row.size
    for key in [key for key, sizes in found.items() if key[0] == "files" and len(sizes) <= _FEW]:
        found |= {("files", f"/{path}", ""): {path: size} for path, size in found.pop(key).items()}
    return tuple(
        Addition(kind=kind, name=name, version=version, files=len(sizes), size=sum(sizes.values()))
        for (kind, name, version), sizes in sorted(found.items(), key=lambda one: (one[0][0] == "files", one[0]))
    )


def _owners(subject: ImageContext) -> Iterator[tuple[str, _Owner]]:
    before, now = (subject.files.packages(layers) for layers in (subject.own_layers, len(subject.files.records)))
    for path, name in subject.files.system.owners.items():
        if now.get(name, "") != before.get(name, ""):
            yield path, ("system package", name, now.get(name, ""))
    records = filter(subject.is_later, (path for path in subject.files.contents if path.endswith(".dist-info/RECORD")))
    apart = {posixpath.dirname(posixpath.dirname(path)) for path in records if not site_of(path)}  # pip's --target
    for one in (*subject.added, *(one for folder in apart for one in distributions(subject.files, folder))):
        yield from ((path, ("package", one.name, one.version)) for path in one.rows or ())
