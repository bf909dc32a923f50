"""Select environments: globs on ids, ``key=value`` or ``key>=version``; several selectors are a union."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from envbuilder import versions
from envbuilder.environment import WHOLE, Combination, Environment, Rejection
from envbuilder.errors import NothingSelectedError, UsageError

KEYS = ("tensorflow", "package", "python", "os", "arch", "flavor", "cuda", "cudnn", "variant")
_ALIASES = {"form": "variant"}
"""What a ``key=value`` selector may ask for."""

_ONE = "a selector asks for one version, such as {}=2.20.0: give several selectors for several"

_VERSIONS = frozenset({"tensorflow", "python", "cuda", "cudnn"})


def select(
    environments: tuple[Environment, ...], selectors: Sequence[str], *, others: Sequence[str] = ()
) -> tuple[Environment, ...]:
    """Keep the environments that some selector matches, in their order; no selector keeps all.

    ``tf2.1[89]*`` is a glob on ids, ``tensorflow=2.20`` compares a field (a version stands for those that it
    abbreviates), as does ``tensorflow>=2.17,<2.21``; ``tensorflow=latest`` is the newest. Raises NothingSelectedError,
    with the near misses, for a selector that matches none; UsageError for an unknown key. ``others`` are ids that a
    glob may match instead (rejections, say).
    """
    if not selectors:
        return environments
    wanted: set[str] = set()
    newest = max((row.tensorflow for row in environments), key=versions.key, default="")
    for given in selectors:
        selector = f"tensorflow={newest}" if given == f"tensorflow={versions.LATEST}" else given
        matched = {row.id for row in environments if _matches(row, row.id, selector)}
        if not matched and not any(fnmatchcase(other, selector) for other in others):
            raise NothingSelectedError(f"no environment matches {selector!r}", hint=_hint(environments, selector))
        wanted |= matched
    return tuple(environment for environment in environments if environment.id in wanted)


def select_wishes(rejections: tuple[Rejection, ...], selectors: Sequence[str]) -> tuple[Rejection, ...]:
    """Keep the rejections that some selector matches by id or by what was wished."""
    return tuple(
        row for row in rejections if any(_matches(row.combination, row.id, selector) for selector in selectors)
    )


def _matches(environment: Environment | Combination, name: str, selector: str) -> bool:
    key, value = _parts(selector)
    if key is None:
        return fnmatchcase(name, selector)
    if key not in KEYS:
        raise UsageError(f"selector {selector!r}: there is no key {key!r}", hint=f"one of: {', '.join(KEYS)}")
    found = getattr(environment, key) or (WHOLE if key == "variant" else None)
    if found is None or key not in _VERSIONS:
        return bool(found == value)
    bounds = versions.bounds(value)
    if bounds is not None:
        return bool(bounds) and versions.admits(bounds, found)
    try:
        return versions.is_prefix(value, found)
    except ValueError as wrong:
        raise UsageError(f"selector {selector!r}: {value!r} is not a version", hint=_ONE.format(key)) from wrong


_KEY_VALUE = re.compile(r"([^=<>]*?)(?:=(?!=)|(?=[<>]|[!~=]=))(.*)", re.DOTALL)


def _parts(selector: str) -> tuple[str | None, str]:
    """Split ``key=value`` and ``key>=version``; a glob has no key."""
    found = _KEY_VALUE.fullmatch(selector)
    return (_ALIASES.get(found[1], found[1]), found[2]) if found is not None else (None, selector)


def _hint(environments: tuple[Environment, ...], selector: str) -> str:
    key, value = _parts(selector)
    known = list(dict.fromkeys(str(getattr(row, key)) if key else row.id for row in environments))
    near = difflib.get_close_matches(value, known, n=3, cutoff=0.4) or known[:3]
    if not near:
        return "the plan has no environment at all: see `envbuilder plan`"
    return "near misses: " + ", ".join(f"{key}={text}" if key else text for text in near)
