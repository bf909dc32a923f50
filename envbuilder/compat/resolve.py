"""Resolve combinations: fill in every choice from the catalogue, or say in a sentence why it cannot be."""

from __future__ import annotations

from envbuilder.catalog.model import Catalog
from envbuilder.compat.resolver import NO_TARGETS, Resolver
from envbuilder.environment import Combination, Environment, Rejection
from envbuilder.matrix import Targets


def resolve(
    combination: Combination, catalog: Catalog, targets: Targets = NO_TARGETS, *, as_reported: bool = False
) -> Environment | Rejection:
    """Make every choice that a combination leaves open.

    ``targets`` are drivers and GPUs that a GPU environment has to serve. With ``as_reported`` (or where the
    combination names ``controls``) a mismatch is kept as a finding instead of rejected, as long as it can be built:
    that is how a user's broken environment is rebuilt.
    """
    return Resolver(catalog, targets).resolve(combination, as_reported=as_reported)
