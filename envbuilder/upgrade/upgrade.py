"""The upgrade job: from options to the document with the decision, in ``out/upgrades``."""

import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from envbuilder import versions
from envbuilder.catalog.model import DISTRIBUTIONS, Catalog
from envbuilder.catalog.rows import TensorflowRelease
from envbuilder.choice import find_matrix, read_fleet, read_known, read_matrix
from envbuilder.compat.fleet import FleetHost
from envbuilder.compat.resolve import resolve
from envbuilder.engine.docker import connect
from envbuilder.environment import Environment
from envbuilder.errors import BaseUnavailableError, UsageError
from envbuilder.image import lockfile
from envbuilder.pypi.client import open_index
from envbuilder.pypi.pages import DistFile
from envbuilder.refresh.propose import Proposer, today
from envbuilder.support import decoding
from envbuilder.support.console import Console
from envbuilder.support.yaml_reader import read_yaml
from envbuilder.upgrade import bisect as search
from envbuilder.upgrade import observe
from envbuilder.upgrade.build import ImageBuilder, ValidatedImage, describe
from envbuilder.upgrade.compare import CollectedEvidence, ImageEvidence, differences
from envbuilder.upgrade.document import Observations, UpgradeDocument
from envbuilder.upgrade.pairs import ROUNDS, Pair, UpgradeOptions, hosts, no_row, pairs, pinned_row
from envbuilder.upgrade.policy import BY_FACTS, ClauseRule, Policy, judge
from envbuilder.upgrade.text import as_markdown
from envbuilder.upgrade.user_tests import SUITE_LIMIT_S, TEST_LIMIT_S, UserSuite, read_files, read_suite, run_on_both
from envbuilder.validation.suite_plan import CHECKS
from envbuilder.verdict import span
from envbuilder.workspace import Workspace, content_key, temporary_folder, write_atomically, write_document

DEFAULT_POLICY = Path(__file__).with_name("policy.yaml")


def compare_images(
    maker: ImageBuilder,
    both: Pair,
    made: Sequence[ValidatedImage],
    suite: UserSuite | None,
    options: UpgradeOptions,
    began: float,
) -> UpgradeDocument:
    """Compare two built images, decide, and write the document; ``began`` is the start by the monotonic clock."""
    if made[0].image == made[1].image:
        options = replace(options, policy=options.policy.only("verdict"))
        old, new = (ImageEvidence(one.described(both.catalog), Observations()) for one in made)
        found = CollectedEvidence(old, new, gaps=("the same image: nothing was measured, its validation is judged",))
    else:
        found = gather(maker, made, suite, options)
    started, finished = span(began)
    simulated = any(one.verdict.unreal for one in made)
    document = _document(options, both, found, simulated=simulated, started=started, finished=finished)
    path = maker.workspace.upgrade(options.name)
    write_document(path, document)
    write_atomically(path.with_suffix(".md"), as_markdown(document).encode())
    return document


def predict(options: UpgradeOptions, catalog: Catalog) -> UpgradeDocument:
    """Compare two versions by the catalogue's facts. They can reject; only images can adopt."""
    both = pairs(options, catalog, no_row)[0]
    old, new = (ImageEvidence(describe(one, catalog), Observations()) for one in (both.old, both.new))
    asked = replace(options, policy=options.policy.only(*BY_FACTS), rounds=0)
    document = _document(asked, both, CollectedEvidence(old, new, gaps=("dry run: nothing was built or measured",)))
    advice = document.would_decide or ("the same command without --dry-run: it builds, validates and measures both",)
    undecided = msgspec.structs.replace(document, decision="UNDECIDED", would_decide=advice)
    return document if document.decision == "REJECT" else undecided


def first_buildable(rows: tuple[Pair, ...], maker: ImageBuilder) -> Pair:
    """Return the first row with a base that is available here. Raises BaseUnavailableError if there is none."""
    for row in rows[:-1]:
        try:
            maker.base(row.old)
        except BaseUnavailableError as error:
            maker.console.say(f"{row.row} cannot be built here: {error.message}")
        else:
            return row
    maker.base(rows[-1].old)
    return rows[-1]


