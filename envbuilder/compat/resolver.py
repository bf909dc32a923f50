"""Turn combinations into environments or rejections, remembering what is shared between combinations."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import msgspec

from envbuilder import versions
from envbuilder.catalog.library_search import loader_folders
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import OperatingSystem, TensorflowRelease
from envbuilder.compat import missing
from envbuilder.compat.binding import distributions
from envbuilder.compat.cuda_sets import Stack
from envbuilder.compat.identifier import environment_id, short, suffixes, wished_id
from envbuilder.compat.phrases import error
from envbuilder.compat.requirement import parse
from envbuilder.compat.rules import joined
from envbuilder.compat.sides import NO_SIDE, Host, Side, gpu_side, host_side, standing_in
from envbuilder.environment import (
    NOTHING_ADDED,
    Combination,
    Environment,
    Flavor,
    RegistryBase,
    Rejection,
    SystemCudaWish,
)
from envbuilder.finding import Code, Finding, Severity
from envbuilder.matrix import Targets

NO_TARGETS = Targets()

_UNBUILDABLE = frozenset({Code.NOT_INSTALLABLE, Code.PYTHON_UNSUPPORTED})
"""What no wish to rebuild a broken environment can overcome: there is nothing to install."""


class Parts(NamedTuple):
    """The two sides of a combination, judged apart; ``release`` is None where the catalogue has no such version."""

    release: TensorflowRelease | None
    host: Host
    side: Side


class Resolver:
    """Resolves combinations against one catalogue and one set of targets; each part of the work is done once.

    The parts are remembered by texts, not by rows: hashing a row costs more than judging it.
    """

    def __init__(self, catalog: Catalog, targets: Targets = NO_TARGETS) -> None:
        self.catalog = catalog
        self.targets = targets
        self._releases = cache(self._find_releases)
        self._host = cache(self._judge_host)
        self._side = cache(self._judge_side)
        self._missing = cache(self._say_missing)

    def resolve(self, combination: Combination, *, as_reported: bool = False) -> Environment | Rejection:
        """Resolve one combination, as `compat.resolve.resolve` does."""
        wish = combination
        release, host, side = self.parts(wish)
        deliberate = as_reported or bool(wish.controls)
        if deliberate and release is not None and side.stack is None and wish.flavor == "gpu":
            side = standing_in(release, wish, self.targets, self.catalog) or side
        unformed = _unformed(wish, host)
        findings = (*unformed, *joined(host.findings, side.findings))
        stops = _prevents if deliberate else bool
        if (
            release is None
            or host.system is None
            or unformed
            or (wish.flavor == "gpu" and side.stack is None)
            or ((host.fails or side.fails) and stops(findings))
        ):
            return _rejected(wish, findings)
        kept = findings if deliberate else tuple(row for row in findings if _is_of_the_row_alone(row))
        return _environment(wish, release, host, side, kept)

    def parts(self, wish: Combination) -> Parts:
        """Judge the two sides of a combination, for the first distribution on whose side nothing is wrong."""
        rows = self._releases(wish.tensorflow, wish.package, wish.flavor)
        if not rows:
            return Parts(None, self._missing(wish.tensorflow, wish.package), NO_SIDE)
        found: Parts | None = None
        for row in rows:
            pins = (*wish.packages, *wish.additions.packages)
            host = self._host(row.package, row.version, wish.python, wish.os, wish.arch, pins)
            if found is None or not host.fails:
                base = host.system.name if host.system is not None and host.system.brings is not None else None
                side = self._side(row.package, row.version, wish.flavor, wish.arch, wish.cuda, wish.cudnn, base)
                found = Parts(row, host, side)
            if not host.fails:
                break
        assert found is not None  # noqa: S101 - there is at least one row
        return found

    def _find_releases(self, version: str, package: str | None, flavor: Flavor) -> tuple[TensorflowRelease, ...]:
        return distributions(version, package, flavor, self.catalog)

    def _say_missing(self, version: str, package: str | None) -> Host:
        return Host("", None, (), (missing.no_release(version, package, self.catalog),), fails=True)

    def _judge_host(
        self, package: str, version: str, python: str | None, os: str | None, arch: str, packages: tuple[str, ...]
    ) -> Host:
        wish = Combination(tensorflow=version, python=python, os=os, arch=arch, packages=packages)
        return host_side(self._row(package, version), wish, self.catalog)

    def _judge_side(
        self,
        package: str,
        version: str,
        flavor: Flavor,
        arch: str,
        cuda: str | None,
        cudnn: str | None,
        base: str | None,
    ) -> Side:
        system = self.catalog.system(base) if base is not None else None
        wish = Combination(tensorflow=version, flavor=flavor, arch=arch, cuda=cuda, cudnn=cudnn)
        return gpu_side(self._row(package, version), wish, self.targets, self.catalog, system)

    def _row(self, package: str, version: str) -> TensorflowRelease:
        row = self.catalog.release(version, package)
        assert row is not None  # noqa: S101 - `_find_releases` found it
        return row


_FORM_PYTHON = (3, 7)
"""The first Python that what derives and carries out the form ``runtime`` inside of an image runs on."""


def _unformed(wish: Combination, host: Host) -> tuple[Finding, ...]:
    """Say that a form cannot be made on so old a Python: its programs run in the image, and need 3.7."""
    if wish.form != "runtime" or not host.python or versions.numbers(host.python) >= _FORM_PYTHON:
        return ()
    text = f"The form runtime cannot be made on Python {host.python}: what derives it runs in the image, from 3.7 on."
    fix = "Ask for the form devel, or for Python 3.7 or newer."
    return (error(Code.PYTHON_UNSUPPORTED, "form", text, requires="Python 3.7", found=host.python, fix=fix),)


def _is_of_the_row_alone(finding: Finding) -> bool:
    """Tell whether an environment keeps a finding: two matrices must give one environment the same file.

    What is merely worth knowing depends on the targets; that no person has read a release's row does not.
    """
    return finding.severity is not Severity.INFO or finding.code is Code.UNREVIEWED


def _prevents(findings: tuple[Finding, ...]) -> bool:
    """Tell whether there is nothing to install, so that not even a broken environment can be rebuilt."""
    return any(finding.severity is Severity.ERROR and finding.code in _UNBUILDABLE for finding in findings)


def _environment(
    wish: Combination, release: TensorflowRelease, host: Host, side: Side, findings: tuple[Finding, ...]
) -> Environment:
    assert host.system is not None  # noqa: S101 - the caller looked
    stack, gpu = side.stack, wish.flavor == "gpu"
    packages = (*wish.packages, *wish.additions.packages)
    pinned = {parse(text).name for text in packages}
    default = wish.package is None
    return Environment(
        id=environment_id(
            tensorflow=release.version,
            python=host.python,
            cuda=short(stack.cuda, wish.cuda) if stack else None,
            cudnn=short(stack.cudnn, wish.cudnn) if stack and stack.cudnn else None,
            system=host.system.short,
            arch=wish.arch,
            extras=suffixes(wish, release.package),
        ),
        tensorflow=release.version,
        package=release.package,
        python=host.python,
        os=host.system.name,
        arch=wish.arch,
        flavor=wish.flavor,
        cuda=stack.cuda if stack else None,
        cudnn=stack.cudnn if stack else None,
        minimum_driver=side.minimum_driver,
        requirements=(f"{release.package}=={release.version}", *packages),
        cuda_wheels=stack.wheels if stack else (),
        constraints=tuple(text for text in release.caps if parse(text).name not in pinned),
        libraries=release.libraries if gpu else (),
        loader_folders=loader_folders(release, stack.wheels) if stack and stack.wheels else (),
        built_cuda=release.cuda if gpu else None,
        built_cudnn=release.cudnn if gpu else None,
        cubins=release.cubins if gpu else (),
        ptx=release.ptx if gpu else (),
        controls=wish.controls,
        chosen=(*(("package",) if default else ()), *host.chosen, *(stack.chosen if stack else ())),
        form=msgspec.UNSET if wish.form == "devel" else wish.form,
        findings=findings,
        base=_registry_base(host.system, host.python, gpu=gpu),
        system_cuda=_packaged(host.system, stack) if stack else msgspec.UNSET,
        additions=wish.additions if wish.additions != NOTHING_ADDED else msgspec.UNSET,
    )


def _packaged(system: OperatingSystem, stack: Stack) -> SystemCudaWish | msgspec.UnsetType:
    """Say what the system's own packages bring of CUDA, and which wheel brings cuDNN to it."""
    row = system.packages
    if row is None or stack.cudnn is None:
        return msgspec.UNSET
    cudnn = f"{row.cudnn_wheel}=={stack.cudnn}"
    return SystemCudaWish(
        os=row.os,
        component=row.component,
        repository=row.repository,
        folders=row.folders,
        packages=row.packages,
        cudnn=cudnn,
    )


def _registry_base(system: OperatingSystem, python: str, *, gpu: bool) -> RegistryBase | msgspec.UnsetType:
    """Say what a build has to know of a base that cannot be bootstrapped."""
    if system.suite:
        return msgspec.UNSET
    name = f"python{python}" if python in system.offers else "python3"
    brings = system.brings
    return RegistryBase(
        image=system.image,
        python_packages=(name, f"{name}-venv") if system.package_source in _APT else (),
        brings_cuda=gpu and brings is not None,
        states_driver=brings is not None and bool(brings.require_cuda),
    )


_APT = frozenset({"debian", "ubuntu"})
"""Where a base's packages come from, by the names of the catalogue: those that apt installs."""


def _rejected(wish: Combination, findings: tuple[Finding, ...]) -> Rejection:
    sentence = findings[0].message if findings else "It cannot be built."
    return Rejection(combination=wish, id=wished_id(wish), findings=findings, sentence=sentence)
