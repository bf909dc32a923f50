"""Resolve a complete matrix: its environments, its rejections, and its exclusions."""

from __future__ import annotations

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.compat.nearest import Buildable, nearest
from envbuilder.compat.resolve import Resolver
from envbuilder.environment import Environment, Rejection
from envbuilder.matrix import Excluded, Matrix, expand


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The environments of a matrix in its order, each id once; its rejections and exclusions."""

    environments: tuple[Environment, ...]
    rejections: tuple[Rejection, ...]
    excluded: tuple[Excluded, ...]


def plan(matrix: Matrix, catalog: Catalog) -> Plan:
    """Resolve every combination of a matrix for its targets; each rejection names the nearest that works."""
    wanted, excluded = expand(matrix)
    resolver = Resolver(catalog, matrix.targets)
    feasibility = Buildable(resolver)
    environments: dict[str, Environment] = {}
    rejections: list[Rejection] = []
    for combination in wanted:
        result = resolver.resolve(combination)
        if isinstance(result, Environment):
            environments.setdefault(result.id, result)
        else:
            rejections.append(_with_nearest(result, feasibility))
    return Plan(environments=tuple(environments.values()), rejections=tuple(rejections), excluded=excluded)


def _with_nearest(rejection: Rejection, feasibility: Buildable) -> Rejection:
    near = nearest(rejection.combination, feasibility)
    if near is None:
        return rejection
    return msgspec.structs.replace(rejection, nearest=near.wish, changes=near.changes, predicate=near.predicate)
