"""Compare version texts that are kept as they were written (``450.80.02``, ``12.5``, ``2.20.0``)."""

from __future__ import annotations

import re
from functools import lru_cache

DOTTED = r"[0-9]{1,6}(?:\.[0-9]{1,8}){0,4}"
"""Numbers with dots: drivers, CUDA toolkits, cuDNN, compute capabilities, Python minors."""

RELEASE = DOTTED + r"(?:(?:a|b|rc|\.post|\.dev|-rc)[0-9]{1,10})*(?:\+[a-z0-9.]{1,20})?"
"""A Python package's version: dotted numbers, then a pre-, post- or development release."""

_PRE = {"dev": -4, "a": -3, "b": -2, "rc": -1, "": 0, "post": 1}
_PARTS = re.compile(rf"^v?({DOTTED})(?:[.\-_]?(dev|a|b|rc|post)([0-9]+))?")

Key = tuple[tuple[int, ...], int, int]


@lru_cache(maxsize=65_536)
def key(text: str) -> Key:
    """Return what orders versions: numbers without trailing zeros, then the kind and number of a pre-release.

    ``key("12.5") == key("12.5.0")``. Raises ValueError for a text that does not begin with a number.
    """
    found = _PARTS.match(text)
    if found is None:
        raise ValueError(f"not a version: {text!r}")
    numbers = [int(part) for part in found[1].split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers), _PRE[found[2] or ""], int(found[3] or 0)


@lru_cache(maxsize=65_536)
def numbers(text: str) -> tuple[int, ...]:
    """Return the leading dotted numbers as integers, trailing zeros kept: ``"8.0.5" -> (8, 0, 5)``."""
    found = _PARTS.match(text)
    if found is None:
        raise ValueError(f"not a version: {text!r}")
    return tuple(int(part) for part in found[1].split("."))


def major(text: str) -> int:
    """Return the first number: ``"535.104.05" -> 535``."""
    return numbers(text)[0]


@lru_cache(maxsize=65_536)
def minor(text: str) -> str:
    """Return the first two numbers as text: ``"12.5.1" -> "12.5"``, ``"12" -> "12.0"``."""
    parts = (*numbers(text), 0)
    return f"{parts[0]}.{parts[1]}"


def at_least(text: str, floor: str) -> bool:
    """Tell whether ``text`` is ``floor`` or newer."""
    return key(text) >= key(floor)


def is_prefix(short: str, full: str) -> bool:
    """Tell whether ``full`` is one of the versions that ``short`` abbreviates: ``8.1`` stands for ``8.1.1``."""
    part = numbers(short)
    return numbers(full)[: len(part)] == part
