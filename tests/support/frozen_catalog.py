"""The catalogue up to a release: a new release does not change the golden answers about older ones."""

from __future__ import annotations

from functools import cache

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.store import load

NEWEST = "2.22.0rc0"
"""The newest release when most golden answers were written; an answer about a later one has `newest` in its case."""

_load = load


@cache
def up_to(newest: str = NEWEST) -> Catalog:
    rows = (row for row in _load().tensorflow if versions.at_least(newest, row.version))
    return msgspec.structs.replace(_load(), tensorflow=tuple(rows))
