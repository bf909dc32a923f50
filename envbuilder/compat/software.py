"""Rules about what stands around the wheel: Python, glibc, the processor, and the packages beside it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import TensorflowRelease, WheelSet
from envbuilder.compat import phrases
from envbuilder.compat.candidate import Candidate
from envbuilder.compat.requirement import Bound, exact_pin, holds_for, parse
from envbuilder.compat.rule import Rule
from envbuilder.finding import Code, Finding


def reviewed(candidate: Candidate, _catalog: Catalog) -> Iterator[Finding]:
    """UNREVIEWED: the release's row was proposed by a program, and no person has looked at it."""
    release = candidate.release
    if not release.reviewed:
        what = phrases.name(release)
        yield phrases.info(
            Code.UNREVIEWED,
            what,
            f"What the catalogue says of {what} was read from its wheels by a program and is not reviewed: "
            f"{release.verified}.",
            requires="a row that a person reviewed",
            found="a proposed row",
            fix="Take the answer as a proposal, and try it before you rely on it.",
            rows=(release,),
        )


def installable(candidate: Candidate, _catalog: Catalog) -> Iterator[Finding]:
    """NOT_INSTALLABLE: an sdist that raises, no wheel for the machine, or an extra whose pins are gone."""
    release = candidate.release
    what = phrases.name(release)
    if not release.installable:
        yield phrases.error(
            Code.NOT_INSTALLABLE,
            what,
            f"{what} cannot be installed: {release.not_installable_because or 'its distribution has no wheel'}.",
            requires="a wheel",
            found="a source archive that raises",
            fix="Take `tensorflow` of the same version."
            if release.package != "tensorflow"
            else "Take another version.",
            rows=(release,),
        )
    elif wheels(candidate) is None and release.wheels:
        have = tuple(dict.fromkeys(row.arch for row in release.wheels))
        yield phrases.error(
            Code.NOT_INSTALLABLE,
            what,
            f"{what} has no wheel for {candidate.arch}, only for {phrases.words(have)}.",
            requires=phrases.words(have, "or"),
            found=candidate.arch,
            fix="Take a version that has a wheel for this machine, or another machine.",
            rows=(release,),
        )
    if candidate.install == "and-cuda" and extra_fails(release, candidate.python):
        others = [python for python in release.pythons if python not in release.extra_fails_on]
        where = f" on Python {candidate.python}" if others and candidate.python else ""
        yield phrases.error(
            Code.NOT_INSTALLABLE,
            f"{release.package}[and-cuda]",
            f"{release.package}[and-cuda]=={release.version} cannot be resolved{where}: {release.extra_fails_because}.",
            requires="what the extra pins",
            found="pins that no index has",
            fix=f"Use Python {phrases.words(others, 'or')}, or pin the CUDA wheels yourself."
            if others
            else "Take the next patch release, or pin the CUDA wheels without the extra.",
            rows=(release,),
        )


def extra_fails(release: TensorflowRelease, python: str | None) -> bool:
    """Tell whether the extra ``and-cuda`` cannot be resolved on this Python (on any, where none is given)."""
    broken = set(release.extra_fails_on)
    return python in broken if python is not None else bool(broken) and broken >= set(release.pythons)


def wheels(candidate: Candidate) -> WheelSet | None:
    """Find the wheels for the candidate's machine."""
    return next((row for row in candidate.release.wheels if row.arch == candidate.arch), None)


def python_supported(candidate: Candidate, _catalog: Catalog) -> Iterator[Finding]:
    """PYTHON_UNSUPPORTED: no wheel for this Python, or the system brings another one."""
    found, release = wheels(candidate), candidate.release
    if candidate.python is None:
        return
    if candidate.system_python not in {None, candidate.python} and candidate.system is not None:
        yield phrases.error(
            Code.PYTHON_UNSUPPORTED,
            f"Python {candidate.python}",
            f"{candidate.system.name} brings Python {candidate.system_python}, not {candidate.python}.",
            requires=f"Python {candidate.system_python}",
            found=f"Python {candidate.python}",
            fix="Leave the system or the Python to be chosen.",
            rows=(candidate.system,),
        )
    if found is not None and candidate.python not in found.pythons:
        yield phrases.error(
            Code.PYTHON_UNSUPPORTED,
            f"Python {candidate.python}",
            f"{phrases.name(release)} has no wheel for Python {candidate.python}; it has wheels for "
            f"{phrases.span(found.pythons)}.",
            requires=f"Python {phrases.words(found.pythons, 'or')}",
            found=f"Python {candidate.python}",
            fix=f"Use Python {_closest(candidate.python, found.pythons)}.",
            rows=(release,),
        )


