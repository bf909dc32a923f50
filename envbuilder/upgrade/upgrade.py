"""The upgrade job: from options to the document with the decision, in ``out/upgrades``."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import TensorflowRelease
from envbuilder.choice import find_matrix, read_fleet, read_known, read_matrix
from envbuilder.compat.fleet import FleetHost
from envbuilder.compat.resolve import resolve
from envbuilder.engine.docker import connect
from envbuilder.environment import Combination, Environment
from envbuilder.errors import BaseUnavailableError, UsageError
from envbuilder.image import lockfile
from envbuilder.image.build import span
from envbuilder.pypi.client import open_index
from envbuilder.pypi.pages import DistFile
from envbuilder.refresh.propose import Proposer, today
from envbuilder.support import decoding
from envbuilder.support.console import Console
from envbuilder.support.yaml_reader import read_yaml
from envbuilder.upgrade import bisect as bisecting
from envbuilder.upgrade.bisect import BisectDocument, BisectParameters, ImageRunner, candidates
from envbuilder.upgrade.build import ImageBuilder, describe, describe_image
from envbuilder.upgrade.compare import ImageEvidence, differences
from envbuilder.upgrade.document import UpgradeDocument
from envbuilder.upgrade.gather import CollectedEvidence, UpgradeTools, ValidatedImage, gather
from envbuilder.upgrade.observed import Observations
from envbuilder.upgrade.pairs import ROUNDS, Pair, UpgradeOptions, hosts, no_row, pairs, pinned_row
from envbuilder.upgrade.policy import BY_FACTS, ComparedImages, Policy, judge, would_decide
from envbuilder.upgrade.text import as_markdown
from envbuilder.upgrade.user_tests import UserSuite, read_files, read_suite
from envbuilder.workspace import Workspace, content_key, temporary_folder, write_atomically, write_document


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
    if made[0].built.record.image == made[1].built.record.image:
        options = replace(options, policy=options.policy.only("verdict"))
        sides = (describe_image(one.side, one.built, one.verdict, both.catalog) for one in made)
        old, new = (ImageEvidence(side, Observations()) for side in sides)
        found = CollectedEvidence(old, new, gaps=("the same image: nothing was measured, its validation is judged",))
    else:
        found = gather(tools, made, suite, both.catalog, options)
    document = _document(options, both, found)
    started, finished = span(began)
    simulated = any(one.verdict.unreal for one in made)
    document = msgspec.structs.replace(document, simulated=simulated, started=started, finished=finished)
    path = tools.workspace.upgrade(options.name)
    write_document(path, document)
    write_atomically(path.with_suffix(".md"), as_markdown(document).encode())
    return document


def predict(options: UpgradeOptions, catalog: Catalog) -> UpgradeDocument:
    """Compare two versions by the catalogue's facts. They can reject; only images can adopt."""
    both = pairs(options, catalog, no_row)[0]
    old, new = (ImageEvidence(describe(one, catalog), Observations()) for one in (both.old, both.new))
    asked = replace(options, policy=options.policy.only(*BY_FACTS), rounds=0)
    document = _document(asked, both, CollectedEvidence(old, new, gaps=("dry run: nothing was built or measured",)))
    if document.decision == "REJECT":
        return document
    advice = ("the same command without --dry-run: it builds, validates and measures both images",)
    return msgspec.structs.replace(document, decision="UNDECIDED", would_decide=advice)


@contextmanager
def _wheels(wheel: Path | None) -> Iterator[Path | None]:
    """Copy the user's wheel file into a separate folder, as installers require."""
    with temporary_folder("wheel") if wheel else nullcontext() as folder:
        if wheel and folder:
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


def _document(options: UpgradeOptions, both: Pair, gathered: CollectedEvidence) -> UpgradeDocument:
    old, new = gathered.old, gathered.new
    if options.wheel is not None:
        new = replace(new, side=msgspec.structs.replace(new.side, pythons=()))
    settings = options.policy.statistics
    found = differences(old, new, gathered.samples, hosts(options), both.catalog, settings, gathered.models)
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
            *gathered.gaps,
            *(f"{row} is not in the catalogue: its row was proposed from its wheel" for row in both.proposed),
        ),
    )


DEFAULT_POLICY = Path(__file__).with_name("policy.yaml")
CONFIRM = 2
"""Runs of each bound after a search, to find an unstable command."""
OFFERED = "tensorflow"
"""The default of --matrix."""


def read_upgrade(values: Mapping[str, Any], root: Path, catalog: Catalog) -> tuple[UpgradeOptions, Catalog]:
    """Return the command's values as options, with the files that they name, and the catalogue with the matrix's bases.

    Raises UsageError for a wrong version.
    """
    given = (name for name in ("old", "new", "tensorflow") if values.get(name))
    releases = {name: _version(values[name], catalog) for name in given}
    matrix, known = read_known(values["matrix"], root, catalog) if values["matrix"] else (None, catalog)
    files = {
        "matrix": matrix,
        "fleet": read_fleet(values["fleet"]) if values["fleet"] else _named_host(values),
        "flavor": values.get("flavor") or ("gpu" if values.get("gpu") else "cpu"),
        "policy": read_policy(values["policy"], root),
        "rounds": values["rounds"] or ROUNDS,
    }
    return decoding.converted({**values, **releases, **files}, UpgradeOptions), known


