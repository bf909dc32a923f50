"""Choose an environment for a host: the newest release that can be built and that uses the host's GPUs."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.compat import unknown
from envbuilder.compat.fleet import FleetHost, findings_on, findings_with
from envbuilder.compat.resolve import Resolver
from envbuilder.environment import Combination, Environment, Rejection
from envbuilder.finding import Code, Finding, compatible, obstacle
from envbuilder.matrix import Targets


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A release that was not chosen, and the reason: null without a claim, or on a condition."""

    tensorflow: str
    code: Code
    compatible: bool | None
    why: str


class HostChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The environment for a host, with its findings there, and the newer releases that were refused, newest first.

    If no release works, ``environment`` is None, and ``compatible`` is false, or null if the catalogue makes no claim
    about one of them.
    """

    compatible: bool | None
    environment: Environment | None = None
    findings: tuple[Finding, ...] = ()
    refused: tuple[Refused, ...] = ()

    @property
    def next_newer(self) -> Refused | None:
        """The refused release above the chosen one; without one, the newest of all."""
        return next(iter(self.refused[-1:] if self.environment is not None else self.refused), None)


def choose_for(wanted: Combination, host: FleetHost, catalog: Catalog, *, avx: bool | None = None) -> HostChoice:
    """Choose the newest environment for a host; ``wanted.tensorflow`` is a version, a range, or '' for any.

    Without a driver, or without GPUs, a host may have any. What works only on a condition is refused.
    """
    devices, lacking = unknown.find_devices(host.gpus, (), catalog)
    arch = host.arch or unknown.required_arch(devices, catalog) or wanted.arch
    candidates = catalog.candidates(wanted.tensorflow, wanted.package)
    if not candidates:
        lacking = (unknown.no_release(wanted.tensorflow, wanted.package, catalog),)
    if not candidates or (wanted.flavor == "gpu" and compatible(lacking) is not True):  # the same for every release
        return _none([_refused(next(iter(candidates), wanted.tensorflow), lacking)])
    targets = Targets(drivers=(host.driver,) if host.driver else (), gpus=host.gpus)
    resolver = Resolver(catalog, targets if wanted.flavor == "gpu" else Targets())
    refused: list[Refused] = []
    for version in candidates:
        asked = msgspec.structs.replace(wanted, tensorflow=version, arch=arch)
        environment, found = _resolved(asked, host, resolver, avx=avx)
        if environment is not None:
            return HostChoice(compatible=True, environment=environment, findings=found, refused=tuple(refused))
        refused.append(_refused(version, found))
    return _none(refused)


_Evaluated = tuple[Environment | None, tuple[Finding, ...]]
"""An environment that works on the host, or None; and the findings."""

_WITHOUT_WHEELS = frozenset({Code.CUDA_MISMATCH, Code.NOT_INSTALLABLE})


def _resolved(wanted: Combination, host: FleetHost, resolver: Resolver, *, avx: bool | None) -> _Evaluated:
    """Evaluate a combination; if no wheels have its CUDA, also on each published image with that CUDA."""
    first = _evaluated(wanted, host, resolver, avx=avx)
    environment, found = first
    release = resolver.parts(wanted).release
    if environment is not None or wanted.os is not None or release is None or release.cuda is None:
        return first
    if not _WITHOUT_WHEELS & {row.code for row in found}:
        return first
    others = (
        _evaluated(other, host, resolver, avx=avx) for other in _on_images(wanted, release.cuda, resolver.catalog)
    )
    return next((other for other in others if other[0] is not None), first)


def _on_images(wanted: Combination, cuda: str, catalog: Catalog) -> Iterator[Combination]:
    """Yield a combination on each published image with a CUDA, the newest Python first."""
    for image in catalog.images:
        system = catalog.system(image.name) if versions.minor(image.cuda) == versions.minor(cuda) else None
        pythons = sorted(system.pythons, key=versions.key, reverse=True) if system is not None else ()
        for python in (wanted.python,) if wanted.python else pythons:
            yield msgspec.structs.replace(wanted, os=image.name, python=python)


def _evaluated(wanted: Combination, host: FleetHost, resolver: Resolver, *, avx: bool | None) -> _Evaluated:
    made = resolver.resolve(wanted)
    if isinstance(made, Rejection):
        return None, made.findings
    if made.flavor == "gpu" and not (host.driver and host.gpus):
        found = findings_with(made, host.driver, host.gpus, resolver.catalog)
    else:
        found = findings_on(made, host.driver, host.gpus, resolver.catalog, host.arch, avx=avx)
    return (made if _reason(found) is None else None), found


def _reason(found: tuple[Finding, ...]) -> Finding | None:
    """Return the finding that speaks against an environment: an obstacle, or a package that images should not need."""
    return obstacle(found) or next((row for row in found if row.code is Code.DRIVER_FORWARD_COMPAT), None)


def _refused(version: str, found: tuple[Finding, ...]) -> Refused:
    reason = _reason(found) or found[0]
    judged = False if compatible(found) is False else None
    return Refused(tensorflow=version, code=reason.code, compatible=judged, why=reason.message)


def _none(refused: list[Refused]) -> HostChoice:
    silent = any(row.compatible is None for row in refused)
    return HostChoice(compatible=None if silent else False, refused=tuple(refused))
