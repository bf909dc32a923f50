"""The stage: from two versions to the document with the decision, written below ``out/upgrades``."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.console import Console
from envbuilder.engine.port import Engine
from envbuilder.environment import Environment
from envbuilder.image.bases import BaseUnavailableError
from envbuilder.image.build import Built
from envbuilder.upgrade.differences import Evidence, differences
from envbuilder.upgrade.maker import LockedSide, Maker, described
from envbuilder.upgrade.measure import measure
from envbuilder.upgrade.observe import Place, observe
from envbuilder.upgrade.policy import judge
from envbuilder.upgrade.quantities import Sides
from envbuilder.upgrade.statistics import Samples
from envbuilder.upgrade.upgrade_document import UpgradeDocument
from envbuilder.upgrade.upgrade_request import Propose, UpgradeRequest, hosts
from envbuilder.upgrade.upgrade_rows import Pair, pairs
from envbuilder.upgrade.upgrade_text import as_markdown
from envbuilder.upgrade.user_tests import UserSuite, read_suite, run_suite
from envbuilder.verdict import Verdict
from envbuilder.workspace import Workspace, write_atomically, write_document


@dataclass(frozen=True)
class Tools:
    """What the stage works with; ``propose`` makes rows for releases that the catalogue lacks."""

    workspace: Workspace
    engine: Engine
    console: Console
    catalog: Catalog
    propose: Propose
    clock: Callable[[], str]


def upgrade(request: UpgradeRequest, tools: Tools) -> UpgradeDocument:
    """Compare two versions and decide.

    Writes ``out/upgrades/<old>_<new>_<flavor>/upgrade.json`` and ``upgrade.md``. Raises UnsatisfiableError where both
    cannot be had, BuildFailedError, and InfrastructureError.
    """
    started = tools.clock()
    suite = read_suite(request.suite) if request.suite else None
    rows = pairs(request, tools.catalog, tools.propose)
    with _wheels(request.wheel) as wheels, tools.console.live():
        tools.engine.sweep()
        maker = Maker(tools.workspace, tools.engine, tools.console, rows[0].catalog, wheels)
        both = buildable(rows, maker)
        tools.console.say(f"judging {both.old.id} → {both.new.id} ({both.row})")
        made = _make(maker, both, request)
        evidence = [_look(tools, each, suite, both.catalog, request) for each in made]
        samples, gaps = _measure(tools, made, request)
    document = _document(request, both, evidence, samples, gaps)
    document = msgspec.structs.replace(document, started=started, finished=tools.clock())
    path = tools.workspace.upgrade(request.name)
    write_document(path, document)
    write_atomically(path.with_suffix(".md"), as_markdown(document).encode())
    return document


@contextmanager
def _wheels(wheel: Path | None) -> Iterator[Path | None]:
    """Give the user's wheel file a folder of its own, as installers want it."""
    if wheel is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="envbuilder-wheel-") as folder:
        shutil.copy(wheel, folder)
        yield Path(folder)


def buildable(rows: tuple[Pair, ...], maker: Maker) -> Pair:
    """Return the first row whose base can be had on this machine. Raises BaseUnavailableError where none can."""
    for row in rows[:-1]:
        try:
            maker.base(row.old)
        except BaseUnavailableError as error:
            maker.console.say(f"{row.row} cannot be built here: {error.registry}; {error.bootstrap}")
        else:
            return row
    maker.base(rows[-1].old)
    return rows[-1]


@dataclass(frozen=True)
class Made:
    """One side, locked, built and judged."""

    side: LockedSide
    built: Built
    verdict: Verdict

    @property
    def environment(self) -> Environment:
        """The environment that was built."""
        return self.built.environment


def _make(maker: Maker, both: Pair, request: UpgradeRequest) -> tuple[Made, Made]:
    """Build both images before either is validated: a build beside it would disturb what is timed.

    What the matrix offers is judged as it is offered; what it does not offer yet is proposed close to the old side.
    """
    old = maker.locked_old(both.old)
    offered = maker.locked_offered(both.new) if both.new.id in both.offered else None
    new = offered or maker.locked_new(both.new, old)
    if new.proposed:
        where = maker.workspace.for_upgrades.context(new.environment.id)
        maker.console.say(f"{both.new.id} is not offered with a lock: proposing {where}")
    images = maker.built(old), maker.built(new)
    return (
        Made(old, images[0], maker.judged(old, images[0], request)),
        Made(new, images[1], maker.judged(new, images[1], request)),
    )


def _place(tools: Tools, made: Made, request: UpgradeRequest) -> Place:
    wanted = request.gpus
    if wanted == "auto":
        seen = bool(made.verdict.host.gpus) and not made.verdict.simulated
        wanted = "all" if seen and made.environment.flavor == "gpu" else "none"
    return Place(tools.engine, made.built.record.image, wanted)


def _look(tools: Tools, made: Made, suite: UserSuite | None, catalog: Catalog, request: UpgradeRequest) -> Evidence:
    """Observe one side, and run the user's tests in it."""
    place = _place(tools, made, request)
    with tools.console.task(made.environment.id) as task:
        observed = observe(place, task)
        if suite is not None:
            task.update("your tests")
            tests = run_suite(place, suite, made.environment.python)
            observed = msgspec.structs.replace(observed, tests=tests)
    side = described(made.side, made.built, made.verdict, catalog)
    return Evidence(side, observed, made.verdict.checks)


def _measure(
    tools: Tools, made: tuple[Made, Made], request: UpgradeRequest
) -> tuple[tuple[Samples, ...], tuple[str, ...]]:
    places = [_place(tools, each, request) for each in made]
    with tools.console.task("both sides in turn") as task:
        return measure(places[0], places[1], request.rounds, task)


def _document(
    request: UpgradeRequest,
    both: Pair,
    evidence: list[Evidence],
    samples: tuple[Samples, ...],
    gaps: tuple[str, ...],
) -> UpgradeDocument:
    old, new = evidence
    if request.wheel is not None:
        new = replace(new, side=msgspec.structs.replace(new.side, pythons=()))
    found = differences(old, new, samples, hosts(request), both.catalog, request.policy.statistics)
    decision, clauses = judge(Sides(old.side, new.side, found), request.policy)
    return UpgradeDocument(
        old=old.side,
        new=new.side,
        flavor=request.flavor,
        decision=decision,
        policy=request.policy.name,
        clauses=clauses,
        differences=found,
        rounds=request.rounds,
        matrix=request.matrix.name if request.matrix and both.offered else "",
        row=both.row,
        not_judged=both.others,
        gaps=(
            *(f"old: {gap}" for gap in old.observed.gaps),
            *(f"new: {gap}" for gap in new.observed.gaps),
            *gaps,
            *(f"{row} is not in the catalogue: its row was proposed from its wheel" for row in both.proposed),
        ),
    )
