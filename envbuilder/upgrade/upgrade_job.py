"""What ``envbuilder upgrade`` was asked for: read its files, run the stage, and write the answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from envbuilder import versions
from envbuilder.catalog import store
from envbuilder.catalog.rows import TensorflowRelease
from envbuilder.choice import read_fleet
from envbuilder.console import Console
from envbuilder.engine.docker import connect
from envbuilder.environment import Flavor
from envbuilder.errors import UsageError
from envbuilder.pypi.open_index import open_index
from envbuilder.pypi.package_index import DistFile
from envbuilder.refresh.propose import Proposer, today
from envbuilder.schemas import as_json
from envbuilder.upgrade import bisect as bisecting
from envbuilder.upgrade.bisect import Asked, Axis
from envbuilder.upgrade.bisect_trial import ImageTrial, candidates
from envbuilder.upgrade.maker import Maker
from envbuilder.upgrade.policy import Policy
from envbuilder.upgrade.upgrade import Tools, upgrade
from envbuilder.upgrade.upgrade_request import ROUNDS, UpgradeRequest, pinned_row
from envbuilder.upgrade.upgrade_text import EXIT_OF, as_markdown, as_text
from envbuilder.upgrade.user_tests import read_files
from envbuilder.workspace import Workspace, find_matrix, shipped
from envbuilder.yaml_reader import read_matrix, read_yaml

DEFAULT_POLICY = "upgrade-policy"


@dataclass(frozen=True)
class Words:
    """The command's words, as given."""

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
    command: tuple[str, ...] = ()


def compare(words: Words, root: Path, form: str) -> tuple[str, int]:
    """Compare two versions; return the text in the form asked for, and the exit code."""
    if words.command:
        raise UsageError("a command goes with --bisect", hint="envbuilder upgrade --bisect GOOD BAD -- CMD")
    console = Console()
    request = _request(words, root)
    tools = Tools(
        workspace=Workspace(root),
        engine=connect(),
        console=console,
        catalog=store.load(),
        propose=lambda version, package: _propose(version, package, words, console),
        clock=lambda: datetime.now(UTC).isoformat(timespec="seconds"),
    )
    document = upgrade(request, tools)
    match form:
        case "json":
            text = as_json(document)
        case "markdown":
            text = as_markdown(document)
        case _:
            text = as_text(document)
    return text, EXIT_OF[document.decision]


def _request(words: Words, root: Path) -> UpgradeRequest:
    _demand_version(words.old)
    _demand_version(words.new)
    return UpgradeRequest(
        old=words.old,
        new=words.new,
        policy=read_policy(words.policy, root),
        flavor=cast("Flavor", words.flavor),
        matrix=read_matrix(find_matrix(words.matrix, root)) if words.matrix else None,
        fleet=read_fleet(words.fleet) if words.fleet else (),
        suite=words.suite,
        wheel=words.wheel,
        rounds=words.rounds or ROUNDS,
        gpus=words.gpus,
    )


def _demand_version(text: str) -> None:
    try:
        versions.key(text)
    except ValueError as error:
        raise UsageError(f"{text}: not a version", hint="name releases such as 2.19.1") from error


def read_policy(name: str | None, root: Path) -> Policy:
    """Read a policy file; None is the one that ships."""
    path = root / name if name else shipped("matrices") / f"{DEFAULT_POLICY}.yaml"
    return read_yaml(path, Policy)


def _propose(version: str, package: str, words: Words, console: Console) -> TensorflowRelease:
    """Make the row of a release that the catalogue lacks: from the user's wheel, or from the index."""
    console.say(f"{package} {version} is not in the catalogue: reading its wheel")
    proposer = Proposer(store.load(), open_index(), today(), console.say)
    if words.wheel is None or version != words.new:
        return proposer.propose(version, package)
    file = DistFile(project=package, filename=words.wheel.name, url=words.wheel.resolve().as_uri())
    row = proposer.describe(file)
    if versions.key(row.version) != versions.key(version):
        raise UsageError(f"{words.wheel} is {row.version}, not {version}", hint="name the version of the wheel")
    return row


def bisect(words: Words, root: Path, form: str) -> tuple[str, int]:
    """Find where the command or the check begins to fail; return the text in the form asked for, and the exit code."""
    axis = cast("Axis", words.axis)
    console, catalog = Console(), store.load()
    engine = connect()
    engine.sweep()
    asked, trial = _trial(words, root, axis, Maker(Workspace(root), engine, console, catalog))
    console.say(f"{len(asked.candidates)} versions: {', '.join(asked.candidates)}")
    with console.live():
        document = bisecting.bisect(asked, trial, root / "out" / "bisects", console.say)
    match form:
        case "json":
            text = as_json(document)
        case "markdown":
            text = bisecting.as_markdown(document)
        case _:
            text = bisecting.as_text(document)
    return text, bisecting.exit_code(document)


def _trial(words: Words, root: Path, axis: Axis, maker: Maker) -> tuple[Asked, ImageTrial]:
    if bool(words.command) == bool(words.check):
        raise UsageError("bisecting needs a command or a check, one of them", hint="-- CMD, or --check NAME")
    if axis != "tensorflow" and (words.tensorflow is None or words.flavor != "gpu"):
        raise UsageError(
            f"--axis {axis} needs --tensorflow VERSION and --flavor gpu", hint="name the release that stays"
        )
    _demand_version(words.old)
    _demand_version(words.new)
    ends = (words.old, words.new) if axis == "tensorflow" else (str(words.tensorflow),) * 2
    request = _request(replace(words, old=ends[0], new=ends[1]), root)
    row = pinned_row(request, maker.catalog)
    asked = Asked(
        axis=axis,
        candidates=bisecting.ordered(candidates(axis, row, maker.catalog), words.old, words.new, versions.key),
        row=row,
        command=words.command or ("check", words.check or ""),
    )
    files = read_files(words.suite) if words.suite else {}
    return asked, ImageTrial(maker, row, axis, words.old, request, words.command, words.check, files)
