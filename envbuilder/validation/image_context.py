"""What is known of an image from outside before a check of it is made, and findings as such checks write them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from envbuilder.engine.port import Image
from envbuilder.finding import Code, Finding, Severity
from envbuilder.image.wheel_records import WheelRecords
from envbuilder.validation.image_files import ImageFiles
from envbuilder.validation.suite_plan import Facts
from envbuilder.verdict import Measurement

SHOWN = 4
"""Paths that a message names before it counts the rest."""


OBJECT = re.compile(r"\.so(?:\.[\w.]+)?\Z")
"""A shared object, by its name."""

OF_CUDA = "cu(?:blas|da|dnn|fft|file|inj|pti|rand|solver|sparse|tensor)|nv[a-zA-Z]|nccl|npp"
"""How names of NVIDIA's libraries go on after ``lib``, as a regular expression; that of ``libcurl`` does not."""


@dataclass(frozen=True)
class ImageContext:
    """The image as the engine describes it, its files, what it should hold, and where locked wheels can be looked up.

    ``lock`` is the text of the lock that it was made from, '' for an image of others. ``omissions`` is the list of
    what it leaves out, as this host has it: no image passes by what it says itself that it lacks. ``is_built_here``
    says that this very image is what a build on this host made of that lock. ``of_base`` counts the lowest layers that
    are those of a registry's base, by this host's own word: what lies there is the base's, whether a package brings it
    or not. ``lock_is_carried`` says that the image itself brought the lock: what that vouches for, somebody else has to
    vouch for as well. ``system`` are the locks of what the system brings, by name: this host's, else those that the
    image carries (``system_is_carried``). ``locked_above`` counts the layers of a base, by this host's word, above
    which nothing of the system may be installed but what these name; 0 where more may, or that is not known.
    """

    image: Image
    files: ImageFiles
    facts: Facts
    lock: str
    wheels: WheelRecords
    omissions: str = ""
    is_built_here: bool = False
    of_base: int = 0
    lock_is_carried: bool = False
    system: Mapping[str, str] = field(default_factory=dict)
    system_is_carried: bool = False
    locked_above: int = 0

    @property
    def is_managed(self) -> bool:
        """Tell whether it is to be judged as an environment: then nothing may be in it that the lock does not bring."""
        return bool(self.facts.environment)

    def is_of_system(self, path: str) -> bool:
        """Tell whether a package of the system brings a file; in an image of ours, conda's lists vouch for nothing."""
        return self.files.system.owns(path, conda=not self.is_managed)


@dataclass(frozen=True)
class CheckOutput:
    """What a look came to: findings, and what a pass says; ``measurements`` are counts and seconds.

    ``blamed`` are the names (no folders) of all files that its errors are about: a message lists the first few.
    ``undecided`` says why a look without an error is no pass.
    """

    findings: tuple[Finding, ...]
    expected: str
    observed: str
    measurements: tuple[tuple[str, Measurement], ...] = ()
    blamed: frozenset[str] = frozenset()
    undecided: str = ""


def error(code: Code, subject: str, message: str, *, requires: str = "", found: str = "", fix: str = "") -> Finding:
    """Return a finding that makes an image fail."""
    return _finding(Severity.ERROR, code, subject, message, requires, found, fix)


def warning(code: Code, subject: str, message: str, *, requires: str = "", found: str = "", fix: str = "") -> Finding:
    """Return a finding that is told, and leaves the verdict as it is."""
    return _finding(Severity.WARNING, code, subject, message, requires, found, fix)


def either(
    severity: Severity, code: Code, subject: str, message: str, *, requires: str = "", found: str = "", fix: str = ""
) -> Finding:
    """Return a finding whose weight depends on whose image it is."""
    return _finding(severity, code, subject, message, requires, found, fix)


def _finding(
    severity: Severity, code: Code, subject: str, message: str, requires: str, found: str, fix: str
) -> Finding:
    return Finding(
        code=code, severity=severity, subject=subject, message=message, requires=requires, found=found, fix=fix
    )


def listed(paths: list[str]) -> str:
    """Write the first paths and how many more there are, each safe to print on one line."""
    shown = ", ".join("/" + path.encode("unicode_escape").decode()[:200] for path in sorted(paths)[:SHOWN])
    return shown + (f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else "")
