"""Resolve combinations into environments: choose everything that is open, or reject with the reasons.

A combination has two parts that are evaluated apart: the Python part (system, Python, packages) and the CUDA part.
"""

import itertools
from collections.abc import Iterable, Iterator
from functools import cache, partial
from typing import NamedTuple

import msgspec

from envbuilder import versions
from envbuilder.catalog.library_search import loader_folders
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import BaseImage, OperatingSystem, TensorflowRelease
from envbuilder.compat import unknown
from envbuilder.compat.binding import distributions
from envbuilder.compat.candidate import Candidate, with_rows
from envbuilder.compat.cuda_wheels import CudaInstallation, cuda_from_system, cuda_from_wheels, no_cuda
from envbuilder.compat.environment_id import environment_id, rejected_id
from envbuilder.compat.findings import finding
from envbuilder.compat.requirement import exact_pins, parse
from envbuilder.compat.rules import evaluate, ordered
from envbuilder.environment import (
    NOTHING_ADDED,
    Combination,
    Environment,
    NotInstalled,
    RegistryBase,
    Rejection,
    SystemCuda,
    with_notebook,
)
from envbuilder.finding import Code, Finding, Severity, is_condition
from envbuilder.matrix import Targets

NO_TARGETS = Targets()
_NOTHING_TO_INSTALL = frozenset({Code.NOT_INSTALLABLE, Code.PYTHON_UNSUPPORTED})
"""Not even a broken environment can be rebuilt."""


class PythonPart(NamedTuple):
    python: str
    system: OperatingSystem | None
    chosen: tuple[str, ...]
    findings: tuple[Finding, ...]
    fails: bool = False


class CudaPart(NamedTuple):
    installed: CudaInstallation | None
    minimum_driver: str | None
    findings: tuple[Finding, ...]
    fails: bool = False


NO_CUDA = CudaPart(None, None, ())


class Parts(NamedTuple):
    """Both parts of a combination; ``release`` is None if the catalogue has no such version."""

    release: TensorflowRelease | None
    python: PythonPart
    cuda: CudaPart


def resolve(
    combination: Combination, catalog: Catalog, targets: Targets = NO_TARGETS, *, as_reported: bool = False
) -> Environment | Rejection:
    """Make every choice that a combination leaves open.

    ``targets`` are drivers and GPUs that a GPU environment has to support. With ``as_reported`` (or if the combination
    has ``controls``) a mismatch is a finding instead of a rejection, as long as it can be built: so a user's broken
    environment can be rebuilt.
    """
    return Resolver(catalog, targets).resolve(combination, as_reported=as_reported)


