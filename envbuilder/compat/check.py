"""Answer a question: settle it, ask the rules, and write the answer as the document of `envbuilder check`."""

from __future__ import annotations

from typing import Literal

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.compat.question import Candidate, Question
from envbuilder.compat.rules import judge, ordered
from envbuilder.compat.settle import Settled, settle
from envbuilder.finding import Finding, compatible


class GpuAnswer(msgspec.Struct, frozen=True):
    """One GPU as the answer names it; its compute capability is None where the catalogue has no such GPU."""

    name: str
    compute_capability: str | None


class EnvironmentAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was judged: what was given and, where it was not, what was chosen."""

    tensorflow: str
    package: str
    python: str | None
    cuda: str | None
    cudnn: str | None
    driver: str | None
    gpus: tuple[GpuAnswer, ...]
    os: str | None
    arch: str
    base_image: str | None
    install: str | None
    packages: tuple[str, ...]
    chosen: tuple[str, ...]


class CheckDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``envbuilder check``.

    ``compatible`` is true (it will use the GPU), false (it will not start, not use the GPU or not compute) or null
    (the catalogue makes no claim).
    """

    schema: Literal["envbuilder/check/v1"] = "envbuilder/check/v1"
    compatible: bool | None
    environment: EnvironmentAnswer
    findings: tuple[Finding, ...]


def findings_of(question: Question, catalog: Catalog) -> tuple[Finding, ...]:
    """Predict what a combination will run into, most serious first."""
    return _findings(settle(question, catalog), catalog)


def check(question: Question, catalog: Catalog) -> CheckDocument:
    """Judge one combination against the catalogue."""
    settled = settle(question, catalog)
    found = _findings(settled, catalog)
    return CheckDocument(compatible=compatible(found), environment=_environment(question, settled), findings=found)


def _findings(settled: Settled, known: Catalog) -> tuple[Finding, ...]:
    ruled = judge(settled.candidate, known) if settled.candidate is not None else ()
    return ordered((*ruled, *settled.unknown))


def _environment(question: Question, settled: Settled) -> EnvironmentAnswer:
    candidate = settled.candidate
    return EnvironmentAnswer(
        tensorflow=candidate.release.version if candidate else question.tensorflow,
        package=candidate.release.package if candidate else question.package or "tensorflow",
        python=candidate.python if candidate else question.python,
        cuda=candidate.cuda if candidate else question.cuda,
        cudnn=candidate.cudnn if candidate else question.cudnn,
        driver=question.driver,
        gpus=_gpus(question, candidate),
        os=candidate.system.name if candidate and candidate.system else question.os,
        arch=question.arch,
        base_image=question.base_image,
        install=question.install,
        packages=question.packages,
        chosen=settled.chosen,
    )


def _gpus(question: Question, candidate: Candidate | None) -> tuple[GpuAnswer, ...]:
    if candidate is None:
        return tuple(GpuAnswer(name, None) for name in question.gpus)
    known = tuple(GpuAnswer(device.name, device.capability) for device in candidate.devices)
    return known if len(known) >= len(question.gpus) else (*known, *_unknown_gpus(question, known))


def _unknown_gpus(question: Question, known: tuple[GpuAnswer, ...]) -> tuple[GpuAnswer, ...]:
    return tuple(GpuAnswer(name, None) for name in question.gpus if name not in {gpu.name for gpu in known})
