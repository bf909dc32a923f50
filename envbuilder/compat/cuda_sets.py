"""List the CUDA wheels that an environment may have: the release's own set first, then others that it may load."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import TensorflowRelease
from envbuilder.compat.requirement import parse


class Stack(msgspec.Struct, frozen=True):
    """One exactly pinned set of CUDA wheels, and the CUDA and cuDNN versions that it brings."""

    cuda: str
    cudnn: str
    wheels: tuple[str, ...]
    chosen: tuple[str, ...] = ()


def stacks(release: TensorflowRelease, cuda: str | None, cudnn: str | None, catalog: Catalog) -> Iterator[Stack]:
    """List the sets for a wish, the best first; the rules judge which of them fit.

    A release that was published before the CUDA wheels borrows the set of a later one with the same CUDA major. Where
    cuDNN is left open, the set's own comes first, then one of each range of GPUs that the index's wheels serve.
    """
    chosen = (*(() if cuda else ("cuda",)), *(() if cudnn else ("cudnn",)))
    for donor in _donors(release, cuda, catalog):
        line, pinned = _cudnn_pin(donor)
        for version in _cudnns(release, cudnn, line, pinned, catalog):
            yield Stack(
                cuda=cuda or versions.minor(donor.cuda or "0"),
                cudnn=version,
                wheels=tuple(f"{line}=={version}" if parse(text).name == line else text for text in donor.cuda_wheels),
                chosen=chosen,
            )


def why_none(release: TensorflowRelease, cuda: str | None, cudnn: str | None, catalog: Catalog) -> str:
    """Say what is missing where there is no set of wheels for a wish."""
    donor = next(iter(_donors(release, cuda, catalog)), None)
    if donor is None:
        wish = f"CUDA {cuda or release.cuda}"
        return f"No set of {wish} wheels is known for {release.package} {release.version}: NVIDIA published none."
    line, _ = _cudnn_pin(donor)
    return f"No wheel of cuDNN {cudnn or release.cudnn} is known for CUDA {versions.major(donor.cuda or '0')} ({line})."


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
    line = f"nvidia-cudnn-cu{versions.major(cuda or release.cuda or '0')}"
    built = versions.minor(release.cudnn or "0")
    accepted = versions.at_least(versions.minor(cudnn), built)
    alike = [
        text
        for text in catalog.wheel_versions(line)
        if versions.major(text) == versions.major(cudnn) and versions.at_least(versions.minor(text), built) is accepted
    ]
    wanted = versions.numbers(cudnn)

    def distance(text: str) -> list[int]:
        return [abs(a - b) for a, b in zip(versions.numbers(text), wanted, strict=False)]

    return min(alike, key=distance, default=None)


def _files(sonames: tuple[str, ...]) -> frozenset[str]:
    """Leave the profiler's library out: TensorFlow runs without it."""
    return frozenset(name for name in sonames if not name.startswith("libcupti"))


def _donors(release: TensorflowRelease, cuda: str | None, catalog: Catalog) -> Iterator[TensorflowRelease]:
    """Give the releases whose set may be used, its own first; one for each CUDA version."""
    if release.cuda is None:
        return
    own = bool(release.cuda_wheels) and (cuda is None or versions.is_prefix(cuda, _runtime(release)))
    if own:
        yield release
    seen = {versions.minor(release.cuda)} if own else set()
    wanted = versions.minor(cuda) if cuda is not None else str(versions.major(release.cuda))
    rows = [row for row in catalog.donors if versions.is_prefix(wanted, row.cuda or "0")]
    for row in sorted(rows, key=lambda row: _closeness(row, release), reverse=True):
        if versions.minor(row.cuda or "0") not in seen:
            seen.add(versions.minor(row.cuda or "0"))
            yield row


def _runtime(release: TensorflowRelease) -> str:
    runtime = next((parse(text) for text in release.cuda_wheels if "cuda-runtime" in text), None)
    return runtime.bounds[0][1] if runtime is not None and runtime.bounds else release.cuda or "0"


def _closeness(row: TensorflowRelease, release: TensorflowRelease) -> tuple[bool, bool, tuple[int, ...], versions.Key]:
    """Prefer the same cuDNN major, then a CUDA that is not older, then the nearest CUDA, then the newest release."""
    ours, theirs = release.cuda or "0", row.cuda or "0"
    distance = zip(versions.numbers(theirs), versions.numbers(ours), strict=False)
    return (
        versions.major(row.cudnn or "0") == versions.major(release.cudnn or "0"),
        versions.at_least(theirs, ours),
        tuple(-abs(a - b) for a, b in distance),
        versions.key(row.version),
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
    built = versions.minor(release.cudnn or "0")
    accepted = (("==", f"{versions.major(built)}.*"), (">=", built))
    first = pinned if _accepts(built, pinned) else catalog.newest_wheel(line, (("==", f"{built}.*"),))
    yield from dict.fromkeys((*((first,) if first else ()), *catalog.wheel_kinds(line, accepted)))


def _accepts(built: str, loaded: str) -> bool:
    return versions.major(loaded) == versions.major(built) and versions.at_least(loaded, built)
