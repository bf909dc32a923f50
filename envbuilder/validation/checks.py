"""The checks of the suite: what a check and a group are, and the table (`checks.yaml`)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from envbuilder.finding import Code
from envbuilder.support import decoding
from envbuilder.verdict import CheckLevel, CheckResult, Outcome
from envbuilder.workspace import packaged_yaml

Profile = Literal["quick", "full"]


class CheckGroup(msgspec.Struct, frozen=True):
    """Checks that share a process. Lanes run in parallel, groups of a lane in turn; ``host`` has no process."""

    name: str
    lane: Literal["main", "side", "host"]
    env: dict[str, str] = {}


class Check(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One check.

    ``probe`` is ``module:function``, of the suite in the image or, in the group ``host``, of this package. ``limit_s``
    are the seconds until it is killed. Without success of all ``needs`` it is skipped: what trains or converges needs a
    correct matmul. ``quiet`` checks are timed, so nothing runs at the same time. ``proves`` is the meaning of a pass,
    ``codes`` are its possible findings. ``at_least`` has the seconds below which a measurement is impossible.
    """

    name: str
    level: CheckLevel
    group: str
    probe: str
    proves: str
    codes: tuple[Code, ...]
    limit_s: float = 60.0
    profile: Profile = "quick"
    flavor: Literal["any", "cpu", "gpu"] = "any"
    only_with: Literal["", "lock", "environment", "container", "tools"] = ""
    needs: tuple[str, ...] = ()
    quiet: bool = False
    arguments: dict[str, str] = {}
    at_least: dict[str, float] = {}

    def result(self, outcome: Outcome, observed: str = "", **more: Any) -> CheckResult:  # noqa: ANN401 - as CheckResult
        return CheckResult(name=self.name, level=self.level, outcome=outcome, observed=observed, **more)


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    groups: tuple[CheckGroup, ...]
    checks: tuple[dict[str, Any], ...]


def _load() -> tuple[tuple[CheckGroup, ...], tuple[Check, ...]]:
    table = packaged_yaml("validation/checks.yaml", _Table)
    rows = [{**heading, **row} for heading in table.checks for row in heading.pop("checks")]
    return table.groups, decoding.converted(rows, tuple[Check, ...], "checks.yaml is damaged")


GROUPS, CHECKS = _load()

HOST_GROUPS = frozenset(group.name for group in GROUPS if group.lane == "host")
"""The groups whose checks the host makes."""
