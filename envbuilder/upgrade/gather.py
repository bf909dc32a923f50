"""Gather the evidence about both images: probes, user tests, model exchange and measurements."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.engine.port import Engine
from envbuilder.environment import Environment
from envbuilder.image.build import Built
from envbuilder.support.console import Console
from envbuilder.upgrade.build import LockedSide, described
from envbuilder.upgrade.cache import Kept, key_of
from envbuilder.upgrade.compare import THE_RUN, Evidence, compare_tests, to_run_again
from envbuilder.upgrade.document import ModelExchange
from envbuilder.upgrade.measure import measure
from envbuilder.upgrade.model_exchange import exchange
from envbuilder.upgrade.observe import Place, observe
from envbuilder.upgrade.observed import Observed, UserTest
from envbuilder.upgrade.request import Propose, UpgradeRequest
from envbuilder.upgrade.statistics import Samples
from envbuilder.upgrade.user_tests import UserSuite, run_again, run_suite
from envbuilder.verdict import Verdict
from envbuilder.workspace import Workspace

SIDES = ("old", "new")


@dataclass(frozen=True)
class Tools:
    """The dependencies of the stage; ``propose`` makes rows for releases that the catalogue lacks."""

    workspace: Workspace
    engine: Engine
    console: Console
    catalog: Catalog
    propose: Propose


@dataclass(frozen=True)
class Made:
    """One image, locked, built and validated."""

    side: LockedSide
    built: Built
    verdict: Verdict

    @property
    def environment(self) -> Environment:
        return self.built.environment


@dataclass(frozen=True)
class Together:
    """Results that need both images: measurements, exchanged models, and unanswered questions."""

    samples: tuple[Samples, ...]
    models: tuple[ModelExchange, ...] | None
    gaps: tuple[str, ...]


@dataclass(frozen=True)
class Gathered:
    """All evidence about both images, and unanswered questions."""

    old: Evidence
    new: Evidence
    together: Together


def gather(
    tools: Tools, made: tuple[Made, Made], suite: UserSuite | None, catalog: Catalog, request: UpgradeRequest
) -> Gathered:
    """Collect all evidence about two images; every answer is cached immediately."""
    place = f"{made[0].environment.os}-{made[0].environment.package}"
    kept = Kept(tools.workspace.upgrade(request.name).parent / "kept" / place, request.fresh)
    evidence = [_look(tools, each, side, catalog, request, kept) for side, each in zip(SIDES, made, strict=True)]
    old, new = _tested(tools, made, evidence, suite, request, kept)
    return Gathered(old, new, _together(tools, made, request, kept))


def _place(tools: Tools, made: Made, request: UpgradeRequest) -> Place:
    wanted = request.gpus
    if wanted == "auto":
        seen = bool(made.verdict.host.gpus) and not made.verdict.simulated
        wanted = "all" if seen and made.environment.flavor == "gpu" else "none"
    return Place(tools.engine, made.built.record.image, wanted)


def _look(tools: Tools, made: Made, name: str, catalog: Catalog, request: UpgradeRequest, kept: Kept) -> Evidence:
    place = _place(tools, made, request)
    with tools.console.task(made.environment.id) as task:
        observed = kept.answer(
            f"observed-{name}", key_of(place), Observed, lambda: observe(place, task), lambda seen: not seen.gaps
        )
    side = described(made.side, made.built, made.verdict, catalog)
    return Evidence(side, observed, made.verdict.checks)


Tests = tuple[UserTest, ...]


def _tested(
    tools: Tools,
    made: tuple[Made, Made],
    evidence: list[Evidence],
    suite: UserSuite | None,
    request: UpgradeRequest,
    kept: Kept,
) -> list[Evidence]:
    """Run the user's tests on both images; repeat the files in which a test fails on only one of them."""
    if suite is None:
        return evidence
    places = [_place(tools, each, request) for each in made]
    tests: list[Tests] = []
    again: list[tuple[Tests, ...]] = [(), ()]
    for place, each, name in zip(places, made, SIDES, strict=True):
        with tools.console.task(each.environment.id) as task:
            task.update("your tests")
            python = each.environment.python
            key = key_of(place, more={"suite": suite.digest.encode()})
            run = partial(run_suite, place, suite, python)
            tests.append(kept.answer(f"tests-{name}", key, Tests, run, lambda found: THE_RUN not in map(named, found)))
    failed = to_run_again(compare_tests(tests[0], tests[1]))
    if failed:
        for number, (place, each) in enumerate(zip(places, made, strict=True)):
            with tools.console.task(each.environment.id) as task:
                task.update(f"{len(failed)} of your tests again")
                again[number] = run_again(place, suite, each.environment.python, failed, tests[number])
    return [
        replace(each, observed=msgspec.structs.replace(each.observed, tests=tests[side], again=again[side]))
        for side, each in enumerate(evidence)
    ]


def named(test: UserTest) -> str:
    return test.name


def _together(tools: Tools, made: tuple[Made, Made], request: UpgradeRequest, kept: Kept) -> Together:
    old, new = (_place(tools, each, request) for each in made)
    with tools.console.task("both images in turn") as task:
        task.update("loading models of the other image")
        models, gaps = kept.answer(
            "models",
            key_of(old, new),
            tuple[tuple[ModelExchange, ...] | None, tuple[str, ...]],
            lambda: exchange(old, new),
            lambda found: found[0] is not None,
        )
        samples, wrong = measure(old, new, request.rounds, task, kept=kept)
    return Together(samples, models, (*gaps, *wrong))
