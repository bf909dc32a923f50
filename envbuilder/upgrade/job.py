"""The upgrade job: from options to a decision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import TensorflowRelease
from envbuilder.choice import read_fleet, read_known, read_matrix
from envbuilder.compat.resolve import resolve
from envbuilder.engine.docker import connect
from envbuilder.environment import Combination, Environment, Flavor
from envbuilder.errors import UsageError
from envbuilder.image import lockfile
from envbuilder.pypi.client import open_index
from envbuilder.pypi.package_index import DistFile
from envbuilder.refresh.propose import Proposer, today
from envbuilder.support.console import Console
from envbuilder.support.yaml_reader import read_yaml
from envbuilder.upgrade import bisect as bisecting
from envbuilder.upgrade.bisect import Axis, BisectDocument, BisectParameters
from envbuilder.upgrade.bisect_runs import ImageRunner, candidates
from envbuilder.upgrade.build import ImageBuilder
from envbuilder.upgrade.document import UpgradeDocument
from envbuilder.upgrade.gather import UpgradeTools
from envbuilder.upgrade.pairs import pinned_row
from envbuilder.upgrade.policy import Policy
from envbuilder.upgrade.request import ROUNDS, UpgradeRequest
from envbuilder.upgrade.upgrade import upgrade
from envbuilder.upgrade.user_tests import read_files
from envbuilder.workspace import Workspace, content_key, find_matrix

DEFAULT_POLICY = Path(__file__).with_name("policy.yaml")
CONFIRM = 2
"""Runs of each bound after a search, to find an unstable command."""
OFFERED = "tensorflow"
"""The default of --matrix."""


@dataclass(frozen=True)
class UpgradeOptions:
    old: str
    new: str
    flavor: str = "cpu"
    gpus: str = "auto"
    axis: str = "tensorflow"
    matrix: str | None = None
    fleet: Path | None = None
    suite: Path | None = None
    wheel: Path | None = None
    policy: str | None = None
    rounds: int | None = None
    tensorflow: str | None = None
    check: str | None = None
    repeat: int = 1
    selectors: tuple[str, ...] = ()
    fresh: bool = False
    command: tuple[str, ...] = ()


def compare_versions(options: UpgradeOptions, root: Path, console: Console, catalog: Catalog) -> UpgradeDocument:
    """Compare two versions. Raises UsageError if the options contradict each other."""
    if options.command:
        raise UsageError("a command requires --bisect", hint="envbuilder upgrade --bisect GOOD BAD -- CMD")
    if options.repeat > 1:
        raise UsageError("--repeat requires --bisect", hint="a comparison runs newly failing tests again by itself")
    request, catalog = read_request(options, root, catalog)
    request = _with_packaged_matrix(request, root)
    tools = UpgradeTools(
        workspace=Workspace(root),
        engine=connect(),
        console=console,
        catalog=catalog,
        propose=lambda version, package: _propose(version, package, options, console, catalog),
    )
    return upgrade(request, tools)


def _with_packaged_matrix(request: UpgradeRequest, root: Path) -> UpgradeRequest:
    if request.matrix is not None:
        return request
    return replace(request, matrix=read_matrix(find_matrix(OFFERED, root)), matrix_given=False)


def read_request(options: UpgradeOptions, root: Path, catalog: Catalog) -> tuple[UpgradeRequest, Catalog]:
    """Build the request from the options, and read the bases of its matrix."""
    _require_version(options.old)
    _require_version(options.new)
    matrix, known = read_known(options.matrix, root, catalog) if options.matrix else (None, catalog)
    request = UpgradeRequest(
        old=options.old,
        new=options.new,
        policy=read_policy(options.policy, root),
        flavor=cast("Flavor", options.flavor),
        matrix=matrix,
        fleet=read_fleet(options.fleet) if options.fleet else (),
        suite=options.suite,
        wheel=options.wheel,
        rounds=options.rounds or ROUNDS,
        gpus=options.gpus,
        selectors=options.selectors,
        fresh=options.fresh,
    )
    return request, known


def _require_version(text: str) -> None:
    try:
        versions.key(text)
    except ValueError as error:
        raise UsageError(f"{text}: not a version", hint="name releases such as 2.19.1") from error


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
    axis = cast("Axis", options.axis)
    engine = connect()
    engine.sweep()
    asked, trial = _prepare_bisection(options, root, axis, ImageBuilder(Workspace(root), engine, console, catalog))
    console.say(f"{len(asked.candidates)} versions: {', '.join(asked.candidates)}")
    with console.live():
        return bisecting.bisect(asked, trial, Workspace(root).bisects, console.say, confirm=CONFIRM)


def _prepare_bisection(
    options: UpgradeOptions, root: Path, axis: Axis, maker: ImageBuilder
) -> tuple[BisectParameters, ImageRunner]:
    if bool(options.command) == bool(options.check):
        raise UsageError("--bisect needs either a command or --check", hint="-- CMD, or --check NAME")
    if axis != "tensorflow" and (options.tensorflow is None or options.flavor != "gpu"):
        raise UsageError(
            f"--axis {axis} needs --tensorflow VERSION and --flavor gpu", hint="name the TensorFlow release to keep"
        )
    _require_version(options.old)
    _require_version(options.new)
    ends = (options.old, options.new) if axis == "tensorflow" else (str(options.tensorflow),) * 2
    request, known = read_request(replace(options, old=ends[0], new=ends[1]), root, maker.catalog)
    maker = replace(maker, catalog=known)
    row = pinned_row(request, maker.catalog)
    files = read_files(options.suite) if options.suite else {}
    asked = BisectParameters(
        axis=axis,
        candidates=bisecting.ordered(candidates(axis, row, maker.catalog), options.old, options.new, versions.key),
        row=row,
        command=options.command or ("check", options.check or ""),
        files=content_key(files) if files else "",
        lock=_committed(row, maker),
        gpus=options.gpus,
        repeat=options.repeat,
    )
    return asked, ImageRunner(maker, row, axis, options.old, request, options.command, options.check, files)


def _committed(row: Combination, maker: ImageBuilder) -> str:
    """Return the digest of the good end's committed lock, '' for none."""
    end = resolve(row, maker.catalog)
    side = maker.committed_image(end) if isinstance(end, Environment) else None
    return lockfile.digest(side.lock) if side else ""
