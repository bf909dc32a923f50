"""The facts of one inspected image, stored by its digest next to the matrices."""

from typing import Any

import msgspec

from envbuilder import versions
from envbuilder.catalog.rows import BaseImage, ImageFlavor, OperatingSystem
from envbuilder.support.architectures import ARCHS


class FoundPython(msgspec.Struct, frozen=True, kw_only=True):
    """A Python on the image's PATH (``3.11``); ``venv`` is True if it can create virtual environments."""

    version: str
    path: str
    venv: bool


class FoundLibrary(msgspec.Struct, frozen=True, kw_only=True):
    """A library of CUDA or cuDNN that the image's loader finds; ``version`` is read from its bytes, or ''."""

    soname: str
    path: str
    version: str = ""


class Disagreement(msgspec.Struct, frozen=True, kw_only=True):
    """A difference between the image and the catalogue's row of its name."""

    field: str
    catalog: str
    image: str


class BaseFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one image.

    ``image`` has its digest. ``system`` and ``release`` are in its os-release (``debian``, ``12``). ``libc`` is
    ``glibc``, ``musl`` or '' if unknown; ``libc_version`` that of glibc. ``packages`` is the program that installs
    packages (``apt``, ``dnf``). ``cuda`` is the toolkit of the CUDA runtime that the loader finds, ``cudnn`` its cuDNN.
    ``tools`` is True if it has ptxas and libdevice, ``forward_compat`` if it has CUDA's forward-compatibility package.
    ``layers`` are the diff ids of its layers. ``refused`` is the reason why nothing can be built on it, or ''.
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
    layers: tuple[str, ...] = ()
    refused: str = ""
    disagreements: tuple[Disagreement, ...] = ()
    checksum: str = ""

    @property
    def arch(self) -> str:
        return ARCHS.get(self.architecture, self.architecture)


def _brought(facts: BaseFacts, systems: tuple[OperatingSystem, ...]) -> tuple[str, ...]:
    """List the Pythons that apt installs on an image's system."""
    if facts.packages != "apt":
        return ()
    same = (row for row in systems if row.name.startswith(f"{facts.system}-"))
    row = next((row for row in same if row.name.endswith(f"-{facts.release}") or facts.release in row.tags), None)
    return row.pythons if row is not None else ()


def as_system(
    name: str, facts: BaseFacts, wanted: str | None, systems: tuple[OperatingSystem, ...]
) -> OperatingSystem | None:
    """Make the row under which a matrix's base is known; None without the wanted Python, or without any.

    If none is wanted, the Python is the newest that the image has, or else the first that its packages bring.
    """
    held, brought = [one.version for one in facts.pythons if one.venv], _brought(facts, systems)
    python = wanted or max(held, key=versions.key, default=None) or next(iter(brought), None)
    if python is None or python not in (*held, *brought[:1]):
        return None
    is_held = python in held
    others = () if wanted else tuple(one for one in (held if is_held else brought) if one != python)
    origin: dict[str, Any] = {"source": (facts.image,), "verified": "inspected by `envbuilder catalog inspect`"}
    brings, sonames = None, tuple(library.soname for library in facts.libraries)
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
            holds=ImageFlavor(name=name, tools=facts.tools, libraries=sonames, **origin),
            forward_compat=facts.forward_compat,
            **origin,
        )
    return OperatingSystem(
        name=name,
        short=f"{name}-{facts.digest.rpartition(':')[2][:8]}",  # an image of another digest is another environment
        python=python,
        glibc=facts.libc_version,
        image=facts.image,
        package_source="" if is_held else facts.system,
        offers=others,
        brings=brings,
        **origin,
    )
