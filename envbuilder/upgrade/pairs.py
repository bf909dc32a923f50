"""The options of an upgrade or a bisection, and the pairs of environments that differ in their TensorFlow only."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, product
from operator import attrgetter
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
from envbuilder.matrix import Matrix, expand
from envbuilder.upgrade.policy import Policy
from envbuilder.upgrade.user_tests import SUITE_LIMIT_S, TEST_LIMIT_S

Axis = Literal["tensorflow", "cuda", "cudnn"]
ROUNDS = 15
"""Default rounds of measurement: they find a slow-down of 30 % in 19 of 20 comparisons (simulated, see tests)."""


@dataclass(frozen=True)
class UpgradeOptions:
    """The options of the command, whose help describes them.

    ``matrix_given`` is False for the packaged matrix: versions without a row in it are compared as well.
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
    def versions(self) -> tuple[str, str]:
        return self.old, self.new

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
        return f"Python {self.old.python} on {self.old.os}"


def pairs(options: UpgradeOptions, catalog: Catalog, propose: Propose) -> tuple[Pair, ...]:
    """Resolve both versions in every row that serves both, the row to compare first.

    Rows for which the matrix offers both versions come before those with one version, and those before rows that are in
    no matrix. Raises UnsatisfiableError with the rules' findings if there is none, NothingSelectedError if the
    selectors exclude all.
    """
    package = options.package or "tensorflow"
    wanted = [version for version in options.versions if catalog.release(version, package) is None]
    proposed = tuple(propose(version, package) for version in dict.fromkeys(wanted))
    known = catalog.with_releases(proposed)
    offered = [_offered(options, known, version) for version in options.versions]
    names = tuple(f"{made.package} {made.version}" for made in proposed)
    rejected: list[Rejection] = []
    ids = frozenset(one.id for each in offered for one in each)
    whole = ((old, new) for old, new in product(*offered) if _same(old) == _same(new) and options.wheel is None)
    for stage in chain([whole], (_in_rows(rows, options, known, rejected) for rows in _kinds(options))):
        found: dict[tuple[str, str], Pair] = {}  # systems with one id are one image: the first counts
        for old, new in stage:
            found.setdefault((old.id, new.id), Pair(old, new, known, names, ids & {old.id, new.id}))
        if found:
            both = {one.id: one for each in found.values() for one in (each.old, each.new)}
            chosen = {one.id for one in select(tuple(both.values()), options.selectors)}
            return _in_order([each for each in found.values() if {each.old.id, each.new.id} & chosen], known)
    raise UnsatisfiableError(
        f"{options.old} and {options.new} cannot be built from the same row\n"
        + "\n".join(dict.fromkeys(f"{rejection.id}: {rejection.sentence}" for rejection in rejected)),
        hint="name a Python, system or CUDA that serves both in a matrix (--matrix), or see `envbuilder check`",
    )


def _rows(options: UpgradeOptions, version: str | None = None) -> list[Combination]:
    rows = expand(options.matrix)[0] if options.matrix else ()
    alike = [row for row in rows if row.flavor == options.flavor and not row.controls]
    named = version and "+" not in version  # a local version is another build than the release
    return alike if version is None else [row for row in alike if named and versions.same(row.tensorflow, version)]


def _offered(options: UpgradeOptions, catalog: Catalog, version: str) -> list[Environment]:
    """Return the matrix's environments of a version, with the distribution of the wheel file if there is one."""
    found = [resolve(row, catalog) for row in _rows(options, version)]
    return [one for one in found if isinstance(one, Environment) and options.package in {None, one.package}]


_same = attrgetter("python", "os", "package", "arch", "variant")
"""What both images of a pair share: they differ in their release only."""


def _kinds(options: UpgradeOptions) -> Iterator[list[Combination]]:
    """Yield the rows to try: those with one of the versions, else the flavour's first, else a plain row.

    The packaged matrix forbids nothing: a version without a row in it gets a plain one.
    """
    rows = (_rows(options, version) for version in options.versions)
    first = next(filter(None, rows), _rows(options)[:1] if options.matrix_given else [])
    yield first
    if not (first and options.matrix_given):
        variants: tuple[Variant, ...] = ("runtime", WHOLE)
        yield [Combination(tensorflow=options.old, flavor=options.flavor, variant=one) for one in variants]


def _in_rows(
    rows: Iterable[Combination], options: UpgradeOptions, catalog: Catalog, rejected: list[Rejection]
) -> Iterator[tuple[Environment, Environment]]:
    """Yield both versions in each row with its open fields resolved; impossible ones are added to ``rejected``."""
    for row in rows:
        named = msgspec.structs.replace(row, package=options.package or row.package)
        for complete in _completed_rows(named, catalog):
            both = [resolve(msgspec.structs.replace(complete, tensorflow=one), catalog) for one in options.versions]
            rejected += [one for one in both if isinstance(one, Rejection)]
            match both:
                case [Environment() as old, Environment() as new] if _same(old) == _same(new):
                    yield old, new


def _completed_rows(row: Combination, catalog: Catalog) -> Iterator[Combination]:
    """Yield the row with its open fields set: first as the resolver prefers, then by system.

    The plain distribution on both images comes last: not every release has a smaller one for the CPU.
    """
    places = [(system.name, row.python or system.python) for system in catalog.systems]
    for package in dict.fromkeys((row.package, row.package or "tensorflow")):
        for os, python in [(row.os, row.python)] if row.os else places:
            yield msgspec.structs.replace(row, package=package, os=os, python=python)


def _in_order(found: list[Pair], catalog: Catalog) -> tuple[Pair, ...]:
    """Order pairs: offered ones, plain CPU distribution last, ``runtime``, system without registry, newest Python."""
    bootstrapped = {system.name for system in catalog.systems if system.suite}

    def rank(each: Pair) -> tuple[int, bool, bool, bool, tuple[int, ...]]:
        smaller = each.old.flavor == "gpu" or each.old.package != "tensorflow"
        python = tuple(-number for number in versions.key(each.old.python)[0])
        return -len(each.offered), not smaller, not each.old.variant, each.old.os not in bootstrapped, python

    ordered = sorted(found, key=rank)
    ids = dict.fromkeys(each.new.id for each in ordered)
    return tuple(
        replace(each, others=tuple(one for one in ids if each.offered and one != each.new.id)) for each in ordered
    )


def pinned_row(options: UpgradeOptions, catalog: Catalog) -> Combination:
    """Return the common row of both versions, with a Python and a system that serve both."""
    old = pairs(options, catalog, no_row)[0].old
    plain = Combination(tensorflow=options.old, flavor=options.flavor, package=options.package)
    rows = (msgspec.structs.replace(row, tensorflow=old.tensorflow) for row in _rows(options))
    found = ((row, resolve(row, catalog)) for row in rows)
    same = (row for row, one in found if isinstance(one, Environment) and one.id == old.id)
    fixed = {"python": old.python, "os": old.os, "variant": old.variant or WHOLE}
    return msgspec.structs.replace(next(same, plain), tensorflow=options.old, **fixed)


def no_row(version: str, package: str) -> TensorflowRelease:
    raise UsageError(f"the catalogue has no {package} {version}", hint=f"envbuilder catalog refresh {version} --write")
