"""The rows of the catalogue: facts about releases, toolkits, drivers and GPUs, each with its source.

Unknown is ``None`` or an empty tuple and means "no claim"; it is never a default that a rule may rely on.
Versions are texts as their vendors print them; compute capabilities are texts such as ``"8.6"``.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from envbuilder import versions

FindsCuda = Literal["system", "wheels", "partly", "unfindable"]
KernelOrigin = Literal["hand-written", "generated"]


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every fact carries: where it was read, and when and how it was checked (``2026-11-20 wheel metadata``)."""

    source: tuple[str, ...]
    verified: str
    note: str = ""


class WheelSet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Wheels of one release for one machine: their Pythons (``"3.11"``) and the oldest glibc that loads them."""

    arch: str
    pythons: tuple[str, ...]
    glibc: str
    tag: str


class Search(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one library of a wheel names in its RUNPATH: the folders under ``nvidia`` of the CUDA wheels."""

    object: str
    folders: tuple[str, ...]


class Ptx(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """A PTX text's target (``sm_90a``) and ISA (``8.5``). ``target`` is None where the text cannot be read.

    A target with an ``a`` is compiled for that capability alone, one with an ``f`` for its major's from there on, one
    without a letter for it and all later ones.
    """

    target: str | None
    isa: str


class Kernels(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the fat binaries of one origin hold, over every shared object of a wheel.

    Hand-written ones were compiled by nvcc; generated ones, of which most element-wise operations are made, by MLIR.
    ``cubins`` are the compute capabilities with machine code, and ``ptx`` the PTX, in *every* one of ``fat_binaries``:
    a program needs each. ``without_ptx`` of them hold machine code alone, although the others hold PTX (programs that
    were linked on the device, such as NCCL's); they do not count for ``ptx``.
    """

    origin: KernelOrigin
    fat_binaries: int
    without_ptx: int = 0
    cubins: tuple[str, ...] = ()
    ptx: tuple[Ptx, ...] = ()


class Contradiction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A place where the artefact or the documentation disagrees with what is true; recorded, not mended.

    ``field`` is the row's field that it is about; ``says`` is what the artefact says there, word for word as
    ``catalog verify`` prints it, so that an artefact that says something else is a new disagreement.
    """

    says: str
    but: str
    source: str
    field: str = ""


class TensorflowRelease(Row, frozen=True, kw_only=True):
    """One distribution on the index: ``tensorflow``, ``tensorflow-gpu`` or ``tensorflow-cpu`` at one version.

    ``cuda`` and ``cudnn`` are what it was compiled with. ``kernels`` is its GPU code by origin, read from every shared
    object of the wheel; where it is empty, nobody read it. ``cubins`` and ``ptx`` are what the wheel says in sum: the
    compute capabilities of machine code in some fat binary, and of the PTX of hand-written kernels. ``searches`` are
    the folders of CUDA wheels that its libraries look into, by library; ``openers`` are CUDA's libraries that the one
    which opens them has functions for (`opener.FOLDERS`). ``finds_cuda`` is what follows for
    ``libraries`` (`runpath.finds_cuda`): ``system`` (found on the loader's path only), ``wheels`` (all in the nvidia-*
    packages too), ``partly`` (there all but some), ``unfindable`` (the run time there at most, although it declares the
    wheels). ``and_cuda`` are the extra's requirements as the wheel states them;
    ``cuda_wheels`` what it was built and tested with, exactly pinned, with what those load in turn (cuDNN 8 for CUDA 11
    loads NVRTC, which no extra brings). ``libraries`` are the sonames opened at run time. ``caps`` are bounds that its
    own metadata lacks and that it needs to import. ``extra_fails_on`` are the Pythons on which no installer can resolve
    the extra ``and-cuda`` (its pins are gone from the index), and ``extra_fails_because`` says why.
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
        """Every Python that some machine's wheel exists for, oldest first."""
        every = {python for wheels in self.wheels for python in wheels.pythons}
        return tuple(sorted(every, key=versions.key))


class CudaToolkit(Row, frozen=True, kw_only=True):
    """One CUDA release line (``12.5``).

    ``driver`` is its own driver (Linux), the floor for compiling its PTX (None where no source names it);
    ``minimum_driver`` the floor with minor-version compatibility; ``windows_driver`` and ``windows_minimum_driver`` are
    the same on Windows and WSL 2 (None where the release notes name none). ``forward_compat`` names the driver branches
    on which its compatibility package works. ``first_capability`` and ``last_capability`` bound the GPUs that its
    libraries have kernels for; ``sonames`` are the file names that programs built with it open.
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
    """One cuDNN release (``8.9.7`` or a line such as ``8.9``), the CUDA majors and GPUs that it serves."""

    version: str
    cuda: tuple[str, ...]
    first_capability: str | None = None
    last_capability: str | None = None
    minimum_driver: str | None = None


class CudnnWheel(Row, frozen=True, kw_only=True):
    """The versions of one CUDA wheel line that the index holds, oldest first, read on the row's date.

    ``uploaded`` are the days on which they came (``2025-06-05``), in the same order; none where nobody read them.
    """

    package: str
    versions: tuple[str, ...]
    uploaded: tuple[str, ...] = ()


class PackageRelease(Row, frozen=True, kw_only=True):
    """A release that TensorFlow wheels without an upper bound cannot load: the first that ``bound`` refuses.

    ``bound`` is the ``caps`` entry that it is about (``numpy<2``), ``version`` the first final release beyond it,
    ``released`` the day on which the index got it, ``python`` the oldest Python that it installs on.
    """

    bound: str
    version: str
    released: str
    python: str


class DriverBranch(Row, frozen=True, kw_only=True):
    """One driver branch (``535``): the CUDA that it brings, and the GPUs it knows, oldest to newest.

    ``releases`` are those that are known, oldest first, and ``betas`` the ones among them that were never called
    production releases (a toolkit's own driver often is a beta). ``windows`` are the first numbers of its drivers for
    Windows (``537``), which WSL 2 shows too.
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
        """The production releases that are known, oldest first: what people mean who name the branch alone."""
        return tuple(release for release in self.releases if release not in self.betas)


class Gpu(Row, frozen=True, kw_only=True):
    """One GPU model: its marketing name, what ``nvidia-smi`` prints for it, and other ways people write it.

    ``shared`` are names that GPUs of other compute capabilities are called by as well (``RTX 6000``), ``variants``
    other compute capabilities that were sold under its name. ``arch`` is the one machine that it is built into
    (``aarch64``), '' where it fits into any. ``minimum_driver`` is inferred: the driver of the first toolkit that knows
    its compute capability.
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
    """What the images of one flavour hold of their toolkit, cuDNN apart.

    ``libraries`` are the beginnings of the file names that they hold (``libcudart.``); none: every one. ``tools`` says
    whether they hold ptxas and libdevice.
    """

    name: str
    tools: bool
    libraries: tuple[str, ...] = ()


class BaseImage(Row, frozen=True, kw_only=True):
    """A published image that brings CUDA: its contents and its start-up requirement.

    ``cudnn`` is None where it holds none, a major alone (``9``) where more is not known. ``require_cuda`` is its
    ``NVIDIA_REQUIRE_CUDA`` (spaces are OR, commas are AND). ``flavor`` is the name of an `ImageFlavor`; ``holds`` is
    what was found in an image of one's own, in place of what a flavour says. ``forward_compat`` is whether CUDA's
    forward-compatibility package is in it.
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
    """CUDA as a distribution packages it: a system of its own name (``debian-bookworm-cuda``) on the one called ``os``.

    ``component`` is the part of the archive that holds the ``packages``, or ``repository`` the name under which the
    user's configuration has the one that does; ``folders`` are those of theirs that the loader has to be told of.
    ``libraries`` are the sonames that the packages bring where it looks then. ``cudnn_wheel`` is the wheel line that
    cuDNN comes from, because no distribution has the files (its own package, where there is one, fetches them while it
    is installed).
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
    """A system that images are built on: its Python, its glibc, and where it comes from.

    ``name`` is ``debian-bookworm``. ``image`` is the registry reference; ``suite`` the Debian suite that
    bootstraps it where no registry is reachable ('' where that cannot be done). ``tags`` are other words by which the
    tags of its images name it (``12``, ``jammy``). ``offers`` are further Pythons that its packages bring, and
    ``brings`` is the CUDA that stands in it already, or that its own ``packages`` bring: then no CUDA wheels are
    installed.
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
        """Every Python that it can have: its own first."""
        return (self.python, *self.offers)


class OtherSystem(Row, frozen=True, kw_only=True):
    """A system on which no official wheel loads: ``name`` is the word in its images' names, ``libc`` its C library."""

    name: str
    libc: str


class FieldReport(Row, frozen=True, kw_only=True):
    """What users report of builds on GPUs where the vendors' tables give no answer; ``works`` None is undecided.

    It holds for TensorFlow versions from ``first`` to ``last`` (both included) on these compute capabilities.
    """

    first: str
    last: str
    capabilities: tuple[str, ...]
    works: bool | None
    symptom: str


class ProcessorNeed(Row, frozen=True, kw_only=True):
    """An instruction set that the x86-64 wheels from ``first`` to ``last`` use without asking (both included).

    ``last`` is None where every later wheel needs it. ``before`` is the newest release without the need below it,
    ``after`` the oldest above it.
    """

    feature: str
    first: str
    last: str | None = None
    before: str
    after: str | None = None


class Tables(msgspec.Struct, frozen=True, kw_only=True):
    """Every kind of fact under the name of its table, which is its key in the YAML files."""

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