class Resolver:
    """Resolves combinations for one catalogue and one set of targets; caches both parts.

    The keys name a release: hashing its row costs more than evaluating it.
    """

    def __init__(self, catalog: Catalog, targets: Targets = NO_TARGETS) -> None:
        self.catalog = catalog
        self.targets = targets
        self._distributions = cache(partial(distributions, catalog=catalog))
        self._python_part = cache(self._evaluate_python)
        self._cuda_part = cache(self._evaluate_cuda)

    def resolve(self, combination: Combination, *, as_reported: bool = False) -> Environment | Rejection:
        release, python, cuda = self.parts(combination)
        deliberate = as_reported or bool(combination.controls)
        on_gpu = combination.flavor == "gpu"
        variant = unsupported_variant(combination, python)
        findings = (*variant, *ordered((*python.findings, *cuda.findings)))
        if release is None or python.system is None or variant or (on_gpu and cuda.installed is None):
            return _rejected(combination, findings)
        errors = {row.code for row in findings if row.severity is Severity.ERROR}
        if (python.fails or cuda.fails) and (not deliberate or errors & _NOTHING_TO_INSTALL):
            return _rejected(combination, findings)
        if not deliberate:
            # Findings of the severity INFO depend on the targets: two matrices must give one environment the same file.
            kept = (row for row in findings if row.severity is not Severity.INFO or row.code is Code.UNREVIEWED)
            findings = tuple(kept)
        return _environment(combination, release, python, cuda, findings, self.catalog)

    def parts(self, combination: Combination) -> Parts:
        """Evaluate both parts of a combination, for the first distribution whose Python part does not fail."""
        package, flavor, arch = combination.package, combination.flavor, combination.arch
        rows = self._distributions(combination.tensorflow, package, flavor)
        if not rows:
            lacking = unknown.no_release(combination.tensorflow, package, self.catalog)
            return Parts(None, PythonPart("", None, (), (lacking,), fails=True), NO_CUDA)
        pins = (*combination.packages, *combination.additions.packages)
        version, python, os = rows[0].version, combination.python, combination.os
        asked = Combination(tensorflow=version, python=python, os=os, arch=arch, packages=pins)
        tried = ((row, self._python_part(msgspec.structs.replace(asked, package=row.package))) for row in rows)
        first = next(tried)
        row, part = next((one for one in tried if not one[1].fails), first) if first[1].fails else first
        base = part.system.name if part.system is not None and part.system.brings is not None else None
        cuda, cudnn = combination.cuda, combination.cudnn
        asked = Combination(tensorflow=version, package=row.package, flavor=flavor, arch=arch, cuda=cuda, cudnn=cudnn)
        return Parts(row, part, self._cuda_part(asked, base))

    def _evaluate_python(self, asked: Combination) -> PythonPart:
        """Choose the system and the Python: of the open ones, those with the fewest errors.

        Systems that need no registry come first (they can be built anywhere), then the newest Python.
        """
        python, os, catalog = asked.python, asked.os, self.catalog
        named = catalog.system(os) if os is not None else None
        rows = [row for row in catalog.systems if python in {None, row.python}] if os is None else [named]
        systems = [row for row in rows if row is not None]
        if not systems:
            no_system = unknown.no_system_with(python or "", catalog) if os is None else unknown.no_system(os, catalog)
            return PythonPart(python or "", None, (), (no_system,), fails=True)
        systems.sort(key=lambda row: (row.suite == "", [-number for number in versions.numbers(row.python)]))
        tried = list[PythonPart]()
        for row in systems:
            for one in row.pythons if os is not None and python is None else (python or row.python,):
                tried.append(self._on_system(row, one, asked))
                if not tried[-1].fails:
                    return tried[-1]
        return min(tried, key=lambda part: sum(row.severity is Severity.ERROR for row in part.findings))

    def _on_system(self, system: OperatingSystem, python: str, asked: Combination) -> PythonPart:
        given = Candidate(
            release=self._row(asked),
            arch=asked.arch,
            python=python,
            system=system,
            system_python=python if python in system.offers else system.python,
            packages=exact_pins(asked.packages),
        )
        chosen = tuple(name for name in ("python", "os") if not getattr(asked, name))
        findings = evaluate(with_rows(given, self.catalog), self.catalog, ("python",))
        return PythonPart(python, system, chosen, findings, fails=_has_error(findings))

    def _evaluate_cuda(self, asked: Combination, base: str | None) -> CudaPart:
        """Choose the CUDA: the first installation without an error on any target, or the first of all.

        A system with CUDA (``base``) has that one only; just its cuDNN may come from a wheel.
        """
        if asked.flavor == "cpu":
            return NO_CUDA
        release, catalog = self._row(asked), self.catalog
        if not release.gpu or asked.arch != "x86_64":
            given = Candidate(release=release, arch=asked.arch)
            return CudaPart(None, None, evaluate(with_rows(given, catalog), catalog, ("cuda",)), fails=True)
        system = catalog.system(base) if base is not None else None
        image = system.brings if system is not None else None
        if system is None or image is None:
            wheels = cuda_from_wheels(release, asked.cuda, asked.cudnn, catalog)
            return self._first_that_fits(release, wheels, None, asked) or _without_cuda(release, asked, catalog)
        own = cuda_from_system(release, system.packages, asked.cudnn, catalog) if system.packages is not None else ()
        found = self._first_that_fits(release, own, image, asked)
        whole = CudaInstallation(cuda=image.cuda, cudnn=image.cudnn, wheels=(), chosen=("cuda", "cudnn"))
        return found or self._with_cuda(release, whole, image, *_not_in_base(image, asked))

    def _first_that_fits(
        self, release: TensorflowRelease, tried: Iterable[CudaInstallation], image: BaseImage | None, asked: Combination
    ) -> CudaPart | None:
        """Evaluate one CUDA installation after the other; return the first without an error, or the first of all."""
        first: CudaPart | None = None
        for cuda in tried:
            base = msgspec.structs.replace(image, cudnn=cuda.cudnn) if image is not None else None
            errors = _not_in_base(base, asked) if base is not None else ()
            part = self._with_cuda(release, cuda, base, *errors)
            if not part.fails:
                return part
            first = first or part
        return first

    def _with_cuda(
        self, release: TensorflowRelease, cuda: CudaInstallation, image: BaseImage | None, *errors: Finding
    ) -> CudaPart:
        drivers, gpus, toolkit = (self.targets.drivers or (None,), self.targets.gpus, self.catalog.toolkit(cuda.cuda))
        found = [on_host(release, cuda.cuda, cuda.cudnn, driver, gpus, self.catalog, image) for driver in drivers]
        findings = ordered((*errors, *itertools.chain.from_iterable(found)))
        minimum = toolkit.minimum_driver if toolkit else None
        return CudaPart(
            cuda, minimum, findings, fails=any(row.severity is Severity.ERROR or is_condition(row) for row in findings)
        )

    def _row(self, asked: Combination) -> TensorflowRelease:
        row = self.catalog.release(asked.tensorflow, asked.package or "tensorflow")
        assert row is not None  # noqa: S101 - `distributions` found it
        return row


