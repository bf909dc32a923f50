"""``envbuilder validate``: find the image, validate it, and write the verdict as a table."""

import re
from dataclasses import replace
from typing import Any

from envbuilder.catalog.base_facts import BaseFacts
from envbuilder.catalog.model import Catalog
from envbuilder.choice import VETTED, choose, local_matrices
from envbuilder.engine.docker import connect
from envbuilder.engine.port import Engine
from envbuilder.environment import Environment
from envbuilder.errors import UsageError
from envbuilder.image import names, removed_files
from envbuilder.image.build import Built, ImageRecord, built_of, digests_of, is_moved, stored_build
from envbuilder.image.context import build_files
from envbuilder.image.wheel_records import read_pins
from envbuilder.matrix import Budgets
from envbuilder.pypi.client import open_index
from envbuilder.support import decoding
from envbuilder.support.console import Console
from envbuilder.support.templates import rendered
from envbuilder.validation import known_image
from envbuilder.validation.image_context import counted, escaped
from envbuilder.validation.suite_session import progress_of
from envbuilder.validation.validate import ValidationRequest, lower_image, validate
from envbuilder.validation.verdict_store import validate_and_record
from envbuilder.verdict import CheckResult, Verdict
from envbuilder.workspace import Workspace, read_document

# Names of an image (a reference or an id) and of an environment: no space, no empty part, no path to a parent.
_NAME = re.compile(r"[a-z0-9]+([._:@/-]+[A-Za-z0-9_]+)*", re.IGNORECASE)
_ID = re.compile(_NAME.pattern.replace("/", ""), re.IGNORECASE)


def validate_target(
    request: ValidationRequest, workspace: Workspace, console: Console, catalog: Catalog, *, matrix: str | None = None
) -> Verdict:
    """Validate the image of a request, or the built environment of that id. Raises UsageError if it names neither."""
    target = request.image
    if not _NAME.fullmatch(target):
        hint = "write it as docker does: name:tag"
        raise UsageError(f"{target!r} is not a name of an image or environment", hint=hint)
    engine = connect()
    engine.sweep()  # containers of killed runs
    request = replace(request, index=open_index())
    is_environment = _record(target, workspace) is not None
    if is_environment:
        found = _of_matrices(target, matrix, workspace, catalog)
        if found is None:
            raise UsageError(f"{target}: built, but not in any known matrix", hint="name its matrix with --matrix")
        if is_moved(found[0].record, engine):
            text = f"{found[0].record.reference} names another image than the one that was built"
            raise UsageError(text, hint=f"envbuilder build {target} sets the tag again")
        request = replace(request, budgets=found[1]).of(found[0])
    else:
        request = _of_image(request, matrix, engine, workspace, catalog)
    with console.live(), console.task(target) as task:
        if is_environment and request.simulate is None:  # a simulated verdict never replaces a real one
            return validate_and_record(request, engine, workspace, on_progress=progress_of(task))[0]
        return validate(engine, request, on_progress=progress_of(task))


def _of_image(
    request: ValidationRequest, matrix: str | None, engine: Engine, workspace: Workspace, catalog: Catalog
) -> ValidationRequest:
    """Return the request for an image, with the environment whose layers it has: as built here, or as recorded.

    The image's label only says where to look for them. Raises UsageError if there is no such image.
    """
    image = engine.image(request.image)
    if image is None:
        text = f"{request.image}: neither a built environment nor an image in the engine's store"
        raise UsageError(text, hint="envbuilder build, or docker pull")
    if request.environment is not None:
        return request
    name, tag = image.labels.get(names.ENVIRONMENT_LABEL, ""), request.image.rpartition(":")[2]
    if name and tag != name and _ID.fullmatch(tag) and workspace.context(tag).is_dir():
        text = f"{request.image} is a tag of the environment {tag}, and names an image of another one, {escaped(name)}"
        raise UsageError(text, hint=f"envbuilder build {tag} makes its own; give {image.id} to validate this image")
    record = _record(name, workspace)
    if record is not None and lower_image(engine, image, record.image) is not None:
        found = _of_matrices(name, matrix, workspace, catalog)
        if found is not None:
            return request.of(found[0], image=request.image)
    recorded = of_record(request, name, workspace) if _ID.fullmatch(name) else request
    if known_image.place(recorded.known, image):
        return recorded
    removed = removed_files.named(image.labels.get(removed_files.LABEL, ""), recorded.lock, recorded.removed)
    # Without a record, the engine may have the environment's image: what is on top of it is an addition.
    below = lower_image(engine, image, names.reference(name)) if _ID.fullmatch(name) else None
    built = below.id if below is not None and below.id != image.id else ""
    request = replace(request, list_of=lambda known: of_record(request, known, workspace).removed)
    return replace(request, catalog=catalog, removed=removed, pins=read_pins(workspace), built=built)


def _record(name: str, workspace: Workspace) -> ImageRecord | None:
    return read_document(workspace.image_record(name), ImageRecord) if _ID.fullmatch(name) else None


def _of_matrices(name: str, matrix: str | None, workspace: Workspace, catalog: Catalog) -> tuple[Built, Budgets] | None:
    for name_of_matrix in (matrix,) if matrix else (*local_matrices(workspace.root), *VETTED):
        choice = choose(name_of_matrix, (), workspace, catalog)
        for environment in choice.environments:
            if environment.id == name and (built := stored_build(environment, workspace)) is not None:
                return built, choice.matrix.budgets
    return None


def of_record(request: ValidationRequest, name: str, workspace: Workspace) -> ValidationRequest:
    """Return the request for another host's image of an environment's files here; without these, as it is."""
    files = build_files(name, workspace)
    if not files:
        return request
    path = f"{name}/environment.json"
    environment = decoding.from_json(files.get(path, b""), Environment, f"images/{path} is damaged")
    base = environment.on_registry_base.image if environment.on_registry_base else ""
    facts = read_document(workspace.base(base.rpartition("@")[2]), BaseFacts) if base else None
    none: dict[str, Any] = dict.fromkeys(("key", "image", "reference", "base_origin", "builder"), "")  # of no build
    none |= {"layers": (), "size": 0, "seconds": 0.0}
    record = ImageRecord(**none, environment=name, base=base, base_id=base, context=digests_of(files))
    found = request.of(built_of(environment, record, files, workspace, fresh=False), image=request.image)
    return replace(found, base_layers=facts.layers if facts else ())


def as_text(verdict: Verdict) -> str:
    """Write a verdict as a table of its checks and, below it, each finding once, however many checks name it."""
    checks = [(one.level, one.name, one.outcome, f"{one.duration_s:.2f} s", _seen(one)) for one in verdict.checks]
    told = tuple(f"{check.level}: {check.name} {check.outcome}: " for check in verdict.checks if check.findings)
    return rendered("validation/verdict", verdict=verdict, checks=checks, told=told, counted=counted)


def _seen(check: CheckResult) -> str:
    """Return what a check observed, with the codes of its findings in place of their texts."""
    seen = check.observed
    for one in check.findings:
        seen = seen.replace(one.message, one.code) if one.message else seen
    return " ".join("; ".join(dict.fromkeys(seen.split("; "))).split())[:100]