def _named_host(values: Mapping[str, Any]) -> tuple[FleetHost, ...]:
    gpus, driver = values.get("gpu") or (), values.get("driver")
    if bool(gpus) != bool(driver):
        raise UsageError("--gpu and --driver name a host together", hint="--gpu T4 --driver 535, or --fleet FILE")
    try:
        return (decoding.converted({"name": "host", "driver": driver, "gpus": gpus}, FleetHost),) if gpus else ()
    except decoding.DamagedError as error:
        named = f"--gpu {', '.join(gpus)} --driver {driver}"
        raise UsageError(f"{named}: not a GPU with a driver", hint="--gpu T4 --driver 535") from error


def compare_versions(options: UpgradeOptions, root: Path, console: Console, catalog: Catalog) -> UpgradeDocument:
    """Compare two versions. Raises UsageError if the options contradict each other."""
    if options.command:
        raise UsageError("a command requires --bisect", hint="envbuilder upgrade --bisect GOOD BAD -- CMD")
    if options.repeat > 1:
        raise UsageError("--repeat requires --bisect", hint="a comparison runs newly failing tests again by itself")
    if options.matrix is None:
        options = replace(options, matrix=read_matrix(find_matrix(OFFERED, root)), matrix_given=False)
    if options.dry_run:
        return predict(options, catalog)
    tools = UpgradeTools(
        workspace=Workspace(root),
        engine=connect(),
        console=console,
        catalog=catalog,
        propose=lambda version, package: _propose(version, package, options, console, catalog),
    )
    return upgrade(options, tools)


def _version(text: str, catalog: Catalog) -> str:
    found = catalog.newest_in(text)
    if found is None or versions.key_or_none(found) is None:
        raise UsageError(f"{text}: not a version", hint="name releases such as 2.19.1, or latest")
    return found


def read_policy(name: str | None, root: Path) -> Policy:
    """Read a policy file; None is the default policy."""
    return read_yaml(root / name if name else DEFAULT_POLICY, Policy)


def _propose(
    version: str, package: str, options: UpgradeOptions, console: Console, catalog: Catalog
) -> TensorflowRelease:
    """Build the row of a release that the catalogue lacks, from the user's wheel or from the index."""
    console.say(f"{package} {version} is not in the catalogue: reading its wheel")
    proposer = Proposer(catalog, open_index(), today(), console.say)
    if options.wheel is None or version != options.new:
        return proposer.propose(version, package)
    file = DistFile(project=package, filename=options.wheel.name, url=options.wheel.resolve().as_uri())
    row = proposer.describe(file)
    if versions.key(row.version) != versions.key(version):
        raise UsageError(
            f"{options.wheel} is version {row.version}, not {version}", hint="give the version of the wheel"
        )
    return row


def bisect_versions(options: UpgradeOptions, root: Path, console: Console, catalog: Catalog) -> BisectDocument:
    """Find where the command or the check begins to fail. Raises UsageError if the options contradict each other."""
    engine = connect()
    engine.sweep()
    asked, trial = _prepare_bisection(options, ImageBuilder(Workspace(root), engine, console, catalog))
    console.say(f"{len(asked.candidates)} versions: {', '.join(asked.candidates)}")
    with console.live():
        return bisecting.bisect(asked, trial, Workspace(root).bisects, console.say, confirm=CONFIRM)


def _prepare_bisection(options: UpgradeOptions, maker: ImageBuilder) -> tuple[BisectParameters, ImageRunner]:
    axis, release = options.axis, options.tensorflow
    if bool(options.command) == bool(options.check):
        raise UsageError("--bisect needs either a command or --check", hint="-- CMD, or --check NAME")
    if axis != "tensorflow" and (release is None or options.flavor != "gpu"):
        raise UsageError(
            f"--axis {axis} needs --tensorflow VERSION and --flavor gpu", hint="name the TensorFlow release to keep"
        )
    kept = options if axis == "tensorflow" or release is None else replace(options, old=release, new=release)
    row = pinned_row(kept, maker.catalog)
    files = read_files(options.suite) if options.suite else {}
    asked = BisectParameters(
        axis=axis,
        candidates=bisecting.ordered(candidates(axis, row, maker.catalog), options.old, options.new),
        row=row,
        command=options.command or ("check", options.check or ""),
        files=content_key(files) if files else "",
        lock=_committed(row, maker),
        gpus=options.gpus,
        repeat=options.repeat,
    )
    return asked, ImageRunner(maker, row, options, files)


def _committed(row: Combination, maker: ImageBuilder) -> str:
    """Return the digest of the good end's committed lock, '' for none."""
    end = resolve(row, maker.catalog)
    side = maker.committed_image(end) if isinstance(end, Environment) else None
    return lockfile.digest(side.lock) if side else ""
