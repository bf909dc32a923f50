"""Choose an environment for a host or a question, and write the lines that build, run, extend and install it."""

import platform
import shlex
from collections.abc import Iterator, Sequence
from itertools import combinations, groupby
from pathlib import Path
from typing import Literal, cast

import msgspec

from envbuilder import host as this_host
from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.choice import VETTED, choose, local_matrices
from envbuilder.compat.check import CheckDocument, EnvironmentImage, answer
from envbuilder.compat.check_text import CONDITIONAL, change_text, finding_lines
from envbuilder.compat.fleet import FleetHost, Refused, choose_for, environment_for, findings_with
from envbuilder.compat.install import install, matrix_text
from envbuilder.compat.question import Question
from envbuilder.environment import Change, Combination, Environment, Flavor, Variant
from envbuilder.errors import UsageError
from envbuilder.finding import Code, Finding, obstacle
from envbuilder.image import names
from envbuilder.image.names import reference
from envbuilder.jobs.explain import WHY, reasons
from envbuilder.matrix import Arch
from envbuilder.support.templates import rendered
from envbuilder.verdict import HostRef, Level
from envbuilder.workspace import Workspace


class ChooseDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Result of ``envbuilder choose``: one environment, its image, and lines to copy.

    ``environment`` is null if none works; ``compatible`` is then false, or null if the catalogue makes no claim.
    ``why`` has a sentence for each choice, ``refused`` the newer releases, newest first. ``built``: this folder has the
    record of the image. ``commands`` are lines to copy, by purpose. ``matrix`` is the text of the new ``file`` in the
    one that builds; both are '' if a matrix of the project, or a shipped one, has the environment. ``next``: if none
    works, the fewest changes that help, each with its command.
    """

    schema: Literal["envbuilder/choose/v1"] = "envbuilder/choose/v1"
    compatible: bool | None
    driver: str | None
    gpus: tuple[str, ...]
    environment: Environment | None = None
    why: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    refused: tuple[Refused, ...] = ()
    image: str = ""
    built: bool = False
    commands: dict[str, str] = {}
    matrix: str = ""
    file: str = ""
    next: dict[str, str] = {}


def image_of(environment: Environment | None) -> EnvironmentImage | None:
    return EnvironmentImage(environment.id, reference(environment.image_tag)) if environment is not None else None


def as_fleet_host(seen: HostRef, arch: str) -> FleetHost:
    gpus = tuple(gpu.name for gpu in seen.gpus)
    return FleetHost(name=platform.node(), driver=seen.driver, gpus=gpus, arch=cast("Arch", arch))


def newest_wanted(host: FleetHost) -> Combination:
    """Ask for the newest image that a host can run, with its GPUs if it has any."""
    return Combination(tensorflow="", flavor="gpu" if host.driver and host.gpus else "cpu", variant="runtime")


def _here() -> tuple[FleetHost, Flavor, bool | None]:
    """Return this host, the flavour of images for it, and if its processor has AVX (None: unknown)."""
    host = as_fleet_host(this_host.describe(), this_host.machine())
    return host, newest_wanted(host).flavor, this_host.has_avx()


def choose_environment(
    asked: Question, flavor: Flavor | None, variant: Variant, root: Path, catalog: Catalog
) -> ChooseDocument:
    """Choose the newest environment for the host of a question: the described one, or this one.

    Raises UsageError for a GPU environment on this host without a GPU.
    """
    host, avx = FleetHost(name="host", driver=asked.driver, gpus=asked.gpus), None
    usual: Flavor = "gpu"
    if not asked.gpus and asked.driver is None:
        host, usual, avx = _here()
        if usual == "cpu" and flavor == "gpu":
            raise UsageError("this host has no NVIDIA driver with a GPU", hint="name one: --gpu A100 --driver 535")
    wanted = Combination(
        tensorflow=asked.tensorflow, python=asked.python, os=asked.os, flavor=flavor or usual, variant=variant
    )
    found = choose_for(wanted, host, catalog, avx=avx)
    environment = found.environment
    document = ChooseDocument(
        compatible=found.compatible, driver=host.driver, gpus=host.gpus, refused=found.refused, findings=found.findings
    )
    if environment is None:
        return msgspec.structs.replace(document, next=dict(_next(wanted, host, catalog, avx=avx)))
    chosen = tuple(axis for axis in WHY if getattr(environment, axis) and not getattr(wanted, axis))
    environment = msgspec.structs.replace(environment, chosen=chosen)
    matrix, environment = _in_matrices(environment, root, catalog)
    file = "" if matrix else f"{environment.id}.yaml" if (root / "matrix.yaml").exists() else "matrix.yaml"
    image = reference(environment.image_tag)
    targets = {"drivers": [host.driver] if host.driver else [], "gpus": host.gpus}
    more = {"targets": targets} if any(targets.values()) else {}
    commands = {
        "build": shlex.join(("envbuilder", "run", *((matrix, "-s", environment.id) if matrix else (file,)))),
        "run": run_line(environment, image),
        "extend": f"FROM {image}",
        "install": " && ".join(install(environment, catalog, host.driver, host.gpus)),
    }
    return msgspec.structs.replace(
        document,
        environment=environment,
        why=tuple(_why(environment, host, asked.tensorflow, catalog)),
        image=image,
        built=Workspace(root).image_record(environment.id).is_file(),
        commands={purpose: line for purpose, line in commands.items() if line},
        matrix=matrix_text("chosen", wanted, environment, **more) if file else "",
        file=file,
    )


def run_line(environment: Environment, image: str) -> str:
    return names.run_line(image, gpus=environment.flavor == "gpu", notebook=environment.variant == "notebook")


def from_registry(
    document: ChooseDocument, repository: str, keys: tuple[Path, ...], catalog: Catalog
) -> ChooseDocument:
    """Take the image from a repository, by digest, if `verify` accepts it for the host; else say why not."""
    from envbuilder.publish.verify_request import VerifyOptions, verify_image  # noqa: PLC0415 - few ask a registry

    environment = document.environment
    if environment is None:
        return document
    on_gpu, image = environment.flavor == "gpu", f"{repository}:{environment.image_tag}"
    level: Level = "gpu" if on_gpu else "cpu"
    driver = document.driver if on_gpu else None
    gpus: tuple[str | None, ...] = (on_gpu and document.gpus) or (None,)
    asked = (VerifyOptions(image=image, keys=keys, level=level, driver=driver, gpu=gpu) for gpu in gpus)
    answers = [verify_image(options, catalog.gpu_names) for options in asked]
    for refused in (one for one in answers if not one.accepted):
        reason = refused.refusals[0]
        text = f"image: not {image}, which verify refuses: {reason.reason}: {reason.message}"
        return msgspec.structs.replace(document, why=(*document.why, text))
    pinned = f"{repository}@{answers[0].digest}"
    lines = {"run": run_line(environment, pinned), "extend": f"FROM {pinned}"}
    return msgspec.structs.replace(document, image=pinned, commands=document.commands | lines)


def _why(environment: Environment, host: FleetHost, spec: str, catalog: Catalog) -> Iterator[str]:
    newest = f"the newest{f' of {spec}' if spec not in {'', 'latest'} else ''}"
    word = "given; it" if spec == environment.tensorflow else f"{newest} that"
    oldest, newest = _drivers(environment, host.gpus, catalog)
    driver = host.driver or f"{oldest} {f'to {newest}' if newest else 'or newer'}"
    gpu = f"{', '.join(host.gpus) or 'some GPU'} with driver {driver}"
    yield f"tensorflow {environment.tensorflow}: {word} works on {gpu if environment.flavor == 'gpu' else 'a CPU'}"
    yield from reasons(environment, "given")


def _drivers(environment: Environment, gpus: tuple[str, ...], catalog: Catalog) -> tuple[str | None, str]:
    """Return the oldest and the newest production driver on which an environment works; '' for the newest of all."""
    known = [release for branch in catalog.drivers for release in branch.production]
    works = [one for one in known if obstacle(findings_with(environment, one, gpus, catalog)) is None]
    return (works[0], works[-1] if works[-1] != known[-1] else "") if works else (environment.minimum_driver, "")


def _next(wanted: Combination, host: FleetHost, catalog: Catalog, *, avx: bool | None) -> Iterator[tuple[str, str]]:
    """Yield the fewest changes of given values after which an environment works, with the command for each."""
    given = {axis: value for axis in ("tensorflow", "python", "os") if (value := getattr(wanted, axis))}
    given |= {"driver": host.driver} if host.driver and wanted.flavor == "gpu" else {}
    options = [word for gpu in host.gpus for word in ("--gpu", gpu)] if wanted.flavor == "gpu" else ["--flavor", "cpu"]
    options += ["--variant", str(wanted.variant)] if wanted.variant != "runtime" else []
    for count in range(1, len(given) + 1):
        found = [new for axes in combinations(given, count) if (new := _opened(axes, wanted, host, catalog, avx=avx))]
        for new in found:
            # A changed system is chosen again: it may be a published image, which the option does not take.
            kept = {axis: value for axis, value in (given | new).items() if axis != "os" or axis not in new}
            words = [word for axis, value in kept.items() for word in (f"--{axis}", value)]
            text = ", ".join(change_text(Change(axis, given[axis], value)) for axis, value in new.items())
            yield text, shlex.join(("envbuilder", "choose", *options, *words))
        if found:
            return


def _opened(
    axes: tuple[str, ...], wanted: Combination, host: FleetHost, catalog: Catalog, *, avx: bool | None
) -> dict[str, str]:
    """Return the values of these axes in the newest environment if they are left open; nothing if none works."""
    opened = {axis: "" if axis == "tensorflow" else None for axis in axes if axis != "driver"}
    near = msgspec.structs.replace(host, driver=None) if "driver" in axes else host
    environment = choose_for(msgspec.structs.replace(wanted, **opened), near, catalog, avx=avx).environment
    if environment is None:
        return {}
    values = {axis: str(getattr(environment, axis)) for axis in opened}
    if near is not host:
        oldest, newest = _drivers(environment, host.gpus, catalog)
        too_new = newest and versions.at_least(host.driver or "", newest)
        values["driver"] = newest if too_new else oldest or ""
    return values


def _in_matrices(environment: Environment, root: Path, catalog: Catalog) -> tuple[str, Environment]:
    """Return the first matrix with an environment, the project's or a shipped one (''), and it with its tag there."""
    for name in (*local_matrices(root), *VETTED):
        for row in choose(name, (), Workspace(root), catalog).environments:
            if row.id == environment.id:
                return name, msgspec.structs.replace(environment, tag=row.tag)
    return "", environment