def _make(maker: ImageBuilder, both: Pair, options: UpgradeOptions) -> list[ValidatedImage]:
    """Build both images before validating either: a concurrent build would disturb timings.

    Versions in the matrix are built from their own locks; others are locked close to the old image.
    """
    old = maker.lock_old(both.old)
    offered = maker.committed_image(both.new) if both.new.id in both.offered else None
    new = offered or maker.lock_new(both.new, old)
    if new.lock_is == "proposed":
        where = maker.workspace.for_upgrades.context(new.environment.id)
        maker.console.say(f"{both.new.id} has no committed lock: proposing {where}")
    built = [(locked, maker.build(locked)) for locked in (old, new)]
    if built[0][1].record.image == built[1][1].record.image:
        built = built[1:]
    made = [ValidatedImage(locked, image, maker.validate(locked, image, options)) for locked, image in built]
    return [made[0], made[-1]]


def _document(options: UpgradeOptions, both: Pair, gathered: CollectedEvidence, **more: Any) -> UpgradeDocument:  # noqa: ANN401
    if options.wheel is not None:
        compared = msgspec.structs.replace(gathered.new.compared, pythons=())
        gathered = replace(gathered, new=replace(gathered.new, compared=compared))
    old, new = gathered.old, gathered.new
    document = UpgradeDocument(
        old=old.compared,
        new=new.compared,
        flavor=options.flavor,
        differences=differences(gathered, hosts(options), both.catalog, options.policy.statistics),
        rounds=options.rounds,
        matrix=options.matrix.name if options.matrix and both.offered else "",
        row=both.row,
        not_judged=both.others,
        gaps=(
            *(f"old: {gap}" for gap in old.observed.gaps),
            *(f"new: {gap}" for gap in new.observed.gaps),
            *gathered.gaps,
            *(f"{row} is not in the catalogue: its row was proposed from its wheel" for row in both.proposed),
        ),
        **more,
    )
    return judge(document, options.policy)


def gather(
    maker: ImageBuilder, made: Sequence[ValidatedImage], suite: UserSuite | None, options: UpgradeOptions
) -> CollectedEvidence:
    """Collect all evidence about two images; every answer is cached immediately."""
    folder = f"{made[0].environment.os}-{made[0].environment.package}"
    cache = observe.AnswerCache(maker.workspace.upgrade(options.name).parent / "kept" / folder, options.fresh)
    places = [observe.ProbeTarget(maker.engine, each.image, each.gpus(options.gpus)) for each in made]
    observed = []
    for name, place, each in zip(("old", "new"), places, made, strict=True):
        with maker.console.task(each.environment.id) as task:
            ask, key = partial(observe.observe, place, task), observe.key_of(place)
            observed.append(cache.answer(f"observed-{name}", key, Observations, ask, lambda seen: not seen.gaps))
    with maker.console.task("both images in turn") as task:
        if suite is not None:
            ran = run_on_both(places, [each.environment.python for each in made], suite, cache, task)
            with_tests = zip(observed, ran, strict=True)
            observed = [msgspec.structs.replace(seen, tests=one, again=more) for seen, (one, more) in with_tests]
        task.update("loading models of the other image")
        load, key = partial(observe.exchange, *places), observe.key_of(*places)
        models, gaps = cache.answer("models", key, observe.ExchangedModels, load, lambda found: found.rows is not None)
        samples, wrong = observe.measure(places[0], places[1], options.rounds, task, cache)
    both = zip(made, observed, strict=True)
    old, new = (ImageEvidence(each.described(maker.catalog), seen, each.verdict.checks) for each, seen in both)
    return CollectedEvidence(old, new, samples, models, (*gaps, *wrong))


_OF_BISECTION = {"axis": "tensorflow", "tensorflow": None, "check": None, "repeat": 1, "command": ()}
_OF_COMPARISON = {"gpu": (), "dry_run": False, "fresh": False, "test_limit": TEST_LIMIT_S, "suite_limit": SUITE_LIMIT_S}
_OF_COMPARISON |= dict.fromkeys(("fleet", "driver", "wheel", "policy", "rounds"))
"""The options of one form of the command, with their values if they are not given."""


