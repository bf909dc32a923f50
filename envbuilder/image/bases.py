"""Make sure that the engine has the base of an image: from its registry, or bootstrapped from signed packages."""

import fcntl
import hashlib
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from envbuilder.catalog.rows import OperatingSystem
from envbuilder.engine.port import Engine, Image
from envbuilder.errors import BaseUnavailableError, InfrastructureError
from envbuilder.image import debian, names
from envbuilder.image.host_settings import mirrors
from envbuilder.support import console, decoding
from envbuilder.workspace import read_stored, remove, write_atomically, writing


@dataclass(frozen=True)
class Base:
    """A base in the engine's store: the reference for FROM (a registry's digest, or envbuilder's tag) and image id."""

    reference: str
    id: str
    origin: Literal["registry", "bootstrapped"]


def ensure_base(
    engine: Engine, system: OperatingSystem, cache: Path, report: Callable[..., None], *, renew: bool = False
) -> Base:
    """Find, pull or bootstrap the base of a system; ``renew`` asks the registry or the package mirror for today's.

    A bootstrapped root file system stays in ``cache`` (about 150 MB), so that an engine that lost the image gets
    the same bytes again. Raises BaseUnavailableError, or InfrastructureError if a stored base cannot be renewed.
    """
    here = _pulled(engine, system) or _bootstrapped(engine, system)
    if here is not None and not renew:
        return here
    with _lock(cache, system):
        if not renew and (here := _bootstrapped(engine, system)) is not None:
            return here  # another process made it while this one waited
        ask_for_room(f"the base {system.name}", _BASE_SIZE, engine)
        try:
            return _from_registry(fetched(engine, system.image, report), system)
        except InfrastructureError as gone:
            if renew and _pulled(engine, system) is not None:
                text = f"{system.image} cannot be renewed: {gone.message}"
                raise InfrastructureError(text, hint="without --pull the one that is here is used") from gone
            report(f"no registry gives {system.image}: {gone.message}")
            try:
                return _bootstrap(engine, system, cache, report, renew=renew)
            except InfrastructureError as error:
                text = f"there is no base for {system.name}:\n  registry: {gone.message}\n  bootstrap: {error.message}"
                hint = error.hint or f"docker pull {system.image} where a registry is reachable"
                raise BaseUnavailableError(text, hint=hint) from error


def held(engine: Engine, reference: str) -> Image | None:
    """Return an image that the engine's store has, under its own name or its mirror's."""
    return next((image for one in sources(reference) if (image := engine.image(one)) is not None), None)


def fetched(engine: Engine, reference: str, report: Callable[..., None]) -> Image:
    """Pull an image from its registry's mirror, or else from the registry, with the engine's logins and authorities.

    ``report`` gets a line, then also the bytes that are here and those of all layers. Raises InfrastructureError.
    """
    failed: list[InfrastructureError] = []
    for one in sources(reference):
        try:
            engine.reach(one)
            report(f"pulling {one}")
            return engine.pull(one, partial(report, f"pulling {one}"))
        except InfrastructureError as error:
            failed.append(error)
    text = "; ".join(error.message for error in failed)
    if "@" in reference and re.search(r"manifest unknown|not found", text):
        hint = f"copy the digest from `envbuilder catalog inspect {reference.partition('@')[0]}:TAG`"
        raise InfrastructureError(f"the registry has no image {reference}: {text}", hint=hint)
    raise InfrastructureError(text, hint=failed[-1].hint)


def _bootstrap(
    engine: Engine, system: OperatingSystem, cache: Path, report: Callable[[str], None], *, renew: bool
) -> Base:
    if not system.suite:
        text = f"{system.name} is not a Debian suite and can only come from a registry"
        raise InfrastructureError(text, hint=f"docker pull {system.image} where a registry has it")
    tar, changed = _root_files(system, cache, report, renew=renew)
    if not changed and (here := _bootstrapped(engine, system)) is not None:
        report("no package has changed")
        return here
    report(f"importing {tar.name}")
    said = decoding.lossy(read_stored(tar.with_suffix(".txt")) or b"signed packages")
    labels = {names.BASE_KEY_LABEL: debian.recipe(system.suite), names.BASE_FROM_LABEL: said}
    return Base(_tag(system), engine.import_base(tar, _tag(system), labels).id, "bootstrapped")


