"""The options of an upgrade or a bisection, and the pairs of environments that differ in their TensorFlow only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Literal

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import TensorflowRelease
from envbuilder.compat.fleet import FleetHost
from envbuilder.compat.resolve import resolve
from envbuilder.compat.selectors import select
from envbuilder.environment import WHOLE, Combination, Environment, Flavor, Rejection, Variant
from envbuilder.errors import UnsatisfiableError, UsageError
from envbuilder.matrix import Budgets, Matrix, expand
from envbuilder.upgrade.policy import Policy
from envbuilder.upgrade.user_tests import SUITE_LIMIT_S, TEST_LIMIT_S

Axis = Literal["tensorflow", "cuda", "cudnn"]
ROUNDS = 15
"""Default rounds of measurement: they find a slow-down of 30 % in 19 of 20 comparisons (simulated, see tests)."""


@dataclass(frozen=True)
class UpgradeOptions:
    """Two versions, the matrix that offers them, the criteria, and what a bisection runs.

    ``matrix_given`` is False for the packaged matrix: versions without a row in it are compared as well. ``selectors``
    choose rows. ``wheel`` is the file of a version that is on no index; ``suite`` is the user's test folder, and its
    limits are in seconds; ``fresh`` ignores cached answers, and ``dry_run`` answers from the catalogue's facts.
    ``axis`` is the part that a bisection varies, and ``tensorflow`` the release to keep; it runs ``command``, or the
    ``check`` of the suite, ``repeat`` times in each version.
    """

    old: str
    new: str
    policy: Policy
    flavor: Flavor = "cpu"
    matrix: Matrix | None = None
    fleet: tuple[FleetHost, ...] = ()
    suite: Path | None = None
    test_limit: int = TEST_LIMIT_S
    suite_limit: int = SUITE_LIMIT_S
    wheel: Path | None = None
    rounds: int = ROUNDS
    gpus: str = "auto"
    matrix_given: bool = True
    selectors: tuple[str, ...] = ()
    fresh: bool = False
    dry_run: bool = False
    axis: Axis = "tensorflow"
    tensorflow: str | None = None
    check: str | None = None
    repeat: int = 1
    command: tuple[str, ...] = ()

    @property
    def budgets(self) -> Budgets:
        """The budgets of the matrix, for both images."""
        return self.matrix.budgets if self.matrix else Budgets()

    @property
    def package(self) -> str | None:
        """The distribution of the wheel file, or None."""
        return self.wheel.name.partition("-")[0].replace("_", "-").lower() if self.wheel else None

    @property
    def name(self) -> str:
        """The folder of the results: ``2.18.1_2.19.1_cpu``."""
        return f"{self.old}_{self.new}_{self.flavor}"


Propose = Callable[[str, str], TensorflowRelease]
"""Builds a catalogue row for a version and a package that the catalogue lacks."""


def hosts(options: UpgradeOptions) -> tuple[FleetHost, ...]:
    """Return the fleet of the file, or the targets of the matrix."""
    if options.fleet or options.matrix is None:
        return options.fleet
    targets = options.matrix.targets
    return tuple(FleetHost(name=f"target-{driver}", driver=driver, gpus=targets.gpus) for driver in targets.drivers)


@dataclass(frozen=True)
class Pair:
    """Both environments, and the catalogue that resolved them (with ``proposed`` rows).

    ``offered`` are the ids of the images that the matrix offers; ``others`` name the other rows with both versions.
    """

    old: Environment
    new: Environment
    catalog: Catalog
    proposed: tuple[str, ...] = field(default=())
    offered: frozenset[str] = frozenset()
    others: tuple[str, ...] = ()

    @property
    def row(self) -> str:
        """The row as text: ``Python 3.11 on debian-bookworm``."""
        return f"Python {self.old.python} on {self.old.os}"


def pair(options: UpgradeOptions, catalog: Catalog, propose: Propose) -> Pair:
    return pairs(options, catalog, propose)[0]


def pairs(options: UpgradeOptions, catalog: Catalog, propose: Propose) -> tuple[Pair, ...]:
    """Resolve both versions in every row that serves both, the row to compare first.

    Rows for which the matrix offers both versions come before those with one version, and those before rows that are in
    no matrix. Within each group: the ``runtime`` variant, which is what is published, systems that can be bootstrapped
    anywhere, the newest Python.

    Raises UnsatisfiableError with the rules' findings if there is none, NothingSelectedError if the selectors exclude
    all.
    """
    proposed = tuple(propose(version, options.package or "tensorflow") for version in _unknown(options, catalog))
    known = catalog.with_releases(proposed)
    offered = _with_packaged_matrix(options, known)
    names = tuple(f"{made.package} {made.version}" for made in proposed)
    rejected: list[Rejection] = []
    ids = frozenset(one.id for one in offered)
    stages = (_in_rows(rows, options, known, rejected) for rows in _kinds(options))
    for stage in chain([_both_offered(options, offered)], stages):
        found = [Pair(old, new, known, names, ids & {old.id, new.id}) for old, new in stage]
        if found:
            return _in_order(_selected(found, options), known)
    raise UnsatisfiableError(
        f"{options.old} and {options.new} cannot be built from the same row\n"
        + "\n".join(dict.fromkeys(f"{rejection.id}: {rejection.sentence}" for rejection in rejected)),
        hint="name a Python, system or CUDA that serves both in a matrix (--matrix), or see `envbuilder check`",
    )


def _with_packaged_matrix(options: UpgradeOptions, catalog: Catalog) -> tuple[Environment, ...]:
    """Return the matrix rows with both versions; nothing for a release from a local wheel file."""
    wanted = {versions.key(version) for version in (options.old, options.new)}
    found = [resolve(row, catalog) for row in _rows(options) if versions.key(row.tensorflow) in wanted]
    package = options.package
    return tuple(one for one in found if isinstance(one, Environment) and package in {None, one.package})


def _rows(options: UpgradeOptions) -> list[Combination]:
    rows = expand(options.matrix)[0] if options.matrix else ()
    return [row for row in rows if row.flavor == options.flavor and not row.controls]


def _both_offered(options: UpgradeOptions, offered: Iterable[Environment]) -> Iterator[tuple[Environment, Environment]]:
    """Yield pairs of matrix environments that differ only in their release."""
    if options.wheel is not None:
        return
    sides = tuple(
        [one for one in offered if versions.key(one.tensorflow) == versions.key(version)]
        for version in (options.old, options.new)
    )
    yield from ((old, new) for old in sides[0] for new in sides[1] if same_except_release(old, new))


def same_except_release(old: Environment, new: Environment) -> bool:
    """Return True if two environments differ only in their release: same Python, system, distribution and variant."""
    same = (old.python, old.os, old.package, old.arch, old.variant)
    return same == (new.python, new.os, new.package, new.arch, new.variant)


def _kinds(options: UpgradeOptions) -> Iterator[list[Combination]]:
    """Yield the rows to try: those with one of the versions, else the flavour's first, else a plain row.

    The packaged matrix forbids nothing: a version without a row in it gets a plain one.
    """
    rows = _rows(options)
    kinds = [
        [row for row in rows if versions.key(row.tensorflow) == versions.key(version)]
        for version in (options.old, options.new)
    ]
    first = kinds[0] or kinds[1] or (rows[:1] if options.matrix_given else [])
    yield first
    if not (first and options.matrix_given):
        variants: tuple[Variant, ...] = ("runtime", WHOLE)
        yield [Combination(tensorflow=options.old, flavor=options.flavor, variant=one) for one in variants]


def _in_rows(
    rows: Iterable[Combination], options: UpgradeOptions, catalog: Catalog, rejected: list[Rejection]
) -> Iterator[tuple[Environment, Environment]]:
    """Yield both versions in each row with its open fields resolved; impossible ones are added to ``rejected``."""
    seen: set[tuple[str, str]] = set()
    for row in rows:
        named = msgspec.structs.replace(row, package=options.package or row.package)
        for wish in _completed_rows(named, catalog):
            match _resolved(wish, options, catalog, rejected):
                case [Environment() as old, Environment() as new] if (old.id, new.id) not in seen:
                    seen.add((old.id, new.id))
                    yield old, new


def _resolved(
    wish: Combination, options: UpgradeOptions, catalog: Catalog, rejected: list[Rejection]
) -> tuple[Environment, ...]:
    sides = [resolve(msgspec.structs.replace(wish, tensorflow=v), catalog) for v in (options.old, options.new)]
    rejected += [side for side in sides if isinstance(side, Rejection)]
    match sides:
        case [Environment() as old, Environment() as new] if same_except_release(old, new):
            return old, new
    return ()


def _completed_rows(row: Combination, catalog: Catalog) -> Iterator[Combination]:
    """Yield the row with its open fields set: first as the resolver prefers, then by system.

    The plain distribution on both images comes last: not every release has a smaller one for the CPU.
    """
    if row.os is not None:
        yield row
    for package in dict.fromkeys((row.package, row.package or "tensorflow")):
        wish = msgspec.structs.replace(row, package=package)
        if row.os is not None:
            yield wish
            continue
        for system in catalog.systems:
            yield msgspec.structs.replace(wish, os=system.name, python=row.python or system.python)


def _selected(found: list[Pair], options: UpgradeOptions) -> list[Pair]:
    every = tuple({side.id: side for each in found for side in (each.old, each.new)}.values())
    wanted = {side.id for side in select(every, options.selectors)}
    return [each for each in found if {each.old.id, each.new.id} & wanted]


def _in_order(found: list[Pair], catalog: Catalog) -> tuple[Pair, ...]:
    """Order pairs: offered ones, plain CPU distribution last, ``runtime``, system without registry, newest Python."""
    bootstrapped = {system.name for system in catalog.systems if system.suite}

    def rank(each: Pair) -> tuple[int, bool, bool, bool, tuple[int, ...]]:
        smaller = each.old.flavor == "gpu" or each.old.package != "tensorflow"
        python = tuple(-number for number in versions.key(each.old.python)[0])
        return -len(each.offered), not smaller, not each.old.variant, each.old.os not in bootstrapped, python

    ordered = sorted(found, key=rank)
    names = [each.new.id for each in ordered]
    return tuple(
        replace(each, others=tuple(dict.fromkeys(name for name in names if name != each.new.id)))
        if each.offered
        else each
        for each in ordered
    )


def pinned_row(options: UpgradeOptions, catalog: Catalog) -> Combination:
    """Return the common row of both versions, with a Python and a system that serve both."""
    old = pair(options, catalog, no_row).old
    rows = [row for row in _rows(options) if resolved_on(row, old, catalog)]
    row = next(iter(rows), Combination(tensorflow=options.old, flavor=options.flavor, package=options.package))
    fixed = {"python": old.python, "os": old.os, "variant": old.variant or WHOLE}
    return msgspec.structs.replace(row, tensorflow=options.old, **fixed)


def resolved_on(row: Combination, environment: Environment, catalog: Catalog) -> bool:
    """Return True if the row with this release describes this environment."""
    found = resolve(msgspec.structs.replace(row, tensorflow=environment.tensorflow), catalog)
    return isinstance(found, Environment) and found.id == environment.id


def no_row(version: str, package: str) -> TensorflowRelease:
    raise UsageError(f"the catalogue has no {package} {version}", hint=f"envbuilder catalog refresh {version} --write")


def _unknown(options: UpgradeOptions, catalog: Catalog) -> tuple[str, ...]:
    wanted = dict.fromkeys((options.old, options.new))
    package = options.package or "tensorflow"
    return tuple(version for version in wanted if catalog.release(version, package) is None)
