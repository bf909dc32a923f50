"""Environments (combinations with a value for every axis) and rejections (combinations that cannot work)."""

import re
from typing import Literal

import msgspec

from envbuilder.finding import Finding

_INSIDE = re.compile(r"(?:cpu|cu([0-9.]+)(?:-cudnn([0-9.]+))?)-(.+)")
_SYSTEM = re.compile(r"^debian-|(?<=^ubuntu)-|\..*|^python-.*")
"""The parts of a system's name that an id leaves out; an image of Python is called by the system below it."""
_NO_TAG = re.compile(r"[^A-Za-z0-9_.-]")

Flavor = Literal["cpu", "gpu"]
Variant = Literal["devel", "runtime", "notebook"]
"""``devel`` has the complete wheels, pip and uv; ``notebook`` is ``devel`` with `NOTEBOOK`.

``runtime`` has no files that nothing in it can load or execute.
"""

WHOLE: Variant = "devel"
"""The variant that neither an id nor a document names."""


class Additions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Additions of a matrix to TensorFlow; their values were checked when the matrix was read.

    ``packages`` are locked together with TensorFlow, from the configured index and from ``indexes``.
    ``system_packages`` are installed by apt (``name`` or ``name=version``). ``env``, ``labels`` and ``files`` are
    pairs, those of a file its paths in the workspace and in the image. ``template`` and ``certificates`` are paths in
    the workspace; the certificates are added to the system's authorities.
    """

    packages: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    system_packages: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    user: str = ""
    workdir: str = ""
    entrypoint: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    certificates: tuple[str, ...] = ()
    template: str = ""


NOTHING_ADDED = Additions()

NOTEBOOK = Additions(packages=("jupyterlab>=4",), system_packages=("git",))
"""The additions of the variant ``notebook``."""


def with_notebook(added: Additions) -> Additions:
    """Add `NOTEBOOK` to the additions of a matrix; a package that the matrix names stays as it is there."""
    named = {re.split("[^a-z0-9.-]", text)[0] for text in (*added.packages, *added.system_packages)}
    joined = {}
    for name in ("packages", "system_packages"):
        more = (text for text in getattr(NOTEBOOK, name) if text.partition(">")[0] not in named)
        joined[name] = (*getattr(added, name), *more)
    return msgspec.structs.replace(added, **joined)


class Combination(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One cell of a matrix; the resolver chooses a value for None.

    ``packages`` are extra requirements (``numpy==2.0.0``); ``controls`` name deliberate defects (see `controls`).
    """

    tensorflow: str
    package: str | None = None
    python: str | None = None
    os: str | None = None
    arch: str = "x86_64"
    flavor: Flavor = "cpu"
    cuda: str | None = None
    cudnn: str | None = None
    packages: tuple[str, ...] = ()
    controls: tuple[str, ...] = ()
    additions: Additions = NOTHING_ADDED
    variant: Variant = msgspec.field(default=WHOLE, name="form")


