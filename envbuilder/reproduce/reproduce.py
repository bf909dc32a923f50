"""The stage: from the text of a report to its cause, a reproduction run, and the closest compatible environment."""

from __future__ import annotations

import msgspec

from envbuilder import versions
from envbuilder.finding import Code, Severity
from envbuilder.image import lockfile
from envbuilder.reproduce.analysis import Analysis, analyse, with_command
from envbuilder.reproduce.compare import compare, error_messages, repeated_messages
from envbuilder.reproduce.document import Proof, ReproduceDocument, Run
from envbuilder.reproduce.reproduction_run import (
    ImageUnavailableError,
    ReproduceTools,
    RunObservation,
    RunTarget,
    environment_image,
    image_of,
    lock_of,
    needed,
    observe,
)


def reproduce(
    text: str, tools: ReproduceTools, driver_here: str | None = None, *, prove: bool = False
) -> ReproduceDocument:
    """Analyse a report, rebuild its environment, run and compare it; with ``prove`` also build and validate the fix."""
    analysis = analyse(text, tools.catalog, driver_here)
    document = with_command(analysis.document, tools.workspace)
    document = msgspec.structs.replace(document, run=_run(analysis, tools))
    if not prove or document.nearest is None:
        return document
    proof = _prove(document, analysis, tools)
    return msgspec.structs.replace(document, nearest=msgspec.structs.replace(document.nearest, proof=proof))


def _run(analysis: Analysis, tools: ReproduceTools) -> Run:
    document, rebuild = analysis.document, analysis.rebuild
    recipe, environment = rebuild.recipe, rebuild.environment
    if recipe.kind == "none":
        return Run(reproduced=None, needs=recipe.why_not)
    try:
        image = image_of(recipe, environment, tools)
    except ImageUnavailableError as error:
        return Run(reproduced=None, needs=f"its base image is not available on this machine: {error.message}")
    lock = with_deviations(lock_of(environment, tools), recipe.deviations) if environment is not None else ""
    place = RunTarget(recipe.host, stand_ins=needed(document.symptoms))
    seen = observe(image, environment, place, tools, lock)
    found = seen.verdict.findings
    compared = compare(
        document.symptoms,
        seen.symptoms,
        document.predicted,
        found,
        with_gpu=_has_gpu(seen),
        with_driver=bool(recipe.host) or _has_gpu(seen),
    )
    return Run(
        image=image,
        verdict=seen.verdict.verdict,
        simulated=seen.simulated,
        stand_ins=seen.stand_ins,
        symptoms=seen.symptoms,
        findings=found,
        reproduced=compared.reproduced,
        needs=compared.needs,
        proof=compared.proof,
    )


def _has_gpu(seen: RunObservation) -> bool:
    return bool(seen.verdict.host.gpus) and not seen.simulated


def with_deviations(lock: str, pins: tuple[str, ...]) -> str:
    """Lock the closest environment near the failing one, so that only the required change differs."""
    wanted = versions.pins(pins)
    blocks = [
        f"{package.name}=={wanted.pop(package.name)}" if package.name in wanted else package.text
        for package in lockfile.parse(lock)
    ]
    return "\n".join([*blocks, *(f"{name}=={version}" for name, version in sorted(wanted.items())), ""])


def _prove(document: ReproduceDocument, analysis: Analysis, tools: ReproduceTools) -> Proof:
    near = analysis.near
    if near is None:
        return Proof(needs="no wheels exist for the closest environment: use the published image")
    try:
        image = environment_image(near, tools)
    except ImageUnavailableError as error:
        return Proof(needs=f"its base image is not available on this machine: {error.message}")
    place = RunTarget(document.recipe.host, stand_ins=needed(document.symptoms), suite_there=False)
    return proof(document, observe(image, near, place, tools, lock_of(near, tools)))


def proof(document: ReproduceDocument, seen: RunObservation) -> Proof:
    """Return whether the messages of the closest environment prove that it fixes the report."""
    reproduced = document.run is not None and document.run.reproduced is True and _compares(document)
    again, others = repeated_messages(document.symptoms, seen.symptoms), _errors(seen)
    expected = {finding.code for finding in document.predicted if finding.severity is Severity.ERROR}
    failed = bool(again) or bool(expected & others) or seen.verdict.verdict == "FAILED"
    needs = f"the suite also finds {', '.join(sorted(others - expected))}" if others - expected else ""
    if seen.verdict.verdict == "FAILED" and not needs:
        needs = f"the suite fails it: {'; '.join(seen.verdict.reasons)}"
    if not failed and not reproduced:
        needs = "the failure was not reproduced here, so its absence proves nothing"
    return Proof(
        proven=False if failed else reproduced or None,
        image=seen.image,
        verdict=seen.verdict.verdict,
        simulated=seen.simulated,
        stand_ins=seen.stand_ins,
        symptoms=seen.symptoms,
        needs=needs,
    )


def _errors(seen: RunObservation) -> set[Code]:
    return {finding.code for finding in seen.verdict.findings if finding.severity is Severity.ERROR}


def _compares(document: ReproduceDocument) -> bool:
    return bool(error_messages(document.symptoms)) or (document.run is not None and bool(document.run.proof))
