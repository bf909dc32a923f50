"""GPU code of a release: the capabilities of its kernels, and which code runs on which GPU."""

import re
from collections.abc import Iterable
from functools import cache

from envbuilder import versions
from envbuilder.catalog.rows import Kernels, Ptx

_TARGET = re.compile(r"sm_(\d+)(\d)([af]?)")


def cubins(kernels: Iterable[Kernels]) -> tuple[str, ...]:
    """List the capabilities (``"8.9"``) with machine code in kernels of some origin, oldest first."""
    return tuple(sorted({one for each in kernels for one in each.cubins}, key=versions.numbers))


def ptx(kernels: Iterable[Kernels]) -> tuple[str, ...]:
    """List the capabilities of the PTX of hand-written kernels, oldest first."""
    every = (one for each in kernels if each.origin == "hand-written" for one in each.ptx)
    return tuple(sorted({capability(one) for one in every if one.target}, key=versions.numbers))


def capability(one: Ptx) -> str:
    """Return the compute capability of a PTX target: ``sm_90a`` is ``9.0``; '' for an unreadable one."""
    return _target(one)[0]


def _target(one: Ptx) -> tuple[str, str]:
    found = _TARGET.fullmatch(one.target or "")
    return (f"{found[1]}.{found[2]}", found[3]) if found else ("", "")


@cache
def has_machine_code(built: tuple[str, ...], device: str) -> bool:
    """Return True if machine code for one of ``built`` runs on ``device``: same major, minor not newer (8.0 on 8.6)."""
    silicon = versions.numbers(device)
    return any(code[0] == silicon[0] and code[1:] <= silicon[1:] for code in map(versions.numbers, built))


def compiles_for(one: Ptx, device: str) -> bool:
    """Return True if a driver that accepts this PTX's ISA compiles it for ``device``; see `Ptx` for the letters."""
    built, letter = _target(one)
    if letter == "f":
        return has_machine_code((built,), device)
    if letter == "a":
        return versions.numbers(built) == versions.numbers(device)
    return bool(built) and versions.numbers(built) <= versions.numbers(device)


def is_alone(one: Ptx) -> bool:
    """Return True if PTX is compiled for its own capability only: ``sm_90a``."""
    return _target(one)[1] == "a"
