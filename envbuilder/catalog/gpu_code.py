"""What follows from a release's kernels: the capabilities of its GPU code in sum, and which code serves which GPU."""

from __future__ import annotations

import re
from collections.abc import Iterable

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
    """Return the compute capability of a PTX target: ``sm_90a`` is ``9.0``; '' where it could not be read."""
    found = _TARGET.fullmatch(one.target or "")
    return f"{found[1]}.{found[2]}" if found else ""


def runs_cubin(built: str, device: str) -> bool:
    """Tell whether machine code for ``built`` runs on ``device``: same major, minor not newer (8.0 code on 8.6)."""
    code, silicon = versions.numbers(built), versions.numbers(device)
    return code[0] == silicon[0] and code[1:] <= silicon[1:]


def compiles_for(one: Ptx, device: str) -> bool:
    """Tell whether a driver that knows this PTX's ISA compiles it for ``device``; see `Ptx` for what a letter means."""
    found = _TARGET.fullmatch(one.target or "")
    if found is None:
        return False
    built = capability(one)
    if found[3] == "a":
        return versions.numbers(built) == versions.numbers(device)
    if found[3] == "f":
        return runs_cubin(built, device)
    return versions.numbers(built) <= versions.numbers(device)


def is_alone(one: Ptx) -> bool:
    """Tell whether PTX is compiled for its own capability and no other: ``sm_90a``."""
    found = _TARGET.fullmatch(one.target or "")
    return found is not None and found[3] == "a"


def in_words(kernels: Iterable[Kernels]) -> str:
    """Write kernels in one line: ``1149 generated: 8.0 8.9, sm_90a 8.5``."""
    return "; ".join(
        f"{each.fat_binaries} {each.origin}{f' ({each.without_ptx} without PTX)' if each.without_ptx else ''}: "
        + ", ".join([" ".join(each.cubins), *(f"{one.target or 'an unreadable target'} {one.isa}" for one in each.ptx)])
        for each in kernels
    )
