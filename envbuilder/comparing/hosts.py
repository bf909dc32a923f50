"""Predict, by the compatibility rules, how each host of a fleet is served by both sides of an upgrade."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.comparing.document import HostChange, HostState
from envbuilder.environment import Environment
from envbuilder.finding import Code, Finding, compatible
from envbuilder.matrix import DottedText, GpuText, NameText
from envbuilder.rules import Question
from envbuilder.rules.answer import findings_of


class FleetHost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One host, or a kind of host: its name, its driver, and the GPU models in it."""

    name: NameText
    driver: DottedText
    gpus: tuple[GpuText, ...]


def compare_hosts(
    old: Environment, new: Environment, fleet: Iterable[FleetHost], catalog: Catalog
) -> tuple[HostChange, ...]:
    """List every GPU of every host with how both sides are served there, changed or not."""
    rows = []
    for host in fleet:
        for gpu in dict.fromkeys(host.gpus):
            before = _findings(old, host, gpu, catalog)
            after = _findings(new, host, gpu, catalog)
            rows.append(
                HostChange(
                    host=host.name,
                    gpu=gpu,
                    driver=host.driver,
                    old=state(before),
                    new=state(after),
                    findings=after,
                )
            )
    return tuple(rows)


def _findings(environment: Environment, host: FleetHost, gpu: str, catalog: Catalog) -> tuple[Finding, ...]:
    question = Question(
        tensorflow=environment.tensorflow,
        package=environment.package,
        python=environment.python,
        cuda=environment.cuda,
        cudnn=environment.cudnn,
        os=environment.os,
        arch=environment.arch,
        driver=host.driver,
        gpus=(gpu,),
    )
    return findings_of(question, catalog)


def state(findings: Sequence[Finding]) -> HostState:
    """Name how a GPU is served: by its own machine code, after compiling PTX, not at all, or no claim."""
    answer = compatible(tuple(findings))
    if answer is None:
        return "unknown"
    if not answer:
        return "lost"
    return "ptx" if any(finding.code is Code.PTX_JIT for finding in findings) else "native"
