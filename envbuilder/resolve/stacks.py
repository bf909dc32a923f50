"""Choose the CUDA wheels of an environment: the release's own set, or one that its file names admit."""

from __future__ import annotations

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import TensorflowRelease
from envbuilder.rules.facts import Facts, admits
from envbuilder.rules.requirement import parse


class Stack(msgspec.Struct, frozen=True):
    """One exactly pinned set of CUDA wheels, and the CUDA and cuDNN versions that it brings."""

    cuda: str
    cudnn: str
    wheels: tuple[str, ...]
    chosen: tuple[str, ...] = ()


def stack_for(release: TensorflowRelease, cuda: str | None, cudnn: str | None, facts: Facts) -> Stack | str:
    """Pick the wheels for a wish; where the catalogue knows none, return the sentence that says so.

    A release that was published before the CUDA wheels borrows the set of a later one with the same CUDA major: the
    rules judge afterwards whether its file names fit.
    """
    donor = _donor(release, cuda, facts)
    if donor is None or donor.cuda is None:
        wish = f"CUDA {cuda or release.cuda}"
        return f"No set of {wish} wheels is known for {release.package} {release.version}: NVIDIA published none."
    chosen = () if cuda is not None else ("cuda",)
    line, pinned = _cudnn_pin(donor)
    if cudnn is None:
        version = _fitting_cudnn(release, line, pinned, facts)
        chosen = (*chosen, "cudnn")
    elif versions.is_prefix(cudnn, pinned):
        version = pinned
    else:
        version = facts.newest_wheel(line, (("==", f"{cudnn}.*"),)) or facts.newest_wheel(line, (("==", cudnn),))
    if version is None:
        return f"No wheel of cuDNN {cudnn or release.cudnn} is known for CUDA {versions.major(donor.cuda)} ({line})."
    wheels = tuple(f"{line}=={version}" if parse(text).name == line else text for text in donor.cuda_wheels)
    return Stack(cuda=cuda or versions.minor(donor.cuda), cudnn=version, wheels=wheels, chosen=chosen)


def _donor(release: TensorflowRelease, cuda: str | None, facts: Facts) -> TensorflowRelease | None:
    if release.cuda is None:
        return None
    if release.cuda_wheels and (cuda is None or versions.is_prefix(cuda, _full(release))):
        return release
    rows = [
        row for row in facts.catalog.tensorflow if row.cuda_wheels and row.cuda and versions.key(row.version)[1] >= 0
    ]
    if cuda is not None:
        rows = [row for row in rows if versions.is_prefix(versions.minor(cuda), row.cuda or "0")]
    else:
        rows = [row for row in rows if versions.major(row.cuda or "0") == versions.major(release.cuda)]
    return max(rows, key=lambda row: _closeness(row, release), default=None)


def _full(release: TensorflowRelease) -> str:
    runtime = next((parse(text) for text in release.cuda_wheels if "cuda-runtime" in text), None)
    return runtime.bounds[0][1] if runtime is not None and runtime.bounds else release.cuda or "0"


def _closeness(row: TensorflowRelease, release: TensorflowRelease) -> tuple[bool, bool, tuple[int, ...], object]:
    same_cudnn = versions.major(row.cudnn or "0") == versions.major(release.cudnn or "0")
    newer = versions.at_least(row.cuda or "0", release.cuda or "0")
    distance = tuple(
        -abs(a - b)
        for a, b in zip(versions.numbers(row.cuda or "0"), versions.numbers(release.cuda or "0"), strict=False)
    )
    return same_cudnn, newer, distance, versions.key(row.version)


def _cudnn_pin(donor: TensorflowRelease) -> tuple[str, str]:
    bound = next(parse(text) for text in donor.cuda_wheels if text.startswith("nvidia-cudnn"))
    return bound.name, bound.bounds[0][1]


def _fitting_cudnn(release: TensorflowRelease, line: str, pinned: str, facts: Facts) -> str | None:
    """Keep the set's cuDNN where this release accepts it; else take the newest patch of the minor it was built with."""
    built = versions.minor(release.cudnn or "0")
    if versions.major(pinned) == versions.major(built) and admits(((">=", built),), pinned):
        return pinned
    return facts.newest_wheel(line, (("==", f"{built}.*"),))
