"""Run a reproduction: build the reported environment and its fix, run them, and compare their messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.engine.port import FILES_AT, BuildRequest, ContainerSpec, Engine, Image
from envbuilder.environment import Environment
from envbuilder.errors import BaseUnavailableError, InfrastructureError
from envbuilder.image import lockfile
from envbuilder.image.build import Built, build_logged, ensure
from envbuilder.image.context import templates
from envbuilder.image.host_settings import host_files
from envbuilder.image.names import REPRODUCED, REPRODUCED_LABEL
from envbuilder.reproduce.analysis import Analysis, analyse, with_command
from envbuilder.reproduce.compare import RunObservation, compare, proof
from envbuilder.reproduce.document import NearestRun, Recipe, ReproduceDocument, Run
from envbuilder.reproduce.messages.catalog import find
from envbuilder.reproduce.report import reported
from envbuilder.simulated import profile as profiles
from envbuilder.simulated.compiler import Simulation, simulation
from envbuilder.support.console import Step
from envbuilder.validation.validate import ValidationRequest, validate
from envbuilder.workspace import Workspace, content_key, packaged, write_atomically


@dataclass(frozen=True)
class ReproduceTools:
    catalog: Catalog
    workspace: Workspace
    engine: Engine
    say: Callable[[str], None]

    def step_of(self, name: str) -> Callable[[Step], None]:
        def on_step(step: Step) -> None:
            if step.kind in {"started", "failed"}:
                self.say(f"{name}: {step.name[:100]}")

        return on_step


def reproduce(
    text: str, tools: ReproduceTools, driver_here: str | None = None, *, prove: bool = False
) -> ReproduceDocument:
    analysis = analyse(text, tools.catalog, driver_here)
    document = with_command(analysis.document, tools.workspace)
    document = msgspec.structs.replace(document, run=_run(analysis, tools))
    if not prove or document.nearest is None:
        return document
    proved = _prove(document, analysis, tools)
    return msgspec.structs.replace(document, nearest=msgspec.structs.replace(document.nearest, proof=proved))


def _run(analysis: Analysis, tools: ReproduceTools) -> Run:
    document, recipe, environment = analysis.document, analysis.rebuild.recipe, analysis.rebuild.environment
    if recipe.kind == "none":
        return Run(needs=recipe.why_not)
    try:
        built = ensured(environment, tools) if environment is not None else None
        image = image_of(recipe, built, tools)
    except BaseUnavailableError as error:
        return Run(needs=f"its base image is not available on this machine: {error.message}")
    if built is not None:
        built = replace(built, lock=with_deviations(built.lock, recipe.deviations))
    seen = observe(image, built, tools, recipe.host)
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
        built = ensured(near, tools)
    except BaseUnavailableError as error:
        return NearestRun(needs=f"its base image is not available on this machine: {error.message}")
    seen = observe(built.record.reference, built, tools, document.recipe.host, suite_there=False)
    return proof(document, seen)


def ensured(environment: Environment, tools: ReproduceTools) -> Built:
    """Lock and build an environment; one that is not committed, in the workspace of reports."""
    committed = lockfile.of_context(tools.workspace.context(environment.id)) is not None
    workspace = tools.workspace if committed else tools.workspace.for_reports
    tools.say(f"{environment.id}: {'locked' if committed else 'locking'}")
    return ensure(environment, tools.catalog, workspace, tools.engine, tools.step_of(environment.id))


def image_of(recipe: Recipe, built: Built | None, tools: ReproduceTools) -> str:
    """Build the recipe. Raises BaseUnavailableError without its published base, BuildFailedError."""
    if built is None:
        return _on_published(recipe, tools)
    base = built.record.reference
    if not recipe.deviations and not recipe.untold:
        return base
    files = {"Dockerfile": recipe.dockerfile.encode(), "tools.lock": templates()["tools.lock"].encode()}
    return _built(files, base, tools)


def _on_published(recipe: Recipe, tools: ReproduceTools) -> str:
    assert recipe.base is not None  # noqa: S101 - a recipe of this kind has one
    if tools.engine.image(recipe.base) is None:
        tools.say(f"pulling {recipe.base}")
        try:
            tools.engine.pull(recipe.base)
        except InfrastructureError as error:
            why = f"{recipe.base} is not available here: {error.message}"
            raise BaseUnavailableError(why, hint=error.hint) from error
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
    build_logged(request, tools.engine, folder / "build.log", tools.step_of("what deviates"))
    return tag


def observe(
    image: str, built: Built | None, tools: ReproduceTools, host: str = "", *, suite_there: bool = True
) -> RunObservation:
    """Run TensorFlow in an image on a simulated host ('' for this one), then the suite.

    ``built`` is the environment in or below the image. With ``suite_there`` the suite runs on the simulated host;
    otherwise on this host, and checks that need hardware do not count.
    """
    found = tools.engine.image(image)
    if found is None:
        raise InfrastructureError(f"{image} is gone from the engine's store", hint="run the command again")
    simulated = simulation(profiles.parse(host, tools.catalog)) if host else None
    tools.say(f"running TensorFlow in {image}" + (f" on a simulated {host}" if simulated else ""))
    text = _printed(found, simulated, tools.engine)
    tools.say(f"running the suite in {image}")
    request = ValidationRequest(image=image, catalog=tools.catalog, simulate=simulated if suite_there else None)
    if built is not None:
        request = replace(request, environment=built.environment, lock=built.lock, system=built.system)
    return RunObservation(image, find(text), text, validate(tools.engine, request), simulated is not None)


def _printed(image: Image, simulated: Simulation | None, engine: Engine) -> str:
    output, errors = bytearray(), bytearray()
    env = {"HOME": "/tmp", **(simulated.environment(image.env) if simulated else {})}  # noqa: S108 - in the container
    files = {"capture.py": packaged("probes/capture.py"), **(simulated.files if simulated else {})}
    spec = ContainerSpec(
        image=image.id,
        command=("/bin/sh", "-c", f"exec $(command -v python3 || command -v python) {FILES_AT}/capture.py"),
        env=env,
        files=files,
        gpus="none" if simulated or not engine.info().gpu_runtime else "all",
        time_limit=600.0,
    )
    ended = engine.run(spec, output.extend, errors.extend)
    document = reported.parse(output.decode(errors="replace"))
    if document is None:
        why = errors.decode(errors="replace").strip()[-1000:] or f"exit code {ended.exit_code}"
        raise InfrastructureError(f"the script did not run in the container: {why}", hint="see the engine's log")
    empty = ["[]"] if document.devices and "GPU" not in document.devices else []
    return "\n".join([*document.log, *empty])
