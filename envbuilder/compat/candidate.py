"""What is judged: a combination whose every name was found in the catalogue."""

from __future__ import annotations

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import (
    BaseImage,
    CudaToolkit,
    Cudnn,
    DriverBranch,
    Gpu,
    OperatingSystem,
    TensorflowRelease,
)
from envbuilder.compat.question import Install
from envbuilder.compat.requirement import exact_pin


class Device(msgspec.Struct, frozen=True):
    """One GPU of a candidate; ``row`` is None where only its compute capability is known."""

    name: str
    capability: str
    row: Gpu | None = None


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules read; `candidate` makes it. A rule that needs a row that is None says nothing.

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


def candidate(  # noqa: PLR0913 - what is given of a candidate; the rest of its fields follows from it
    release: TensorflowRelease,
    catalog: Catalog,
    *,
    arch: str = "x86_64",
    gpu: bool = True,
    python: str | None = None,
    system: OperatingSystem | None = None,
    system_python: str | None = None,
    avx: bool = True,
    packages: tuple[str, ...] = (),
    install: Install | None = None,
    image: BaseImage | None = None,
    cuda: str | None = None,
    cudnn: str | None = None,
    driver: str | None = None,
    devices: tuple[Device, ...] = (),
    compat: bool | None = None,
) -> Candidate:
    """Make a candidate: the versions that are given lead to their rows. An image's glibc hides its system's."""
    place = image or system
    return Candidate(
        release=release,
        arch=arch,
        gpu=gpu,
        python=python,
        system=system,
        system_python=system_python,
        glibc=place.glibc if place is not None else None,
        glibc_of=place.name if place is not None else "",
        avx=avx,
        packages=tuple(pin for text in packages if (pin := exact_pin(text)) is not None),
        install=install,
        image=image,
        cuda=cuda,
        cudnn=cudnn,
        toolkit=catalog.toolkit(cuda),
        built=catalog.toolkit(release.cuda),
        cudnn_row=catalog.cudnn_row(cudnn),
        driver=driver,
        branch=catalog.branch(driver),
        devices=devices,
        compat=compat,
    )