def _closest(python: str, pythons: tuple[str, ...]) -> str:
    return min(pythons, key=lambda text: versions.distance(text, python))


def glibc_new_enough(candidate: Candidate, _catalog: Catalog) -> Iterator[Finding]:
    """GLIBC_TOO_OLD: the system's C library is older than the wheel's tag promises to need, or another one."""
    found, other = wheels(candidate), candidate.other
    if other is not None:
        yield phrases.error(
            Code.GLIBC_TOO_OLD,
            other.name,
            f"{other.name} has {other.libc} and no glibc, which every wheel of {phrases.name(candidate.release)} "
            "needs: an installer finds none that fits.",
            requires="glibc",
            found=other.libc,
            fix="Use a system with glibc, such as the Debian image of the same Python.",
            rows=(candidate.release, other),
        )
    if found is None or candidate.glibc is None or versions.at_least(candidate.glibc, found.glibc):
        return
    yield phrases.error(
        Code.GLIBC_TOO_OLD,
        candidate.glibc_of,
        f"{phrases.name(candidate.release)} needs glibc {found.glibc}; {candidate.glibc_of} has {candidate.glibc}.",
        requires=f"glibc {found.glibc}",
        found=f"glibc {candidate.glibc}",
        fix="Use a newer system; a C library cannot be replaced inside an old one.",
        rows=(candidate.release, candidate.system or candidate.image),
    )


def cpu_features(candidate: Candidate, catalog: Catalog) -> Iterator[Finding]:
    """CPU_FEATURE_MISSING: the wheel is compiled for instructions that the processor lacks (SIGILL at import)."""
    needs = [feature for feature in candidate.release.cpu_features if feature.lower().startswith("avx")]
    if candidate.avx or not needs or candidate.arch != "x86_64":
        return
    yield phrases.error(
        Code.CPU_FEATURE_MISSING,
        "AVX",
        f"{phrases.name(candidate.release)} is compiled with {phrases.words([text.upper() for text in needs])}; "
        "this processor has no AVX, so importing it ends with an illegal instruction.",
        requires=phrases.words([text.upper() for text in needs]),
        found="no AVX",
        fix=f"Use a processor (or a virtual machine's CPU model) with AVX; {_since(catalog)}.",
        rows=(candidate.release,),
    )


def _since(catalog: Catalog) -> str:
    """Say from which release on wheels need AVX."""
    row = next((row for row in catalog.processor_needs if row.feature == "avx"), None)
    return f"every wheel since {row.first} needs it" if row is not None else "the wheels need it"


_CODE_OF = {
    "numpy": Code.NUMPY_ABI,
    "protobuf": Code.PROTOBUF_ABI,
    "keras": Code.KERAS_MISMATCH,
    "tf-keras": Code.KERAS_MISMATCH,
}
_TITLE = {"numpy": "NumPy", "protobuf": "protobuf", "keras": "Keras"}


def packages_fit(candidate: Candidate, _catalog: Catalog | None = None) -> Iterator[Finding]:
    """NUMPY_ABI, PROTOBUF_ABI, KERAS_MISMATCH, PACKAGE_CONFLICT: a pinned package outside this build's bounds."""
    release = candidate.release
    for package, version in candidate.packages:
        title = _TITLE.get(package, package)
        for bound, declared in bounds_on(candidate, package):
            if versions.admits(bound.bounds, version):
                continue
            why = "its own metadata says so" if declared else "its metadata lacks the bound, but it fails when imported"
            yield phrases.error(
                _CODE_OF.get(package, Code.PACKAGE_CONFLICT),
                f"{title} {version}",
                f"{phrases.name(release)} needs {title} {bound.text}, not {version}: {why}.",
                requires=f"{package}{bound.text}",
                found=f"{package}=={version}",
                fix=f"Install `{package}{bound.text}`.",
                rows=(release,),
            )
            break
        if package == "tf-keras" and versions.minor(version) != versions.minor(release.version):
            yield phrases.error(
                Code.KERAS_MISMATCH,
                f"tf-keras {version}",
                f"tf-keras {version} belongs to TensorFlow {versions.minor(version)}, not to {release.version}.",
                requires=f"tf-keras {versions.minor(release.version)}",
                found=f"tf-keras {version}",
                fix=f"Install `tf-keras{_own_keras(release)}`.",
                rows=(release,),
            )


