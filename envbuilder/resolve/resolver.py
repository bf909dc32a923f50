"""Turn combinations into environments or rejections, remembering what is shared between combinations."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from envbuilder import versions
from envbuilder.catalog.model import OperatingSystem, TensorflowRelease
from envbuilder.environment import Combination, Environment, Flavor, Rejection
from envbuilder.finding import Code, Finding, Severity
from envbuilder.matrix import Targets
from envbuilder.resolve.naming import environment_id, short, suffixes, wished_id
from envbuilder.resolve.stacks import Stack, stack_for
from envbuilder.rules import Candidate, Device, Facts, joined, judge, ordered, say
from envbuilder.rules.requirement import exact_pin, parse

NO_TARGETS = Targets()

_UNBUILDABLE = frozenset({Code.NOT_INSTALLABLE, Code.PYTHON_UNSUPPORTED})
"""What no wish to rebuild a broken environment can overcome: there is nothing to install."""


Finder = Callable[[Combination], Combination | None]
"""Finds what works near a combination that does not."""


class Host(NamedTuple):
    """The Python side of an environment: its system, and what the rules find there."""

    python: str
    system: OperatingSystem | None
    chosen: tuple[str, ...]
    findings: tuple[Finding, ...]
    fails: bool = False


class Side(NamedTuple):
    """The GPU side of an environment: its CUDA wheels, and what the rules find on the target drivers and GPUs."""

    stack: Stack | None
    minimum_driver: str | None
    findings: tuple[Finding, ...]
    fails: bool = False


_NO_SIDE = Side(None, None, ())


class Parts(NamedTuple):
    """The two sides of a combination, judged apart; ``release`` is None where the catalogue has no such version."""

    release: TensorflowRelease | None
    host: Host
    side: Side


class Resolver:
    """Resolves combinations against one catalogue and one set of targets; each part of the work is done once.

    The parts are remembered by texts, not by rows: hashing a row costs more than judging it.
    """

    def __init__(self, facts: Facts, targets: Targets = NO_TARGETS) -> None:
        self.facts = facts
        self.targets = targets
        self.release = cache(self._release)
        self.host = cache(self._host)
        self.side = cache(self._side)
        self.missing = cache(self._missing)

    def resolve(
        self,
        combination: Combination,
        *,
        as_reported: bool = False,
        nearest: Finder | None = None,
    ) -> Environment | Rejection:
        """Resolve one combination; see `envbuilder.resolve.resolve`. ``nearest`` finds what a rejection names."""
        wish = combination
        release, host, side = self.parts(wish)
        findings = joined(host.findings, side.findings)
        stops = _prevents if as_reported or wish.controls else bool
        if (
            release is None
            or host.system is None
            or (wish.flavor == "gpu" and side.stack is None)
            or ((host.fails or side.fails) and stops(findings))
        ):
            return _rejected(wish, findings, nearest(wish) if nearest is not None else None)
        return _environment(wish, release, host, side, findings)

    def parts(self, wish: Combination) -> Parts:
        """Judge the two sides of a combination."""
        release = self.release(wish.tensorflow, wish.package, wish.python, wish.flavor, wish.arch)
        if release is None:
            return Parts(None, self.missing(wish.tensorflow, wish.package), _NO_SIDE)
        package, version = release.package, release.version
        return Parts(
            release,
            self.host(package, version, wish.python, wish.os, wish.arch, wish.packages),
            self.side(package, version, wish.flavor, wish.arch, wish.cuda, wish.cudnn),
        )

    def _release(
        self, version: str, package: str | None, python: str | None, flavor: Flavor, arch: str
    ) -> TensorflowRelease | None:
        """Find the distribution to install.

        A CPU image takes tensorflow-cpu where it has a wheel for this Python: the same code without the CUDA kernels,
        less than half the size. Otherwise tensorflow, whose CUDA build falls back to the CPU.
        """
        known = self.facts.version(version)
        if known is None:
            return None
        if package is not None:
            return self.facts.release(package, known)
        rows = self.facts.releases(known)
        if flavor == "gpu":
            return next((row for row in rows if row.gpu), rows[0] if rows else None)
        small = self.facts.release("tensorflow-cpu", known)
        if small is not None and small.installable:
            pythons = next((row.pythons for row in small.wheels if row.arch == arch), ())
            if pythons and (python is None or python in pythons):
                return small
        return rows[0] if rows else None

    def _missing(self, version: str, package: str | None) -> Host:
        name = f"{package or 'tensorflow'} {version}"
        near = [text for text in self.facts.versions if versions.minor(text) == versions.minor(version)]
        hint = f"; it knows {say.words(near)}" if near else ""
        return Host("", None, (), (say.unknown(name, f"The catalogue has no row for {name}{hint}."),), fails=True)

    def _host(  # noqa: PLR0913, PLR0917 - the wishes, one by one
        self, package: str, version: str, python: str | None, os: str | None, arch: str, packages: tuple[str, ...]
    ) -> Host:
        rows = [row for row in self.facts.systems(os) if os is not None or python in {None, row.python}]
        if not rows:
            what = os or f"Python {python}"
            known = say.words([row.name for row in self.facts.systems()])
            silent = say.unknown(what, f"The catalogue has no system for {what}; it knows {known}.")
            return Host(python or "", None, (), (silent,), fails=True)
        release = self.facts.release(package, version)
        assert release is not None  # noqa: S101 - `release` found it
        tried = [self._on_system(release, row, python, os, arch, packages) for row in sorted(rows, key=_preference)]
        return min(tried, key=lambda host: sum(finding.severity is Severity.ERROR for finding in host.findings))

    def _on_system(  # noqa: PLR0913, PLR0917 - the wishes, one by one
        self,
        release: TensorflowRelease,
        system: OperatingSystem,
        python: str | None,
        os: str | None,
        arch: str,
        packages: tuple[str, ...],
    ) -> Host:
        candidate = Candidate(
            release=release,
            arch=arch,
            python=python or system.python,
            system=system,
            system_python=system.python,
            glibc=system.glibc,
            glibc_of=system.name,
            packages=tuple(pin for text in packages if (pin := exact_pin(text)) is not None),
        )
        chosen = (*(() if python else ("python",)), *(() if os else ("os",)))
        findings = judge(candidate, self.facts, ("host",))
        return Host(python or system.python, system, chosen, findings, fails=_fails(findings))

    def _side(  # noqa: PLR0913, PLR0917 - the wishes, one by one
        self, package: str, version: str, flavor: Flavor, arch: str, cuda: str | None, cudnn: str | None
    ) -> Side:
        if flavor == "cpu":
            return _NO_SIDE
        release = self.facts.release(package, version)
        assert release is not None  # noqa: S101 - `release` found it
        stack, minimum, findings = self._accelerated(release, arch, cuda, cudnn)
        return Side(stack, minimum, findings, fails=stack is None or _fails(findings))

    def _accelerated(
        self, release: TensorflowRelease, arch: str, cuda: str | None, cudnn: str | None
    ) -> tuple[Stack | None, str | None, tuple[Finding, ...]]:
        plain = Candidate(release=release, arch=arch)
        if not release.gpu or arch != "x86_64":
            return None, None, judge(plain, self.facts, ("gpu",))
        stack = stack_for(release, cuda, cudnn, self.facts)
        if isinstance(stack, str):
            named = Candidate(
                release=release,
                cuda=cuda or release.cuda,
                cudnn=cudnn or release.cudnn,
                toolkit=self.facts.toolkit(cuda or release.cuda),
            )
            wrong = judge(named, self.facts, ("gpu",))
            return None, None, ordered((*wrong, _no_wheels(release, stack)))
        toolkit = self.facts.toolkit(stack.cuda)
        findings = [
            finding for driver in self.targets.drivers or (None,) for finding in self._on_target(release, stack, driver)
        ]
        return stack, toolkit.minimum_driver if toolkit else None, ordered(tuple(findings))

    def _on_target(self, release: TensorflowRelease, stack: Stack, driver: str | None) -> tuple[Finding, ...]:
        devices, unknown = self.devices(self.targets.gpus)
        branch = self.facts.branch(driver)
        if driver is not None and branch is None:
            unknown = (
                *unknown,
                say.unknown(f"driver {driver}", f"The catalogue has no branch {versions.major(driver)}."),
            )
        candidate = Candidate(
            release=release,
            cuda=stack.cuda,
            cudnn=stack.cudnn,
            toolkit=self.facts.toolkit(stack.cuda),
            built=self.facts.toolkit(release.cuda),
            cudnn_row=self.facts.cudnn(stack.cudnn),
            driver=driver,
            branch=branch,
            devices=devices,
            compat=False,
        )
        return (*judge(candidate, self.facts, ("gpu",)), *unknown)

    def devices(self, names: tuple[str, ...]) -> tuple[tuple[Device, ...], tuple[Finding, ...]]:
        """Look GPUs up by name; those that the catalogue lacks come back as findings."""
        rows = [(name, self.facts.gpu(name)) for name in names]
        found = tuple(Device(row.name, row.compute_capability, row) for _, row in rows if row is not None)
        missing = [name for name, row in rows if row is None]
        return found, tuple(say.unknown(name, f"The catalogue has no GPU called {name}.") for name in missing)


def _preference(system: OperatingSystem) -> tuple[bool, tuple[int, ...]]:
    """Order systems: those that need no registry first (they can be built anywhere), then the newest Python."""
    return system.suite == "", tuple(-number for number in versions.numbers(system.python))


def _fails(findings: tuple[Finding, ...]) -> bool:
    return any(finding.severity is Severity.ERROR for finding in findings)


def _prevents(findings: tuple[Finding, ...]) -> bool:
    """Tell whether there is nothing to install, so that not even a broken environment can be rebuilt."""
    return any(finding.severity is Severity.ERROR and finding.code in _UNBUILDABLE for finding in findings)


def _no_wheels(release: TensorflowRelease, sentence: str) -> Finding:
    return say.error(
        Code.NOT_INSTALLABLE,
        f"CUDA wheels for {release.version}",
        sentence,
        requires=f"CUDA {release.cuda}, cuDNN {release.cudnn}",
        found="no wheels",
        fix="Take a version with CUDA wheels, or validate a foreign image that brings CUDA.",
        rows=(release,),
    )


def _environment(
    wish: Combination, release: TensorflowRelease, host: Host, side: Side, findings: tuple[Finding, ...]
) -> Environment:
    assert host.system is not None  # noqa: S101 - the caller looked
    stack, gpu = side.stack, wish.flavor == "gpu"
    pinned = {parse(text).name for text in wish.packages}
    default = wish.package is None
    return Environment(
        id=environment_id(
            tensorflow=release.version,
            python=host.python,
            cuda=short(stack.cuda, wish.cuda) if stack else None,
            cudnn=short(stack.cudnn, wish.cudnn) if stack else None,
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
        requirements=(f"{release.package}=={release.version}", *wish.packages),
        cuda_wheels=stack.wheels if stack else (),
        constraints=tuple(text for text in release.caps if parse(text).name not in pinned),
        libraries=release.libraries if gpu else (),
        cubins=release.cubins if gpu else (),
        ptx=release.ptx if gpu else (),
        controls=wish.controls,
        chosen=(*(("package",) if default else ()), *host.chosen, *(stack.chosen if stack else ())),
        findings=findings,
    )


def _rejected(wish: Combination, findings: tuple[Finding, ...], nearest: Combination | None) -> Rejection:
    sentence = findings[0].message if findings else "It cannot be built."
    return Rejection(combination=wish, id=wished_id(wish), findings=findings, sentence=sentence, nearest=nearest)
