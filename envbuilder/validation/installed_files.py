"""Compare every installed file with its distribution's RECORD, and that with the RECORD of the locked wheel."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from envbuilder import versions
from envbuilder.finding import Code, Finding, Severity
from envbuilder.image import lockfile, omissions
from envbuilder.image.lockfile import Locked
from envbuilder.image.omissions import OfDistribution, Omissions
from envbuilder.image.wheel_records import WheelRecord
from envbuilder.probes.omit import digest_of_rows, is_below
from envbuilder.validation.file_records import Distribution, digest_of, distributions, made_by_installer, of_wheel
from envbuilder.validation.image_claims import carried_list
from envbuilder.validation.image_context import CheckOutput, ImageContext, error, finding, listed, warning
from envbuilder.validation.layer_scan import KEPT
from envbuilder.validation.system_locks import beside, unlocked_libraries
from envbuilder.validation.unowned_files import missing_system_files, unowned_code
from envbuilder.verdict import Measurement

_FIX = "build the image anew from its lock, and change nothing in it afterwards"
_LIBRARY = re.compile(r"(?:^|/)nvidia/.+\.so(?:\.[\w.]+)?\Z")
_TOOL = re.compile(r"(?:^|/)(?:ptxas|nvlink|fatbinary|libdevice\.10\.bc)\Z")
_SPARED = re.compile(
    r"(?:^|/)(?:tests?|testing|docs?|examples?|benchmarks?|include)/|\.(?:pyi|h|hpp|md|rst|txt|c|pyx|pxd)\Z"
)
"""What a slim image of others may leave out without being broken."""


@dataclass
class _Compared:
    """What the comparison of one distribution came to; paths in the image."""

    changed: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    against: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    brought: frozenset[str] = frozenset()
    files: int = 0
    unknown: str = ""
    compared_with_wheel: bool = False
    is_proved: bool = False

    @property
    def is_as_its_wheel(self) -> bool:
        """Tell whether the locked wheel's RECORD is the one in the image, and every file is there as it says."""
        return self.compared_with_wheel and not (self.changed or self.missing or self.against)


def files(subject: ImageContext) -> CheckOutput:
    """Compare every file of every distribution, and name code that no distribution and no system package brings.

    An image that says itself what it leaves out, on a host that does not know, does not pass: what differs even so is
    an error, and where nothing does, that is undecided.
    """
    if subject.omissions or not subject.is_managed:
        return _compared(subject)
    carried = carried_list(subject.files, subject.image.labels.get(omissions.LABEL, ""), subject.lock)
    if not carried:
        return _compared(subject)
    looked = _compared(replace(subject, omissions=carried))
    sums = ", ".join(f"{one.reason} {one.size / 1e6:.1f} MB" for one in omissions.parse(carried).sums())
    text = f"what it leaves out ({sums}) is known from its own list alone; all else is as recorded"
    fix = f"validate where images/{subject.facts.environment}/{omissions.OMISSIONS} is the list that its label names"
    finding = warning(Code.UNKNOWN, omissions.OMISSIONS, text, fix=fix)
    return replace(looked, findings=(*looked.findings, finding), undecided=text)


