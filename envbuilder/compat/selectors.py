"""Select environments: globs on ids, ``key=value`` and ``key>=version``.

Values of one key, and globs, are alternatives; different keys, bounds, and globs and keys all have to match.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TypeVar

from envbuilder import versions
from envbuilder.compat.environment_id import rejected_id
from envbuilder.environment import WHOLE, Combination, Environment, Rejection
from envbuilder.errors import NothingSelectedError, UsageError
from envbuilder.matrix import Excluded

KEYS = ("tensorflow", "package", "python", "os", "arch", "flavor", "cuda", "cudnn", "variant")
_ALIASES = {"form": "variant"}  # what a ``key=value`` selector may ask for
_ONE = "a version, such as {}=2.20.0, or a range, such as {}>=2.17"

_VERSIONS = frozenset({"tensorflow", "python", "cuda", "cudnn"})

Term = tuple[str | None, str]
"""A key and its value; a glob on ids has no key."""

_Row = TypeVar("_Row", Rejection, Excluded)


def select(
    environments: tuple[Environment, ...], selectors: Sequence[str], *, others: Sequence[str] = ()
) -> tuple[Environment, ...]:
    """Keep the environments that match, in their order; no selector keeps all.

    ``tf2.1[89]*`` is a glob on ids, ``tensorflow=2.20`` compares a field (a version stands for those that it
    abbreviates), as does ``tensorflow>=2.17,<2.21``; ``tensorflow=latest`` is the newest. A comma separates terms.
    Raises NothingSelectedError, with the near misses, for a term that matches none; UsageError for an unknown key.
    ``others`` are ids that a glob may match instead (rejections, say).
    """
    groups = _groups(selectors, environments)
    for key, value in (term for terms in groups for term in terms):
        found = any(_matches(row, row.id, (key, value)) for row in environments)
        if not found and (key is not None or not any(fnmatchcase(other, value) for other in others)):
            text = _text((key, value))
            raise NothingSelectedError(f"no environment matches {text!r}", hint=_hint(environments, (key, value)))
    wanted = tuple(row for row in environments if _all_match(row, row.id, groups))
    if not wanted and not others and selectors:
        counts = [sum(any(_matches(row, row.id, term) for term in terms) for row in environments) for terms in groups]
        alone = (f"{' or '.join(map(_text, terms))}: {count}" for terms, count in zip(groups, counts, strict=True))
        raise NothingSelectedError("no environment matches all selectors", hint=f"alone: {'; '.join(alone)}")
    return wanted


def select_combinations(
    rows: tuple[_Row, ...], selectors: Sequence[str], environments: tuple[Environment, ...]
) -> tuple[_Row, ...]:
    """Keep the combinations without an environment that match; the newest release is that of an environment."""
    groups = _groups(selectors, environments)
    return tuple(row for row in rows if _all_match(row.combination, rejected_id(row.combination), groups))


def _groups(selectors: Sequence[str], environments: tuple[Environment, ...]) -> list[list[Term]]:
    newest = max((row.tensorflow for row in environments), key=versions.key, default="0")
    groups: dict[str | None, list[Term]] = {}
    for key, value in (term for selector in selectors for term in _terms(selector)):
        term = (key, newest if key == "tensorflow" and value == versions.LATEST else value)
        groups.setdefault(_text(term) if _BOUND.match(value) else key, []).append(term)
    return list(groups.values())


def _all_match(row: Environment | Combination, name: str, groups: list[list[Term]]) -> bool:
    return all(any(_matches(row, name, term) for term in terms) for terms in groups)


def _matches(row: Environment | Combination, name: str, term: Term) -> bool:
    key, value = term
    if key is None:
        return fnmatchcase(name, value)
    if key not in KEYS:
        raise UsageError(f"selector {_text(term)!r}: there is no key {key!r}", hint=f"one of: {', '.join(KEYS)}")
    found = getattr(row, key) or (WHOLE if key == "variant" else None)
    if found is None or key not in _VERSIONS:
        return bool(found == value)
    bounds = versions.bounds(value)
    if bounds is not None:
        return bool(bounds) and versions.admits(bounds, found)
    try:
        return versions.is_prefix(value, found)
    except ValueError as wrong:
        hint = _ONE.format(key, key)
        raise UsageError(f"selector {_text(term)!r}: {value!r} is not a version", hint=hint) from wrong


_KEY_VALUE = re.compile(r"([^=<>]*?)(?:=(?!=)|(?=[<>]|[!~=]=))(.*)", re.DOTALL)

_BOUND = re.compile(r"[<>!]|[!~=]=")


def _terms(selector: str) -> Iterator[Term]:
    """Split ``key=value,key>=version,<version,glob``; a value without a key has the key before it."""
    key: str | None = None
    for piece in re.split(rf",(?!{_BOUND.pattern})", selector):
        found = _KEY_VALUE.fullmatch(piece)
        if found is not None:
            key = _ALIASES.get(found[1], found[1])
        if piece or not selector:
            yield key, found[2] if found is not None else piece


def _text(term: Term) -> str:
    key, value = term
    return value if key is None else f"{key}{value}" if _BOUND.match(value) else f"{key}={value}"


def _hint(environments: tuple[Environment, ...], term: Term) -> str:
    key, value = term
    known = list(dict.fromkeys(str(getattr(row, key)) if key else row.id for row in environments))
    near = difflib.get_close_matches(value, known, n=3, cutoff=0.4) or known[:3]
    if not near:
        return "the plan has no environment at all: see `envbuilder plan`"
    return "near misses: " + ", ".join(f"{key}={text}" if key else text for text in near)
