"""Make sure that the engine holds the base of an image: from its registry, or bootstrapped from signed packages."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from envbuilder.catalog.rows import OperatingSystem
from envbuilder.engine.port import Engine, Image
from envbuilder.environment import Environment
from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.image import debian, names
from envbuilder.image.user_config import config_file, section
from envbuilder.support import console, decoding
from envbuilder.workspace import read_kept, write_atomically, writing

_TO_FILE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Base:
    """A base in the engine's store.

    ``reference`` is what a Dockerfile's FROM names: a digest where a registry gave it, a tag of ours where it was
    bootstrapped. ``id`` is the image id, ``description`` a phrase for people.
    """

    reference: str
    id: str
    origin: Literal["registry", "bootstrapped"]
    description: str


class BaseUnavailableError(InfrastructureError):
    """A system's base is not here, and neither its registry nor its packages can be had: why, of each way."""

    def __init__(
        self, system: OperatingSystem, *, registry: InfrastructureError, bootstrap: InfrastructureError
    ) -> None:
        self.system = system.name
        self.registry = registry.message
        self.bootstrap = bootstrap.message
        super().__init__(
            f"there is no base for {self.system}:\n  registry: {self.registry}\n  bootstrap: {self.bootstrap}",
            hint=bootstrap.hint or f"docker pull {system.image} where a registry is reachable",
        )


def ensure_base(
    engine: Engine, system: OperatingSystem, cache: Path, report: Callable[[str], None], *, renew: bool = False
) -> Base:
    """Find, pull or bootstrap the base of a system; what is here already is used as it is, unless it is to be renewed.

    ``renew`` asks the registry, or the package mirror, for today's; where nothing changed, the base stays the same.

    A bootstrapped root file system stays in ``cache`` (about 150 MB), so that an engine that lost the image gets
    the same bytes again. Raises BaseUnavailableError that names every way that was tried, InfrastructureError where
    one that is here cannot be renewed.
    """
    here = _pulled(engine, system) or _bootstrapped(engine, system)
    if here is not None and not renew:
        return here
    with _lock(cache / f"{_TO_FILE.sub('-', system.name)}.lock"):
        if not renew and (here := _bootstrapped(engine, system)) is not None:
            return here  # another process made it while this one waited
        ask_for_base(system.name, engine)
        return _fetch(engine, system, cache, report, renew=renew)


def _fetch(engine: Engine, system: OperatingSystem, cache: Path, report: Callable[[str], None], *, renew: bool) -> Base:
    try:
        return _from_registry(fetched(engine, system.image, report), system)
    except InfrastructureError as unreachable:
        if renew and _pulled(engine, system) is not None:
            raise InfrastructureError(
                f"{system.image} cannot be renewed: {unreachable.message}",
                hint="without --pull the one that is here is used",
            ) from unreachable
        report(f"no registry gives {system.image}: {unreachable.message}")
        try:
            return _bootstrap(engine, system, cache, report, renew=renew)
        except InfrastructureError as error:
            raise BaseUnavailableError(system, registry=unreachable, bootstrap=error) from error


def held(engine: Engine, reference: str) -> Image | None:
    """Return an image that the engine's store has, under its own name or its mirror's."""
    return next((image for one in sources(reference) if (image := engine.image(one)) is not None), None)


def fetched(engine: Engine, reference: str, report: Callable[[str], None]) -> Image:
    """Pull an image: from its registry's mirror where there is one, else, or where that fails, from the registry.

    Credentials are those that ``docker login`` left, authorities those that the engine trusts. Raises
    InfrastructureError that names every place that was tried.
    """
    failed: list[InfrastructureError] = []
    for one in sources(reference):
        try:
            engine.reach(one)
            report(f"pulling {one}")
            return engine.pull(one)
        except InfrastructureError as error:
            failed.append(error)
    raise InfrastructureError("; ".join(error.message for error in failed), hint=failed[-1].hint)


def _bootstrap(
    engine: Engine, system: OperatingSystem, cache: Path, report: Callable[[str], None], *, renew: bool
) -> Base:
    if not system.suite:
        raise InfrastructureError(
            f"{system.name} is not a Debian suite and can only come from a registry",
            hint=f"docker pull {system.image} where a registry has it",
        )
    key = debian.recipe(system.suite)
    tar, note = cache / f"{system.name}-{key[:12]}.tar", cache / f"{system.name}-{key[:12]}.txt"
    whole = tar.is_file() and note.is_file()
    if renew or not whole:
        before = _digest(tar) if whole else ""
        with writing(note):
            note.unlink(missing_ok=True)
        report(f"bootstrapping {system.name} from signed Debian packages, about a minute")
        said = debian.bootstrap(system.suite, tar, report)
        write_atomically(note, said.encode())
        if _digest(tar) == before and (here := _bootstrapped(engine, system)) is not None:
            report("no package has changed")
            return here
    report(f"importing {tar.name}")
    labels = {names.BASE_KEY_LABEL: key, names.BASE_FROM_LABEL: decoding.lossy(read_kept(note) or b"signed packages")}
    return _ours(engine.import_base(tar, _tag(system), labels), system)


