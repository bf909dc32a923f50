"""Sets of CUDA wheels for an environment: the release's own set first, then others that it can load."""

from collections.abc import Iterator

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import SystemCuda, TensorflowRelease
from envbuilder.compat.findings import finding
from envbuilder.compat.requirement import parse
from envbuilder.finding import Code, Finding


class CudaInstallation(msgspec.Struct, frozen=True):
    """A CUDA and cuDNN with their exactly pinned wheels.

    It has no wheels if the base brings CUDA; ``cudnn`` is None if the base has none.
    """

    cuda: str
    cudnn: str | None
    wheels: tuple[str, ...]
    chosen: tuple[str, ...] = ()


def cuda_from_wheels(
    release: TensorflowRelease, cuda: str | None, cudnn: str | None, catalog: Catalog
) -> Iterator[CudaInstallation]:
    """Yield the sets of wheels for a CUDA and cuDNN, the best first; the rules decide which of them fit.

    A release older than the CUDA wheels borrows the set of a later one with the same CUDA major. If cuDNN is open, the
    set's own comes first, then one for each range of GPUs that the wheels on the index support.
    """
    chosen = (*(() if cuda else ("cuda",)), *(() if cudnn else ("cudnn",)))
    for donor in _donors(release, cuda, catalog):
        line, pinned = _cudnn_pin(donor)
        for version in _cudnns(release, cudnn, line, pinned, catalog):
            pin = f"{line}=={version}"
            wheels = tuple(pin if parse(text).name == line else text for text in donor.cuda_wheels)
            yield CudaInstallation(cuda or versions.minor(donor.cuda), version, wheels, chosen)


def cuda_from_system(
    release: TensorflowRelease, row: SystemCuda, cudnn: str | None, catalog: Catalog
) -> Iterator[CudaInstallation]:
    """Yield the CUDA of a distribution's packages with each cuDNN wheel for it, the best first."""
    pins = (_cudnn_pin(donor) for donor in _donors(release, None, catalog))
    tested = next((version for line, version in pins if line == row.cudnn_wheel), "0")
    chosen = ("cuda",) if cudnn else ("cuda", "cudnn")
    for version in _cudnns(release, cudnn, row.cudnn_wheel, tested, catalog) if release.cudnn else ():
        yield CudaInstallation(row.cuda, version, (), chosen)


def no_cuda(release: TensorflowRelease, cuda: str | None, cudnn: str | None, catalog: Catalog) -> Finding:
    donor = next(iter(_donors(release, cuda, catalog)), None)
    fields = {"version": release.version, "built_cuda": release.cuda, "built_cudnn": release.cudnn}
    if donor is None:
        fields |= {"package": release.package, "cuda": cuda or release.cuda}
        return finding(Code.NOT_INSTALLABLE, "no_cuda_wheels", (release,), **fields)
    wheel, major = _cudnn_pin(donor)[0], versions.major(donor.cuda or "")
    fields |= {"wheel": wheel, "cudnn": cudnn or release.cudnn}
    return finding(Code.NOT_INSTALLABLE, "no_cudnn_wheel", (release,), major=major, **fields)


def _donors(release: TensorflowRelease, cuda: str | None, catalog: Catalog) -> Iterator[TensorflowRelease]:
    """Yield the releases whose set of CUDA wheels may be used, its own first; one for each CUDA version."""
    built = release.cuda
    if built is None:
        return
    pin = next((parse(text) for text in release.cuda_wheels if "cuda-runtime" in text), None)
    runtime = pin.bounds[0][1] if pin is not None and pin.bounds else built
    own = bool(release.cuda_wheels) and (cuda is None or versions.is_prefix(cuda, runtime))
    if own:
        yield release
    seen = {versions.minor(built)} if own else set()
    wanted = versions.minor(cuda) if cuda is not None else str(versions.major(built))
    usable = [row for row in catalog.donors if row.cuda is not None and versions.is_prefix(wanted, row.cuda)]
    for donor in sorted(usable, key=lambda donor: _closeness(donor, release, built), reverse=True):
        if versions.minor(donor.cuda) not in seen:
            seen.add(versions.minor(donor.cuda))
            yield donor


def _closeness(
    donor: TensorflowRelease, release: TensorflowRelease, built: str
) -> tuple[bool, bool, tuple[int, ...], versions.Key]:
    cuda = donor.cuda or ""
    same_cudnn, is_new = versions.same_major(donor.cudnn, release.cudnn), versions.at_least(cuda, built)
    return same_cudnn, is_new, tuple(-apart for apart in versions.distance(cuda, built)), versions.key(donor.version)


def _cudnn_pin(donor: TensorflowRelease) -> tuple[str, str]:
    bound = next(parse(text) for text in donor.cuda_wheels if text.startswith("nvidia-cudnn"))
    return bound.name, bound.bounds[0][1]


def _cudnns(release: TensorflowRelease, cudnn: str | None, line: str, pinned: str, catalog: Catalog) -> Iterator[str]:
    """Yield the versions of the cuDNN wheel to try: the given one, or all that this release accepts, its own first."""
    if cudnn is not None:
        alike = pinned if versions.is_prefix(cudnn, pinned) else catalog.newest_wheel(line, (("==", f"{cudnn}.*"),))
        found = alike or catalog.newest_wheel(line, (("==", cudnn),))
        yield from () if found is None else (found,)
        return
    if release.cudnn is None:  # no claim about accepted versions; the set's own was tested with it
        yield pinned
        return
    built = versions.minor(release.cudnn)
    accepted = (("==", f"{versions.major(built)}.*"), (">=", built))
    is_accepted = versions.same_major(pinned, built) and versions.at_least(pinned, built)
    first = pinned if is_accepted else catalog.newest_wheel(line, (("==", f"{built}.*"),))
    yield from dict.fromkeys((*((first,) if first else ()), *catalog.wheel_kinds(line, accepted)))
