"""What a check and a group of checks are."""

from __future__ import annotations

from typing import Literal

import msgspec

from envbuilder.finding import Code
from envbuilder.verdict import Tier

Profile = Literal["quick", "full"]

IMPORT = ("import",)
"""What every check that uses TensorFlow needs."""

RIGHT = ("import", "matmul")
"""What trains or converges is only asked of a build whose matmul is right: one cause, one finding."""


class Group(msgspec.Struct, frozen=True):
    """Checks that share a process, and with it the import; lanes run beside each other, groups of a lane in turn.

    The lane ``host`` is none of a container: the stage itself makes its checks, of the image as the engine holds it.
    In a ``bounded`` one all paced checks together have a limit too, whatever each may take: `probes/suite/pace`.
    """

    name: str
    lane: Literal["main", "side", "host"]
    env: tuple[tuple[str, str], ...] = ()
    bounded: bool = False


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One check: ``probe`` is ``module:function`` ('' of the lane ``host``), ``limit_s`` seconds until it is killed.

    ``needs`` names checks without whose success this one is skipped; ``quiet`` ones run while nothing else does,
    because they are timed. ``proves`` is what a pass says; ``codes`` are the findings that it can make. ``at_least``
    names measurements, with the seconds in which neither they nor the check itself can honestly be done. ``of_files``
    is made by the stage wherever it has an image's files, and by the probe only with `--here`.
    """

    name: str
    tier: Tier
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
    arguments: tuple[tuple[str, str], ...] = ()
    at_least: tuple[tuple[str, float], ...] = ()
    of_files: bool = False

    @property
    def is_paced(self) -> bool:
        """Tell whether its limit follows from what the run's import took: each of these takes less than that did."""
        return self.tier == "cpu" and self.profile == "quick"

    @property
    def reads_much(self) -> bool:
        """Tell whether its limit leaves room for reading alone: it computes, and waits, no longer than a paced one.

        The storage decides how long reading takes. The import has no measure yet, and what `full` adds takes its time.
        """
        return self.tier in ("static", "load") and self.profile == "quick" and self.name not in IMPORT