def _pulled(engine: Engine, system: OperatingSystem) -> Base | None:
    image = held(engine, system.image)
    return _from_registry(image, system) if image else None


def _bootstrapped(engine: Engine, system: OperatingSystem) -> Base | None:
    if not system.suite:
        return None
    image = engine.image(_tag(system))
    return (
        _ours(image, system)
        if image and image.labels.get(names.BASE_KEY_LABEL) == debian.recipe(system.suite)
        else None
    )


def _from_registry(image: Image, system: OperatingSystem) -> Base:
    reference = next((name for one in sources(system.image) if (name := image.pinned(one))), system.image)
    return Base(reference, image.id, "registry", f"{system.image} from its registry")


def _ours(image: Image, system: OperatingSystem) -> Base:
    made_from = image.labels.get(names.BASE_FROM_LABEL, "signed packages")
    return Base(_tag(system), image.id, "bootstrapped", f"{system.name} bootstrapped from {made_from}")


def _digest(path: Path) -> str:
    with writing(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _tag(system: OperatingSystem) -> str:
    return f"{names.BASES}:{system.name}"


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Let one process at a time through; the lock goes with its process, however that ends."""
    with writing(path):
        file = path.open("w")
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


HUB = "docker.io"
"""The registry of a reference that names none."""

VARIABLE = "ENVBUILDER_MIRRORS"
_MIRROR_HINT = 'write [mirrors], and below it "docker.io" = "mirror.example.org"'
_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)(?::[0-9]{1,5})?\Z")
_NAMES_REGISTRY = re.compile(r"(?:[^/]*[.:][^/]*|localhost)/")
_MIRROR = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)(?::[0-9]{1,5})?(?:/[a-z0-9][a-z0-9._-]*)*\Z")


def mirrors(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the mirror of each registry that has one: ``docker.io`` → ``mirror.example.org/hub``.

    The file's table ``[mirrors]`` and, outranking it, the variable ``ENVBUILDER_MIRRORS``
    (``docker.io=mirror.example.org/hub,quay.io=…``). Raises UsageError for what is no registry and no mirror.
    """
    table, where = section("mirrors", _MIRROR_HINT, environ), str(config_file(environ))
    found = {registry: _checked(registry, mirror, where) for registry, mirror in table.items()}
    for pair in environ.get(VARIABLE, "").replace(",", " ").split():
        registry, _, mirror = pair.partition("=")
        found[registry] = _checked(registry, mirror, VARIABLE)
    return found


def _checked(registry: str, mirror: object, where: str) -> str:
    if not _HOST.match(registry) or not isinstance(mirror, str) or not _MIRROR.match(mirror):
        raise UsageError(
            f"{where}: {registry!r} = {mirror!r} is no mirror of a registry",
            hint="hosts without a scheme, as in docker.io = mirror.example.org:5000/hub",
        )
    return mirror


def sources(reference: str, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """List the references under which an image can be had: its mirror's first, then its own.

    A name without a registry is the Hub's; an official image is in ``library`` there.
    """
    first, _, rest = reference.partition("/")
    registry, path = (first, rest) if _NAMES_REGISTRY.match(reference) else (HUB, reference)
    mirror = mirrors(environ).get(registry)
    if mirror is None:
        return (reference,)
    official = registry == HUB and "/" not in path.partition("@")[0].partition(":")[0]
    return (f"{mirror}/{'library/' if official else ''}{path}", reference)


NEEDED = {"gpu": 12_000_000_000, "cpu": 4_000_000_000}
"""Bytes that a build leaves with the engine at first: the image, and the builder's cache of what it was made from.

Measured on what ships: 6 GB and 1.8 GB for the images, as much again for the cache.
"""

_BASE_SIZE = 1_600_000_000
"""Bytes for a base: 125 MB of its own, and what is made of it. With less than an eighth not even itself fits."""

_HOPELESS = 8
"""With less than this part of it, no build ends, however much of it is cached."""

_FREE_SPACE = "envbuilder clean --cache 5 frees what builds left, docker system df says what holds the rest"


def ask_for_room(environment: Environment, engine: Engine) -> None:
    """Warn where the engine's disk has less than a build needs; nothing is said of an engine elsewhere.

    Raises InfrastructureError where it has next to none.
    """
    _ask(environment.id, NEEDED[environment.flavor], engine)


def ask_for_base(name: str, engine: Engine) -> None:
    """Ask the same for a base that is about to be fetched or bootstrapped."""
    _ask(f"the base {name}", _BASE_SIZE, engine)


def _ask(what: str, needed: int, engine: Engine) -> None:
    root = engine.info().root
    free = _free(Path(root)) if root else None
    if free is None or free >= needed:
        return
    text = f"{what} needs about {needed / 1e9:g} GB, and {root} has {free / 1e9:.1f} GB free"
    if free < needed // _HOPELESS:
        raise InfrastructureError(f"the engine's disk is full: {text}", hint=_FREE_SPACE)
    console.warn(f"{text}; {_FREE_SPACE}")


def _free(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None  # the engine's host is another one, or keeps its folders to itself
