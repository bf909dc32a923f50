"""The machine around a GPU: some are built into one kind alone, and nothing that is for another runs there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import Row
from envbuilder.compat import phrases
from envbuilder.compat.candidate import Candidate, Device
from envbuilder.compat.rule import Rule
from envbuilder.finding import Code, Finding


def arch_of(devices: Iterable[Device], catalog: Catalog) -> str | None:
    """Return the one machine that some of these GPUs are built into, by name or capability; None where they fit any."""
    told = (device.row.arch if device.row else catalog.capabilities.get(device.capability, "") for device in devices)
    return next(filter(None, told), None)


def machine_has_gpu(candidate: Candidate, _catalog: Catalog) -> Iterator[Finding]:
    """ARCH_MISMATCH: the GPU is built into another machine than this is for."""
    for device in candidate.devices if candidate.gpu else ():
        if device.row is not None and device.row.arch not in {"", candidate.arch}:
            yield other_machine(device.name, device.row.arch, candidate.arch, device.row)


def other_machine(subject: str, theirs: str, ours: str, row: Row | None = None) -> Finding:
    """Say that something that is for one machine meets another."""
    return phrases.error(
        Code.ARCH_MISMATCH,
        subject,
        f"{subject} is in {theirs} machines alone, and this is for {ours}.",
        requires=theirs,
        found=ours,
        fix=f"Take an environment for {theirs}; leave --arch away and the machine follows from the GPU.",
        rows=(row,),
    )


RULES: tuple[Rule, ...] = (Rule("gpu", (Code.ARCH_MISMATCH,), machine_has_gpu),)
