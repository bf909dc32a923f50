"""A candidate: a combination with the catalogue's row for every name, and the type of the rules that read it."""

from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from envbuilder import versions
from envbuilder.catalog import rows
from envbuilder.catalog.model import Catalog
from envbuilder.compat.question import Install
from envbuilder.finding import Code, Finding


class Device(msgspec.Struct, frozen=True):
    """One GPU of a candidate; ``row`` is None if only its compute capability is known."""

    name: str
    capability: str
    row: rows.Gpu | None = None

    @property
    def label(self) -> str:
        capability = f"compute capability {self.capability}"
        return f"{self.name} ({capability})" if self.row else capability

    @property
    def facts(self) -> dict[str, str]:
        return {"gpu": self.name, "label": self.label, "capability": self.capability}


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """The input of the rules. A rule that needs a row that is None finds nothing. `with_rows` adds the last fields.

    ``system_python`` is the only Python of the system of an image (None: any may be installed). ``cuda`` and ``cudnn``
    are the versions that will be loaded. ``other`` is a system without wheels; ``unreleased`` are the ``caps`` beyond
    which there was no release yet. ``unseen`` is True in an image with unknown content. ``compat`` says whether CUDA's
    forward-compatibility package is there (None: it could be installed).

    ``driver`` is a release; for a branch alone (``branch_named``), its newest known production release. ``windows`` is
    the first number of a driver for Windows (``528``), or ''. ``built`` is the toolkit that the release was built with.
    """

    release: rows.TensorflowRelease
    arch: str = "x86_64"
    gpu: bool = True
    python: str | None = None
    system: rows.OperatingSystem | None = None
    system_python: str | None = None
    avx: bool = True
    packages: tuple[tuple[str, str], ...] = ()
    install: Install | None = None
    image: rows.BaseImage | None = None
    cuda: str | None = None
    cudnn: str | None = None
    driver: str | None = None
    other: rows.OtherSystem | None = None
    unreleased: frozenset[str] = frozenset()
    unseen: bool = False
    devices: tuple[Device, ...] = ()
    compat: bool | None = None

    glibc: str | None = None
    glibc_of: str = ""
    toolkit: rows.CudaToolkit | None = None
    built: rows.CudaToolkit | None = None
    cudnn_row: rows.Cudnn | None = None
    branch: rows.DriverBranch | None = None
    branch_named: bool = False
    windows: str = ""

    @property
    def uses_gpu(self) -> bool:
        """Whether CUDA will be used at all; most rules about CUDA need it."""
        return self.gpu and self.release.gpu and self.arch == "x86_64"


def with_rows(given: Candidate, catalog: Catalog) -> Candidate:
    """Add the rows of the versions in a candidate. The glibc of an image hides its system's."""
    place = given.image or given.system
    driver = given.driver.lstrip("Rr") if given.driver is not None else None
    branch = catalog.branch(driver)
    named = branch is not None and driver is not None and not versions.names_line(driver)
    first = str(versions.major(driver)) if driver is not None and branch is not None else ""
    return msgspec.structs.replace(
        given,
        glibc=place.glibc if place is not None else None,
        glibc_of=place.name if place is not None else "",
        toolkit=catalog.toolkit(given.cuda),
        built=catalog.toolkit(given.release.cuda),
        cudnn_row=catalog.cudnn_row(given.cudnn),
        driver=branch.production[-1] if branch is not None and named and branch.production else driver,
        branch=branch,
        branch_named=named,
        windows=first if branch is not None and first in branch.windows else "",
    )


Part = Literal["python", "cuda"]


class Rule(msgspec.Struct, frozen=True):
    """One rule: the part of a candidate that it reads, and the codes of its findings.

    A rule of the part ``python`` reads the Python, the system, the processor and the packages; one of the part ``cuda``
    reads CUDA, cuDNN, the driver, the GPUs and the image. Both read the release and the kind of installation. No rule
    reads both parts, so that the parts can be evaluated, and cached, apart.
    """

    part: Part
    codes: tuple[Code, ...]
    find: Callable[[Candidate, Catalog], Iterator[Finding]]