def on_host(
    release: TensorflowRelease,
    cuda: str | None,
    cudnn: str | None,
    driver: str | None,
    gpus: tuple[str, ...],
    catalog: Catalog,
    image: BaseImage | None = None,
) -> tuple[Finding, ...]:
    """Predict the findings of an environment built here on a driver and GPUs.

    Without the forward-compatibility package in its base image, it works on some drivers on that condition.
    """
    devices, lacking = unknown.find_devices(gpus, (), catalog)
    given = Candidate(
        release=release,
        install="system" if image is not None else None,
        image=image,
        cuda=cuda,
        cudnn=cudnn,
        driver=driver,
        devices=devices,
        compat=True if image is not None and image.forward_compat else None,
    )
    found = with_rows(given, catalog)
    return ordered((*evaluate(found, catalog, ("cuda",)), *lacking, *unknown.without_row(found)))


def _not_in_base(image: BaseImage, combination: Combination) -> Iterator[Finding]:
    cuda, cudnn = combination.cuda, combination.cudnn
    if cuda is not None and not versions.is_prefix(cuda, image.cuda):
        yield finding(Code.CUDA_MISMATCH, "base", (image,), image=image.name, required=cuda, cuda=image.cuda)
    if cudnn is not None and (image.cudnn is None or not versions.is_prefix(cudnn, image.cudnn)):
        variant = "base" if image.cudnn else "base_without"
        yield finding(Code.CUDNN_MISMATCH, variant, (image,), image=image.name, required=cudnn, cudnn=image.cudnn)


def _without_cuda(release: TensorflowRelease, combination: Combination, catalog: Catalog) -> CudaPart:
    cuda, cudnn = combination.cuda, combination.cudnn
    given = Candidate(release=release, cuda=cuda or release.cuda, cudnn=cudnn or release.cudnn)
    misfits = evaluate(with_rows(given, catalog), catalog, ("cuda",))
    if not _has_error(misfits):  # else wheels would not help
        misfits = ordered((*misfits, no_cuda(release, cuda, cudnn, catalog)))
    return CudaPart(None, None, misfits, fails=True)


def _has_error(findings: tuple[Finding, ...]) -> bool:
    return any(row.severity is Severity.ERROR for row in findings)


