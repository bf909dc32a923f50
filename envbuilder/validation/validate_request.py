"""``envbuilder validate``: find the image, validate it, and write the verdict as a table."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

from envbuilder.catalog.model import Catalog
from envbuilder.choice import choose_all
from envbuilder.engine.docker import connect
from envbuilder.engine.port import Engine, Image
from envbuilder.errors import UsageError
from envbuilder.image import lockfile, removed_files
from envbuilder.image.build import Built, ImageRecord, standing
from envbuilder.image.context import build_files
from envbuilder.image.layers import carried_out
from envbuilder.matrix import Budgets
from envbuilder.pypi.client import open_index
from envbuilder.simulated import profile as profiles
from envbuilder.simulated.compiler import Simulation, simulation
from envbuilder.support import decoding
from envbuilder.support.console import Console, table
from envbuilder.validation.checks import Profile
from envbuilder.validation.image_claims import ENVIRONMENT_LABEL
from envbuilder.validation.validate import ValidationRequest, lower_image, validate, validate_here
from envbuilder.validation.verdict_store import progress_text, validate_and_record
from envbuilder.verdict import Verdict
from envbuilder.workspace import Workspace, read_document

_NAME = re.compile(r"[a-z0-9]+([._:@/-]+[A-Za-z0-9_]+)*", re.IGNORECASE)
"""A name of an image (a reference or an id) or an environment: no space, no empty part, no path to a parent folder."""


def simulation_of(host: str | None, catalog: Catalog) -> Simulation | None:
    """Read a simulated host, such as ``driver=470.57.02,gpu=A100``; None is the real one."""
    return simulation(profiles.parse(host, catalog)) if host is not None else None


def validate_python(python: str | None, profile: Profile, console: Console, catalog: Catalog) -> Verdict:
    """Validate a Python of this host; None is envbuilder's own."""
    with console.live(), console.task("here") as task:
        return validate_here(
            catalog,
            python=python or sys.executable,
            profile=profile,
            on_progress=lambda progress: task.update(progress_text(progress)),
        )


def validate_target(
    request: ValidationRequest,
    workspace: Workspace,
    console: Console,
    catalog: Catalog,
    *,
    matrix: str | None = None,
) -> Verdict:
    """Validate the image of a request, or the built environment of that id; ``matrix`` is the environment's.

    Raises UsageError if the request names neither.
    """
    target = request.image
    if not _NAME.fullmatch(target):
        raise UsageError(
            f"{target!r} is not a name of an image or environment", hint="write it as docker does: name:tag"
        )
    engine = connect()
    engine.sweep()  # containers of killed runs
    built = _built(target, matrix, engine, workspace, catalog)
    request = replace(request, index=open_index())
    if built is None:
        image = engine.image(target)
        below = _derived_from(image, matrix, engine, workspace, catalog) if image is not None else None
        removed = left_out(image, workspace)
        request = request.of(below, image=target) if below else replace(request, catalog=catalog, removed=removed)
    else:
        request = replace(request, budgets=built[1]).of(built[0])
    with console.live(), console.task(target) as task:
        if built is None or request.simulate is not None:  # a simulated verdict never replaces a real one
            return validate(engine, request, on_progress=lambda progress: task.update(progress_text(progress)))
        return validate_and_record(request, engine, workspace, on_progress=task.update)[0]


def _built(
    target: str, matrix: str | None, engine: Engine, workspace: Workspace, catalog: Catalog
) -> tuple[Built, Budgets] | None:
    """Return a built environment by its id; None if the target names an image."""
    if "/" in target or read_document(workspace.image_record(target), ImageRecord) is None:
        if engine.image(target) is None:
            raise UsageError(
                f"{target}: neither a built environment nor an image in the engine's store",
                hint="envbuilder build, or docker pull",
            )
        return None
    if (found := _of_matrices(target, matrix, workspace, catalog)) is None:
        raise UsageError(f"{target}: built, but not in any known matrix", hint="name its matrix with --matrix")
    return found


def _of_matrices(name: str, matrix: str | None, workspace: Workspace, catalog: Catalog) -> tuple[Built, Budgets] | None:
    for choice in choose_all((matrix,) if matrix else (), (), workspace.root, catalog):
        for environment in choice.environments:
            if environment.id == name and (built := standing(environment, workspace)) is not None:
                return built, choice.matrix.budgets
    return None


def _derived_from(
    image: Image, matrix: str | None, engine: Engine, workspace: Workspace, catalog: Catalog
) -> Built | None:
    """Return the built environment whose layers are the image's lowest ones; its label only says where to look."""
    name = image.labels.get(ENVIRONMENT_LABEL, "")
    if "/" in name or not _NAME.fullmatch(name):
        return None
    record = read_document(workspace.image_record(name), ImageRecord)
    if record is None or lower_image(engine, image, record.image) is None:
        return None
    found = _of_matrices(name, matrix, workspace, catalog)
    return found[0] if found is not None else None


def left_out(image: Image | None, workspace: Workspace) -> str:
    """Return this host's list of an image's removed files if it is the list that the image's labels name, else ''.

    Raises InputError if the list is damaged.
    """
    labels = image.labels if image is not None else {}
    name = labels.get(ENVIRONMENT_LABEL, "")
    if "/" in name or not _NAME.fullmatch(name):
        return ""
    files = build_files(name, workspace)
    lock = decoding.lossy(files.get(f"{name}/{lockfile.LOCK}", b""))
    return removed_files.named(labels.get(removed_files.LABEL, ""), lock, carried_out(files, f"{name}/Dockerfile"))


_SHOWN = 100


def as_text(verdict: Verdict) -> str:
    """Return a verdict as text: checks, reasons, findings with their fixes, verdict and level."""
    rows = [
        (check.level, check.name, check.outcome, f"{check.duration_s:.2f} s", " ".join(check.observed.split())[:_SHOWN])
        for check in verdict.checks
    ]
    lines = [table(("level", "check", "outcome", "time", "observed"), rows), ""]
    timed = ((phase.phase, sorted(phase.cold_s or phase.warm_s)) for phase in verdict.timeline)
    lines += [f"  {name:<34}{samples[len(samples) // 2]:10.4f} s" for name, samples in timed if samples]
    lines += [""] * bool(verdict.timeline)
    for finding in verdict.findings:
        lines.append(f"{finding.severity}: {finding.code} {finding.message}")
        lines += [f"  fix: {finding.fix}"] if finding.fix else []
    lines += [f"reason: {reason}" for reason in verdict.reasons]
    for one in verdict.additions:
        lines.append(
            f"added: {one.kind} {one.name} {one.version}".rstrip() + f" ({one.files} files, {one.size / 1e6:.1f} MB)"
        )
    simulated = ", simulated" if verdict.simulated else ""
    lines.append(f"{verdict.image.reference}: {verdict.verdict} (level {verdict.level}{simulated})")
    return "\n".join(lines)
