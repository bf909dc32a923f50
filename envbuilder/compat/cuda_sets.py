"""List the CUDA wheels that an environment may have: the release's own set first, then others that it may load."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import BaseImage, SystemCuda, TensorflowRelease
from envbuilder.compat.requirement import parse


class Stack(msgspec.Struct, frozen=True):
    """One exactly pinned set of CUDA wheels, and the CUDA and cuDNN versions that it brings.

    It has no wheels where the base brings them; ``cudnn`` is None where that has none.
    """

    cuda: str
    cudnn: str | None
    wheels: tuple[str, ...]
    chosen: tuple[str, ...] = ()


def stacks(release: TensorflowRelease, cuda: str | None, cudnn: str | None, catalog: Catalog) -> Iterator[Stack]:
    """List the sets for a wish, the best first; the rules judge which of them fit.

    A release that was published before the CUDA wheels borrows the set of a later one with the same CUDA major. Where
    cuDNN is left open, the set's own comes first, then one of each range of GPUs that the index's wheels serve.
    """
    chosen = (*(() if cuda else ("cuda",)), *(() if cudnn else ("cudnn",)))
    for donor in _donors(release, cuda, catalog):
        line, pinned = _cudnn_pin(donor.release)
        for version in _cudnns(release, cudnn, line, pinned, catalog):
            yield Stack(
                cuda=cuda or versions.minor(donor.cuda),
                cudnn=version,
                wheels=tuple(
                    f"{line}=={version}" if parse(text).name == line else text for text in donor.release.cuda_wheels
                ),
                chosen=chosen,
            )


def brought_by(image: BaseImage) -> Stack:
    """Return what a base brings."""
    return Stack(cuda=image.cuda, cudnn=image.cudnn, wheels=(), chosen=("cuda", "cudnn"))


def packaged(release: TensorflowRelease, row: SystemCuda, cudnn: str | None, catalog: Catalog) -> Iterator[Stack]:
    """List what a distribution's packages give, each with another cuDNN of the wheels for its CUDA, the best first."""
    pins = (_cudnn_pin(donor.release) for donor in _donors(release, None, catalog))
    tested = next((version for line, version in pins if line == row.cudnn_wheel), "0")
    for version in _cudnns(release, cudnn, row.cudnn_wheel, tested, catalog) if release.cudnn else ():
        chosen = () if cudnn else ("cudnn",)
        yield Stack(cuda=row.cuda, cudnn=version, wheels=(), chosen=("cuda", *chosen))


def why_none(release: TensorflowRelease, cuda: str | None, cudnn: str | None, catalog: Catalog) -> str:
    """Say what is missing where there is no set of wheels for a wish."""
    donor = next(iter(_donors(release, cuda, catalog)), None)
    if donor is None:
        wish = f"CUDA {cuda or release.cuda}"
        return f"No set of {wish} wheels is known for {release.package} {release.version}: NVIDIA published none."
    line, _ = _cudnn_pin(donor.release)
    return f"No wheel of cuDNN {cudnn or release.cudnn} is known for CUDA {versions.major(donor.cuda)} ({line})."


def stand_in(cuda: str, catalog: Catalog) -> str | None:
    """Find a CUDA whose wheels are known and whose files have the same names as those of one without wheels.

    A report's mismatch can be rebuilt with it: what a build opens and what is there are the same.
    """
    asked = catalog.toolkit(cuda)
    for row in sorted(catalog.donors, key=lambda row: versions.key(row.version), reverse=True):
        other = catalog.toolkit(row.cuda)
        if asked is not None and other is not None and _files(asked.sonames) == _files(other.sonames):
            return other.version
    return None