class RegistryBase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A base that only a registry has.

    ``image`` is its reference in FROM. ``python_packages`` are the system's packages that bring Python if the base
    lacks it. ``brings_cuda``: the base contains CUDA. ``states_driver``: it names the drivers that it starts on, in
    NVIDIA_REQUIRE_CUDA.
    """

    image: str
    python_packages: tuple[str, ...] = ()
    brings_cuda: bool = False
    states_driver: bool = False


class SystemCuda(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """CUDA from packages of the system ``os``.

    The ``packages`` are in a ``component`` of the distribution's archive, or in a ``repository`` of the user's
    configuration. ``folders`` are those of the packages that the loader's path needs. ``cudnn`` is the pinned wheel of
    cuDNN (``nvidia-cudnn-cu11==8.6.0.163``). Versions and digests are in the context's own locks.
    """

    os: str
    component: str = ""
    packages: tuple[str, ...]
    cudnn: str
    repository: str = ""
    folders: tuple[str, ...] = ()


class NotInstalled(msgspec.Struct, frozen=True):
    """A wheel of the CUDA set (``name==version``) that an environment does not use, and the reason."""

    wheel: str
    reason: str


_NVRTC_11 = frozenset({"libnvrtc11.2", *(f"cuda-nvrtc-11-{number}" for number in range(2, 9))})
"""Packages whose NVRTC has the soname of CUDA 11.2 to 11.8: Debian's name and NVIDIA's."""


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """A resolved combination: the input of locking, rendering and evaluation. It depends on no clock.

    - ``id`` is a valid image tag; ``tag`` is the image's tag if the matrix has a pattern for tags.
    - ``requirements``: the input of the lock. ``constraints``: bounds of the lock. ``cuda_wheels``: the pinned CUDA
      set, which gets its own layer.
    - ``libraries``: the sonames that this TensorFlow opens at run time. ``loader_folders``: the folders below
      ``nvidia`` that it does not search, for the loader's path (``*`` is every folder).
    - ``cuda`` and ``cudnn`` are in the image, ``built_cuda`` and ``built_cudnn`` are those of TensorFlow's build; these
      and ``minimum_driver`` are None for a CPU flavour.
    - ``chosen``: the axes that the resolver filled in.
    - Unset fields are not written. ``base``: a system that can be bootstrapped has none. ``variant``: ``devel``.
    """

    id: str
    tensorflow: str
    package: str
    python: str
    os: str
    arch: str
    flavor: Flavor
    cuda: str | None
    cudnn: str | None
    minimum_driver: str | None
    requirements: tuple[str, ...]
    cuda_wheels: tuple[str, ...]
    constraints: tuple[str, ...]
    libraries: tuple[str, ...]
    loader_folders: tuple[str, ...] = ()
    built_cuda: str | None = None
    built_cudnn: str | None = None
    cubins: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    controls: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()
    base: RegistryBase | msgspec.UnsetType = msgspec.UNSET
    system_cuda: SystemCuda | msgspec.UnsetType = msgspec.UNSET
    additions: Additions | msgspec.UnsetType = msgspec.UNSET
    variant: Literal["runtime", "notebook"] | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="form")
    unused_wheels: tuple[NotInstalled, ...] | msgspec.UnsetType = msgspec.field(
        default=msgspec.UNSET, name="not_installed"
    )
    tag: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def image_tag(self) -> str:
        return self.tag or self.id

    @property
    def misnamed(self) -> bool:
        """Return True if the id contradicts the other fields."""
        start = _NO_TAG.sub("-", f"tf{self.tensorflow}-py{self.python.replace('.', '')}-")
        named = _INSIDE.fullmatch(self.id.removeprefix(start)) if self.id.startswith(start) else None
        if named is None:
            return True
        pairs = ((named[1], self.cuda), (named[2], self.cudnn))
        versions = all(f"{version}.".startswith(f"{name}.") for name, version in pairs)  # None is in both, or in none
        system = named[3].startswith(_NO_TAG.sub("-", _SYSTEM.sub("", self.os)))
        arch = self.arch == "x86_64" or self.arch in named[3].split("-")
        framework = f"{self.package}=={self.tensorflow}" in self.requirements
        own = named[3].endswith(f"-{self.variant}" if self.variant else ("-runtime", "-notebook")) == bool(self.variant)
        return not all((self.flavor == ("gpu" if named[1] else "cpu"), versions, system, arch, framework, own))

    @property
    def added(self) -> Additions:
        return self.additions or NOTHING_ADDED

    @property
    def not_installed(self) -> dict[str, str]:
        return {one.wheel: one.reason for one in self.unused_wheels or ()}

    @property
    def other_variants(self) -> tuple[str, ...]:
        """List the ids of environments with the same pins, the nearest first; a notebook has more pins."""
        whole = self.id.removesuffix(f"-{self.variant}")
        return (whole,) if self.variant == "runtime" else (f"{whole}-runtime", *((whole,) if self.variant else ()))

    @property
    def may_be_changed(self) -> bool:
        """Return True if the image has an installer, and its user may write the virtual environment."""
        return self.variant != "runtime"

    @property
    def on_registry_base(self) -> RegistryBase | None:
        return self.base or None

    @property
    def packaged_cuda(self) -> SystemCuda | None:
        return self.system_cuda or None

    @property
    def needs_nvrtc_link(self) -> bool:
        """Return True if cuDNN opens ``libnvrtc.so``; NVRTC's wheel and packages have only ``libnvrtc.so.11.2``.

        cuDNN 8 for CUDA 11 does, and aborts without it: its libcudnn_ops_infer looks in cuBLAS's folder, by RUNPATH.
        For CUDA 12 it opens the wheel's own name.
        """
        packages = self.system_cuda.packages if self.system_cuda else ()
        wheel = any(pin.startswith("nvidia-cuda-nvrtc-cu11==") for pin in self.cuda_wheels)
        return wheel or not _NVRTC_11.isdisjoint(packages)

    @property
    def base_system(self) -> str:
        return self.system_cuda.os if self.system_cuda else self.os

    @property
    def pinned_packages(self) -> tuple[str, ...]:
        """List the packages of the system whose versions are locked: all, on a system that can be bootstrapped."""
        own = self.system_cuda.packages if self.system_cuda else ()
        return () if self.base else tuple(dict.fromkeys((*own, *self.added.system_packages)))


class Environment(Resolved, frozen=True, kw_only=True):
    """A resolved combination with its ``findings``: warnings about an accepted combination."""

    findings: tuple[Finding, ...] = ()


Predicate = Literal["installable", "unhindered", "buildable"]
"""The property of a closest compatible environment.

``installable``: it can be installed, and will use the GPU. ``unhindered``: it also has no warning about the GPU, such
as kernels that are compiled for minutes. ``buildable``: envbuilder can build it here.
"""


class Change(msgspec.Struct, frozen=True, gc=False, rename={"old": "from", "new": "to"}):
    """One change from the requested combination to one that works: ``cuda`` from ``11.2`` to ``11.0``.

    ``field`` is an axis or a package's name. ``to`` is null for a base image, or a way to install, that the pinned CUDA
    wheels replace.
    """

    field: str
    old: str
    new: str | None


class Rejection(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A combination that cannot work, the reason, and the nearest combination that works, if there is one.

    ``changes`` lead to the nearest one, and ``predicate`` is its property.
    """

    combination: Combination
    id: str
    findings: tuple[Finding, ...]
    sentence: str
    nearest: Combination | None = None
    changes: tuple[Change, ...] = ()
    predicate: Predicate | None = None
