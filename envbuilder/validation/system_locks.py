"""Compare the system's packages, and cuDNN next to them, with the locks of the image."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from envbuilder.finding import Finding
from envbuilder.image import lockfile, system_lock
from envbuilder.image.lockfile import Locked
from envbuilder.image.system_lock import CUDNN_LOCK, SYSTEM_LOCK
from envbuilder.support import decoding, dpkg_status
from envbuilder.validation.additions import system_packages
from envbuilder.validation.check_findings import found
from envbuilder.validation.file_records import InstalledPackage, distributions_at
from envbuilder.validation.image_context import OBJECT, SHOWN, ImageContext, listed
from envbuilder.validation.image_files import ImageFiles

CUDNN_FOLDER = "opt/cudnn"
"""Folder of cuDNN's wheel on a system whose packages bring CUDA."""

CARRIED = {SYSTEM_LOCK: f"opt/envbuilder/{SYSTEM_LOCK}", CUDNN_LOCK: f"opt/envbuilder/{CUDNN_LOCK}"}
"""Paths of these locks in an image."""


def carried(files: ImageFiles) -> dict[str, str]:
    """Return the valid system locks in an image."""
    locks: dict[str, str] = {}
    for name, path in CARRIED.items():
        try:
            text = decoding.text(files.content(path) or b"")
            _parse = system_lock.parse(text) if name == SYSTEM_LOCK else lockfile.parse(text)
        except ValueError:
            continue
        if text:
            locks[name] = text
    return locks


def cudnn_distributions(subject: ImageContext) -> tuple[tuple[InstalledPackage, Locked | None], ...]:
    """Return the distributions next to the system's CUDA, each with its row of the lock."""
    if CUDNN_LOCK not in subject.system:
        return ()
    locked = {package.name: package for package in lockfile.parse(subject.system[CUDNN_LOCK])}
    return tuple((one, locked.get(one.name)) for one in distributions_at(subject.files, CUDNN_FOLDER))


def unlike(locked: Mapping[str, str], there: Mapping[str, str], fix: str) -> list[Finding]:
    """Compare locked with installed versions, by name; a package that only one side has differs as well."""
    rows = ((name, locked.get(name) or "nothing", there.get(name) or "absent") for name in {**locked, **there})
    return [
        found("unlike_lock", name=name, locked=own, there=other, fix=fix)
        for name, own, other in sorted(rows)
        if own != other
    ]


def unlocked(subject: ImageContext) -> list[Finding]:
    """Find system packages, and distributions next to them, that differ from their lock."""
    if not subject.is_managed:
        return []
    fix = "rebuild the image from its context, and install nothing in it afterwards"
    status = subject.files.content(dpkg_status.PATH)
    there = dpkg_status.versions(decoding.lossy(status or b""))
    text = subject.system.get(SYSTEM_LOCK, "")
    wanted = {package.name: package.version for package in system_lock.parse(text)}
    asked = (one.partition("=") for one in system_lock.of_base(text))
    wanted |= {name: version or there.get(name, "") for name, _, version in asked}
    if wanted and status is None:
        return [found("no_dpkg_status", path=dpkg_status.PATH, lock=SYSTEM_LOCK, fix=fix)]
    of_base = system_packages(subject, subject.locked_above)
    of_base = of_base if "python3" in of_base else {}  # a base without Python gets it from the packages of its day
    wanted = {**of_base, **wanted}
    before = system_packages(subject, subject.own_layers) if subject.own_layers else there
    known = wanted.keys() | (before if of_base else ())  # others may be installed above an unlocked base
    findings = unlike(wanted, {name: version for name, version in there.items() if name in known}, fix)
    if len(findings) > SHOWN:
        more = ", ".join(one.subject for one in findings[SHOWN:])[:200]
        findings[SHOWN:] = [found("more_unlike", count=len(findings) - SHOWN, names=more, fix=fix)]
    if CUDNN_LOCK in subject.system:
        pins = {package.name: package.version for package in lockfile.parse(subject.system[CUDNN_LOCK])}
        findings += unlike(pins, joined((one.name, one.version) for one, _ in cudnn_distributions(subject)), fix)
    return findings


def joined(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the versions of each package as one text."""
    versions: dict[str, set[str]] = {}
    for name, version in pairs:
        versions.setdefault(name, set()).add(version)
    return {name: ", ".join(sorted(all_)) for name, all_ in versions.items()}


def unlocked_libraries(subject: ImageContext, owned: set[str]) -> Iterator[Finding]:
    """Find libraries in the folder of cuDNN's wheel that the wheel did not bring; the loader searches it."""
    if CUDNN_LOCK not in subject.system or not subject.is_managed:
        return
    inside = (path for path in subject.files.paths if path.startswith(f"{CUDNN_FOLDER}/") and path not in owned)
    libraries = [path for path in inside if OBJECT.search(path) and subject.files.paths[path].row.kind != "folder"]
    if libraries:
        yield found("libraries_next_to_cudnn", paths=listed(libraries))