def check_with_image(asked: Question, catalog: Catalog) -> CheckDocument:
    """Answer a question; name envbuilder's environment for the same versions, or for the nearest that works.

    A question without any value is about this host, as for `choose`.
    """
    if asked == Question():
        here, usual, avx = _here()
        asked = Question(driver=here.driver, gpus=here.gpus, gpu=usual == "gpu", avx=avx is not False)
    document = answer(asked, catalog)
    works = document.environment if document.nearest is None else document.nearest.environment
    if (
        (document.nearest is None and document.compatible is not True)
        or works.base_image
        or asked.capabilities
        or asked.as_of
    ):
        return document
    return msgspec.structs.replace(document, image=image_of(environment_for(works, asked, catalog)[1]))


def as_text(document: ChooseDocument) -> str:
    unknown = [row for row in document.refused if row.compatible is None]
    image = document.image + ("" if document.built or "@" in document.image else "  (not built here)")
    alike = groupby(document.refused, lambda row: (row.code, row.compatible))
    return rendered(
        "jobs/choose",
        document=document,
        lines=finding_lines,
        conditional=CONDITIONAL if any(row.code is Code.DRIVER_FORWARD_COMPAT for row in unknown) else "",
        unknown=_releases(unknown) if unknown else "",
        refused=[(_releases(rows), rows[0]) for rows in (tuple(same) for _, same in alike)],
        image=image,
    )


def _releases(refused: Sequence[Refused]) -> str:
    return " to ".join(dict.fromkeys((refused[0].tensorflow, refused[-1].tensorflow)))
