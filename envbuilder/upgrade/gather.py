"""Gather the evidence about both images: probes, user tests, model exchange and measurements."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.engine.port import Engine
from envbuilder.environment import Environment
from envbuilder.image.build import Built
from envbuilder.support.console import Console
from envbuilder.upgrade.build import LockedImage, describe_image
from envbuilder.upgrade.compare import THE_RUN, ImageEvidence, hanging, to_run_again
from envbuilder.upgrade.document import ModelExchange
from envbuilder.upgrade.observe import AnswerCache, ProbeTarget, exchange, key_of, measure, observe
from envbuilder.upgrade.observed import Observations, UserTest
from envbuilder.upgrade.pairs import Propose, UpgradeOptions
from envbuilder.upgrade.statistics import Samples
from envbuilder.upgrade.user_tests import UserSuite, run_again, run_suite
from envbuilder.verdict import Verdict
from envbuilder.workspace import Workspace

SIDES = ("old", "new")


@dataclass(frozen=True)
class UpgradeTools:
    """The dependencies of the stage; ``propose`` makes rows for releases that the catalogue lacks."""

    workspace: Workspace
    engine: Engine
    console: Console
    catalog: Catalog
    propose: Propose


@dataclass(frozen=True)
class ValidatedImage:
    """One image, locked, built and validated."""

    side: LockedImage
    built: Built
    verdict: Verdict

    @property
    def environment(self) -> Environment:
        return self.built.environment


@dataclass(frozen=True)
class CollectedEvidence:
    """The evidence about each image, what needs both (measurements, exchanged models), and unanswered questions."""

    old: ImageEvidence
    new: ImageEvidence
    samples: tuple[Samples, ...] = ()
    models: tuple[ModelExchange, ...] | None = None
    gaps: tuple[str, ...] = ()


def gather(
    tools: UpgradeTools,
    made: tuple[ValidatedImage, ValidatedImage],
    suite: UserSuite | None,
    catalog: Catalog,
    options: UpgradeOptions,
) -> CollectedEvidence:
    """Collect all evidence about two images; every answer is cached immediately."""
    place = f"{made[0].environment.os}-{made[0].environment.package}"
    cache = AnswerCache(tools.workspace.upgrade(options.name).parent / "kept" / place, options.fresh)
    evidence = [
        _observe_image(tools, each, side, catalog, options, cache) for side, each in zip(SIDES, made, strict=True)
    ]
    old, new = _run_tests(tools, made, evidence, suite, options, cache)
    places = [_place(tools, each, options) for each in made]
    with tools.console.task("both images in turn") as task:
        task.update("loading models of the other image")
        models, gaps = cache.answer(
            "models",
            key_of(*places),
            tuple[tuple[ModelExchange, ...] | None, tuple[str, ...]],
            lambda: exchange(*places),
            lambda found: found[0] is not None,
        )
        samples, wrong = measure(places[0], places[1], options.rounds, task, cache=cache)
    return CollectedEvidence(old, new, samples, models, (*gaps, *wrong))


def _place(tools: UpgradeTools, made: ValidatedImage, options: UpgradeOptions) -> ProbeTarget:
    wanted = options.gpus
    if wanted == "auto":
        seen = bool(made.verdict.host.gpus) and not made.verdict.simulated
        wanted = "all" if seen and made.environment.flavor == "gpu" else "none"
    return ProbeTarget(tools.engine, made.built.record.image, wanted)


def _observe_image(
    tools: UpgradeTools, made: ValidatedImage, name: str, catalog: Catalog, options: UpgradeOptions, cache: AnswerCache
) -> ImageEvidence:
    place = _place(tools, made, options)
    with tools.console.task(made.environment.id) as task:
        observed = cache.answer(
            f"observed-{name}", key_of(place), Observations, lambda: observe(place, task), lambda seen: not seen.gaps
        )
    side = describe_image(made.side, made.built, made.verdict, catalog)
    return ImageEvidence(side, observed, made.verdict.checks)


Tests = tuple[UserTest, ...]


def _run_tests(
    tools: UpgradeTools,
    made: tuple[ValidatedImage, ValidatedImage],
    evidence: list[ImageEvidence],
    suite: UserSuite | None,
    options: UpgradeOptions,
    cache: AnswerCache,
) -> list[ImageEvidence]:
    """Run the user's tests on both images; repeat the files in which a test fails.

    A test that hangs is stopped once: it runs neither again nor on the other image.
    """
    if suite is None:
        return evidence
    sides = [(_place(tools, each, options), each.environment, name) for each, name in zip(made, SIDES, strict=True)]
    tests: list[Tests] = []
    again: list[tuple[Tests, ...]] = [(), ()]
    for place, environment, name in sides:
        hung = hanging(chain(*tests))
        with tools.console.task(environment.id) as task:
            task.update(f"your tests (each at most {suite.test_limit} s, together {suite.limit} s)")
            wanted = suite.without(hung)
            key = key_of(place, more={"suite": wanted.digest.encode()})
            run = partial(run_suite, place, wanted, environment.python)
            found = cache.answer(f"tests-{name}", key, Tests, run, lambda found: THE_RUN not in {t.name for t in found})
            left = [UserTest(name=one, outcome="skipped", message="it hangs on the old image") for one in sorted(hung)]
            tests.append((*found, *left))
    failed = to_run_again(*tests)
    for number, (place, environment, _) in enumerate(sides if failed else ()):
        with tools.console.task(environment.id) as task:
            task.update(f"{len(failed)} of your tests again")
            part = suite.without(hanging(chain(*tests)))
            again[number] = run_again(place, part, environment.python, failed, tests[number])
    return [
        replace(each, observed=msgspec.structs.replace(each.observed, tests=tests[side], again=again[side]))
        for side, each in enumerate(evidence)
    ]
