"""The rows of the catalogue: facts about releases, toolkits, drivers and GPUs, each with its source.

``None`` or an empty tuple means "no claim"; no rule may rely on it as a default. Versions are texts as their vendors
print them; compute capabilities are texts such as ``"8.6"``.
"""

from typing import Literal

import msgspec

from envbuilder import versions

FindsCuda = Literal["system", "wheels", "partly", "unfindable"]
KernelOrigin = Literal["hand-written", "generated"]


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of every fact: its source, and when and how it was verified (``2026-11-20 wheel metadata``)."""

    source: tuple[str, ...]
    verified: str
    note: str = ""


class WheelSet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Wheels of one release for one CPU architecture: their Pythons (``"3.11"``) and the oldest glibc for them."""

    arch: str
    pythons: tuple[str, ...]
    glibc: str
    tag: str


class Search(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The RUNPATH of one library of a wheel: the folders under ``nvidia`` of the CUDA wheels."""

    object: str
    folders: tuple[str, ...]


class Ptx(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """A PTX text's target (``sm_90a``) and ISA (``8.5``). ``target`` is None for an unreadable text.

    A target with an ``a`` is compiled for that capability only, one with an ``f`` for it and later ones of its major,
    one without a letter for it and all later ones.
    """

    target: str | None
    isa: str


class Kernels(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fat binaries of one origin in all shared objects of a wheel.

    Hand-written ones were compiled by nvcc; generated ones, most element-wise operations, by MLIR. ``cubins`` are the
    compute capabilities with machine code, and ``ptx`` the PTX, in *every* one of ``fat_binaries``: a program needs
    each. ``without_ptx`` of them hold machine code only, although the others hold PTX (device-linked programs, such as
    NCCL's); they do not count for ``ptx``.
    """

    origin: KernelOrigin
    fat_binaries: int
    without_ptx: int = 0
    cubins: tuple[str, ...] = ()
    ptx: tuple[Ptx, ...] = ()


class Contradiction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A wrong statement of the artefact or the documentation about one ``field`` of the row; recorded, not corrected.

    ``says`` is the artefact's statement exactly as ``catalog verify`` prints it, so that any other statement is a new
    disagreement.
    """

    says: str
    but: str
    source: str
    field: str = ""


class TensorflowRelease(Row, frozen=True, kw_only=True):
    """One distribution at one version; docs/reference/catalogue.md has the meaning of each field.

    ``libraries`` are the sonames opened at start, ``openers`` the libraries that it has a function to open
    (`library_search.WHEEL_FOLDERS`); ``finds_cuda`` follows from ``libraries`` and ``searches``
    (`library_search.finds_cuda`). ``cuda_wheels`` include dependencies: cuDNN 8 for CUDA 11 loads NVRTC, which is in no
    extra.
    """

    package: str
    version: str
    gpu: bool
    wheels: tuple[WheelSet, ...] = ()
    released: str = ""
    requires_python: str = ""
    cuda: str | None = None
    cudnn: str | None = None
    cubins: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    kernels: tuple[Kernels, ...] = ()
    finds_cuda: FindsCuda | None = None
    searches: tuple[Search, ...] = ()
    openers: tuple[str, ...] = ()
    and_cuda: tuple[str, ...] = ()
    cuda_wheels: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    caps: tuple[str, ...] = ()
    extra_fails_on: tuple[str, ...] = ()
    extra_fails_because: str = ""
    cpu_features: tuple[str, ...] = ()
    installable: bool = True
    not_installable_because: str = ""
    reviewed: bool = True
    contradictions: tuple[Contradiction, ...] = ()

    @property
    def pythons(self) -> tuple[str, ...]:
        """Every Python with a wheel, oldest first."""
        every = {python for wheels in self.wheels for python in wheels.pythons}
        return tuple(sorted(every, key=versions.key))


class CudaToolkit(Row, frozen=True, kw_only=True):
    """One CUDA release line (``12.5``).

    ``driver`` is its own driver (Linux), the oldest that compiles its PTX; ``minimum_driver`` the oldest with
    minor-version compatibility; ``windows_driver`` and ``windows_minimum_driver`` are the same on Windows and WSL 2.
    ``forward_compat`` lists the driver branches on which its compatibility package works. ``first_capability`` and
    ``last_capability`` bound the GPUs with kernels in its libraries; ``sonames`` are the file names that programs built
    with it open.
    """

    version: str
    driver: str | None = None
    minimum_driver: str
    windows_driver: str | None = None
    windows_minimum_driver: str | None = None
    first_capability: str
    last_capability: str
    capabilities: tuple[str, ...]
    ptx_isa: str = ""
    forward_compat: tuple[str, ...] = ()
    sonames: tuple[str, ...] = ()


class Cudnn(Row, frozen=True, kw_only=True):
    """One cuDNN release (``8.9.7`` or a line such as ``8.9``), with its CUDA majors and GPUs."""

    version: str
    cuda: tuple[str, ...]
    first_capability: str | None = None
    last_capability: str | None = None
    minimum_driver: str | None = None


class CudnnWheel(Row, frozen=True, kw_only=True):
    """The versions of one CUDA wheel line on the index, oldest first, read on the row's date.

    ``uploaded`` are their upload dates (``2025-06-05``), in the same order; empty if not read.
    """

    package: str
    versions: tuple[str, ...]
    uploaded: tuple[str, ...] = ()


class PackageRelease(Row, frozen=True, kw_only=True):
    """A release that TensorFlow wheels without an upper bound cannot load.

    ``bound`` is the ``caps`` entry (``numpy<2``), ``version`` the first final release beyond it, ``released`` its
    upload date, ``python`` the oldest Python that it installs on.
    """

    bound: str
    version: str
    released: str
    python: str


class DriverBranch(Row, frozen=True, kw_only=True):
    """One driver branch (``535``): its CUDA, and the range of GPUs that it supports.

    ``releases`` are the known ones, oldest first; ``betas`` those of them that were never production releases (a
    toolkit's own driver often is a beta). ``windows`` are the first numbers of its drivers for Windows (``537``), which
    WSL 2 shows too.
    """

    branch: str
    first: str
    cuda: str
    first_capability: str
    last_capability: str
    releases: tuple[str, ...] = ()
    betas: tuple[str, ...] = ()
    windows: tuple[str, ...] = ()
    kind: str = ""
    end_of_life: str = ""

    @property
    def production(self) -> tuple[str, ...]:
        """The known production releases, oldest first; a branch without a release means these."""
        return tuple(release for release in self.releases if release not in self.betas)


class Gpu(Row, frozen=True, kw_only=True):
    """One GPU model: its marketing name, its names in ``nvidia-smi``, and other spellings.

    ``shared`` are names that GPUs of other compute capabilities have too (``RTX 6000``), ``variants`` other compute
    capabilities that were sold under its name. ``arch`` is the only CPU architecture that it comes with (``aarch64``),
    or ''. ``minimum_driver`` is inferred: the driver of the first toolkit with its compute capability.
    """

    name: str
    compute_capability: str
    architecture: str
    brand: str
    data_center: bool
    smi_names: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    memory_gib: tuple[int, ...] = ()
    minimum_driver: str = ""
    arch: str = ""
    shared: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()


class ImageFlavor(Row, frozen=True, kw_only=True):
    """The part of a toolkit in the images of one flavour, without cuDNN.

    ``libraries`` are the beginnings of their file names (``libcudart.``); empty means all. ``tools`` is True if they
    have ptxas and libdevice.
    """

    name: str
    tools: bool
    libraries: tuple[str, ...] = ()


class BaseImage(Row, frozen=True, kw_only=True):
    """An image with CUDA: its contents and its start-up requirement.

    ``cudnn`` is None if it has none, a major alone (``9``) if no more is known. ``require_cuda`` is its
    ``NVIDIA_REQUIRE_CUDA`` (spaces are OR, commas are AND). ``flavor`` is the name of an `ImageFlavor`; ``holds``
    replaces it for an inspected image. ``forward_compat`` is True if it has CUDA's forward-compatibility package.
    """

    name: str
    cuda: str
    os: str
    glibc: str
    cudnn: str | None = None
    python: str | None = None
    require_cuda: str = ""
    flavor: str = "runtime"
    holds: ImageFlavor | None = None
    forward_compat: bool = True


class SystemCuda(Row, frozen=True, kw_only=True):
    """CUDA as packages of a distribution, under the name of another system (``debian-bookworm-cuda``) based on ``os``.

    ``component`` is the part of the archive with the ``packages``, or ``repository`` the name of their archive in the
    user's configuration; ``folders`` have to be on the loader's path. ``libraries`` are the sonames found then.
    ``cudnn_wheel`` is the wheel line for cuDNN: no distribution has its files (its packages download them during
    installation).
    """

    name: str
    short: str
    os: str
    cuda: str
    component: str = ""
    repository: str = ""
    folders: tuple[str, ...] = ()
    packages: tuple[str, ...]
    libraries: tuple[str, ...]
    cudnn_wheel: str
    tools: bool = False


class OperatingSystem(Row, frozen=True, kw_only=True):
    """A system that images are built on: its Python, its glibc and its origin.

    ``name`` is ``debian-bookworm``. ``image`` is the registry reference; ``suite`` the Debian suite to bootstrap it
    without a registry, or ''. ``tags`` are other words for it in tags of images (``12``, ``jammy``). ``offers`` are
    further Pythons in its packages. ``brings`` is the CUDA in the system itself or in its ``packages``: then no CUDA
    wheels are installed.
    """

    name: str
    short: str
    python: str
    glibc: str
    image: str
    suite: str = ""
    package_source: str = ""
    tags: tuple[str, ...] = ()
    offers: tuple[str, ...] = ()
    brings: BaseImage | None = None
    packages: SystemCuda | None = None

    @property
    def pythons(self) -> tuple[str, ...]:
        """Every Python of the system and its packages, its own first."""
        return (self.python, *self.offers)


class OtherSystem(Row, frozen=True, kw_only=True):
    """A system without official wheels: ``name`` is the word in its images' names, ``libc`` its C library."""

    name: str
    libc: str


class FieldReport(Row, frozen=True, kw_only=True):
    """Reports of users where the vendors' tables have no answer, about releases from ``first`` to ``last``."""

    first: str
    last: str
    capabilities: tuple[str, ...]
    works: bool | None
    symptom: str


class ProcessorNeed(Row, frozen=True, kw_only=True):
    """An instruction set that the x86-64 wheels from ``first`` to ``last`` (both included; None: all later) need.

    ``before`` is the newest release below without the need, ``after`` the oldest above.
    """

    feature: str
    first: str
    last: str | None = None
    before: str
    after: str | None = None


RemovalReason = Literal["compilers", "tests", "unimported", "unnamed", "symbols"]
"""Read by compilers only; a package's own tests; a package that nothing imports; an object that nothing needs, names or
imports; symbol tables, which no loader reads."""


class LeaveOut(Row, frozen=True, kw_only=True):
    """Files of a wheel that images of the variant ``runtime`` leave out, and why.

    ``package`` is a regular expression for the complete normalised name, ``paths`` one that is searched in each path of
    the wheel's RECORD, and ``keep`` one for exceptions. ``tensorflow`` are the minor versions that the row is for: of
    TensorFlow's own wheel, or, without ``paths``, of the TensorFlow whose CUDA set lacks the complete package.
    """

    package: str
    reason: RemovalReason
    why: str
    paths: str = ""
    keep: str = ""
    tensorflow: tuple[str, ...] = ()


class Tables(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every kind of fact under the name of its table, the key in the YAML files."""

    tensorflow: tuple[TensorflowRelease, ...] = ()
    cuda: tuple[CudaToolkit, ...] = ()
    cudnn: tuple[Cudnn, ...] = ()
    cudnn_wheels: tuple[CudnnWheel, ...] = ()
    package_releases: tuple[PackageRelease, ...] = ()
    drivers: tuple[DriverBranch, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    systems: tuple[OperatingSystem, ...] = ()
    other_systems: tuple[OtherSystem, ...] = ()
    system_cuda: tuple[SystemCuda, ...] = ()
    images: tuple[BaseImage, ...] = ()
    image_flavors: tuple[ImageFlavor, ...] = ()
    reports: tuple[FieldReport, ...] = ()
    processor_needs: tuple[ProcessorNeed, ...] = ()
    leave_out: tuple[LeaveOut, ...] = ()
