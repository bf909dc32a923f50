"""Say on standard error that the catalogue is old, where a question names no day of its own."""

from __future__ import annotations

from datetime import UTC, datetime

from envbuilder.catalog.model import Catalog
from envbuilder.compat.missing import newer_than
from envbuilder.finding import Severity
from envbuilder.support import console


def warn_of_age(catalog: Catalog, now: datetime | None = None) -> Catalog:
    """Return the catalogue, and warn where it was read more than 90 days ago; ``now`` is the clock where it is None."""
    day = (now or datetime.now(UTC)).date().isoformat()
    for finding in newer_than(catalog.read_on, day):
        if finding.severity is Severity.WARNING:
            console.warn(f"{finding.message} {finding.fix}")
    return catalog