_OLDEST_RUNTIME_PYTHON = (3, 7)  # the oldest Python for the programs that derive the variant ``runtime`` in the image


def unsupported_variant(combination: Combination, part: PythonPart) -> tuple[Finding, ...]:
    if combination.variant != "runtime" or not part.python or versions.numbers(part.python) >= _OLDEST_RUNTIME_PYTHON:
        return ()
    return (finding(Code.PYTHON_UNSUPPORTED, "variant", python=part.python),)


def _environment(
    combination: Combination,
    release: TensorflowRelease,
    python: PythonPart,
    cuda: CudaPart,
    findings: tuple[Finding, ...],
    catalog: Catalog,
) -> Environment:
    assert python.system is not None  # noqa: S101 - checked by the caller
    installed, gpu = cuda.installed, combination.flavor == "gpu"
    additions = combination.additions
    if combination.variant == "notebook":
        additions = with_notebook(additions)
    packages = (*combination.packages, *additions.packages)
    pinned = {parse(text).name for text in packages}
    wheels = installed.wheels if installed else ()
    unused = catalog.not_installed(release.version, wheels) if combination.variant == "runtime" else {}
    unused = {pin: reason for pin, reason in unused.items() if parse(pin).name not in pinned}
    return Environment(
        id=environment_id(combination, release, python.python, python.system.short, installed),
        tensorflow=release.version,
        package=release.package,
        python=python.python,
        os=python.system.name,
        arch=combination.arch,
        flavor=combination.flavor,
        cuda=installed.cuda if installed else None,
        cudnn=installed.cudnn if installed else None,
        minimum_driver=cuda.minimum_driver,
        requirements=(f"{release.package}=={release.version}", *packages),
        cuda_wheels=tuple(pin for pin in wheels if pin not in unused),
        constraints=tuple(text for text in release.caps if parse(text).name not in pinned),
        libraries=release.libraries if gpu else (),
        loader_folders=loader_folders(release, installed.wheels) if installed and installed.wheels else (),
        built_cuda=release.cuda if gpu else None,
        built_cudnn=release.cudnn if gpu else None,
        cubins=release.cubins if gpu else (),
        ptx=release.ptx if gpu else (),
        controls=combination.controls,
        chosen=(
            *(("package",) if combination.package is None else ()),
            *python.chosen,
            *(installed.chosen if installed else ()),
        ),
        variant=msgspec.UNSET if combination.variant == "devel" else combination.variant,
        unused_wheels=tuple(NotInstalled(*one) for one in unused.items()) or msgspec.UNSET,
        findings=findings,
        base=_registry_base(python.system, python.python, gpu=gpu),
        system_cuda=_system_cuda(python.system, installed) if installed else msgspec.UNSET,
        additions=additions if additions != NOTHING_ADDED else msgspec.UNSET,
    )


def _system_cuda(system: OperatingSystem, installed: CudaInstallation) -> SystemCuda | msgspec.UnsetType:
    row = system.packages
    if row is None or installed.cudnn is None:
        return msgspec.UNSET
    own = {name: getattr(row, name) for name in ("os", "component", "repository", "folders", "packages")}
    return SystemCuda(**own, cudnn=f"{row.cudnn_wheel}=={installed.cudnn}")


def _registry_base(system: OperatingSystem, python: str, *, gpu: bool) -> RegistryBase | msgspec.UnsetType:
    if system.suite:
        return msgspec.UNSET
    name = f"python{python}" if python in system.offers else "python3"
    return RegistryBase(
        image=system.image,
        python_packages=(name, f"{name}-venv") if system.package_source in {"debian", "ubuntu"} else (),
        brings_cuda=gpu and system.brings is not None,
        states_driver=system.brings is not None and bool(system.brings.require_cuda),
    )


def _rejected(combination: Combination, findings: tuple[Finding, ...]) -> Rejection:
    sentence = findings[0].message if findings else "It cannot be built."
    return Rejection(combination=combination, id=rejected_id(combination), findings=findings, sentence=sentence)