def _compared(subject: ImageContext) -> CheckOutput:
    locked = {package.name: package for package in lockfile.parse(subject.lock)} if subject.lock else {}
    omitted = omissions.parse(subject.omissions) if subject.omissions else Omissions()
    there = distributions(subject.files)
    edited = _edited(subject, there)
    findings: list[Finding] = []
    owned: set[str] = set()
    blamed: set[str] = set()
    counts = {"files": 0, "wheels": 0, "proved": 0}
    unknown: dict[str, list[str]] = {}
    of_python = ((one, locked.get(one.name), omitted.of(one.name, one.version)) for one in there)
    for one, package, leaves_out in (*of_python, *((one, package, None) for one, package in beside(subject))):
        wheel = _wheel(subject, one, package)
        if wheel.content is None and package is not None and leaves_out is None:
            wheel = _pinned(subject, one, package, wheel)
        compared = _compare(subject, one, wheel, leaves_out)
        compared.changed += [path for path in edited.get(one.name, ()) if path not in compared.changed]
        is_known = package is not None or not subject.is_managed
        tops = _OF_TOOLS.get(one.name) if subject.is_managed and package is None else None
        brought = (path for path in compared.brought.union(one.rows or ()) if one.vouches_for(path, beside=is_known))
        owned.update(path for path in brought if tops is None or _is_own(one, path, tops))
        counts["files"] += compared.files
        counts["wheels"] += compared.compared_with_wheel
        counts["proved"] += compared.is_proved
        if subject.is_built_here and package is not None and compared.is_as_its_wheel:
            subject.wheels.built(package, one.tags)
        if package is not None and _is_unvouched(subject, wheel, package):
            findings.append(_unvouched(one, wheel, package))
        elif compared.unknown and package is not None:
            unknown.setdefault(compared.unknown, []).append(one.name)
        findings += _findings(subject, one, compared)
        blamed.update(compared.changed, compared.missing)
    findings += (*unowned_code(subject, there, owned), *unlocked_libraries(subject, owned), *_unread(subject))
    blamed.update(missing_system_files(subject))
    findings += [_unknown(why, names) for why, names in sorted(unknown.items())]
    said = "; ".join(one.message for one in findings if one.severity is Severity.ERROR)
    told = (
        f"{counts['files']} files of {len(there)} distributions as recorded, {counts['wheels']} by their locked wheels"
        f" ({counts['proved']} of these were hashed as a whole)"
    )
    return CheckOutput(
        tuple(findings),
        "every file as its distribution, and its locked wheel, says",
        said or told + (f"; unknown for {sum(map(len, unknown.values()))}" if unknown else ""),
        tuple((name, Measurement(count, "1")) for name, count in counts.items()),
        frozenset(map(posixpath.basename, blamed)),
    )


_ELSEWHERE_JUDGED = ("usr/share/doc/", "opt/envbuilder/", "var/lib/dpkg/")


def _unread(subject: ImageContext) -> Iterator[Finding]:
    """Name files that decide what is loaded, and that are too large to have been kept: nobody can say what they do."""
    files = subject.files
    large = [
        path
        for path, seen in files.paths.items()
        if seen.row.kind == "file" and KEPT.search(path) and not path.startswith(_ELSEWHERE_JUDGED)
        if files.content(path) is None
    ]
    if large:
        weight = subject.severity
        text = f"files that say what is loaded are larger than any such: {listed(large)}"
        yield finding(weight, Code.FILES_DIFFER, "unread files", text, found=listed(large), fix=_FIX)


_SETUPTOOLS = frozenset(
    ("setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence.pth", "easy_install.py")
)
_OF_TOOLS: Mapping[str, frozenset[str]] = {
    "pip": frozenset({"pip"}),
    "wheel": frozenset({"wheel"}),
    "setuptools": _SETUPTOOLS,
    "distribute": _SETUPTOOLS,
}
"""What no lock has to name, being part of an environment's own making, and all that such a RECORD may account for."""


def _is_own(one: Distribution, path: str, tops: frozenset[str]) -> bool:
    top = path[len(one.site) + 1 :].partition("/")[0]
    return top in tops or top == one.folder


def _wheel(subject: ImageContext, one: Distribution, package: Locked | None) -> WheelRecord:
    """Look the locked wheel's RECORD up; none for another version than the locked one, which `locked` tells."""
    if package is None or not versions.same(package.version, one.version):
        return WheelRecord(why="it is not in the lock in this version")
    return subject.wheels.of(package, one.tags)


def _pinned(subject: ImageContext, one: Distribution, package: Locked, wheel: WheelRecord) -> WheelRecord:
    """Take the image's own RECORD for the wheel's where that is pinned, and it is just this: no index is asked then."""
    if not versions.same(package.version, one.version):
        return wheel
    record = subject.files.content(f"{one.site}/{one.folder}/RECORD") or b""
    return subject.wheels.as_pinned(package, one.tags, record) or wheel


