"""Choose what a command works on: a matrix, its plan, the environments that selectors leave, and a fleet's hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envbuilder.catalog.model import Catalog
from envbuilder.compat.fleet import FleetHost
from envbuilder.compat.plan import Plan, plan
from envbuilder.compat.selectors import select
from envbuilder.environment import Environment
from envbuilder.errors import UnsatisfiableError
from envbuilder.matrix import Matrix
from envbuilder.workspace import Workspace, find_matrix
from envbuilder.yaml_reader import read_matrix, read_yaml

VETTED = ("quickstart", "tensorflow", "classic")
"""The matrices whose contexts are committed in this project's ``images/``."""


@dataclass(frozen=True)
class Choice:
    """A matrix, its plan, and the environments of it that a command works on."""

    matrix: Matrix
    catalog: Catalog
    plan: Plan
    environments: tuple[Environment, ...]


def choose(matrix: str | None, selectors: Sequence[str], workspace: Workspace, catalog: Catalog) -> Choice:
    """Read a matrix, resolve it and select.

    Raises InputError for a bad matrix, UnsatisfiableError where every combination was rejected,
    NothingSelectedError where the selectors leave nothing.
    """
    wishes = read_matrix(find_matrix(matrix, workspace.root))
    resolved = plan(wishes, catalog)
    if not resolved.environments:
        reasons = "\n".join(f"{rejection.id}: {rejection.sentence}" for rejection in resolved.rejections)
        raise UnsatisfiableError(
            f"no combination of matrix {wishes.name} can work\n{reasons}", hint="`envbuilder plan` shows the nearest"
        )
    return Choice(wishes, catalog, resolved, select(resolved.environments, tuple(selectors)))


def choose_all(matrices: Sequence[str], selectors: Sequence[str], root: Path, catalog: Catalog) -> tuple[Choice, ...]:
    """Choose from several matrices; an environment that two of them give is kept in the first alone."""
    workspace = Workspace(root)
    choices = [choose(name, (), workspace, catalog) for name in matrices or VETTED]
    every: dict[str, Environment] = {}
    for choice in choices:
        for environment in choice.environments:
            every.setdefault(environment.id, environment)
    wanted = {environment.id for environment in select(tuple(every.values()), tuple(selectors))}
    result = []
    for choice in choices:
        own = tuple(e for e in choice.environments if e.id in wanted)
        wanted -= {environment.id for environment in own}
        result.append(Choice(choice.matrix, choice.catalog, choice.plan, own))
    return tuple(result)


def read_fleet(path: Path) -> tuple[FleetHost, ...]:
    """Read a list of hosts from YAML. Raises InputError with every problem in it."""
    hosts: tuple[FleetHost, ...] = read_yaml(path, tuple[FleetHost, ...])
    return hosts
