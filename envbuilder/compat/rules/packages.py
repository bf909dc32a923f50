"""Rules about the Python part: can it be installed, the Python, glibc, the processor, and other packages."""

from collections.abc import Iterator

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import Row, TensorflowRelease, WheelSet
from envbuilder.compat.candidate import Candidate, Rule
from envbuilder.compat.findings import about, listed, span
from envbuilder.compat.requirement import Bound, holds_for, parse
from envbuilder.finding import Code, Finding


def reviewed(candidate: Candidate, _catalog: Catalog) -> Iterator[Finding]:
    release = candidate.release
    if not release.reviewed:
        yield about(candidate, Code.UNREVIEWED, "row", (release,), verified=release.verified)


def installable(candidate: Candidate, _catalog: Catalog) -> Iterator[Finding]:
    release, python = candidate.release, candidate.python
    if not release.installable:
        reason = release.not_installable_because or "its distribution has no wheel"
        instead = "another version" if release.package == "tensorflow" else "`tensorflow` of the same version"
        yield about(candidate, Code.NOT_INSTALLABLE, "source_archive", (release,), reason=reason, instead=instead)
    elif _wheels(candidate) is None and release.wheels:
        archs = tuple(dict.fromkeys(row.arch for row in release.wheels))
        fields = {"archs": listed(archs), "required": listed(archs, "or")}
        yield about(candidate, Code.NOT_INSTALLABLE, "arch", (release,), **fields)
    if candidate.install == "and-cuda" and extra_fails(release, python):
        others = listed([text for text in release.pythons if text not in release.extra_fails_on], "or")
        variant, reason = "extra_on_python" if others else "extra", release.extra_fails_because
        yield about(candidate, Code.NOT_INSTALLABLE, variant, (release,), others=others, reason=reason)


def extra_fails(release: TensorflowRelease, python: str | None) -> bool:
    """Return True if the extra ``and-cuda`` cannot be resolved on this Python (None: on any)."""
    broken = set(release.extra_fails_on)
    return python in broken if python is not None else bool(broken) and broken >= set(release.pythons)


def _wheels(candidate: Candidate) -> WheelSet | None:
    return next((row for row in candidate.release.wheels if row.arch == candidate.arch), None)


def python_supported(candidate: Candidate, _catalog: Catalog) -> Iterator[Finding]:
    wheels, release, python, system = _wheels(candidate), candidate.release, candidate.python, candidate.system
    own = candidate.system_python
    if python is None:
        return
    if own not in {None, python} and system is not None:
        yield about(candidate, Code.PYTHON_UNSUPPORTED, "system", (system,), system=system.name, own=own)
    if wheels is not None and python not in wheels.pythons:
        nearest = min(wheels.pythons, key=lambda text: versions.distance(text, python))
        fields = {"span": span(wheels.pythons), "pythons": listed(wheels.pythons, "or"), "nearest": nearest}
        yield about(candidate, Code.PYTHON_UNSUPPORTED, "wheel", (release,), **fields)


def glibc_new_enough(candidate: Candidate, _catalog: Catalog) -> Iterator[Finding]:
    wheels, other, release = _wheels(candidate), candidate.other, candidate.release
    if other is not None:
        rows = (release, other)
        yield about(candidate, Code.GLIBC_TOO_OLD, "other_libc", rows, system=other.name, libc=other.libc)
    if wheels is None or candidate.glibc is None or versions.at_least(candidate.glibc, wheels.glibc):
        return
    fields = {"system": candidate.glibc_of, "required": wheels.glibc, "glibc": candidate.glibc}
    yield about(candidate, Code.GLIBC_TOO_OLD, "older", (release, candidate.system or candidate.image), **fields)


def cpu_features(candidate: Candidate, catalog: Catalog) -> Iterator[Finding]:
    """CPU_FEATURE_MISSING: the wheel is compiled for instructions that the processor lacks (SIGILL at import)."""
    release = candidate.release
    needs = [feature.upper() for feature in release.cpu_features if feature.lower().startswith("avx")]
    if candidate.avx or not needs or candidate.arch != "x86_64":
        return
    first = next((row.first for row in catalog.processor_needs if row.feature == "avx"), release.version)
    yield about(candidate, Code.CPU_FEATURE_MISSING, "avx", (release,), features=listed(needs), first=first)


_CODE_OF = {
    "numpy": Code.NUMPY_ABI,
    "protobuf": Code.PROTOBUF_ABI,
    "keras": Code.KERAS_MISMATCH,
    "tf-keras": Code.KERAS_MISMATCH,
}
_CEILINGS = frozenset({"<", "<=", "==", "~="})
_TITLE = {"numpy": "NumPy", "protobuf": "protobuf", "keras": "Keras"}


