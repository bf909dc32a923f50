"""What a quantity comes to: bounds on its value, a text for people, and the details behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from envbuilder.upgrade.upgrade_document import Differences, Side


class Figures(NamedTuple):
    """What a quantity came to: bounds on its value (equal where it is counted), a text, and its details.

    ``low`` None: it could not be found out. ``asked`` False: nothing was asked that it could answer.
    """

    low: float | None
    high: float | None
    found: str
    details: tuple[str, ...] = ()
    asked: bool = True


class Sides(NamedTuple):
    """What the quantities are read from."""

    old: Side
    new: Side
    differences: Differences


def count(details: Sequence[str], *, nothing: str = "none") -> Figures:
    """Count details; nothing is said in words."""
    return Figures(len(details), len(details), str(len(details)) if details else nothing, tuple(details))


def unknown(why: str) -> Figures:
    """Say why something could not be found out."""
    return Figures(None, None, why)


def not_asked(why: str) -> Figures:
    """Say why there was nothing to find out."""
    return Figures(None, None, why, asked=False)
