"""Resolve a whole matrix: its environments, its rejections, and what its author excluded."""

from __future__ import annotations

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.compat.nearest_combination import Nearest
from envbuilder.compat.resolver import Resolver
from envbuilder.environment import Environment, Rejection
from envbuilder.matrix import Excluded, Matrix, expand


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a matrix comes to. Environments are in the matrix's order, each id once."""

    environments: tuple[Environment, ...]
    rejections: tuple[Rejection, ...]
    excluded: tuple[Excluded, ...]


def plan(matrix: Matrix, catalog: Catalog) -> Plan:
    """Resolve every combination of a matrix for its targets; each rejection names the nearest that would work."""
    wanted, excluded = expand(matrix)
    resolver = Resolver(catalog, matrix.targets)
    nearest = Nearest(resolver)
    environments: dict[str, Environment] = {}
    rejections: list[Rejection] = []
    for wish in wanted:
        result = resolver.resolve(wish, nearest=nearest.to)
        if isinstance(result, Environment):
            environments.setdefault(result.id, result)
        else:
            rejections.append(result)
    return Plan(environments=tuple(environments.values()), rejections=tuple(rejections), excluded=excluded)