def stand_in_cudnn(release: TensorflowRelease, cuda: str | None, cudnn: str, catalog: Catalog) -> str | None:
    """Find the nearest cuDNN wheel of the same major that the build accepts, or refuses, like the one asked for."""
    loaded = cuda or release.cuda
    if loaded is None or release.cudnn is None:
        return None
    line, built = f"nvidia-cudnn-cu{versions.major(loaded)}", versions.minor(release.cudnn)
    accepted = versions.at_least(versions.minor(cudnn), built)
    alike = [
        text
        for text in catalog.wheel_versions(line)
        if versions.same_major(text, cudnn) and versions.at_least(versions.minor(text), built) is accepted
    ]
    return min(alike, key=lambda text: versions.distance(text, cudnn), default=None)


def _files(sonames: tuple[str, ...]) -> frozenset[str]:
    """Leave the profiler's library out: TensorFlow runs without it."""
    return frozenset(name for name in sonames if not name.startswith("libcupti"))


class _Donor(NamedTuple):
    """A release whose set of CUDA wheels may be used, and the CUDA of that set."""

    release: TensorflowRelease
    cuda: str


def _donors(release: TensorflowRelease, cuda: str | None, catalog: Catalog) -> Iterator[_Donor]:
    """Give the releases whose set may be used, its own first; one for each CUDA version."""
    built = release.cuda
    if built is None:
        return
    own = bool(release.cuda_wheels) and (cuda is None or versions.is_prefix(cuda, _runtime(release, built)))
    if own:
        yield _Donor(release, built)
    seen = {versions.minor(built)} if own else set()
    wanted = versions.minor(cuda) if cuda is not None else str(versions.major(built))
    every = (_Donor(row, row.cuda) for row in catalog.donors if row.cuda is not None)
    usable = [donor for donor in every if versions.is_prefix(wanted, donor.cuda)]
    for donor in sorted(usable, key=lambda donor: _closeness(donor, release, built), reverse=True):
        if versions.minor(donor.cuda) not in seen:
            seen.add(versions.minor(donor.cuda))
            yield donor


def _runtime(release: TensorflowRelease, built: str) -> str:
    """Return the CUDA of a release's own set: its runtime's version, or what the release was built with."""
    runtime = next((parse(text) for text in release.cuda_wheels if "cuda-runtime" in text), None)
    return runtime.bounds[0][1] if runtime is not None and runtime.bounds else built


def _closeness(
    donor: _Donor, release: TensorflowRelease, built: str
) -> tuple[bool, bool, tuple[int, ...], versions.Key]:
    """Prefer the same cuDNN major, then a CUDA that is not older, then the nearest CUDA, then the newest release."""
    return (
        versions.same_major(donor.release.cudnn, release.cudnn),
        versions.at_least(donor.cuda, built),
        tuple(-apart for apart in versions.distance(donor.cuda, built)),
        versions.key(donor.release.version),
    )


def _cudnn_pin(donor: TensorflowRelease) -> tuple[str, str]:
    bound = next(parse(text) for text in donor.cuda_wheels if text.startswith("nvidia-cudnn"))
    return bound.name, bound.bounds[0][1]


def _cudnns(release: TensorflowRelease, cudnn: str | None, line: str, pinned: str, catalog: Catalog) -> Iterator[str]:
    """Give the versions of the cuDNN wheel to try: as wished, or what this release accepts, the set's own first."""
    if cudnn is not None:
        alike = pinned if versions.is_prefix(cudnn, pinned) else catalog.newest_wheel(line, (("==", f"{cudnn}.*"),))
        found = alike or catalog.newest_wheel(line, (("==", cudnn),))
        yield from () if found is None else (found,)
        return
    if release.cudnn is None:  # no claim: what it accepts cannot be told, the set's own is what was tested together
        yield pinned
        return
    built = versions.minor(release.cudnn)
    accepted = (("==", f"{versions.major(built)}.*"), (">=", built))
    first = pinned if _accepts(built, pinned) else catalog.newest_wheel(line, (("==", f"{built}.*"),))
    yield from dict.fromkeys((*((first,) if first else ()), *catalog.wheel_kinds(line, accepted)))


def _accepts(built: str, loaded: str) -> bool:
    return versions.same_major(loaded, built) and versions.at_least(loaded, built)
