"""Predict, by the compatibility rules, how each host of a fleet is served by both sides of an upgrade."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from envbuilder.catalog.model import Catalog
from envbuilder.compat.fleet import FleetHost, findings_on
from envbuilder.environment import Environment
from envbuilder.finding import Code, Finding, compatible
from envbuilder.upgrade.upgrade_document import HostChange, HostState


def compare_hosts(
    old: Environment, new: Environment, fleet: Iterable[FleetHost], catalog: Catalog
) -> tuple[HostChange, ...]:
    """List every GPU of every host with how both sides are served there, changed or not."""
    rows = []
    for host in fleet:
        for gpu in dict.fromkeys(host.gpus):
            before = findings_on(old, host.driver, (gpu,), catalog, host.arch)
            after = findings_on(new, host.driver, (gpu,), catalog, host.arch)
            rows.append(
                HostChange(
                    host=host.name,
                    gpu=gpu,
                    driver=host.driver or "none",
                    old=state(before),
                    new=state(after),
                    findings=after,
                )
            )
    return tuple(rows)


def state(findings: Sequence[Finding]) -> HostState:
    """Name how a GPU is served: by its own machine code, after compiling PTX, not at all, or no claim."""
    answer = compatible(tuple(findings))
    if answer is None:
        return "unknown"
    if not answer:
        return "lost"
    return "ptx" if any(finding.code is Code.PTX_JIT for finding in findings) else "native"
