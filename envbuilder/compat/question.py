"""What is asked (`Question`, as the user wrote it) and what is judged (`Candidate`, every name turned into a row)."""

from __future__ import annotations

from typing import Literal

import msgspec

from envbuilder.catalog.rows import BaseImage, CudaToolkit, Cudnn, DriverBranch, Gpu, OperatingSystem, TensorflowRelease

Install = Literal["and-cuda", "plain", "system"]


class Question(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One combination to judge, in the user's words; None is "choose for me".

    ``gpus`` are names in any vendor form, ``capabilities`` compute capabilities (``"9.0"``) that need no name.
    ``install`` is how the packages came: ``and-cuda`` (the extra, unpinned), ``plain`` (the package alone, unpinned),
    ``system`` (CUDA from the system); None means that every package is pinned to what the build was made with.
    ``packages`` are exact pins such as ``numpy==2.0.0``. ``avx`` is False for a processor without it. ``as_of`` is
    the day (``2026-11-20``) of an unpinned install. ``gpu`` is False where no GPU is meant to be used.
    """

    tensorflow: str
    package: str | None = None
    python: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    driver: str | None = None
    gpus: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    install: Install | None = None
    base_image: str | None = None
    os: str | None = None
    arch: str = "x86_64"
    packages: tuple[str, ...] = ()
    avx: bool = True
    as_of: str | None = None
    gpu: bool = True


class Device(msgspec.Struct, frozen=True):
    """One GPU of a candidate; ``row`` is None where only its compute capability is known."""

    name: str
    capability: str
    row: Gpu | None = None


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A question whose names were found in the catalogue; a rule that needs a row that is None says nothing.

    ``cuda`` and ``cudnn`` are the versions that will be loaded; ``toolkit`` and ``cudnn_row`` their rows, and
    ``built`` the row of the toolkit that the release was compiled with. ``system_python`` is the one Python of the
    system that an image is built on (None: any may be installed). ``compat`` says whether CUDA's
    forward-compatibility package is there (None: it could be installed).
    """

    release: TensorflowRelease
    arch: str = "x86_64"
    gpu: bool = True
    python: str | None = None
    system: OperatingSystem | None = None
    system_python: str | None = None
    glibc: str | None = None
    glibc_of: str = ""
    avx: bool = True
    packages: tuple[tuple[str, str], ...] = ()
    install: Install | None = None
    image: BaseImage | None = None
    cuda: str | None = None
    cudnn: str | None = None
    toolkit: CudaToolkit | None = None
    built: CudaToolkit | None = None
    cudnn_row: Cudnn | None = None
    driver: str | None = None
    branch: DriverBranch | None = None
    devices: tuple[Device, ...] = ()
    compat: bool | None = None