def packages_fit(candidate: Candidate, _catalog: Catalog | None = None) -> Iterator[Finding]:
    release = candidate.release
    for package, version in candidate.packages:
        refusing = (row for row in bounds_on(candidate, package) if not versions.admits(row[0].bounds, version))
        bound, declared = next(refusing, (None, False))
        if bound is not None:
            yield _about_package(candidate, "declared" if declared else "undeclared", bound, version=version)
        if package == "tf-keras" and versions.minor(version) != versions.minor(release.version):
            minors = {"minor": versions.minor(version), "own_minor": versions.minor(release.version)}
            fields = {"version": version, "tensorflow": release.version, "bound": _tf_keras_bound(release), **minors}
            yield about(candidate, Code.KERAS_MISMATCH, "tf_keras", (release,), **fields)


def _about_package(
    candidate: Candidate, variant: str, bound: Bound, first: Row | None = None, *, version: str = "", loose: str = ""
) -> Finding:
    code, title = _CODE_OF.get(bound.name, Code.PACKAGE_CONFLICT), _TITLE.get(bound.name, bound.name)
    fields = {"title": title, "package": bound.name, "bound": bound.text, "version": version, "loose": loose}
    return about(candidate, code, variant, (candidate.release, first), **fields)


def _tf_keras_bound(release: TensorflowRelease) -> str:
    return f"~={versions.minor(release.version)}.0"


def bounds_on(candidate: Candidate, package: str) -> Iterator[tuple[Bound, bool]]:
    """Yield the bounds on a package: those of the wheel's metadata (True), then those that it lacks (False)."""
    release = candidate.release
    for text, declared in (*((text, True) for text in release.requires), *((text, False) for text in release.caps)):
        bound = parse(text)
        if bound.name == package and bound.bounds and holds_for(text, candidate.python, candidate.arch):
            yield bound, declared


def bounds_instead(package: str, version: str, candidate: Candidate) -> str | None:
    """Return the release's own bounds instead of a refused pin: ``<2``; None if it has none that refuses it."""
    if package == "tf-keras":
        return _tf_keras_bound(candidate.release)
    every = [bound for bound, _ in bounds_on(candidate, package)]
    broken = [bound for bound in every if not versions.admits(bound.bounds, version)]
    bounds = next(([one] for one in broken if "<" in one.text), every if broken else [])
    return ",".join(dict.fromkeys(bound.text for bound in bounds)) or None


def unbounded(candidate: Candidate, catalog: Catalog) -> Iterator[Finding]:
    """NUMPY_ABI, PROTOBUF_ABI, KERAS_MISMATCH: an unpinned install brings a newer package than the build can load.

    It does if the index has one for this Python.
    """
    if candidate.install not in {"and-cuda", "plain"}:
        return
    pinned = {package for package, _ in candidate.packages}
    for text in candidate.release.caps:
        cap, first = parse(text), catalog.first_beyond.get(text)
        ceiling = next((version for operator, version in cap.bounds if operator == "<"), None)
        if cap.name not in _CODE_OF or cap.name in pinned or ceiling is None or text in candidate.unreleased:
            continue
        if first is not None and candidate.python and not versions.at_least(candidate.python, first.python):
            continue
        declared = [bound for bound, stated in bounds_on(candidate, cap.name) if stated]
        declared = [bound for bound in declared if any(operator in _CEILINGS for operator, _ in bound.bounds)]
        if any(not versions.admits(bound.bounds, ceiling) for bound in declared):
            continue
        variant, loose = ("loose", declared[0].text) if declared else ("unbounded", "")
        yield _about_package(candidate, variant, cap, first, loose=loose)


RULES: tuple[Rule, ...] = (
    Rule("python", (Code.UNREVIEWED,), reviewed),
    Rule("python", (Code.NOT_INSTALLABLE,), installable),
    Rule("python", (Code.PYTHON_UNSUPPORTED,), python_supported),
    Rule("python", (Code.GLIBC_TOO_OLD,), glibc_new_enough),
    Rule("python", (Code.CPU_FEATURE_MISSING,), cpu_features),
    Rule("python", (Code.NUMPY_ABI, Code.PROTOBUF_ABI, Code.KERAS_MISMATCH, Code.PACKAGE_CONFLICT), packages_fit),
    Rule("python", (Code.NUMPY_ABI, Code.PROTOBUF_ABI, Code.KERAS_MISMATCH), unbounded),
)
