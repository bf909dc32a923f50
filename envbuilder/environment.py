"""An environment: a combination whose every choice has been made; and a rejection: one that cannot be made."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from envbuilder.finding import Finding

Flavor = Literal["cpu", "gpu"]
Variant = Literal["devel", "runtime", "notebook"]
"""``devel`` is everything as its wheels bring it, with pip and uv; ``notebook`` is ``devel`` with `NOTEBOOK`.

``runtime`` is without what nothing in it can load or execute.
"""

WHOLE: Variant = "devel"
"""The form that neither an id nor a document names."""


class Additions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What goes on top of TensorFlow: as a matrix asks for it, every value checked when that was read.

    ``packages`` are locked together with TensorFlow, from the configured index and from ``indexes``.
    ``system_packages`` are installed by apt (``name`` or ``name=version``). ``env``, ``labels`` and ``files`` are
    pairs; a file's are its path in the workspace and where it goes. ``template`` and ``certificates`` are paths in the
    workspace; the certificates are added to the system's authorities.
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
"""What the variant ``notebook`` adds."""


def with_notebook(added: Additions) -> Additions:
    """Add `NOTEBOOK` to what a matrix adds; a package that the matrix names stays as it is there."""
    named = {re.split("[^a-z0-9.-]", text)[0] for text in (*added.packages, *added.system_packages)}

    def joined(own: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
        return (*own, *(text for text in more if text.partition(">")[0] not in named))

    return msgspec.structs.replace(
        added,
        packages=joined(added.packages, NOTEBOOK.packages),
        system_packages=joined(added.system_packages, NOTEBOOK.system_packages),
    )


class Combination(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One cell of a matrix: None is "choose for me".

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
    """What has to be known of a base that only a registry gives, to build on it.

    ``image`` is what FROM names. ``python_packages`` are the system's packages that bring the Python where the base
    lacks it. ``brings_cuda`` is whether CUDA stands in it, and ``states_driver`` whether it says itself, by
    NVIDIA_REQUIRE_CUDA, which drivers it starts on.
    """

    image: str
    python_packages: tuple[str, ...] = ()
    brings_cuda: bool = False
    states_driver: bool = False


class SystemCuda(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """CUDA of packages, to be installed on the system called ``os``.

    ``component`` is where in the distribution's archive the ``packages`` are, or ``repository`` the name of a further
    one, which the user's configuration has. ``folders`` are those of the packages' that the loader has to be told of.
    ``cudnn`` is the one wheel that cuDNN comes from, pinned (``nvidia-cudnn-cu11==8.6.0.163``). Versions and digests
    are in the context's own locks.
    """

    os: str
    component: str = ""
    packages: tuple[str, ...]
    cudnn: str
    repository: str = ""
    folders: tuple[str, ...] = ()


class NotInstalled(msgspec.Struct, frozen=True):
    """A wheel of the CUDA set (``name==version``) of which an environment uses nothing, and why."""

    wheel: str
    reason: str


_NVRTC_11 = frozenset({"libnvrtc11.2", *(f"cuda-nvrtc-11-{number}" for number in range(2, 9))})
"""Packages whose NVRTC has the soname of CUDA 11.2 to 11.8: Debian's name and NVIDIA's."""


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """A resolved combination: everything that locking, rendering and judging need, and nothing that a clock knows.

    ``id`` is a valid image tag. ``requirements`` are what the lock starts from, ``cuda_wheels`` the exactly pinned CUDA
    set that gets its own layer, ``constraints`` the bounds that the lock keeps. ``libraries`` are the sonames that this
    TensorFlow opens at run time, ``loader_folders`` the folders under ``nvidia`` that it does not look into by itself
    and that the loader has to be told of (``*``: every one). ``cuda`` and ``cudnn`` are what the wheels, or the base,
    bring, ``built_cuda`` and ``built_cudnn`` what this TensorFlow was compiled with; these and ``minimum_driver`` are
    None for a CPU flavour. ``chosen`` names the axes that the resolver filled in. ``base`` is not set for a system that
    can be bootstrapped, ``system_cuda`` not where CUDA is none of the distribution's packages, ``additions`` not where
    there are none, ``variant`` not for everything as installed (``devel``),
    ``not_installed`` not if all of the CUDA set is: their files stay as they were. ``tag`` is the image's, if the
    matrix has a pattern for tags.
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
    def added(self) -> Additions:
        return self.additions or NOTHING_ADDED

    @property
    def not_installed(self) -> dict[str, str]:
        return {one.wheel: one.reason for one in self.unused_wheels or ()}

    @property
    def other_variants(self) -> tuple[str, ...]:
        """Name the environments that have the same pins, the nearest first; a notebook has more than others."""
        whole = self.id.removesuffix(f"-{self.variant}")
        return (whole,) if self.variant == "runtime" else (f"{whole}-runtime", *((whole,) if self.variant else ()))

    @property
    def may_be_changed(self) -> bool:
        """Return True if the image has an installer, and an environment that its user may write."""
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
        """List the packages of the system whose versions a lock holds: on a system that can be bootstrapped, all."""
        own = self.system_cuda.packages if self.system_cuda else ()
        return () if self.base else tuple(dict.fromkeys((*own, *self.added.system_packages)))


class Environment(Resolved, frozen=True, kw_only=True):
    """A resolved combination with its ``findings``: the warnings that hold although it was accepted."""

    findings: tuple[Finding, ...] = ()


Predicate = Literal["installable", "unhindered", "buildable"]
"""What "works" means of a nearest.

``installable``: it can be installed, and will use the GPU. ``unhindered``: and no warning about the GPU holds for it,
such as kernels that are compiled for minutes. ``buildable``: envbuilder can build it here.
"""


class Change(msgspec.Struct, frozen=True, gc=False, rename={"old": "from", "new": "to"}):
    """One thing that differs between what was asked for and what works: ``cuda`` from ``11.2`` to ``11.0``.

    ``field`` is an axis or a package's name. ``to`` is null where it has to go: a base image, or a way to install,
    whose place the pinned CUDA wheels take.
    """

    field: str
    old: str
    new: str | None


class Rejection(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A combination that cannot work, why, and the nearest combination that would (None where there is none).

    ``changes`` are what differs in the nearest one, and ``predicate`` is what it satisfies.
    """

    combination: Combination
    id: str
    findings: tuple[Finding, ...]
    sentence: str
    nearest: Combination | None = None
    changes: tuple[Change, ...] = ()
    predicate: Predicate | None = None