def _own_keras(release: TensorflowRelease) -> str:
    """Return the bound of the tf-keras that belongs to a release."""
    return f"~={versions.minor(release.version)}.0"


def bounds_on(candidate: Candidate, package: str) -> Iterator[tuple[Bound, bool]]:
    """List the bounds on a package: those of the wheel's metadata first (True), then the ones it lacks (False)."""
    release = candidate.release
    for text, declared in (*((text, True) for text in release.requires), *((text, False) for text in release.caps)):
        bound = parse(text)
        if bound.name == package and bound.bounds and holds_for(text, candidate.python, candidate.arch):
            yield bound, declared


def repinned(
    packages: tuple[str, ...], candidate: Candidate
) -> tuple[tuple[str, ...], tuple[tuple[str, str, str | None], ...]]:
    """Replace the pins that a release refuses by its own bounds, and name them: ``(numpy, 2.0.0, <2)``.

    A pin that it refuses without stating bounds goes (None); everything else stays as it is.
    """
    kept: list[str] = []
    changed: list[tuple[str, str, str | None]] = []
    for text in packages:
        pin = exact_pin(text)
        if pin is None or not any(packages_fit(msgspec.structs.replace(candidate, packages=(pin,)))):
            kept.append(text)
            continue
        every = [bound for bound, _ in bounds_on(candidate, pin[0])]
        bounds = next(([one] for one in every if "<" in one.text and not versions.admits(one.bounds, pin[1])), every)
        own = [_own_keras(candidate.release)] if pin[0] == "tf-keras" else []
        wanted = ",".join(dict.fromkeys((*(bound.text for bound in bounds), *own))) or None
        kept += [f"{pin[0]}{wanted}"] if wanted else []
        changed.append((*pin, wanted))
    return tuple(kept), tuple(changed)


def uncapped(candidate: Candidate, catalog: Catalog) -> Iterator[Finding]:
    """NUMPY_ABI, PROTOBUF_ABI, KERAS_MISMATCH: an unpinned install brings a newer package than the build can load.

    It does where the index has one, and this Python receives it.
    """
    if candidate.install not in {"and-cuda", "plain"}:
        return
    pinned = {package for package, _ in candidate.packages}
    for text in candidate.release.caps:
        cap = parse(text)
        ceiling = next((version for operator, version in cap.bounds if operator == "<"), None)
        if cap.name not in _CODE_OF or cap.name in pinned or ceiling is None:
            continue
        declared = [bound for bound, stated in bounds_on(candidate, cap.name) if stated]
        if any(not versions.admits(bound.bounds, ceiling) and _is_ceiling(bound) for bound in declared):
            continue
        first = catalog.first_beyond.get(text)
        if text in candidate.unreleased or (
            first is not None and candidate.python and not versions.at_least(candidate.python, first.python)
        ):
            continue
        title = _TITLE[cap.name]
        loose = next((bound.text for bound in declared if _is_ceiling(bound)), "")
        stated = f"admits {title} {loose}" if loose else f"states no upper bound on {title}"
        yield phrases.error(
            _CODE_OF[cap.name],
            title,
            f"{phrases.name(candidate.release)} {stated}, "
            f"so an unpinned install brings a release that it cannot load; it needs {title} {cap.text}.",
            requires=f"{cap.name}{cap.text}",
            found=f"{cap.name}{loose}" if loose else "no upper bound",
            fix=f"Install `{cap.name}{cap.text}` beside it.",
            rows=(candidate.release, first),
        )


def _is_ceiling(bound: Bound) -> bool:
    return any(operator in {"<", "<=", "==", "~="} for operator, _ in bound.bounds)


RULES: tuple[Rule, ...] = (
    Rule("host", (Code.UNREVIEWED,), reviewed),
    Rule("host", (Code.NOT_INSTALLABLE,), installable),
    Rule("host", (Code.PYTHON_UNSUPPORTED,), python_supported),
    Rule("host", (Code.GLIBC_TOO_OLD,), glibc_new_enough),
    Rule("host", (Code.CPU_FEATURE_MISSING,), cpu_features),
    Rule("host", (Code.NUMPY_ABI, Code.PROTOBUF_ABI, Code.KERAS_MISMATCH, Code.PACKAGE_CONFLICT), packages_fit),
    Rule("host", (Code.NUMPY_ABI, Code.PROTOBUF_ABI, Code.KERAS_MISMATCH), uncapped),
)
