"""Build an environment's image: lock, packages, render, base, build. Up-to-date steps are skipped."""

import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import OperatingSystem
from envbuilder.engine.port import BuildRequest, Engine, Image, Layer
from envbuilder.environment import Environment
from envbuilder.errors import UsageError, redacted
from envbuilder.image import context, lockfile, names, removed_files, system_lock
from envbuilder.image.bases import NEEDED, Base, ask_for_room, ensure_base
from envbuilder.image.host_settings import host_files
from envbuilder.image.layers import carried_out
from envbuilder.image.wheel_records import Pin, WheelRecords, read_pins
from envbuilder.pypi.client import PackageIndex
from envbuilder.support import console, decoding, subprocesses, terminal_text
from envbuilder.support.console import Step
from envbuilder.verdict import EngineRef, span
from envbuilder.workspace import (
    Workspace,
    cache_dir,
    content_key,
    digest,
    read_document,
    read_stored,
    remove,
    write_document,
    writing,
)

_one_installer = threading.Lock()

_LOG_LINES = {
    "started": "→ {0.name}",
    "log": "  {0.text}",
    "done": "✓ {0.name} ({0.seconds:.1f} s)",
    "cached": "= {0.name} (cached)",
    "failed": "✗ {0.name}: {0.error}",
}


class ImageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a build: ``out/<id>/image.json``. ``key`` covers the context and the base.

    ``builder`` is ``engine`` as a phrase. ``context`` is path → digest of the built files, ``revision`` the commit that
    they were checked out from ('' if they differ from any), ``started`` and ``finished`` are ISO 8601. ``omitted`` sums
    the files of the lock's packages that the variant lacks.
    """

    schema: str = "envbuilder/image/v1"
    environment: str
    key: str
    image: str
    reference: str
    size: int
    base: str
    base_id: str
    base_origin: str
    builder: str
    engine: EngineRef | None = None
    seconds: float
    layers: tuple[Layer, ...]
    context: dict[str, str] = {}
    revision: str = ""
    started: str = ""
    finished: str = ""
    omitted: tuple[removed_files.Omitted, ...] = ()
    checksum: str = ""

    @property
    def tag_part(self) -> str:
        """The first 12 digits of the image's id, which make a tag that no other image gets."""
        return self.image.removeprefix("sha256:")[:12]


@dataclass(frozen=True)
class Built:
    """An environment, the record of its image and the text of its lock; ``fresh`` if it was built just now.

    ``removed`` lists the files that its variant removes, '' if none; ``pins`` are those of large wheels, by their hash;
    ``system`` are the locks of the system's packages, by name; ``known`` is the committed record of such an image;
    ``authorities`` are the certificates that the matrix adds.
    """

    environment: Environment
    record: ImageRecord
    lock: str
    fresh: bool = False
    removed: str = ""
    pins: Mapping[str, Pin] = field(default_factory=dict)
    system: Mapping[str, str] = field(default_factory=dict)
    known: bytes = b""
    authorities: frozenset[bytes] = frozenset()


@dataclass(frozen=True)
class BuildOptions:
    """How to build.

    ``lock`` is a lock that the caller has chosen; with ``as_stored`` the stored files are built as they are.
    ``wheels`` is a folder of wheels that steps may install from, next to the index. ``index`` gives the RECORDs of the
    locked wheels after the build: validation compares the image with them. ``cache`` is a repository in a registry that
    keeps the steps of builds. ``bases`` are those that the caller has prepared, by the names of their systems.
    """

    lock: str | None = None
    as_stored: bool = False
    no_cache: bool = False
    wheels: Path | None = None
    index: PackageIndex | None = None
    cache: str | None = None
    bases: Mapping[str, Base] = field(default_factory=dict)


_PLAIN = BuildOptions()


