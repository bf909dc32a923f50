"""Resolve a whole matrix: its environments, its rejections, and what its author excluded."""

from __future__ import annotations

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.compat.nearest import Search
from envbuilder.compat.resolver import Resolver
from envbuilder.compat.works import Buildable
from envbuilder.environment import Combination, Environment, Rejection
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
    search = Search(Buildable(resolver))
    environments: dict[str, Environment] = {}
    rejections: list[Rejection] = []
    for wish in wanted:
        result = resolver.resolve(wish)
        if isinstance(result, Environment):
            environments.setdefault(result.id, result)
        else:
            rejections.append(_with_nearest(result, search))
    return Plan(environments=tuple(environments.values()), rejections=tuple(rejections), excluded=excluded)


def _with_nearest(rejection: Rejection, search: Search[Combination]) -> Rejection:
    near = search.nearest(rejection.combination)
    if near is None:
        return rejection
    return msgspec.structs.replace(rejection, nearest=near.wish, changes=near.changes, predicate=near.predicate)
