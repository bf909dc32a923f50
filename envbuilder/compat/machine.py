"""The machine around a GPU: some are built into one kind alone, and nothing that is for another runs there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from envbuilder.catalog.model import Catalog
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
        row = device.row
        if row is not None and row.arch not in {"", candidate.arch}:
            yield phrases.error(
                Code.ARCH_MISMATCH,
                device.name,
                f"{device.name} is in {row.arch} machines alone, and this is for {candidate.arch}.",
                requires=row.arch,
                found=candidate.arch,
                fix="Leave --arch away, and the machine follows from the GPU.",
                rows=(row,),
            )


def other_host(environment: str, arch: str, here: str) -> Finding:
    """ARCH_MISMATCH: say that an environment of one machine (``arch``) meets a host of another (``here``)."""
    return phrases.error(
        Code.ARCH_MISMATCH,
        environment,
        f"{environment} is for {arch}, and this host is {here}: none of its programs runs there.",
        requires=arch,
        found=here,
        fix=f"Take an environment for {here}, or a host with {arch}.",
    )


RULES: tuple[Rule, ...] = (Rule("gpu", (Code.ARCH_MISMATCH,), machine_has_gpu),)
