"""The stage: from two versions to the document with the decision, in ``out/upgrades``."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec

from envbuilder.errors import BaseUnavailableError
from envbuilder.image.build import span
from envbuilder.upgrade.build import ImageBuilder
from envbuilder.upgrade.compare import differences
from envbuilder.upgrade.document import UpgradeDocument
from envbuilder.upgrade.gather import CollectedEvidence, UpgradeTools, ValidatedImage, gather
from envbuilder.upgrade.options import UpgradeOptions, hosts
from envbuilder.upgrade.pairs import Pair, pairs
from envbuilder.upgrade.policy import judge, would_decide
from envbuilder.upgrade.quantities import ComparedImages
from envbuilder.upgrade.text import as_markdown
from envbuilder.upgrade.user_tests import UserSuite, read_suite
from envbuilder.workspace import temporary_folder, write_atomically, write_document


def upgrade(options: UpgradeOptions, tools: UpgradeTools) -> UpgradeDocument:
    """Compare two versions and decide.

    Writes ``out/upgrades/<old>_<new>_<flavor>/upgrade.json`` and ``upgrade.md``. Raises UnsatisfiableError if no row
    serves both, BuildFailedError, and InfrastructureError.
    """
    began = time.monotonic()
    limits = options.test_limit, options.suite_limit
    suite = read_suite(options.suite, *limits) if options.suite else None
    rows = pairs(options, tools.catalog, tools.propose)
    with _wheels(options.wheel) as wheels, tools.console.live():
        tools.engine.sweep()
        maker = ImageBuilder(tools.workspace, tools.engine, tools.console, rows[0].catalog, wheels)
        both = first_buildable(rows, maker)
        tools.console.say(f"comparing {both.old.id} → {both.new.id} ({both.row})")
        made = _make(maker, both, options)
        return compare_images(tools, both, made, suite, options, began)


def compare_images(
    tools: UpgradeTools,
    both: Pair,
    made: tuple[ValidatedImage, ValidatedImage],
    suite: UserSuite | None,
    options: UpgradeOptions,
    began: float,
) -> UpgradeDocument:
    """Compare two built images, decide, and write the document; ``began`` is the start by the monotonic clock."""
    found = gather(tools, made, suite, both.catalog, options)
    document = _document(options, both, found)
    started, finished = span(began)
    document = msgspec.structs.replace(document, started=started, finished=finished)
    path = tools.workspace.upgrade(options.name)
    write_document(path, document)
    write_atomically(path.with_suffix(".md"), as_markdown(document).encode())
    return document


@contextmanager
def _wheels(wheel: Path | None) -> Iterator[Path | None]:
    """Copy the user's wheel file into a separate folder, as installers require."""
    if wheel is None:
        yield None
        return
    with temporary_folder("wheel") as folder:
        shutil.copy(wheel, folder)
        yield folder


def first_buildable(rows: tuple[Pair, ...], maker: ImageBuilder) -> Pair:
    """Return the first row with a base that is available here. Raises BaseUnavailableError if there is none."""
    for row in rows[:-1]:
        try:
            maker.base(row.old)
        except BaseUnavailableError as error:
            maker.console.say(f"{row.row} cannot be built here: {error.registry}; {error.bootstrap}")
        else:
            return row
    maker.base(rows[-1].old)
    return rows[-1]


def _make(maker: ImageBuilder, both: Pair, options: UpgradeOptions) -> tuple[ValidatedImage, ValidatedImage]:
    """Build both images before validating either: a concurrent build would disturb timings.

    Versions in the matrix are built from their own locks; others are locked close to the old image.
    """
    old = maker.lock_old(both.old)
    offered = maker.committed_image(both.new) if both.new.id in both.offered else None
    new = offered or maker.lock_new(both.new, old)
    if new.proposed:
        where = maker.workspace.for_upgrades.context(new.environment.id)
        maker.console.say(f"{both.new.id} has no committed lock: proposing {where}")
    images = maker.build(old), maker.build(new)
    return (
        ValidatedImage(old, images[0], maker.validate(old, images[0], options)),
        ValidatedImage(new, images[1], maker.validate(new, images[1], options)),
    )


def _document(
    options: UpgradeOptions,
    both: Pair,
    gathered: CollectedEvidence,
) -> UpgradeDocument:
    old, new, together = gathered.old, gathered.new, gathered.together
    if options.wheel is not None:
        new = replace(new, side=msgspec.structs.replace(new.side, pythons=()))
    settings = options.policy.statistics
    found = differences(old, new, together.samples, hosts(options), both.catalog, settings, together.models)
    sides = ComparedImages(old.side, new.side, found)
    decision, clauses = judge(sides, options.policy)
    return UpgradeDocument(
        old=old.side,
        new=new.side,
        flavor=options.flavor,
        decision=decision,
        policy=options.policy.name,
        clauses=clauses,
        differences=found,
        rounds=options.rounds,
        would_decide=would_decide(clauses, sides, options.rounds) if decision == "UNDECIDED" else (),
        matrix=options.matrix.name if options.matrix and both.offered else "",
        row=both.row,
        not_judged=both.others,
        gaps=(
            *(f"old: {gap}" for gap in old.observed.gaps),
            *(f"new: {gap}" for gap in new.observed.gaps),
            *together.gaps,
            *(f"{row} is not in the catalogue: its row was proposed from its wheel" for row in both.proposed),
        ),
    )