def ensure(
    environment: Environment,
    catalog: Catalog,
    workspace: Workspace,
    engine: Engine,
    on_step: Callable[[Step], None],
    options: BuildOptions = _PLAIN,
) -> Built:
    """Lock an environment that has no lock, write its files, and build it unless the engine has that image.

    Raises InputError for a lock that does not fit the environment, UnsatisfiableError if it cannot be locked,
    BaseUnavailableError, BuildFailedError, and InfrastructureError. Only a complete build leaves a record.
    """

    def report(line: str, *moved: float) -> None:
        if not moved:
            on_step(Step("log", "base", line))

    def base_of(system: OperatingSystem) -> Base:
        return options.bases.get(system.name) or ensure_base(engine, system, cache_dir() / "bases", report)

    on_step(Step("log", "lock"))
    files = _files(environment, catalog, workspace, options)
    on_step(Step("log", "base"))
    base = base_of(context.system_of(environment, catalog))
    key = content_key({**files, "base": base.id.encode()})
    before = read_document(workspace.image_record(environment.id), ImageRecord)
    named = before is not None and before.reference == names.reference(environment.image_tag)
    if before and named and before.key == key and not options.no_cache and engine.image(before.image) is not None:
        if is_moved(before, engine):
            console.warn(f"{before.reference} named another image; it names the one of {environment.id} again")
            engine.tag(before.image, before.reference)
        return built_of(environment, before, files, workspace, fresh=False)
    tools = catalog.system(names.TOOLS_SYSTEM) if environment.on_registry_base else None
    bases = {"BASE": base.reference} | ({"TOOLS": base_of(tools).reference} if tools else {})
    checkout = _checkout(workspace.images, files)
    labels = {name: value for name, value in checkout.items() if name not in dict(environment.added.labels)}
    labels |= {names.BASE_NAME_LABEL: base.reference, names.BASE_DIGEST_LABEL: base.id}
    request = _request(environment, files, bases, labels, options)
    for stored in request.cache_from:
        with console.warning("no build cache"):
            engine.pull(stored)  # with the credentials of `docker login`, which the builder does not have
    ask_for_room(environment.id, NEEDED[environment.flavor], engine)
    remove(workspace.image_record(environment.id))
    began = time.monotonic()
    image = build_logged(request, engine, workspace.build_log(environment.id), on_step)
    (started, finished), info = span(began), engine.info()
    record = ImageRecord(
        environment=environment.id,
        key=key,
        image=image.id,
        reference=request.tag,
        size=image.size,
        base=base.reference,
        base_id=base.id,
        base_origin=base.origin,
        builder=f"{info.name} {info.version} {info.builder}",
        engine=EngineRef(name=info.name, version=info.version, builder=info.builder),
        seconds=round(time.monotonic() - began, 1),
        layers=image.layers,
        context=digests_of(files),
        revision=checkout.get(names.REVISION_LABEL, ""),
        started=started,
        finished=finished,
        omitted=removed_files.sums(removed_files.parse(carried_out(files, request.dockerfile)).values()),
    )
    write_document(workspace.image_record(environment.id), record)
    built = built_of(environment, record, files, workspace, fresh=True)
    wheels = WheelRecords(options.index, pins=built.pins, own=environment.added.indexes)
    wheels.store(system_lock.pinned_wheels(built.lock, built.system), environment.python, environment.arch)
    for stored in request.cache_from:
        _store_steps(request, stored, engine, on_step)
    return built


def _request(
    environment: Environment,
    files: Mapping[str, bytes],
    bases: Mapping[str, str],
    labels: Mapping[str, str],
    options: BuildOptions,
) -> BuildRequest:
    own = environment.added.indexes
    repository = environment.packaged_cuda.repository if environment.packaged_cuda else ""
    return BuildRequest(
        context=files,
        dockerfile=f"{environment.id}/Dockerfile",
        tag=names.reference(environment.image_tag),
        extra=host_files(wheels=options.wheels, indexes=own, repository=repository, folder="shared/host"),
        build_args=bases,
        labels=labels,
        no_cache=options.no_cache,
        cache_from=(f"{options.cache}:cache-{environment.image_tag}",) if options.cache else (),
    )


def _store_steps(request: BuildRequest, name: str, engine: Engine, on_step: Callable[[Step], None]) -> None:
    """Push an image of its own: the inline cache has times, and the environment's image builds bit for bit the same."""
    with console.warning("the build cache is not stored"):
        inline = {**request.build_args, "BUILDKIT_INLINE_CACHE": "1"}
        engine.build(replace(request, tag=name, labels={}, build_args=inline), on_step)
        engine.push(name)
    engine.remove(name)


def stored_build(environment: Environment, workspace: Workspace) -> Built | None:
    """Return the result of an earlier build in a workspace, without the engine; None if there is none."""
    if (record := read_document(workspace.image_record(environment.id), ImageRecord)) is None:
        return None
    return built_of(environment, record, context.build_files(environment.id, workspace), workspace, fresh=False)


