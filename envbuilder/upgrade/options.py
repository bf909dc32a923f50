"""The options of an upgrade comparison or a bisection: two versions, their matrix, and the criteria."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from envbuilder.catalog.rows import TensorflowRelease
from envbuilder.compat.fleet import FleetHost
from envbuilder.environment import Flavor
from envbuilder.matrix import Budgets, Matrix
from envbuilder.upgrade.bisect import Axis
from envbuilder.upgrade.policy import Policy
from envbuilder.upgrade.user_tests import SUITE_LIMIT_S, TEST_LIMIT_S

ROUNDS = 15
"""Default rounds of measurement: they find a slow-down of 30 % in 19 of 20 comparisons (simulated, see tests)."""


@dataclass(frozen=True)
class UpgradeOptions:
    """Two versions, the matrix that offers them, the criteria, and what a bisection runs.

    ``matrix_given`` is False for the packaged matrix: versions without a row in it are compared as well. ``selectors``
    choose rows. ``wheel`` is the file of a version that is on no index; ``suite`` is the user's test folder, and its
    limits are in seconds; ``fresh`` ignores cached answers. ``axis`` is the part that a bisection varies, and
    ``tensorflow`` the release to keep; it runs ``command``, or the ``check`` of the suite, ``repeat`` times in each
    version.
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