def read_upgrade(
    values: Mapping[str, Any], root: Path, catalog: Catalog, *, bisect: bool = False
) -> tuple[UpgradeOptions, Catalog]:
    """Return the command's values as options, with the files that they name, and the catalogue of the matrix."""
    for name, default in (_OF_COMPARISON if bisect else _OF_BISECTION).items():
        if values.get(name, default) != default:
            option = "a command" if name == "command" else f"--{name.replace('_', '-')}"
            text = f"{option} {'has no effect with' if bisect else 'requires'} --bisect"
            raise UsageError(text, hint="leave it out" if bisect else "envbuilder upgrade --bisect GOOD BAD -- CMD")
    named, fleet = _named_host(values, catalog), read_fleet(values["fleet"]) if values["fleet"] else ()
    has_gpus = any(host.gpus for host in (*named, *fleet))
    flavor = values.get("flavor") or ("gpu" if has_gpus else "cpu")
    if flavor == "cpu" and has_gpus:
        raise UsageError("--gpu and --fleet are about images for GPUs", hint="leave out --flavor cpu")
    if named and values["fleet"]:
        raise UsageError("--gpu and --fleet both name hosts", hint="give one of them")
    names = [name for name in ("old", "new", "tensorflow") if values.get(name) is not None]
    parts = ("old", "new") if values.get("axis") in ("cuda", "cudnn") else ()
    releases = {name: _version(values[name], None if name in parts else catalog) for name in names}
    if values.get("wheel"):
        _check_wheel(values["wheel"], releases["new"])
    matrix, known = read_known(values["matrix"], root, catalog) if values["matrix"] else (None, catalog)
    files = {
        "matrix": matrix,
        "fleet": (*named, *fleet),
        "flavor": flavor,
        "policy": read_policy(values["policy"], root),
        "rounds": values["rounds"] or ROUNDS,
    }
    return decoding.converted({**values, **releases, **files}, UpgradeOptions), known


def _named_host(values: Mapping[str, Any], catalog: Catalog) -> tuple[FleetHost, ...]:
    gpus, driver = values.get("gpu") or (), values.get("driver")
    if bool(gpus) != bool(driver):
        raise UsageError("--gpu and --driver name a host together", hint="--gpu T4 --driver 535, or --fleet FILE")
    if several := [gpu for gpu in gpus if catalog.possible_gpus(gpu) and catalog.gpu_model(gpu) is None]:
        raise UsageError(f"--gpu {several[0]}: not the name of one GPU", hint="give --gpu for each")
    try:
        return (decoding.converted({"name": "host", "driver": driver, "gpus": gpus}, FleetHost),) if gpus else ()
    except decoding.DamagedError as error:
        named = f"--gpu {', '.join(gpus)} --driver {driver}"
        raise UsageError(f"{named}: not a GPU with a driver", hint="--gpu T4 --driver 535") from error


def compare_versions(options: UpgradeOptions, root: Path, console: Console, catalog: Catalog) -> UpgradeDocument:
    """Build two versions, compare them and decide. Raises UnsatisfiableError if no row serves both."""
    if options.matrix is None:
        options = replace(options, matrix=read_matrix(find_matrix("tensorflow", root)), matrix_given=False)
    suite = read_suite(options.suite, options.test_limit, options.suite_limit) if options.suite else None
    if options.dry_run:
        return predict(options, catalog)
    began = time.monotonic()
    engine = connect()
    rows = pairs(options, catalog, partial(_propose, options, console, catalog))
    with ExitStack() as running:
        wheels = running.enter_context(temporary_folder("wheel")) if options.wheel else None
        if options.wheel and wheels:
            shutil.copy(options.wheel, wheels)  # installers look at a whole folder
        running.enter_context(console.live())
        engine.sweep()
        maker = ImageBuilder(Workspace(root), engine, console, rows[0].catalog, wheels)
        both = first_buildable(rows, maker)
        console.say(f"comparing {both.old.id} → {both.new.id} ({both.row})")
        return compare_images(maker, both, _make(maker, both, options), suite, options, began)


