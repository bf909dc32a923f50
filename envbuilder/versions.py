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


def key_or_none(text: str) -> Key | None:
    """Return a version's key; None for a text that is no version."""
    try:
        return key(text)
    except ValueError:
        return None


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


def is_development(text: str) -> bool:
    """Tell whether a version is a development build's (``2.23.0.dev20261026``)."""
    found = _PARTS.match(text)
    return found is not None and found[2] == "dev"


def is_final(text: str) -> bool:
    """Tell whether a version is a release or a post-release of one: no development, alpha, beta or candidate."""
    return key(text)[1] >= 0


def same_major(text: str | None, other: str | None) -> bool:
    """Tell whether two versions are known and share their first number; what is not known agrees with nothing."""
    return text is not None and other is not None and major(text) == major(other)


def distance(text: str, other: str) -> tuple[int, ...]:
    """Return how far two versions are apart, number by number: the smaller tuple is the nearer version."""
    return tuple(abs(a - b) for a, b in zip(numbers(text), numbers(other), strict=False))


def admits(bounds: tuple[tuple[str, str], ...], version: str) -> bool:
    """Tell whether every bound ``(operator, version)`` of a requirement admits a version."""
    return all(_admits(operator, bound, version) for operator, bound in bounds)


def _admits(operator: str, bound: str, version: str) -> bool:
    if bound.endswith(".*"):
        same = is_prefix(bound.removesuffix(".*"), version)
        return same if operator == "==" else not same
    if operator == "~=":
        line = ".".join(map(str, numbers(bound)[:-1]))
        return at_least(version, bound) and is_prefix(line, version)
    ours, theirs = key(version), key(bound)
    return {
        "==": ours == theirs,
        "!=": ours != theirs,
        ">=": ours >= theirs,
        "<=": ours <= theirs,
        ">": ours > theirs,
        "<": ours < theirs,
    }[operator]
