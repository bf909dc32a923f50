"""Judge the two sides of a combination that is to be built: what stands around the wheel, and the CUDA under it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import BaseImage, OperatingSystem, TensorflowRelease
from envbuilder.compat import missing, phrases
from envbuilder.compat.candidate import candidate
from envbuilder.compat.cuda_sets import Stack, brought_by, packaged, stacks, stand_in, stand_in_cudnn, why_none
from envbuilder.compat.rules import judge, ordered
from envbuilder.environment import Combination
from envbuilder.finding import Code, Finding, Severity
from envbuilder.matrix import Targets


class Host(NamedTuple):
    """The Python side of an environment: its system, and what the rules find there."""

    python: str
    system: OperatingSystem | None
    chosen: tuple[str, ...]
    findings: tuple[Finding, ...]
    fails: bool = False


class Side(NamedTuple):
    """The GPU side of an environment: the CUDA under it, and what the rules find on the target drivers and GPUs."""

    stack: Stack | None
    minimum_driver: str | None
    findings: tuple[Finding, ...]
    fails: bool = False


NO_SIDE = Side(None, None, ())


def host_side(release: TensorflowRelease, wish: Combination, catalog: Catalog) -> Host:
    """Choose the system and the Python: of those that are left open, the ones on which least is wrong."""
    python, os = wish.python, wish.os
    named = catalog.system(os) if os is not None else None
    free = [row for row in catalog.systems if python in {None, row.python}]
    rows = free if os is None else [named] if named is not None else []
    if not rows:
        silent = missing.no_system(os, catalog) if os is not None else missing.no_system_with(python or "", catalog)
        return Host(python or "", None, (), (silent,), fails=True)
    tried = [
        _on_system(release, row, python, wish, catalog)
        for row in sorted(rows, key=_preference)
        for python in (row.pythons if os is not None and wish.python is None else (wish.python or row.python,))
    ]
    return min(tried, key=lambda host: sum(finding.severity is Severity.ERROR for finding in host.findings))


def _preference(system: OperatingSystem) -> tuple[bool, tuple[int, ...]]:
    """Order systems: those that need no registry first (they can be built anywhere), then the newest Python."""
    return system.suite == "", tuple(-number for number in versions.numbers(system.python))


def _on_system(
    release: TensorflowRelease, system: OperatingSystem, python: str, wish: Combination, catalog: Catalog
) -> Host:
    found = candidate(
        release,
        catalog,
        arch=wish.arch,
        python=python,
        system=system,
        system_python=python if python in system.offers else system.python,
        packages=wish.packages,
    )
    chosen = (*(() if wish.python else ("python",)), *(() if wish.os else ("os",)))
    findings = judge(found, catalog, ("host",))
    return Host(python, system, chosen, findings, fails=fails(findings))


def gpu_side(
    release: TensorflowRelease,
    wish: Combination,
    targets: Targets,
    catalog: Catalog,
    system: OperatingSystem | None = None,
) -> Side:
    """Choose the CUDA wheels: the first set in which nothing is wrong on any target; else the first of all.

    Where the system brings CUDA, that is all that there is, and no wheels are chosen but cuDNN's, where its packages
    lack that.
    """
    image = system.brings if system is not None else None
    if wish.flavor == "cpu":
        return NO_SIDE
    if not release.gpu or wish.arch != "x86_64":
        wrong = judge(candidate(release, catalog, arch=wish.arch), catalog, ("gpu",))
        return Side(None, None, wrong, fails=True)
    if image is not None and system is not None and system.packages is not None:
        tried = packaged(release, system.packages, wish.cudnn, catalog)
        found = _first_that_fits(release, tried, targets, catalog, image, wish)
        return found or _with_stack(release, brought_by(image), targets, catalog, image, *_not_brought(image, wish))
    if image is not None:
        return _with_stack(release, brought_by(image), targets, catalog, image, *_not_brought(image, wish))
    tried = stacks(release, wish.cuda, wish.cudnn, catalog)
    return _first_that_fits(release, tried, targets, catalog, None, wish) or _without_stack(release, wish, catalog)


def _first_that_fits(
    release: TensorflowRelease,
    tried: Iterable[Stack],
    targets: Targets,
    catalog: Catalog,
    image: BaseImage | None,
    wish: Combination,
) -> Side | None:
    """Judge one set after the other; the first in which nothing is wrong, else the first of all."""
    first: Side | None = None
    for stack in tried:
        there = msgspec.structs.replace(image, cudnn=stack.cudnn) if image is not None else None
        wrong = _not_brought(there, wish) if there is not None else ()
        side = _with_stack(release, stack, targets, catalog, there, *wrong)
        if not side.fails:
            return side
        first = first or side
        if not _another_may_help(side.findings, stack):
            break
    return first


_BY_CUDA = frozenset(
    {Code.CUDA_MISMATCH, Code.CUDNN_MISMATCH, Code.GPU_UNSUPPORTED_BY_CUDA, Code.DRIVER_TOO_OLD, Code.NO_KERNEL_IMAGE}
)
_BY_CUDNN = frozenset({Code.CUDNN_MISMATCH, Code.GPU_UNSUPPORTED_BY_CUDNN})


def _another_may_help(findings: tuple[Finding, ...], stack: Stack) -> bool:
    """Tell whether every error is one that another CUDA or cuDNN could mend, where these were left open."""
    mendable = (_BY_CUDA if "cuda" in stack.chosen else frozenset()) | (
        _BY_CUDNN if "cudnn" in stack.chosen else frozenset()
    )
    return all(finding.code in mendable for finding in findings if finding.severity is Severity.ERROR)


def _with_stack(
    release: TensorflowRelease,
    stack: Stack,
    targets: Targets,
    catalog: Catalog,
    image: BaseImage | None = None,
    *wrong: Finding,
) -> Side:
    toolkit = catalog.toolkit(stack.cuda)
    found = [
        finding
        for driver in targets.drivers or (None,)
        for finding in on_host(release, stack.cuda, stack.cudnn, driver, targets.gpus, catalog, image)
    ]
    findings = ordered((*wrong, *found))
    return Side(stack, toolkit.minimum_driver if toolkit else None, findings, fails=fails(findings))


def on_host(
    release: TensorflowRelease,
    cuda: str | None,
    cudnn: str | None,
    driver: str | None,
    gpus: tuple[str, ...],
    catalog: Catalog,
    image: BaseImage | None = None,
) -> tuple[Finding, ...]:
    """Predict what an environment that is built here runs into on a driver and GPUs.

    It holds no forward-compatibility package, so that one cannot help, unless the image brings it that it is built on.
    """
    devices, unknown = missing.find_devices(gpus, (), catalog)
    found = candidate(
        release,
        catalog,
        install="system" if image is not None else None,
        image=image,
        cuda=cuda,
        cudnn=cudnn,
        driver=driver,
        devices=devices,
        compat=image is not None and image.forward_compat,
    )
    silent = (*unknown, *missing.without_row(found))
    ruled = judge(found, catalog, ("gpu",))
    return ordered((*ruled, *silent)) if silent else ruled


def _not_brought(image: BaseImage, wish: Combination) -> Iterator[Finding]:
    """CUDA_MISMATCH, CUDNN_MISMATCH: another version is wished for than the base brings."""
    for title, asked, there, code in (
        ("CUDA", wish.cuda, image.cuda, Code.CUDA_MISMATCH),
        ("cuDNN", wish.cudnn, image.cudnn, Code.CUDNN_MISMATCH),
    ):
        if asked is None or (there is not None and versions.is_prefix(asked, there)):
            continue
        yield phrases.error(
            code,
            f"{title} {asked}",
            f"{image.name} brings {f'{title} {there}' if there else f'no {title}'}, not {asked}.",
            requires=f"{title} {asked}",
            found=f"{title} {there}" if there else f"no {title}",
            fix=f"Leave {title} to the base, or take a base with {title} {asked}.",
            rows=(image,),
        )


def standing_in(release: TensorflowRelease, wish: Combination, targets: Targets, catalog: Catalog) -> Side | None:
    """Rebuild a report's CUDA or cuDNN that has no wheels by one that this build cannot tell from it; say so."""
    if not release.gpu:
        return None
    cuda = stand_in(wish.cuda, catalog) if wish.cuda is not None else None
    cudnn = stand_in_cudnn(release, cuda or wish.cuda, wish.cudnn, catalog) if wish.cudnn is not None else None
    side = gpu_side(
        release, msgspec.structs.replace(wish, cuda=cuda or wish.cuda, cudnn=cudnn or wish.cudnn), targets, catalog
    )
    if side.stack is None:
        return None
    told = (
        _stands_in("CUDA", wish.cuda, cuda, Code.CUDA_MISMATCH),
        _stands_in("cuDNN", wish.cudnn, cudnn, Code.CUDNN_MISMATCH),
    )
    return side._replace(findings=ordered((*side.findings, *(finding for finding in told if finding is not None))))


