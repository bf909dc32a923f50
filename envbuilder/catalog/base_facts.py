"""What a base holds, found by looking into it: the facts of one image, kept by its digest beside the matrices."""

from __future__ import annotations

import msgspec

from envbuilder import versions
from envbuilder.catalog.rows import BaseImage, ImageFlavor, OperatingSystem

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


class FoundPython(msgspec.Struct, frozen=True, kw_only=True):
    """A Python on the image's PATH: its version (``3.11``), its path, and whether virtual environments can be made."""

    version: str
    path: str
    venv: bool


class FoundLibrary(msgspec.Struct, frozen=True, kw_only=True):
    """A library of CUDA or cuDNN that the image's loader finds by its soname; ``version`` by its own bytes, or ''."""

    soname: str
    path: str
    version: str = ""


class Disagreement(msgspec.Struct, frozen=True, kw_only=True):
    """A field in which the image is not what the catalogue's row of its name says."""

    field: str
    catalog: str
    image: str


class BaseFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was found in one image.

    ``image`` names it by its digest. ``system`` and ``release`` are of its os-release (``debian``, ``12``). ``libc`` is
    ``glibc`` or ``musl``, '' where neither was found; ``libc_version`` that of glibc. ``packages`` is the program that
    installs packages (``apt``, ``dnf``). ``cuda`` is the toolkit of the run time that the loader finds, ``cudnn`` the
    cuDNN. ``tools`` is whether ptxas and libdevice are there, ``forward_compat`` whether CUDA's forward-compatibility
    package is. ``refused`` says why nothing can be built on it ('' where nothing speaks against it).
    """

    schema: str = "envbuilder/base/v1"
    image: str
    digest: str
    architecture: str
    system: str = ""
    release: str = ""
    libc: str = ""
    libc_version: str = ""
    packages: str = ""
    pythons: tuple[FoundPython, ...] = ()
    cuda: str = ""
    cudnn: str = ""
    libraries: tuple[FoundLibrary, ...] = ()
    tools: bool = False
    forward_compat: bool = False
    require_cuda: str = ""
    refused: str = ""
    disagreements: tuple[Disagreement, ...] = ()
    checksum: str = ""

    @property
    def arch(self) -> str:
        """The machine as the catalogue names it."""
        return _MACHINES.get(self.architecture, self.architecture)


def refusal(facts: BaseFacts) -> str:
    """Say why nothing can be built on an image; '' where nothing speaks against it."""
    usable = [python for python in facts.pythons if python.venv]
    if facts.libc != "glibc":
        return (
            f"its C library is {facts.libc or 'none that is known'}: TensorFlow's wheels need glibc, "
            "so take a base of Debian, Ubuntu or Red Hat"
        )
    if facts.arch != "x86_64":
        return f"it is for {facts.arch}, and environments are built for x86_64"
    if not usable and facts.packages != "apt":
        has = f"Python {facts.pythons[0].version} without venv" if facts.pythons else "no Python"
        return (
            f"it holds {has}, and {facts.packages or 'no program that installs packages'} instead of apt: "
            "take a base with a Python and its venv module"
        )
    if not usable and not (facts.system and facts.release):
        return "it holds no Python, and its os-release does not say which one its packages would bring"
    return ""


def python_of(facts: BaseFacts, wanted: str | None, systems: tuple[OperatingSystem, ...]) -> str | None:
    """Choose the Python of an image: the one that is wanted, the newest that it holds, or what its packages bring.

    None where it has none, and packages bring none that is known.
    """
    held = [python.version for python in facts.pythons if python.venv]
    brought = _brought(facts, systems)
    if wanted is not None:
        return wanted if wanted in (*held, *brought[:1]) else None
    return max(held, key=versions.key, default=None) or next(iter(brought), None)


def _brought(facts: BaseFacts, systems: tuple[OperatingSystem, ...]) -> tuple[str, ...]:
    """List the Pythons that apt brings on the system that an image is of, by the catalogue."""
    if facts.packages != "apt":
        return ()
    same = (row for row in systems if row.name.startswith(f"{facts.system}-"))
    row = next((row for row in same if row.name.endswith(f"-{facts.release}") or facts.release in row.tags), None)
    return row.pythons if row is not None else ()


def as_system(
    name: str, facts: BaseFacts, wanted: str | None, systems: tuple[OperatingSystem, ...]
) -> OperatingSystem | None:
    """Make the row under which a matrix's base is known; None where it has no Python that is wanted."""
    python = python_of(facts, wanted, systems)
    if python is None:
        return None
    held = [one.version for one in facts.pythons if one.venv]
    is_held = python in held
    others = [] if wanted else [one for one in (held if is_held else _brought(facts, systems)) if one != python]
    source, said = (facts.image,), "looked into by `envbuilder catalog look`"
    brings = None
    if facts.cuda:
        brings = BaseImage(
            name=name,
            cuda=facts.cuda,
            os=name,
            glibc=facts.libc_version,
            cudnn=facts.cudnn or None,
            python=python,
            require_cuda=facts.require_cuda,
            flavor=name,
            holds=ImageFlavor(
                name=name,
                tools=facts.tools,
                libraries=tuple(library.soname for library in facts.libraries),
                source=source,
                verified=said,
            ),
            forward_compat=facts.forward_compat,
            source=source,
            verified=said,
        )
    return OperatingSystem(
        name=name,
        short=name,
        python=python,
        glibc=facts.libc_version,
        image=facts.image,
        package_source="" if is_held else facts.system,
        offers=tuple(others),
        brings=brings,
        source=source,
        verified=said,
    )