def _version(text: str, catalog: Catalog | None) -> str:
    found = catalog.newest_in(text) if catalog else text
    if found is None or not versions.is_version(found):
        raise UsageError(f"{text!r}: not a version", hint="name releases such as 2.19.1, or latest")
    return found


def read_policy(name: str | None, root: Path) -> Policy:
    """Read a policy; one without a clause about the new image's verdict requires PASSED."""
    policy: Policy = read_yaml(root / name if name else DEFAULT_POLICY, Policy)
    missing = () if policy.only("verdict").clauses else (ClauseRule(clause="verdict", at_most=0, otherwise="reject"),)
    return msgspec.structs.replace(policy, clauses=(*missing, *policy.clauses))


def _propose(
    options: UpgradeOptions, console: Console, catalog: Catalog, version: str, package: str
) -> TensorflowRelease:
    """Build the row of a release that the catalogue lacks, from the user's wheel or from the index."""
    console.say(f"{package} {version} is not in the catalogue: reading its wheel")
    proposer = Proposer(catalog, open_index(), today(), console.say)
    if options.wheel is None or version != options.new:
        return proposer.propose(version, package)
    file = DistFile(project=package, filename=options.wheel.name, url=options.wheel.resolve().as_uri())
    return proposer.describe(file)


def _check_wheel(wheel: Path, new: str) -> None:
    """Raise UsageError for a file that is not a wheel of this TensorFlow for Linux."""
    with suppress(InvalidWheelFilename):
        name, version, _, tags = parse_wheel_filename(wheel.name)
        if versions.same(str(version), new) and any("linux" in tag.platform for tag in tags) and name in DISTRIBUTIONS:
            return
    hint = f"as in tensorflow-{new}-cp311-cp311-manylinux_2_17_x86_64.whl"
    raise UsageError(f"{wheel.name} is not a wheel of TensorFlow {new} for Linux", hint=hint)


def bisect_versions(options: UpgradeOptions, root: Path, console: Console, catalog: Catalog) -> search.BisectDocument:
    """Find where the command or the check begins to fail. Raises UsageError if the options contradict each other."""
    axis, release = options.axis, options.tensorflow
    if any(map(str.strip, options.command)) == bool(options.check):
        raise UsageError("--bisect needs either a command or --check", hint="-- CMD, or --check NAME")
    if options.check not in (None, *(names := [check.name for check in CHECKS])):
        raise UsageError(f"the suite has no check {options.check!r}", hint=f"one of: {', '.join(names)}")
    if options.check and options.suite:
        raise UsageError("--suite has no effect with --check", hint="leave it out")
    if (axis == "tensorflow") is not (release is None) or (release and options.flavor != "gpu"):
        text = "--axis cuda and --axis cudnn need --tensorflow VERSION and --flavor gpu; other searches do not take it"
        raise UsageError(text, hint="name the TensorFlow release to keep")
    kept = options if axis == "tensorflow" or release is None else replace(options, old=release, new=release)
    row = pinned_row(kept, catalog)
    end = resolve(row, catalog)
    files = read_files(options.suite) if options.suite else {}
    maker = ImageBuilder(Workspace(root), connect(), console, catalog)
    maker.engine.sweep()
    offered = maker.committed_image(end) if isinstance(end, Environment) else None
    asked = search.BisectParameters(
        axis=axis,
        candidates=search.ordered(search.candidates(axis, row, catalog), options.old, options.new),
        row=row,
        command=options.command or ("check", options.check or ""),
        files=content_key(files) if files else "",
        lock=lockfile.digest(offered.lock) if offered else "",
        gpus=options.gpus,
        repeat=options.repeat,
    )
    console.say(f"{len(asked.candidates)} versions: {', '.join(asked.candidates)}")
    with console.live():
        trial = search.ImageRunner(maker, row, options, files)
        return search.bisect(asked, trial, Workspace(root).bisects, console.say, confirm=2)
