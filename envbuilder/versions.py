"""Parse and compare versions, which keep their spelling (``450.80.02``, ``12.5``, ``2.20.0``), and pins.

No other module parses or compares the text of a version.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

DOTTED = r"[0-9]{1,6}(?:\.[0-9]{1,8}){0,4}"
"""Numbers with dots: drivers, CUDA toolkits, cuDNN, compute capabilities, Python minors."""

RELEASE = DOTTED + r"(?:(?:a|b|rc|\.post|\.dev|-rc)[0-9]{1,10})*(?:\+[a-z0-9.]{1,20})?"
"""A Python package's version: dotted numbers, then a pre-, post- or development release."""

LATEST = "latest"

_BOUND = rf"(?:(?:[<>]=?|[=!]=){RELEASE}|[=!]={DOTTED}\.\*|~=[0-9]{{1,6}}\.{RELEASE})"

SPEC = rf"(?:{LATEST}|{RELEASE}|{_BOUND}(?:, ?{_BOUND}){{0,4}})"
"""A version as a question names it: a release, ``latest``, or a range such as ``>=2.17,<2.21``."""

_PRE = {"dev": -4, "a": -3, "b": -2, "rc": -1, "": 0, "post": 1}
_PARTS = re.compile(rf"^v?({DOTTED})(?:[.\-_]?(dev|a|b|rc|post)([0-9]+))?")

_WHOLE = re.compile(rf"v?{RELEASE}\Z")

Key = tuple[tuple[int, ...], int, int]


@lru_cache(maxsize=65_536)
def key(text: str) -> Key:
    """Return the sort key of a version: numbers without trailing zeros, then kind and number of a pre-release.

    ``key("12.5") == key("12.5.0")``. Raises ValueError if the text does not begin with a number.
    """
    found = _PARTS.match(text)
    if found is None:
        raise ValueError(f"not a version: {text!r}")
    numbers = [int(part) for part in found[1].split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers), _PRE[found[2] or ""], int(found[3] or 0)


def key_or_none(text: str) -> Key | None:
    """Return a version's key; None for other texts."""
    try:
        return key(text)
    except ValueError:
        return None


def is_version(text: str) -> bool:
    return _WHOLE.match(text) is not None


def order(text: str | None) -> tuple[bool, Key]:
    """Return a sort key for versions of which some are unknown: these come first."""
    found = key_or_none(text) if text is not None else None
    return found is not None, found or ((), 0, 0)


def same(text: str | None, other: str | None) -> bool:
    """Return True if two versions are equal (``2.20``, ``2.20.0``). An unknown version equals nothing."""
    if text is None or other is None:
        return False
    one = key_or_none(text)
    return one is not None and one == key_or_none(other)


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


def names_line(text: str) -> bool:
    """Return True if a version has more than one number: ``8.1`` and ``8.1.1``, but not ``8``."""
    return len(numbers(text)) > 1


def line(text: str) -> str:
    """Return the line of a version: ``"12.5.1" -> "12.5"``, ``"12" -> "12"``."""
    return minor(text) if names_line(text) else str(major(text))


def at_least(text: str, floor: str) -> bool:
    return key(text) >= key(floor)


@lru_cache(maxsize=65_536)
def is_prefix(short: str, full: str) -> bool:
    """Return True if ``short`` abbreviates ``full``: ``8.1`` abbreviates ``8.1.1``.

    A line abbreviates its pre-releases too (``2.22`` and ``2.22.0rc0``), a release none, a pre-release only itself.
    ``full`` may be any text; if it is not a version, nothing abbreviates it. Raises ValueError if ``short`` is not
    one version.
    """
    if _WHOLE.match(short) is None:
        raise ValueError(f"not a version: {short!r}")
    found, asked = _PARTS.match(full), _PARTS.match(short)
    if found is None or asked is None or numbers(full)[: len(numbers(short))] != numbers(short):
        return False
    if found.group(2, 3) == asked.group(2, 3) or asked[2]:
        return found.group(2, 3) == asked.group(2, 3)
    return found[2] == "post" or len(numbers(full)) > len(numbers(short))


def prefixes(text: str) -> tuple[str, ...]:
    """Return every abbreviation of a version, the shortest first: ``"535.104.05" -> 535, 535.104, 535.104.05``.

    Digits keep their spelling, because it is part of a driver's name.
    """
    return tuple(accumulate(text.split("."), "{}.{}".format))


def is_development(text: str) -> bool:
    """Return True for a development build (``2.23.0.dev20261026``)."""
    return (found := _PARTS.match(text)) is not None and found[2] == "dev"


def is_final(text: str) -> bool:
    """Return True for a release or a post-release, not for a development version, alpha, beta or candidate."""
    return key(text)[1] >= 0


@lru_cache(maxsize=65_536)
def same_major(text: str | None, other: str | None) -> bool:
    """Return True if both versions are known and have the same first number."""
    return text is not None and other is not None and major(text) == major(other)


def distance(text: str, other: str) -> tuple[int, ...]:
    """Return the distance of two versions, number by number: the smaller tuple is the closer version."""
    return tuple(abs(a - b) for a, b in zip(numbers(text), numbers(other), strict=False))


@lru_cache(maxsize=1024)
def bounds(text: str) -> tuple[tuple[str, str], ...] | None:
    """Read a range, or ``latest``, which has no bounds; None for any other text."""
    if text == LATEST:
        return ()
    found = [re.fullmatch(r"([<>=!~]+)(.+)", part.strip()) for part in text.split(",")]
    return tuple((part[1], part[2]) for part in found if part) if re.fullmatch(SPEC, text) and all(found) else None


def admits(bounds: tuple[tuple[str, str], ...], version: str) -> bool:
    """Return True if every bound ``(operator, version)`` of a requirement admits a version."""
    return all(_admits(operator, bound, version) for operator, bound in bounds)


def _admits(operator: str, bound: str, version: str) -> bool:
    if bound.endswith(".*"):
        same = is_prefix(bound.removesuffix(".*"), version)
        return same if operator == "==" else not same
    if operator == "~=":
        line = ".".join(map(str, numbers(bound)[:-1]))
        return at_least(version, bound) and is_prefix(line, version)
    this, other = key(version), key(bound)
    return {
        "==": this == other,
        "!=": this != other,
        ">=": this >= other,
        "<=": this <= other,
        ">": this > other and (this[0] != other[0] or this[1] <= 0 or other[1] > 0),  # not its post-release
        "<": this < other,
    }[operator]


class PinnedVersion(NamedTuple):
    """One exact version of a distribution; the name is normalised, and without extras."""

    name: str
    version: str


_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[A-Za-z0-9,._ -]*\])?==([^\s=*][^\s*]*)", re.ASCII)


def distribution(name: str) -> str:
    """Normalise a distribution's name: lower case, runs of ``-_.`` as one ``-``."""
    return re.sub(r"[-_.]+", "-", name).lower()


@lru_cache(maxsize=65_536)
def pin_or_none(text: str) -> PinnedVersion | None:
    """Read ``name==version``; None for any other requirement."""
    found = _PIN.fullmatch(text)
    return PinnedVersion(distribution(found[1]), found[2]) if found is not None else None


def pin(text: str) -> PinnedVersion:
    """Read ``name==version``. Raises ValueError for any other text."""
    found = pin_or_none(text)
    if found is None:
        raise ValueError(f"not a pin: {text!r}")
    return found


def pins(texts: Iterable[str]) -> dict[str, str]:
    """Read pins: the version of each distribution. Raises ValueError if one is not a pin."""
    return dict(map(pin, texts))
