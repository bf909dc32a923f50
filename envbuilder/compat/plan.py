"""Resolve a complete matrix: its environments, its rejections, and its exclusions."""

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.compat.environment_id import FOREIGN, LONGEST_TAG
from envbuilder.compat.nearest import Buildable, nearest
from envbuilder.compat.resolve import Resolver
from envbuilder.environment import WHOLE, Environment, Rejection
from envbuilder.errors import UsageError
from envbuilder.matrix import Excluded, Matrix, expand


class Plan(msgspec.Struct, frozen=True, kw_only=True):
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
            continue
        near = nearest(combination, feasibility)
        if near is not None and not near.changes:
            raise AssertionError(f"it is rejected, and the search finds nothing wrong: {result.findings}")
        found = {"nearest": near.combination, "changes": near.changes, "predicate": near.predicate} if near else {}
        rejections.append(msgspec.structs.replace(result, **found))
    if matrix.id is not None:
        environments = _tagged(environments, matrix.id)
    return Plan(environments=tuple(environments.values()), rejections=tuple(rejections), excluded=excluded)


def _tagged(environments: dict[str, Environment], pattern: str) -> dict[str, Environment]:
    """Give each image its tag by the pattern of a matrix. Raises UsageError for a tag of two, and for one too long."""
    tags: dict[str, str] = {}
    found = {}
    for name, environment in environments.items():
        fields = {field: getattr(environment, field) or "none" for field in _FIELDS}
        fields |= dict.fromkeys(("variant", "form"), environment.variant or WHOLE)
        tag = FOREIGN.sub("-", pattern.format(**fields))
        if tag in tags or len(tag) > _LONGEST:
            why = f"{tags[tag]} and {name}" if tag in tags else f"{name}, and is longer than {_LONGEST} characters"
            raise UsageError(f"the matrix's id {pattern!r} gives {tag} for {why}", hint="name other fields, or {id}")
        tags[tag] = name
        found[name] = msgspec.structs.replace(environment, tag=tag)
    return found


_LONGEST = LONGEST_TAG - len("-0123456789ab")  # `publish` adds the beginning of a digest
_FIELDS = ("id", "tensorflow", "python", "os", "flavor", "cuda", "cudnn")
