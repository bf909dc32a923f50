"""What an upgrade is asked for, and the two environments that differ in nothing but TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import TensorflowRelease
from envbuilder.compat.fleet import FleetHost
from envbuilder.compat.resolve import resolve
from envbuilder.environment import Combination, Environment, Flavor, Rejection
from envbuilder.errors import UnsatisfiableError, UsageError
from envbuilder.matrix import Budgets, Matrix, Targets, expand
from envbuilder.upgrade.policy import Policy

ROUNDS = 15
"""Rounds of measurement: with as many, a slow-down of 30 % is found in 19 of 20 comparisons (simulated, see tests)."""


@dataclass(frozen=True)
class UpgradeRequest:
    """What to compare: two versions, the row that both come from, and what to judge them by.

    ``wheels`` holds the wheel file of a version that is on no index; ``suite`` is the user's test folder.
    """

    old: str
    new: str
    policy: Policy
    flavor: Flavor = "cpu"
    matrix: Matrix | None = None
    fleet: tuple[FleetHost, ...] = ()
    suite: Path | None = None
    wheel: Path | None = None
    rounds: int = ROUNDS
    profile: str = "quick"
    gpus: str = "auto"

    @property
    def budgets(self) -> Budgets:
        """The budgets of the matrix, which both sides are held to."""
        return self.matrix.budgets if self.matrix else Budgets()

    @property
    def package(self) -> str | None:
        """The distribution that the wheel file is of; None without one."""
        return self.wheel.name.partition("-")[0].replace("_", "-").lower() if self.wheel else None

    @property
    def name(self) -> str:
        """The folder of the results: ``2.18.1_2.19.1_cpu``."""
        return f"{self.old}_{self.new}_{self.flavor}"


Propose = Callable[[str, str], TensorflowRelease]
"""Makes a catalogue row for a version and a package that the catalogue lacks."""


@dataclass(frozen=True)
class Pair:
    """Both sides resolved, and the catalogue that they were resolved with (proposed rows included)."""

    old: Environment
    new: Environment
    catalog: Catalog
    proposed: tuple[str, ...] = field(default=())


def pair(request: UpgradeRequest, catalog: Catalog, propose: Propose) -> Pair:
    """Resolve both versions from the same row, on the same Python and system.

    Raises UnsatisfiableError with the rule's sentence where one of them cannot be had there.
    """
    proposed = tuple(propose(version, request.package or "tensorflow") for version in _unknown(request, catalog))
    known = msgspec.structs.replace(catalog, tensorflow=(*catalog.tensorflow, *proposed))
    row = _row(request)
    rejected: list[Rejection] = []
    for wish in _wishes(row, known):
        sides = [resolve(msgspec.structs.replace(wish, tensorflow=v), known) for v in (request.old, request.new)]
        match sides:
            case [Environment() as old, Environment() as new] if _alike(old, new):
                return Pair(old, new, known, tuple(f"{made.package} {made.version}" for made in proposed))
        rejected += [side for side in sides if isinstance(side, Rejection)]
    raise UnsatisfiableError(
        f"{request.old} and {request.new} cannot both be had from the same row\n"
        + "\n".join(dict.fromkeys(f"{rejection.id}: {rejection.sentence}" for rejection in rejected)),
        hint="name a Python, system or CUDA that serves both in a matrix (--matrix), or see `envbuilder check`",
    )


def _alike(old: Environment, new: Environment) -> bool:
    """Tell whether two environments differ in their release alone: same Python, system and distribution."""
    return (old.python, old.os, old.package) == (new.python, new.os, new.package)


def pinned_row(request: UpgradeRequest, catalog: Catalog) -> Combination:
    """Return the row of both versions with the Python and the system that serve both."""
    old = pair(request, catalog, _no_row).old
    return msgspec.structs.replace(_row(request), tensorflow=request.old, python=old.python, os=old.os)


def _no_row(version: str, package: str) -> TensorflowRelease:
    raise UsageError(f"the catalogue has no {package} {version}", hint=f"envbuilder catalog refresh {version} --write")


def _unknown(request: UpgradeRequest, catalog: Catalog) -> tuple[str, ...]:
    wanted = dict.fromkeys((request.old, request.new))
    package = request.package or "tensorflow"
    return tuple(version for version in wanted if catalog.release(version, package) is None)


def _row(request: UpgradeRequest) -> Combination:
    """Choose the matrix's row: that of the old version, else the first of the flavour; a plain one without a matrix."""
    rows = expand(request.matrix)[0] if request.matrix else ()
    fitting = [row for row in rows if row.flavor == request.flavor and not row.controls]
    same = [row for row in fitting if versions.key(row.tensorflow) == versions.key(request.old)]
    plain = Combination(tensorflow=request.old, flavor=request.flavor)
    row = next(iter((*same, *fitting)), plain)
    return msgspec.structs.replace(row, package=request.package or row.package)


def _wishes(row: Combination, catalog: Catalog) -> Iterator[Combination]:
    """Yield the row with what it leaves open: first as the resolver prefers, then by newest Python.

    Last with the plain distribution on both sides: not every release has a smaller one for the CPU.
    """
    yield row
    for package in dict.fromkeys((row.package, row.package or "tensorflow")):
        wish = msgspec.structs.replace(row, package=package)
        if row.os is not None:
            yield wish
            continue
        for system in sorted(catalog.systems, key=lambda system: versions.key(system.python), reverse=True):
            yield msgspec.structs.replace(wish, os=system.name, python=row.python or system.python)


def hosts(request: UpgradeRequest) -> tuple[FleetHost, ...]:
    """Return the fleet to judge by: the file's, or the targets of the matrix."""
    if request.fleet or request.matrix is None:
        return request.fleet
    targets: Targets = request.matrix.targets
    return tuple(FleetHost(name=f"target-{driver}", driver=driver, gpus=targets.gpus) for driver in targets.drivers)
