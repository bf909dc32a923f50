"""Warn on standard error if the catalogue is old and the question names no day."""

from __future__ import annotations

from datetime import UTC, datetime

from envbuilder.catalog.model import Catalog
from envbuilder.compat.unknown import newer_than
from envbuilder.support import console


def warn_of_age(catalog: Catalog, now: datetime | None = None) -> Catalog:
    """Return the catalogue; warn if it was read more than 90 days ago. ``now`` None is the clock."""
    day = (now or datetime.now(UTC)).date().isoformat()
    for finding in newer_than(catalog.read_on, day):
        if finding.severity == "warning":
            console.warn(f"{finding.message} {finding.fix}")
    return catalog