def _stands_in(title: str, asked: str | None, taken: str | None, code: Code) -> Finding | None:
    if asked is None or taken is None or versions.is_prefix(asked, taken):
        return None
    return phrases.info(
        code,
        f"{title} {asked}",
        f"No wheels of {title} {asked} were published; those of {taken}, which this build cannot tell from them, "
        "stand in.",
        requires=f"{title} {asked}",
        found=f"{title} {taken}",
        fix="Nothing to do: what the build opens, and whether it accepts it, are the same.",
    )


def _without_stack(release: TensorflowRelease, wish: Combination, catalog: Catalog) -> Side:
    """Say why there are no wheels: because the wish does not fit the release, or because nobody published them."""
    named = candidate(release, catalog, cuda=wish.cuda or release.cuda, cudnn=wish.cudnn or release.cudnn)
    misfits = judge(named, catalog, ("gpu",))
    if fails(misfits):  # wheels of it may well be there: they would not help
        return Side(None, None, misfits, fails=True)
    lacking = phrases.error(
        Code.NOT_INSTALLABLE,
        f"CUDA wheels for {release.version}",
        why_none(release, wish.cuda, wish.cudnn, catalog),
        requires=f"CUDA {release.cuda}, cuDNN {release.cudnn}",
        found="no wheels",
        fix="Take a version with CUDA wheels, or validate a foreign image that brings CUDA.",
        rows=(release,),
    )
    return Side(None, None, ordered((*misfits, lacking)), fails=True)


def fails(findings: tuple[Finding, ...]) -> bool:
    """Tell whether one of the findings is an error."""
    return any(finding.severity is Severity.ERROR for finding in findings)