def _compare(subject: ImageContext, one: Distribution, wheel: WheelRecord, omitted: OfDistribution | None) -> _Compared:
    found = _Compared(unknown="" if wheel.content is not None else wheel.why)
    expected: Mapping[str, str] = one.rows or {}
    rewritten: frozenset[str] = frozenset()
    if wheel.content is not None:
        brought, rewritten = of_wheel(wheel.content, one)
        if omitted is not None:
            left = remaining_of(brought, omitted, one.site)
            brought = left.brought
            found.against += left.strange
            found.changed += [path for path in left.gone if subject.files.file(path) is not None]
        found.compared_with_wheel, found.brought, found.is_proved = True, frozenset(brought), bool(wheel.proof)
        found.against += _against(one, brought, rewritten)
        expected = {**expected, **brought}
    for path, digest in expected.items():
        if _is_cached_code(path) or (path.endswith(".pyc") and not digest):
            continue
        found.files += 1
        seen = subject.files.file(path)
        if seen is None:
            found.missing.append(path)
        elif path not in rewritten and digest and _differs(seen.row.digest, digest):
            found.changed.append(path)
        elif digest and not digest_of(b"", digest.partition("=")[0]):
            found.unread.append(path)
    return found


def _edited(subject: ImageContext, there: tuple[Distribution, ...]) -> Mapping[str, list[str]]:
    """List programs that an installer made and a later layer changed, by distribution: no wheel speaks of them."""
    files = subject.files
    came: dict[str, tuple[int, str]] = {}
    for one in there:
        seen = files.file(f"{one.site}/{one.folder}/METADATA")
        for name in one.scripts if seen is not None else ():
            path = posixpath.normpath(f"{one.site}/../../../bin/{name}")
            came[path] = max(came.get(path, (-1, "")), (seen.layer if seen else 0, one.name))  # two may bring it
    found: dict[str, list[str]] = {}
    for path, (layer, name) in came.items():
        program = files.paths.get(path)
        if program is not None and program.layer > layer and files.is_changed(path):
            found.setdefault(name, []).append(path)
    return found


def _is_cached_code(path: str) -> bool:
    """Tell byte code that Python keeps beside a source: `stray_files` judges it, never a digest.

    NumPy 1.26 and 2.0 were packed with one such file and its digest; every installer that compiles writes it anew.
    """
    return "/__pycache__/" in path and path.endswith(".pyc")


def _differs(content: bytes, digest: str) -> bool:
    actual = digest_of(content, digest.partition("=")[0])
    return bool(actual) and actual != digest.rstrip("=")


def _against(one: Distribution, brought: Mapping[str, str], rewritten: frozenset[str]) -> list[str]:
    """List what the RECORD in the image says otherwise than the wheel's: another digest, one file less or more."""
    rows = one.rows or {}
    other = [
        path
        for path, digest in brought.items()
        if path not in rewritten and rows.get(path, "") != digest and not _is_cached_code(path)
    ]
    more = [
        path for path in rows if path not in brought and not made_by_installer(path, one) and not _is_cached_code(path)
    ]
    return other + more if one.rows is not None else []


def _findings(subject: ImageContext, one: Distribution, found: _Compared) -> Iterator[Finding]:
    name = f"{one.name} {one.version}"
    strict = subject.is_managed
    if one.rows is None and not _of_the_system(subject, one):
        weight = subject.severity
        text = f"{name} has no RECORD: nothing says which files are its own"
        yield finding(weight, Code.FILES_DIFFER, one.name, text, found=f"/{one.site}/{one.folder}", fix=_FIX)
    if one.editable:
        weight = subject.severity
        text = f"{name} is a link to a source folder: its files are not in the image's packages"
        yield finding(weight, Code.FILES_DIFFER, one.name, text, found=f"/{one.site}/{one.folder}", fix=_FIX)
    if found.changed:
        text = f"{len(found.changed)} files of {name} are not what was installed: {listed(found.changed)}"
        yield error(Code.FILES_DIFFER, one.name, text, found=listed(found.changed), fix=_FIX)
    elif found.against:
        text = f"the RECORD of {name} is not its locked wheel's: {listed(found.against)}"
        yield error(Code.FILES_DIFFER, one.name, text, found=listed(found.against), fix=_FIX)
    if found.unread:
        text = f"whether {len(found.unread)} files of {name} are as recorded is unknown: their digests are not SHA-256"
        yield warning(Code.UNKNOWN, one.name, text, found=listed(found.unread))
    yield from _missing(one, found.missing, strict=strict)


