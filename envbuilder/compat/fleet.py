"""Environments and hosts, by the rules: which one runs where, and the newest for a host that can be built."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Annotated, cast

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.compat import unknown
from envbuilder.compat.check import EnvironmentAnswer, findings_of
from envbuilder.compat.findings import finding
from envbuilder.compat.question import Question
from envbuilder.compat.resolve import Resolver, on_host
from envbuilder.environment import WHOLE, Combination, Environment, Flavor, Rejection
from envbuilder.finding import Code, Finding, Severity, compatible, obstacle
from envbuilder.matrix import TEXTS, Arch, DriverText, GpuText, Targets

HostName = Annotated[str, TEXTS["host"]]
ConstraintText = Annotated[str, TEXTS["constraint"]]
HostCount = Annotated[int, msgspec.Meta(ge=1, le=1_000_000, description="a number of equal hosts")]


class FleetHost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One host of a fleet file, or ``count`` equal ones; without a driver it runs CPU environments only.

    ``driver`` may be a branch alone. ``arch`` is by default the one that its GPUs require. ``labels`` and
    ``constraint`` select such hosts in a cluster: a node selector of Kubernetes, Slurm's ``--constraint``.
    """

    name: HostName
    driver: DriverText | None = None
    gpus: tuple[GpuText, ...] = ()
    arch: Arch | None = None
    count: HostCount = 1
    labels: dict[Annotated[str, TEXTS["node label"]], Annotated[str, TEXTS["node value"]]] = {}
    constraint: ConstraintText = ""


Fleet = Annotated[tuple[FleetHost, ...], msgspec.Meta(min_length=1)]
"""A fleet file."""


class HostGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts with the same driver, architecture and GPU models; ``host`` is the first of ``count``.

    The rules have one answer for all of them: the number of GPUs of a model does not matter.
    """

    host: str
    driver: str | None
    gpus: tuple[str, ...]
    arch: Arch | None
    hosts: tuple[str, ...]
    count: int = 1


def host_groups(hosts: tuple[FleetHost, ...]) -> dict[HostGroup, FleetHost]:
    alike: dict[tuple[str | None, tuple[str, ...], Arch | None], list[FleetHost]] = {}
    for host in hosts:
        alike.setdefault((host.driver, tuple(dict.fromkeys(host.gpus)), host.arch), []).append(host)
    groups = {}
    for (driver, gpus, arch), same in alike.items():
        names, count = tuple(one.name for one in same), sum(one.count for one in same)
        groups[HostGroup(host=names[0], driver=driver, gpus=gpus, arch=arch, hosts=names, count=count)] = same[0]
    return groups


def is_of_class(gpu: str, driver: str, seen: str | None, names: Iterable[str], catalog: Catalog) -> bool:
    """Return True if a host with the driver ``seen`` and these GPUs has a model and a driver (or its branch)."""
    models = {catalog.gpu_model(name) or name for name in names}
    return gpu in models and seen is not None and versions.is_prefix(driver, seen)


def asked_of(gpu: str, driver: str, arch: str) -> str:
    """Name a class of hosts as a worker's resource; the name must not contain spaces or '='."""
    return f"{gpu}/{driver}".replace(" ", "_") if gpu else f"host/{arch}"


