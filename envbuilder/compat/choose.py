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
    environment: Environment | None = None
    findings: tuple[Finding, ...] = ()
    refused: tuple[Refused, ...] = ()

    @property
    def compatible(self) -> bool | None:
        """True if there is an environment; without one, None if the catalogue makes no claim about a release."""
        return self.environment is not None or (None if any(row.compatible is None for row in self.refused) else False)


def choose_for(wanted: Combination, host: FleetHost, catalog: Catalog, *, avx: bool | None = None) -> HostChoice:
    """Choose the newest environment for a host; ``wanted.tensorflow`` is a version, a range, or '' for any.

    Without a driver, or without GPUs, a host may have any. What works only on a condition is refused. A release whose
    CUDA has no wheels is tried on each published image with that CUDA.
    """
    devices, lacking = unknown.find_devices(host.gpus, (), catalog)
    arch = host.arch or unknown.required_arch(devices, catalog) or wanted.arch
    candidates = catalog.candidates(wanted.tensorflow, wanted.package)
    if not candidates:
        absent = unknown.no_release(wanted.tensorflow, wanted.package, catalog)
        return HostChoice(refused=(_refused(wanted.tensorflow, (absent,)),))
    if wanted.os is not None and catalog.system(wanted.os) is None:
        return HostChoice(refused=(_refused(candidates[0], (unknown.no_system(wanted.os, catalog),)),))
    unknown_gpus = lacking if wanted.flavor == "gpu" else ()
    targets = Targets(drivers=(host.driver,) if host.driver else (), gpus=host.gpus)
    resolver = Resolver(catalog, targets if wanted.flavor == "gpu" else Targets())
    refused: list[Refused] = []
    for version in candidates:
        tried: list[tuple[Finding, ...]] = []
        for asked in _attempts(msgspec.structs.replace(wanted, tensorflow=version, arch=arch), resolver):
            made = resolver.resolve(asked)
            ruled = made.findings if isinstance(made, Rejection) else _findings(made, host, catalog, avx=avx)
            found = (*unknown_gpus, *ruled)
            if isinstance(made, Environment) and _reason(found) is None:
                return HostChoice(environment=made, findings=found, refused=tuple(refused))
            tried.append(found)
        refused.append(_refused(version, next((one for one in tried if compatible(one) is not False), tried[0])))
    return HostChoice(refused=tuple(refused))


def _attempts(wanted: Combination, resolver: Resolver) -> Iterator[Combination]:
    yield wanted
    release, _, part = resolver.parts(wanted)
    cuda = versions.minor(release.cuda) if release is not None and release.cuda is not None else None
    if wanted.os is not None or cuda is None or not _WITHOUT_WHEELS & {row.code for row in part.findings}:
        return
    for image in (row for row in resolver.catalog.images if versions.minor(row.cuda) == cuda):
        system = resolver.catalog.system(image.name)
        pythons = sorted(system.pythons, key=versions.key, reverse=True) if system is not None else ()
        for python in (wanted.python,) if wanted.python else pythons:
            yield msgspec.structs.replace(wanted, os=image.name, python=python)


_WITHOUT_WHEELS = frozenset({Code.CUDA_MISMATCH, Code.NOT_INSTALLABLE})


def _findings(environment: Environment, host: FleetHost, catalog: Catalog, *, avx: bool | None) -> tuple[Finding, ...]:
    if environment.flavor == "gpu" and not (host.driver and host.gpus):
        return findings_with(environment, host.driver, host.gpus, catalog)
    return findings_on(environment, host.driver, host.gpus, catalog, host.arch, avx=avx)


def _reason(found: tuple[Finding, ...]) -> Finding | None:
    """Return the finding that speaks against an environment: an obstacle, or a package that images should not need."""
    return obstacle(found) or next((row for row in found if row.code is Code.DRIVER_FORWARD_COMPAT), None)


def _refused(version: str, found: tuple[Finding, ...]) -> Refused:
    reason = _reason(found) or found[0]
    judged = False if compatible(found) is False else None
    return Refused(tensorflow=version, code=reason.code, compatible=judged, why=reason.message)
