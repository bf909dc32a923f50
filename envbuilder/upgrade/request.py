"""What an upgrade is asked for: two versions, the matrix that offers them, and what to judge them by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from envbuilder.catalog.rows import TensorflowRelease
from envbuilder.compat.fleet import FleetHost
from envbuilder.environment import Flavor
from envbuilder.matrix import Budgets, Matrix, Targets
from envbuilder.upgrade.policy import Policy

ROUNDS = 15
"""Rounds of measurement: with as many, a slow-down of 30 % is found in 19 of 20 comparisons (simulated, see tests)."""


@dataclass(frozen=True)
class UpgradeRequest:
    """What to compare: two versions, the matrix that offers them, and what to judge them by.

    ``matrix_given`` is False for the matrix that ships: versions that it has no row for are compared all the same.
    ``selectors`` choose among its rows. ``wheel`` is the file of a version that is on no index; ``suite`` is the user's
    test folder; ``fresh`` measures again what was measured before.
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
    matrix_given: bool = True
    selectors: tuple[str, ...] = ()
    fresh: bool = False

    @property
    def budgets(self) -> Budgets:
        """The budgets of the matrix, which both images are held to."""
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


def hosts(request: UpgradeRequest) -> tuple[FleetHost, ...]:
    """Return the fleet to judge by: the file's, or the targets of the matrix."""
    if request.fleet or request.matrix is None:
        return request.fleet
    targets: Targets = request.matrix.targets
    return tuple(FleetHost(name=f"target-{driver}", driver=driver, gpus=targets.gpus) for driver in targets.drivers)
