"""The checks of the suite: what a check and a group are, and the table (`checks.yaml`)."""

from __future__ import annotations

from importlib import resources
from typing import Any, Literal

import msgspec

from envbuilder.finding import Code
from envbuilder.support import decoding
from envbuilder.verdict import CheckLevel
from envbuilder.workspace import packaged_yaml

Profile = Literal["quick", "full"]


class CheckGroup(msgspec.Struct, frozen=True):
    """Checks that share a process, and with it the import. Lanes run in parallel, groups of a lane in turn.

    The host makes the checks of lane ``host``; no container is involved.
    """

    name: str
    lane: Literal["main", "side", "host"]
    env: dict[str, str] = {}


class Check(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One check.

    ``probe`` is ``module:function`` ('' in the lane ``host``). ``limit_s`` are the seconds until it is killed.
    Without success of all ``needs`` it is skipped: what trains or converges needs a correct matmul. ``quiet`` checks
    are timed, so nothing runs at the same time. ``proves`` is the meaning of a pass, ``codes`` are its possible
    findings. ``at_least`` gives measurements and the seconds below which they are impossible.
    """

    name: str
    level: CheckLevel
    group: str
    probe: str = ""
    proves: str
    codes: tuple[Code, ...]
    limit_s: float = 60.0
    profile: Profile = "quick"
    flavor: Literal["any", "cpu", "gpu"] = "any"
    only_with: Literal["", "lock", "environment", "container", "tools"] = ""
    needs: tuple[str, ...] = ()
    quiet: bool = False
    arguments: tuple[tuple[str, str], ...] = ()
    at_least: tuple[tuple[str, float], ...] = ()


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    groups: tuple[CheckGroup, ...]
    checks: tuple[dict[str, Any], ...]


def _load() -> tuple[tuple[CheckGroup, ...], tuple[Check, ...]]:
    table = packaged_yaml(resources.files("envbuilder.validation") / "checks.yaml", _Table)
    checks = []
    for heading in table.checks:
        defaults = {key: value for key, value in heading.items() if key != "checks"}
        checks += [_check({**defaults, **row}) for row in heading["checks"]]
    return table.groups, tuple(checks)


def _check(row: dict[str, Any]) -> Check:
    pairs = {key: tuple(row[key].items()) for key in ("arguments", "at_least") if key in row}
    return decoding.converted(row | pairs, Check, "checks.yaml is damaged")


GROUPS, CHECKS = _load()

HOST_GROUPS = frozenset(group.name for group in GROUPS if group.lane == "host")
"""The groups whose checks the host makes."""
