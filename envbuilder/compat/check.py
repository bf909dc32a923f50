"""Answer a question: bind it, evaluate the rules, and write the document of `envbuilder check`."""

from typing import Literal

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.compat import unknown
from envbuilder.compat.binding import Binding, bind, with_pinned_wheels, with_tag
from envbuilder.compat.nearest import Installable, nearest, nearest_with_driver
from envbuilder.compat.question import Question
from envbuilder.compat.rules import evaluate, ordered
from envbuilder.environment import Change, Predicate
from envbuilder.finding import Code, Finding, compatible, is_condition


class GpuAnswer(msgspec.Struct, frozen=True):
    """One GPU of the answer; its compute capability is None if the catalogue has no such GPU."""

    name: str
    compute_capability: str | None


class EnvironmentAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The evaluated environment, with the names of the chosen fields; ``branch`` is the driver's."""

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
    branch: str | None = None


class NearestAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The nearest environment that works, its differences, and the meaning of "works". The driver is a last resort.

    ``predicate`` is ``installable`` (it can be installed, and will use the GPU) or ``buildable`` (envbuilder can build
    it here).
    """

    environment: EnvironmentAnswer
    changes: tuple[Change, ...]
    predicate: Predicate


class EnvironmentImage(msgspec.Struct, frozen=True):
    """An environment that envbuilder builds, and the name of its image in the engine's store."""

    environment: str
    image: str


class CheckDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``envbuilder check``.

    ``compatible`` is true (it will use the GPU), false (it will not start, not use the GPU or not compute) or null (the
    catalogue makes no claim, or it works only on the condition of a finding). If it is not true, ``nearest`` works
    instead, or is null. ``image`` is envbuilder's own environment for what works, or null.
    """

    schema: Literal["envbuilder/check/v1"] = "envbuilder/check/v1"
    compatible: bool | None
    environment: EnvironmentAnswer
    findings: tuple[Finding, ...]
    nearest: NearestAnswer | None = None
    image: EnvironmentImage | None = None


def check(question: Question, catalog: Catalog) -> CheckDocument:
    bound = bind(question, catalog)
    ruled = evaluate(bound.candidate, catalog) if bound.candidate is not None else ()
    if bound.opaque:
        ruled = tuple(finding for finding in ruled if finding.code in _IN_ANY_IMAGE)
    found = ordered((*ruled, *bound.unknown, *unknown.newer_than(catalog.read_on, question.as_of)))
    return CheckDocument(compatible=compatible(found), environment=_environment(question, bound), findings=found)


def findings_of(question: Question, catalog: Catalog) -> tuple[Finding, ...]:
    return check(question, catalog).findings


def answer(question: Question, catalog: Catalog) -> CheckDocument:
    """Evaluate one combination; if it is incompatible, find the nearest that can be installed and uses the GPU.

    Of a range, or of all releases, the newest that works is evaluated; if none works, the newest.
    """
    settled = with_pinned_wheels(_settled(with_tag(question, catalog), catalog), catalog)
    document = check(settled, catalog)
    if settled.tensorflow != question.tensorflow:
        chosen = ("tensorflow", *document.environment.chosen)
        environment = msgspec.structs.replace(document.environment, chosen=chosen)
        document = msgspec.structs.replace(document, environment=environment)
    helps = document.compatible is False or any(map(is_condition, document.findings))
    alone = msgspec.structs.replace(settled, beside=())
    works = Installable(catalog)
    near = nearest(alone, works) or nearest_with_driver(alone, works) if helps else None
    if near is None:
        return document
    if settled.beside:
        names = ", ".join((*settled.beside, document.environment.package))
        others = tuple(change for change in near.changes if change.field != "package")
        near = near._replace(changes=(Change("package", names, near.combination.package or "tensorflow"), *others))
    if not near.changes:
        raise AssertionError(f"each part works alone: does a rule read the other one? {document.findings}")
    found = NearestAnswer(
        environment=check(near.combination, catalog).environment, changes=near.changes, predicate=near.predicate
    )
    return msgspec.structs.replace(document, nearest=found)


def _settled(question: Question, catalog: Catalog) -> Question:
    """Choose the newest release of a range, or of all, that works; if none works, the newest that may work."""
    if question.tensorflow and versions.bounds(question.tensorflow) is None:
        return question
    known = catalog.candidates(question.tensorflow, question.package)
    asked = [msgspec.structs.replace(question, tensorflow=version) for version in known]
    newest: dict[bool | None, Question] = {}
    for one in asked:
        newest.setdefault(check(with_pinned_wheels(one, catalog), catalog).compatible, one)
        if True in newest:
            break
    return next((newest[judged] for judged in (True, None, False) if judged in newest), question)


_IN_ANY_IMAGE = frozenset({Code.GPU_UNSUPPORTED_BY_DRIVER, Code.ARCH_MISMATCH, Code.DRIVER_BRANCH})
"""Codes about the host only: they are true for any content of an unknown image."""


def _environment(question: Question, bound: Binding) -> EnvironmentAnswer:
    candidate = bound.candidate
    fields = {name: getattr(question, name) for name in EnvironmentAnswer.__struct_fields__ if hasattr(question, name)}
    fields |= {"package": question.package or "tensorflow", "arch": question.arch or "x86_64"}
    if candidate is not None:
        fields |= {name: getattr(candidate, name) for name in ("python", "cuda", "cudnn", "arch")}
        fields |= {"tensorflow": candidate.release.version, "package": candidate.release.package}
        fields |= {"os": candidate.system.name} if candidate.system is not None else {}
        fields |= {"branch": candidate.branch.branch} if candidate.branch is not None else {}
    return EnvironmentAnswer(**(fields | {"gpus": _gpus(question, bound), "chosen": bound.chosen}))


def _gpus(question: Question, bound: Binding) -> tuple[GpuAnswer, ...]:
    candidate, lacking = bound.candidate, {finding.subject for finding in bound.unknown}
    if candidate is None:
        return tuple(GpuAnswer(name, None) for name in dict.fromkeys(question.gpus))
    known = [GpuAnswer(device.name, device.capability) for device in candidate.devices]
    return (*known, *(GpuAnswer(name, None) for name in dict.fromkeys(question.gpus) if name in lacking))
