"""What is judged: a combination whose every name was found in the catalogue."""

from __future__ import annotations

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import (
    BaseImage,
    CudaToolkit,
    Cudnn,
    DriverBranch,
    Gpu,
    OperatingSystem,
    OtherSystem,
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

    ``driver`` is a release; where a branch alone was named (``branch_named``), it is the newest production release of
    it that is known. ``windows`` is the first number of a driver that is Windows' (``528``), '' for Linux'. ``other``
    is a system on which no wheel loads; ``unreleased`` are the ``caps`` beyond which there was nothing yet. ``unseen``
    is true in an image of which nothing is known. ``cuda`` and ``cudnn`` are the versions that will be loaded;
    ``toolkit`` and ``cudnn_row`` their rows, and ``built`` the row of the toolkit that the release was compiled with.
    ``system_python`` is the one Python of the system that an image is built on (None: any may be installed). ``compat``
    says whether CUDA's forward-compatibility package is there (None: it could be installed).
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
    branch_named: bool = False
    windows: str = ""
    other: OtherSystem | None = None
    unreleased: frozenset[str] = frozenset()
    unseen: bool = False
    devices: tuple[Device, ...] = ()
    compat: bool | None = None


def candidate(
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
    other: OtherSystem | None = None,
    unreleased: frozenset[str] = frozenset(),
    unseen: bool = False,
    devices: tuple[Device, ...] = (),
    compat: bool | None = None,
) -> Candidate:
    """Make a candidate: the versions that are given lead to their rows. An image's glibc hides its system's."""
    place = image or system
    driver = driver.lstrip("Rr") if driver is not None else None
    branch = catalog.branch(driver)
    named = branch is not None and driver is not None and not versions.names_line(driver)
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
        driver=branch.production[-1] if branch is not None and named and branch.production else driver,
        branch=branch,
        branch_named=named,
        windows=_windows(driver, branch),
        other=other,
        unreleased=unreleased,
        unseen=unseen,
        devices=devices,
        compat=compat,
    )


def _windows(driver: str | None, branch: DriverBranch | None) -> str:
    """Return the first number of a driver where that is what Windows calls the branch's drivers, '' where it is not."""
    first = str(versions.major(driver)) if driver is not None and branch is not None else ""
    return first if branch is not None and first in branch.windows else ""
