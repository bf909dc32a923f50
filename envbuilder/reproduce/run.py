"""Run a reproduction: build the reported environment and its fix, run them, and compare their messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.engine.port import FILES_AT, BuildRequest, ContainerSpec, Engine, Image, Step
from envbuilder.environment import Environment
from envbuilder.errors import BaseUnavailableError, InfrastructureError
from envbuilder.finding import Finding, Severity
from envbuilder.image import lockfile, system_lock
from envbuilder.image.build import build_logged, ensure
from envbuilder.image.context import templates
from envbuilder.image.host_settings import host_files
from envbuilder.image.names import REPRODUCED, REPRODUCED_LABEL
from envbuilder.reproduce.analysis import Analysis, analyse, with_command
from envbuilder.reproduce.document import NearestRun, Recipe, ReproduceDocument, Run
from envbuilder.reproduce.grammar import GRAMMAR
from envbuilder.reproduce.messages.catalog import MessageMatch, error_messages, get, match
from envbuilder.reproduce.report import captured
from envbuilder.simulated import profile as profiles
from envbuilder.simulated.compiler import Simulation, simulation
from envbuilder.validation.validate import ValidationRequest, validate
from envbuilder.verdict import Verdict
from envbuilder.workspace import Workspace, content_key, packaged, write_atomically

_LIMIT_S = 600.0


@dataclass(frozen=True)
class ReproduceTools:
    catalog: Catalog
    workspace: Workspace
    engine: Engine
    say: Callable[[str], None]


@dataclass(frozen=True)
class RunObservation:
    image: str
    symptoms: tuple[MessageMatch, ...]
    text: str
    verdict: Verdict
    simulated: bool

    @property
    def shown(self) -> dict[str, Any]:
        names = ("image", "simulated", "symptoms")
        return {"verdict": self.verdict.verdict, **{name: getattr(self, name) for name in names}}


class ImageUnavailableError(InfrastructureError):
    """A published image is not available on this machine. It is reported as an answer; nothing is claimed."""


def reproduce(
    text: str, tools: ReproduceTools, driver_here: str | None = None, *, prove: bool = False
) -> ReproduceDocument:
    analysis = analyse(text, tools.catalog, driver_here)
    document = with_command(analysis.document, tools.workspace)
    document = msgspec.structs.replace(document, run=_run(analysis, tools))
    if not prove or document.nearest is None:
        return document
    proof = _prove(document, analysis, tools)
    return msgspec.structs.replace(document, nearest=msgspec.structs.replace(document.nearest, proof=proof))


def _run(analysis: Analysis, tools: ReproduceTools) -> Run:
    document, recipe, environment = analysis.document, analysis.rebuild.recipe, analysis.rebuild.environment
    if recipe.kind == "none":
        return Run(reproduced=None, needs=recipe.why_not)
    try:
        image = image_of(recipe, environment, tools)
    except (BaseUnavailableError, ImageUnavailableError) as error:
        return Run(reproduced=None, needs=f"its base image is not available on this machine: {error.message}")
    lock = with_deviations(lock_of(environment, tools), recipe.deviations) if environment is not None else ""
    seen = observe(image, environment, tools, recipe.host, lock=lock)
    found, gpu = seen.verdict.findings, bool(seen.verdict.host.gpus) and not seen.simulated
    driver = bool(recipe.host) or gpu
    compared = compare(document.symptoms, seen.symptoms, document.predicted, found, with_gpu=gpu, with_driver=driver)
    return msgspec.structs.replace(compared, findings=found, **seen.shown)


def with_deviations(lock: str, pins: tuple[str, ...]) -> str:
    wanted = versions.pins(pins)
    blocks = [
        f"{package.name}=={wanted.pop(package.name)}" if package.name in wanted else package.text
        for package in lockfile.parse(lock)
    ]
    return "\n".join([*blocks, *(f"{name}=={version}" for name, version in sorted(wanted.items())), ""])


def _prove(document: ReproduceDocument, analysis: Analysis, tools: ReproduceTools) -> NearestRun:
    near = analysis.near
    if near is None:
        return NearestRun(needs="envbuilder cannot build the closest environment: use the published image")
    if document.nearest is not None and document.nearest.needs_driver:
        return NearestRun(needs=f"it takes driver {document.nearest.environment.driver}")
    try:
        image = environment_image(near, tools)
    except BaseUnavailableError as error:
        return NearestRun(needs=f"its base image is not available on this machine: {error.message}")
    seen = observe(image, near, tools, document.recipe.host, suite_there=False, lock=lock_of(near, tools))
    return proof(document, seen)


def proof(document: ReproduceDocument, seen: RunObservation) -> NearestRun:
    """Return whether the messages of the closest environment prove that it fixes the report."""
    run = document.run
    compares = bool(error_messages(document.symptoms)) or (run is not None and bool(run.proof))
    reproduced = run is not None and run.reproduced is True and compares
    again = repeated_messages(document.symptoms, seen.symptoms)
    others = {finding.code for finding in seen.verdict.findings if finding.severity is Severity.ERROR}
    expected = {finding.code for finding in document.predicted if finding.severity is Severity.ERROR}
    failed = bool(again) or bool(expected & others) or seen.verdict.verdict == "FAILED"
    needs = f"the suite also finds {', '.join(sorted(others - expected))}" if others - expected else ""
    if seen.verdict.verdict == "FAILED" and not needs:
        needs = f"the suite fails it: {'; '.join(seen.verdict.reasons)}"
    if not failed and not reproduced:
        needs = "the failure was not reproduced here, so its absence proves nothing"
    return NearestRun(proven=False if failed else reproduced or None, needs=needs, **seen.shown)


def compare(
    reported: tuple[MessageMatch, ...],
    seen: tuple[MessageMatch, ...],
    predicted: tuple[Finding, ...],
    found: tuple[Finding, ...],
    *,
    with_gpu: bool,
    with_driver: bool,
) -> Run:
    """Compare the messages that can appear on this image and host; without any, findings with the predicted ones."""
    wanted = error_messages(reported)
    if not wanted:
        errors = {row.code: row for row in predicted if row.severity is Severity.ERROR}
        same = tuple((errors[row.code].message, row.message) for row in found if row.code in errors)
        return Run(reproduced=True, proof=same) if same else Run(needs="the report quotes no comparable message")
    shown = {"image"} | ({"driver"} if with_driver else set()) | ({"gpu"} if with_gpu else set())
    possible = [row for row in wanted if get(row.signature).proof in shown]
    pairs = tuple((row.text, twin.text) for row in wanted if (twin := _same_message(row, seen)) is not None)
    if not possible and not pairs:
        kinds = sorted({get(row.signature).proof for row in wanted})
        return Run(needs=f"it takes {', '.join(GRAMMAR.needs[kind] for kind in kinds)}")
    missing = [row for row in possible if _same_message(row, seen) is None]
    if pairs and not missing:
        return Run(reproduced=True, proof=pairs)
    if not pairs:
        return Run(reproduced=False)
    names = ", ".join(sorted({row.signature for row in missing}))
    return Run(proof=pairs, needs=f"partly reproduced; missing here: {names}")


def _same_message(wanted: MessageMatch, seen: tuple[MessageMatch, ...]) -> MessageMatch | None:
    """Return the same message with the same values (library, versions), or None."""
    for row in seen:
        shared = wanted.values.keys() & row.values.keys()
        if row.signature == wanted.signature and all(row.values[name] == wanted.values[name] for name in shared):
            return row
    return None


def repeated_messages(reported: tuple[MessageMatch, ...], seen: tuple[MessageMatch, ...]) -> tuple[MessageMatch, ...]:
    """Return the reported messages that appeared again; an empty result means that the change fixes the report."""
    names = {row.signature for row in error_messages(reported)}
    return tuple(row for row in seen if row.signature in names)


def image_of(recipe: Recipe, environment: Environment | None, tools: ReproduceTools) -> str:
    """Build the recipe. Raises BaseUnavailableError or ImageUnavailableError without its base, BuildFailedError."""
    if environment is None:
        return _on_published(recipe, tools)
    base = environment_image(environment, tools)
    if not recipe.deviations and not recipe.untold:
        return base
    files = {"Dockerfile": recipe.dockerfile.encode(), "tools.lock": templates()["tools.lock"].encode()}
    return _built(files, base, tools)


def environment_image(environment: Environment, tools: ReproduceTools) -> str:
    workspace = _workspace_of(environment, tools)
    tools.say(f"{environment.id}: {'locked' if workspace is tools.workspace else 'locking'}")
    return ensure(environment, tools.catalog, workspace, tools.engine, _steps(environment.id, tools)).record.reference


def _steps(name: str, tools: ReproduceTools) -> Callable[[Step], None]:
    def on_step(step: Step) -> None:
        if step.kind in {"started", "failed"}:
            tools.say(f"{name}: {step.name[:100]}")

    return on_step


def _on_published(recipe: Recipe, tools: ReproduceTools) -> str:
    assert recipe.base is not None  # noqa: S101 - a recipe of this kind has one
    if tools.engine.image(recipe.base) is None:
        tools.say(f"pulling {recipe.base}")
        try:
            tools.engine.pull(recipe.base)
        except InfrastructureError as error:
            raise ImageUnavailableError(
                f"{recipe.base} is not available here: {error.message}", hint=error.hint
            ) from error
    return _built({"Dockerfile": recipe.dockerfile.encode()}, "", tools)


def _built(files: dict[str, bytes], base: str, tools: ReproduceTools) -> str:
    """Build a small context; its tag is its digest, so that the same recipe is built once."""
    image = tools.engine.image(base) if base else None
    key = content_key({**files, "base": image.id.encode() if image else b""})
    name = key.removeprefix("sha256:")[:16]
    tag = f"{REPRODUCED}:{name}"
    if tools.engine.image(tag) is not None:
        return tag
    folder = tools.workspace.report_build(name)
    for name, content in files.items():
        write_atomically(folder / "context" / name, content)
    request = BuildRequest(
        context=folder / "context",
        tag=tag,
        extra=host_files() or {"host/README": b"nothing is added to these steps here\n"},
        build_args={"BASE": base} if base else {},
        labels={REPRODUCED_LABEL: key},
    )
    build_logged(request, tools.engine, folder / "build.log", _steps("what deviates", tools))
    return tag


def observe(
    image: str,
    environment: Environment | None,
    tools: ReproduceTools,
    host: str = "",
    *,
    suite_there: bool = True,
    lock: str = "",
) -> RunObservation:
    """Run TensorFlow in an image on a simulated host ('' for this one), then the suite.

    With ``suite_there`` the suite runs on the simulated host; otherwise on this host, and checks that need hardware do
    not count.
    """
    found = tools.engine.image(image)
    if found is None:
        raise InfrastructureError(f"{image} is gone from the engine's store", hint="run the command again")
    simulated = simulation(profiles.parse(host, tools.catalog)) if host else None
    tools.say(f"running TensorFlow in {image}" + (f" on a simulated {host}" if simulated else ""))
    text = _printed(found, simulated, tools.engine)
    tools.say(f"running the suite in {image}")
    request = ValidationRequest(
        image=image,
        environment=environment,
        catalog=tools.catalog,
        lock=lock,
        system=system_lock.texts(_context_of(environment, tools), environment) if environment is not None else {},
        simulate=simulated if suite_there else None,
    )
    return RunObservation(image, match(text), text, validate(tools.engine, request), simulated is not None)


def _printed(image: Image, simulated: Simulation | None, engine: Engine) -> str:
    output, errors = bytearray(), bytearray()
    env = {"HOME": "/tmp", **(simulated.environment(image.env) if simulated else {})}  # noqa: S108 - in the container
    script = packaged("probes/capture.py")
    files = {"capture.py": script, **(simulated.files if simulated else {})}
    spec = ContainerSpec(
        image=image.id,
        command=("/bin/sh", "-c", f"exec $(command -v python3 || command -v python) {FILES_AT}/capture.py"),
        env=env,
        files=files,
        gpus="none" if simulated or not engine.info().gpu_runtime else "all",
        time_limit=_LIMIT_S,
    )
    ended = engine.run(spec, output.extend, errors.extend)
    document = captured.parse(output.decode(errors="replace"))
    if document is None:
        why = errors.decode(errors="replace").strip()[-1000:] or f"exit code {ended.exit_code}"
        raise InfrastructureError(f"the script did not run in the container: {why}", hint="see the engine's log")
    empty = ["[]"] if document.devices and "GPU" not in document.devices else []
    return "\n".join([*document.log, *empty])


def _workspace_of(environment: Environment, tools: ReproduceTools) -> Workspace:
    committed = lockfile.of_context(tools.workspace.context(environment.id)) is not None
    return tools.workspace if committed else tools.workspace.for_reports


def _context_of(environment: Environment, tools: ReproduceTools) -> Path:
    return _workspace_of(environment, tools).context(environment.id)


def lock_of(environment: Environment, tools: ReproduceTools) -> str:
    return lockfile.of_context(_context_of(environment, tools)) or ""
