"""One broken or hostile image: how it is made from a good one, and what the suite must say of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SITE = "/opt/venv/lib/python3.11/site-packages"
"""Where the good images have their packages."""

FILES, SECRET, CLAIM = "FILES_DIFFER", "SECRET_IN_IMAGE", "IMAGE_CLAIM"
CONFIGURED, REQUIRED, HIDDEN = "IMAGE_CONFIGURATION", "CONTAINER_REQUIREMENT", "GPU_NOT_VISIBLE"
VIOLATION, TIMEOUT, CRASHED = "PROTOCOL_VIOLATION", "PROBE_TIMEOUT", "PROBE_CRASHED"
START, WRONG = "USER_START", "WRONG_NUMBERS"
MISSING, TOOLS, MISMATCH = "MISSING_LIBRARY", "XLA_TOOLS_MISSING", "CUDA_MISMATCH"


@dataclass(frozen=True)
class Hostile:
    """One image: ``lines`` of a Dockerfile below the good image (as root), and the only codes that may be errors.

    ``warns`` are codes that must be told all the same. ``fast`` ones are in every run of the tests.
    """

    name: str
    lines: str
    codes: frozenset[str]
    base: Literal["cpu", "gpu"] = "cpu"
    fast: bool = False
    warns: frozenset[str] = frozenset()

    @property
    def dockerfile(self) -> str:
        """Write the recipe but for its first line: what it starts from."""
        return f"USER root\n{self.lines}" + ("\n" if "USER " in self.lines else "\nUSER envbuilder\n")


def row(
    name: str,
    lines: str,
    *codes: str,
    base: Literal["cpu", "gpu"] = "cpu",
    fast: bool = False,
    warns: tuple[str, ...] = (),
) -> Hostile:
    """Make a row; its codes are the only errors that may be told."""
    return Hostile(name, lines, frozenset(codes), base, fast, frozenset(warns))