def advertised(driver: str | None, names: Iterable[str], arch: str, catalog: Catalog) -> dict[str, int]:
    """Return the classes of a host as its worker's resources: with its driver, and with each prefix of it.

    A GPU without a row has the name that its driver prints.
    """
    found = {asked_of("", "", arch): 1}
    for name in names:
        for short in versions.prefixes(driver) if driver else ():
            found[asked_of(catalog.gpu_model(name) or name, short, arch)] = 1
    return found


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One environment on one host. ``compatible`` null is "no claim"; ``why`` is a sentence if it is not true."""

    host: str
    environment: str
    compatible: bool | None
    findings: tuple[Finding, ...]
    why: str = ""


def place(
    environments: tuple[Environment, ...], hosts: tuple[FleetHost, ...], catalog: Catalog, *, avx: bool | None = None
) -> tuple[Cell, ...]:
    cells = []
    for environment, host in itertools.product(environments, hosts):
        found = findings_on(environment, host, catalog, avx=avx)
        first, judged = obstacle(found), compatible(found)
        why = first.message if first is not None else ""
        cells.append(Cell(host=host.name, environment=environment.id, compatible=judged, findings=found, why=why))
    return tuple(cells)


def findings_on(
    environment: Environment, host: FleetHost, catalog: Catalog, *, avx: bool | None = None
) -> tuple[Finding, ...]:
    """Predict the findings of an environment on a host.

    Environments built here have no forward-compatibility package. A host without ``arch`` has the one that its GPUs
    require, or any; ``avx`` False is a processor without it.
    """
    if avx is False:
        bare = Question(tensorflow=environment.tensorflow, package=environment.package, gpu=False, avx=False)
        missing = tuple(row for row in findings_of(bare, catalog) if row.code is Code.CPU_FEATURE_MISSING)
        return (*missing, *findings_on(environment, host, catalog))
    devices, _ = unknown.find_devices(host.gpus, (), catalog)
    here = host.arch or unknown.required_arch(devices, catalog) or environment.arch
    if here != environment.arch:
        fields = {"environment": environment.id, "required": environment.arch, "arch": here}
        return (finding(Code.ARCH_MISMATCH, "host", **fields),)
    if environment.flavor == "cpu":
        return ()
    if host.driver is None or not host.gpus:
        return (finding(Code.GPU_NOT_VISIBLE, "no_driver", environment=environment.id),)
    return findings_with(environment, host.driver, host.gpus, catalog)


def findings_with(
    environment: Environment, driver: str | None, gpus: tuple[str, ...], catalog: Catalog
) -> tuple[Finding, ...]:
    """Predict the findings of a GPU environment with a driver and GPUs; None and () are any."""
    release = catalog.release(environment.tensorflow, environment.package)
    if release is None:
        return (unknown.no_release(environment.tensorflow, environment.package, catalog),)
    system = None if environment.cuda_wheels else catalog.system(environment.os)
    image = system.brings if system is not None else None
    if image is not None and environment.packaged_cuda is not None:
        image = msgspec.structs.replace(image, cudnn=environment.cudnn)
    return on_host(release, environment.cuda, environment.cudnn, driver, gpus, catalog, image)


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
        tried += _with_own_cuda(tried[0], version, wanted, host, catalog) if avx is not False else ()
        refused.append(_refused(version, next((one for one in tried if compatible(one) is not False), tried[0])))
    return HostChoice(refused=tuple(refused))


def environment_for(
    works: EnvironmentAnswer, asked: Question, catalog: Catalog
) -> tuple[Combination, Environment | None]:
    """Choose the environment with the versions of what works for a question, for the driver and GPUs of both.

    Versions that the answer chose stay open, as do bounds of packages: the release sets them. The variant is
    ``runtime``, or ``devel`` if the Python is too old for it.
    """
    fields = ("python", "os", *(("package",) if asked.package else ()))
    given = {name: getattr(works, name) for name in (*fields, "cuda", "cudnn") if name not in works.chosen}
    given["cuda"] = versions.minor(given["cuda"]) if given.get("cuda") else None
    given["packages"] = tuple(text for text in works.packages if text in asked.packages)
    flavor: Flavor = "gpu" if asked.gpu else "cpu"
    wanted = Combination(tensorflow=works.tensorflow, flavor=flavor, variant="runtime", **given)
    host = FleetHost(name="host", driver=works.driver, gpus=asked.gpus, arch=cast("Arch", works.arch))
    found = choose_for(wanted, host, catalog)
    if [row.code for row in found.refused] == [Code.PYTHON_UNSUPPORTED]:
        wanted = msgspec.structs.replace(wanted, variant=WHOLE)
        found = choose_for(wanted, host, catalog)
    return wanted, found.environment


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


def _with_own_cuda(
    found: tuple[Finding, ...], version: str, wanted: Combination, host: FleetHost, catalog: Catalog
) -> Iterator[tuple[Finding, ...]]:
    """Yield the findings with a release's own CUDA if only the driver is too old: it may have a package for it."""
    row = catalog.release(version, wanted.package or "tensorflow")
    errors = {one.code for one in found if one.severity is Severity.ERROR}
    if row is not None and row.cuda is not None and errors == {Code.DRIVER_TOO_OLD}:
        yield on_host(row, wanted.cuda or row.cuda, wanted.cudnn or row.cudnn, host.driver, host.gpus, catalog)


_WITHOUT_WHEELS = frozenset({Code.CUDA_MISMATCH, Code.NOT_INSTALLABLE})


def _findings(environment: Environment, host: FleetHost, catalog: Catalog, *, avx: bool | None) -> tuple[Finding, ...]:
    if environment.flavor == "gpu" and not (host.driver and host.gpus):
        return findings_with(environment, host.driver, host.gpus, catalog)
    return findings_on(environment, host, catalog, avx=avx)


def _reason(found: tuple[Finding, ...]) -> Finding | None:
    """Return the finding that speaks against an environment: an obstacle, or a package that images should not need."""
    return obstacle(found) or next((row for row in found if row.code is Code.DRIVER_FORWARD_COMPAT), None)


def _refused(version: str, found: tuple[Finding, ...]) -> Refused:
    reason = _reason(found) or found[0]
    judged = False if compatible(found) is False else None
    return Refused(tensorflow=version, code=reason.code, compatible=judged, why=reason.message)