def prepare(system: OperatingSystem, cache: Path, report: Callable[[str], None]) -> None:
    """Bootstrap a Debian system's root files into ``cache`` without an engine, for a later `ensure_base`."""
    with _lock(cache, system):
        _root_files(system, cache, report, renew=False)


def _root_files(
    system: OperatingSystem, cache: Path, report: Callable[[str], None], *, renew: bool
) -> tuple[Path, bool]:
    """Return the tar of a system's root files, bootstrapped if it is not there or to be renewed, and if it changed."""
    tar = cache / f"{system.name}-{debian.recipe(system.suite)[:12]}.tar"
    note = tar.with_suffix(".txt")
    before = _digest(tar) if tar.is_file() and note.is_file() else ""
    if before and not renew:
        return tar, False
    remove(note)
    report(f"bootstrapping {system.name} from signed Debian packages, about half a minute")
    write_atomically(note, debian.bootstrap(system.suite, tar, report).encode())
    return tar, _digest(tar) != before


def _pulled(engine: Engine, system: OperatingSystem) -> Base | None:
    return _from_registry(image, system) if (image := held(engine, system.image)) is not None else None


def _from_registry(image: Image, system: OperatingSystem) -> Base:
    reference = next((name for one in sources(system.image) if (name := image.pinned(one))), system.image)
    return Base(reference, image.id, "registry")


def _bootstrapped(engine: Engine, system: OperatingSystem) -> Base | None:
    image = engine.image(_tag(system)) if system.suite else None
    if image is None or image.labels.get(names.BASE_KEY_LABEL) != debian.recipe(system.suite):
        return None
    return Base(_tag(system), image.id, "bootstrapped")


def _digest(path: Path) -> str:
    with writing(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _tag(system: OperatingSystem) -> str:
    return f"{names.BASES}:{system.name}"


@contextmanager
def _lock(cache: Path, system: OperatingSystem) -> Iterator[None]:
    """Let one process at a time through; the lock ends with its process."""
    path = cache / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', system.name)}.lock"
    with writing(path):
        file = path.open("w")
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


_HUB = "docker.io"
_NAMES_REGISTRY = re.compile(r"(?:[^/]*[.:][^/]*|localhost)/")


def sources(reference: str) -> tuple[str, ...]:
    """Return an image's references: its mirror's first, then its own.

    A name without a registry is the Hub's, where an official image is in ``library``.
    """
    first, _, rest = reference.partition("/")
    registry, path = (first, rest) if _NAMES_REGISTRY.match(reference) else (_HUB, reference)
    mirror = mirrors().get(registry)
    if mirror is None:
        return (reference,)
    official = registry == _HUB and "/" not in path.partition("@")[0].partition(":")[0]
    return (f"{mirror}/{'library/' if official else ''}{path}", reference)


NEEDED = {"gpu": 12_000_000_000, "cpu": 4_000_000_000}
"""Bytes that a first build leaves with the engine. Measured: 6 and 1.8 GB for the images, as much for their cache."""

_BASE_SIZE = 1_600_000_000
"""Bytes for a base: 125 MB of its own, and the layers above it."""

_HOPELESS = 8
"""With less than an eighth of it, no build ends, however much of it is cached."""

_FREE_SPACE = "envbuilder clean --cache 5 frees what builds left, docker system df says what holds the rest"


def ask_for_room(what: str, needed: int, engine: Engine) -> None:
    """Warn if the engine's disk has less space than a build needs; silent about the disk of another host.

    Raises InfrastructureError if it has almost none.
    """
    root = engine.info().root
    try:
        free = shutil.disk_usage(root).free if root else needed
    except OSError:
        return  # the engine runs on another host, or hides its folders
    if free < needed:
        text = f"{what} needs about {needed / 1e9:g} GB, and {root} has {free / 1e9:.1f} GB free"
        if free < needed // _HOPELESS:
            raise InfrastructureError(f"the engine's disk is full: {text}", hint=_FREE_SPACE)
        console.warn(f"{text}; {_FREE_SPACE}")
