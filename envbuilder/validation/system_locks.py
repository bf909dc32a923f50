"""Compare the system's packages, and cuDNN next to them, with the locks of the image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from envbuilder.finding import Code, Finding
from envbuilder.image import lockfile, system_lock
from envbuilder.image.lockfile import Locked
from envbuilder.image.system_lock import CUDNN_LOCK, SYSTEM_LOCK
from envbuilder.support import decoding, dpkg_status
from envbuilder.validation.additions import system_packages
from envbuilder.validation.file_records import InstalledPackage, distributions_at
from envbuilder.validation.image_context import OBJECT, SHOWN, ImageContext, error, listed
from envbuilder.validation.image_files import ImageFiles

CUDNN_FOLDER = "opt/cudnn"
"""Folder of cuDNN's wheel on a system whose packages bring CUDA."""

CARRIED = {SYSTEM_LOCK: f"opt/envbuilder/{SYSTEM_LOCK}", CUDNN_LOCK: f"opt/envbuilder/{CUDNN_LOCK}"}
"""Paths of these locks in an image."""

_FIX = "rebuild the image from its context, and install nothing in it afterwards"
_ABSENT, _UNLOCKED = "absent", "not locked"


def carried(files: ImageFiles) -> dict[str, str]:
    """Return the valid system locks in an image."""
    found: dict[str, str] = {}
    for name, path in CARRIED.items():
        try:
            text = decoding.text(files.content(path) or b"")
            _parse = system_lock.parse(text) if name == SYSTEM_LOCK else lockfile.parse(text)
        except ValueError:
            continue
        if text:
            found[name] = text
    return found


def cudnn_distributions(subject: ImageContext) -> tuple[tuple[InstalledPackage, Locked | None], ...]:
    """Return the distributions next to the system's CUDA, each with its row of the lock."""
    if CUDNN_LOCK not in subject.system:
        return ()
    locked = {package.name: package for package in lockfile.parse(subject.system[CUDNN_LOCK])}
    return tuple((one, locked.get(one.name)) for one in distributions_at(subject.files, CUDNN_FOLDER))


def unlocked(subject: ImageContext) -> Iterator[Finding]:
    """Find system packages, and distributions next to them, that differ from their lock."""
    if not subject.is_managed:
        return
    status = subject.files.content(dpkg_status.PATH)
    there = dpkg_status.versions(decoding.lossy(status or b""))
    text = subject.system.get(SYSTEM_LOCK, "")
    wanted = {package.name: package.version for package in system_lock.parse(text)}
    asked = (one.partition("=") for one in system_lock.of_base(text))
    wanted |= {name: version or there.get(name, "") for name, _, version in asked}
    if wanted and status is None:
        message = f"/{dpkg_status.PATH} is missing: the installed packages of the system are unknown"
        yield error(Code.LOCK_MISMATCH, "system packages", message, requires=SYSTEM_LOCK, found=_ABSENT, fix=_FIX)
        return
    wanted = {**_of_base(subject), **wanted}
    before = system_packages(subject, subject.own_layers) if subject.own_layers else there
    there = {name: version for name, version in there.items() if name in wanted or name in before}
    yield from _differing(wanted, there, whole=bool(_of_base(subject)))
    if CUDNN_LOCK in subject.system:
        pins = {package.name: package.version for package in lockfile.parse(subject.system[CUDNN_LOCK])}
        found: dict[str, set[str]] = {}
        for one, _ in cudnn_distributions(subject):
            found.setdefault(one.name, set()).add(one.version)
        yield from _differing(pins, {name: ", ".join(sorted(all_)) for name, all_ in found.items()}, whole=True)


def _of_base(subject: ImageContext) -> Mapping[str, str]:
    """Return the packages of the base; none if unlocked packages may be installed above it.

    A base without Python gets it from the system's packages as of the day of the build.
    """
    packages = system_packages(subject, subject.locked_above)
    return packages if "python3" in packages else {}


def _differing(wanted: Mapping[str, str], there: Mapping[str, str], *, whole: bool) -> Iterator[Finding]:
    """Compare locked with installed versions; with ``whole``, unlocked packages differ as well."""
    names = wanted.keys() | (there.keys() if whole else ())
    wrong = [name for name in sorted(names) if not there.get(name) or wanted.get(name) != there[name]]
    for name in wrong[:SHOWN]:
        told, found = wanted.get(name) or _UNLOCKED, there.get(name) or _ABSENT
        message = f"{name}: locked {told}, installed {found}"
        yield error(Code.LOCK_MISMATCH, name, message, requires=told, found=found, fix=_FIX)
    if len(wrong) > SHOWN:
        message = f"{len(wrong) - SHOWN} more packages of the system differ from the lock"
        yield error(Code.LOCK_MISMATCH, "system packages", message, found=", ".join(wrong[SHOWN:])[:200], fix=_FIX)


def unlocked_libraries(subject: ImageContext, owned: set[str]) -> Iterator[Finding]:
    """Find libraries in the folder of cuDNN's wheel that the wheel did not bring; the loader searches it."""
    if CUDNN_LOCK not in subject.system or not subject.is_managed:
        return
    inside = (path for path in subject.files.paths if path.startswith(f"{CUDNN_FOLDER}/") and path not in owned)
    found = [path for path in inside if OBJECT.search(path) and subject.files.paths[path].row.kind != "folder"]
    if found:
        what = "libraries of no package next to cuDNN's"
        yield error(Code.FILES_DIFFER, what, f"{what}: {listed(found)}", found=listed(found), fix=_FIX)