def _missing(one: Distribution, missing: list[str], *, strict: bool) -> Iterator[Finding]:
    """Name what is gone under the most telling code: a library, one of XLA's tools, any other file."""
    name = f"{one.name} {one.version}"
    libraries = [path for path in missing if _LIBRARY.search(path)]
    tools = [path for path in missing if _TOOL.search(path)]
    rest = [path for path in missing if path not in libraries and path not in tools]
    spared = [] if strict else [path for path in rest if _SPARED.search(path)]
    rest = [path for path in rest if path not in spared]
    for code, paths in ((Code.MISSING_LIBRARY, libraries), (Code.XLA_TOOLS_MISSING, tools), (Code.FILES_DIFFER, rest)):
        if paths:
            subject = posixpath.basename(paths[0]) if code is not Code.FILES_DIFFER else one.name
            text = f"{len(paths)} files of {name} are missing: {listed(paths)}"
            yield error(code, subject, text, requires=listed(paths), fix=_FIX)
    if spared:
        text = f"{len(spared)} files of {name} were left out: {listed(spared)}"
        yield warning(Code.FILES_DIFFER, one.name, text)


def _of_the_system(subject: ImageContext, one: Distribution) -> bool:
    """Tell whether the system's own package manager brought it: that keeps its lists elsewhere."""
    return subject.is_of_system(f"{one.site}/{one.folder}/METADATA")


def _is_unvouched(subject: ImageContext, wheel: WheelRecord, package: Locked) -> bool:
    """Tell whether more than absence speaks against a distribution's files: a host's own lock is believed by itself."""
    return wheel.refuted == "image" or (subject.lock_is_carried and (wheel.refuted == "lock" or not package.hashes))


def _unvouched(one: Distribution, wheel: WheelRecord, package: Locked) -> Finding:
    """Say that the image's own RECORD, or its own lock, stands for files alone: whoever made the image wrote these."""
    how = wheel.why if package.hashes else "it names no hash, which no lock of ours leaves out"
    what = "RECORD" if wheel.refuted == "image" else "lock"
    text = f"the {what} in the image stands for {one.name} {one.version} alone: {how}"
    return error(Code.FILES_DIFFER, one.name, text, found=", ".join(package.hashes[:2]), fix=_FIX)


def _unknown(why: str, names: list[str]) -> Finding:
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")  # noqa: PLR2004 - a line
    text = f"whether the files of {shown} are their locked wheels' is unknown: {why}"
    return warning(Code.UNKNOWN, "locked wheels", text, fix="validate where the package index can be asked")


@dataclass(frozen=True)
class Remaining:
    """What is left of a wheel: path in the image → digest; the paths that went; and ``strange`` rows of the list.

    Strange is a row that is not the wheel's own, file for file: it excuses nothing.
    """

    brought: dict[str, str]
    gone: tuple[str, ...]
    strange: tuple[str, ...]


def remaining_of(brought: Mapping[str, str], omitted: OfDistribution, site: str) -> Remaining:
    """Take from what a wheel brings below ``site`` what the list says that its distribution lacks."""
    start = len(site) + 1
    left, gone, strange = dict(brought), list[str](), list[str]()
    for row in omitted.left_out:
        listed = f"{site}/{row.path}"
        below = [path for path in brought if is_below(path, listed) and not path.endswith(".pyc")]
        if len(below) != row.files or digest_of_rows((path[start:], brought[path]) for path in below) != row.digest:
            strange.append(listed)
            continue
        gone += below
        for path in below:
            left.pop(path, None)
    for cut in omitted.cut:
        path = f"{site}/{cut.path}"
        if left.get(path) == cut.digest:
            left[path] = cut.becomes
        else:
            strange.append(path)
    return Remaining(left, tuple(gone), tuple(strange))