def _files(environment: Environment, catalog: Catalog, workspace: Workspace, options: BuildOptions) -> dict[str, bytes]:
    """Return the files that a build needs, by path below ``images/``; they are written first, or as they are stored."""
    if options.as_stored:
        if f"{environment.id}/Dockerfile" in (files := context.build_files(environment.id, workspace)):
            return files
        hint = workspace.command("render", environment.id)
        raise UsageError(f"{workspace.context(environment.id)} has no Dockerfile", hint=hint)
    if (lock := options.lock) is None:
        lock = context.ensure_lock(environment, catalog, workspace)
    else:
        context.ensure_system_locks(environment, catalog, workspace)
    context.ensure_packages(environment, lock, catalog, workspace, options.index)
    return context.write_context(environment, lock, workspace)


def built_of(
    environment: Environment, record: ImageRecord, files: Mapping[str, bytes], workspace: Workspace, *, fresh: bool
) -> Built:
    return Built(
        environment,
        record,
        decoding.lossy(files.get(f"{environment.id}/{lockfile.LOCK}", b"")),
        fresh=fresh,
        removed=carried_out(files, f"{environment.id}/Dockerfile"),
        pins=read_pins(workspace),
        system=system_lock.texts(workspace.context(environment.id), environment),
        known=read_stored(workspace.known_image(environment.id)) or b"",
        authorities=context.authorities(environment, files),
    )


def is_moved(record: ImageRecord, engine: Engine) -> bool:
    """Return True if the tag of an environment's image names another image now."""
    tagged = engine.image(record.reference)
    return tagged is not None and tagged.id != record.image


def digests_of(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: digest(data) for name, data in sorted(files.items())}


def _checkout(images: Path, files: Iterable[str]) -> dict[str, str]:
    """Return labels of the commit that last changed files of ``images/``; none if one differs, or without git.

    They change only if the files do, and no clock enters the image: it is created on the day of that commit.
    """
    git = partial(subprocesses.answer, "git", folder=images)
    commit, _, created = git("log", "-1", "--format=%H %cI", "--", *files).partition(" ")
    if not commit or git("status", "--porcelain", "--ignored", "--", *files):
        return {}
    labels = {names.REVISION_LABEL: commit, names.CREATED_LABEL: created}
    remote = _ADDRESS.fullmatch(git("remote", "get-url", "origin"))
    if remote:
        labels[names.SOURCE_LABEL] = f"https://{remote['host']}/{remote['path']}"
    return labels


_ADDRESS = re.compile(
    r"(?:(?:https?|ssh|git)://)?(?:[^@/\s]+@)?(?P<host>[A-Za-z0-9.-]+\.[A-Za-z]{2,})(?::[0-9]+/|[:/])"
    r"(?P<path>[A-Za-z0-9._~/-]+?)(?:\.git)?/?"
)
"""Addresses of repositories: ``https://user:token@host/team/project.git``, ``git@host:team/project``."""


def build_logged(request: BuildRequest, engine: Engine, log: Path, on_step: Callable[[Step], None]) -> Image:
    """Build an image and write each step to a log file as it happens, without credentials in addresses.

    The installer's stage is built first, by one build at a time. If builds begin together on a cold builder, BuildKit
    (20.10) does not recognise the steps after those in common: it would install a CUDA set again.
    """
    here, name = request.context, request.dockerfile
    request = replace(request, log=str(log))
    dockerfile = decoding.lossy((read_stored(here / name) if isinstance(here, Path) else here.get(name)) or b"")
    titles, cached = console.step_titles(dockerfile), set[Step]()
    with writing(log), log.open("w", encoding="utf-8", errors="replace") as file:

        def report(step: Step) -> None:
            name, text, error = (terminal_text.text(redacted(one)) for one in (step.name, step.text, step.error))
            clean = replace(step, name=name, text=text, error=error)
            file.write(_LOG_LINES[step.kind].format(clean).rstrip() + "\n")
            file.flush()
            named = replace(clean, name=console.step_title(clean.name, titles))
            if named not in cached:  # both builds have the installer's steps
                on_step(named)
            cached.update({named} if step.kind == "cached" else ())

        if not request.no_cache and re.search(r"(?m)^FROM \S+ AS tools$", dockerfile):
            first = replace(request, tag=f"{request.tag}-tools", target="tools", labels={})
            with _one_installer:
                try:
                    engine.build(first, report)
                finally:
                    engine.remove(first.tag)
        return engine.build(request, report)
