"""Lock and render: from a resolved environment to a complete build context in ``images/``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import OperatingSystem
from envbuilder.environment import Environment
from envbuilder.errors import InputError, NoClaimError, Problem, UsageError
from envbuilder.image import lockfile, system_lock
from envbuilder.image.layers import PACKAGES, PackageFolder, Wheels, package_layers
from envbuilder.image.lock import lock, with_hashes
from envbuilder.image.lockfile import LOCK
from envbuilder.image.names import TOOLS_SYSTEM
from envbuilder.image.removed_files import REMOVED
from envbuilder.image.render import render_context
from envbuilder.pypi.client import open_index
from envbuilder.pypi.package_index import PackageIndex
from envbuilder.support import decoding
from envbuilder.versions import pin_or_none, pins, same
from envbuilder.workspace import (
    Workspace,
    folder_contents,
    folders_in,
    packaged,
    read_users,
    shipped,
    users_text,
    write_atomically,
    writing,
)


@dataclass(frozen=True)
class Difference:
    """One file of ``images/`` that is not what facts, wishes and lock give; ``diff`` is unified."""

    path: str
    diff: str


def system_of(environment: Environment, catalog: Catalog) -> OperatingSystem:
    """Return the catalogue's row of an environment's operating system. Raises NoClaimError where there is none."""
    system = catalog.system(environment.base_system)
    if system is None:
        name = environment.base_system
        raise NoClaimError(f"the catalogue has no operating system {name}", hint="envbuilder catalog list")
    return system


def tools_system(catalog: Catalog) -> OperatingSystem:
    """Return the system that the installer runs on where an environment's own base is only a registry's."""
    system = catalog.system(TOOLS_SYSTEM)
    assert system is not None  # noqa: S101 - the catalogue that ships has it
    return system


def ensure_lock(
    environment: Environment,
    catalog: Catalog,
    workspace: Workspace,
    *,
    renew: bool = False,
    renewed: Collection[str] = (),
) -> str:
    """Return an environment's lock; make it where there is none, or where ``renew`` asks for it.

    Variants of one environment have the same pins: if there is no lock, that of another variant is taken, and in a
    renewal that of a variant which was ``renewed`` before.
    Raises InputError where the committed lock does not pin what the environment asks for: a lock never changes
    unasked.
    """
    path = workspace.context(environment.id) / LOCK
    wanted = renew or not path.exists()
    others = [name for name in environment.other_variants if wanted and (name in renewed or not renew)]
    taken = _take_over(environment, workspace, others)
    kept = lockfile.of_context(path.parent) if taken or not renew else None
    if kept is not None:
        _demand(environment, kept, path)
        ensure_system_locks(environment, catalog, workspace)
        return kept
    text = lock(environment, system_of(environment, catalog).glibc)
    ensure_system_locks(environment, catalog, workspace, renew=renew)
    write_atomically(path, text.encode())
    return text


def _take_over(environment: Environment, workspace: Workspace, others: Iterable[str]) -> bool:
    """Give an environment the locks of the first of its other variants that has some; return True if one has.

    A variant may leave out wheels that another one installs: it takes the rest of the lock.
    """
    folders = [workspace.context(name) for name in others]
    found = next((folder for folder in folders if lockfile.of_context(folder) is not None), None)
    if found is None:
        return False
    left_out = pins(environment.not_installed).keys()
    text = lockfile.without(users_text(found / LOCK), left_out)
    if not environment.variant and pins(environment.cuda_wheels).keys() - {one.name for one in lockfile.parse(text)}:
        return False
    _demand(environment, text, found / LOCK)
    for name in system_lock.needed(environment):
        if (found / name).is_file():
            write_atomically(workspace.context(environment.id) / name, users_text(found / name).encode())
    write_atomically(workspace.context(environment.id) / LOCK, text.encode())
    return True


def ensure_system_locks(
    environment: Environment, catalog: Catalog, workspace: Workspace, *, renew: bool = False
) -> None:
    """Pin what an environment asks of the system itself, where that is not done yet, or where ``renew`` asks for it.

    Raises InputError where a lock that is there does not pin what the environment asks for, and InfrastructureError
    where apt cannot pin it here.
    """
    context = workspace.context(environment.id)
    wanted = (system_lock.SYSTEM_LOCK, system_lock.CUDNN_LOCK) if renew else system_lock.absent(context, environment)
    if not wanted:
        return
    system, cuda = system_of(environment, catalog), environment.packaged_cuda
    if cuda is not None and system_lock.CUDNN_LOCK in wanted:
        text = with_hashes((cuda.cudnn,), environment, system.glibc)
        write_atomically(context / system_lock.CUDNN_LOCK, text.encode())
    if environment.pinned_packages and system_lock.SYSTEM_LOCK in wanted:
        place = (cuda.component, cuda.repository) if cuda else ("", "")
        text = system_lock.resolve(system.suite, environment.pinned_packages, *place)
        write_atomically(context / system_lock.SYSTEM_LOCK, text.encode())


def _demand(environment: Environment, text: str, path: Path) -> None:
    hint = f"envbuilder lock -s {environment.id}"
    try:
        pinned = {package.name: package.version for package in lockfile.parse(text)}
    except ValueError as error:
        raise InputError((Problem(str(path), 1, "", str(error)),), hint=hint) from error
    problems = []
    for wish in (*environment.requirements, *environment.cuda_wheels):
        pin = pin_or_none(wish)
        if pin is not None and not same(pinned.get(pin.name), pin.version):
            message = f"pins {pin.name} at {pinned.get(pin.name, 'nothing')}, the environment asks for {pin.version}"
            problems.append(Problem(str(path), 1, pin.name, message))
    if problems:
        raise InputError(tuple(problems), hint=hint)


def templates() -> dict[str, str]:
    """Read the templates that ship with the package, by their path in ``templates/``: Dockerfile, steps, installer."""
    folder = shipped("templates")
    names = [name for name in folder_contents(folder) if not name.startswith("report/")]
    texts = {name: users_text(folder / name) for name in names}
    programs = resources.files("envbuilder.probes.slimming")
    return texts | {f"steps/{name}": decoding.text(packaged(programs.joinpath(name))) for name in _PROGRAMS}


_PROGRAMS = ("byte_compile.py", "remove_files.py")
"""Programs of the steps in Python."""


def packages_of(environment: Environment, lock_text: str, workspace: Workspace) -> dict[str, PackageFolder]:
    """Read the folders of an environment's steps as they are stored, by name; without those that are not as locked."""
    found = {}
    for layer in package_layers(environment, lock_text):
        folder = workspace.images / PACKAGES / layer.folder
        if (folder / LOCK).is_file():
            removed = users_text(folder / REMOVED) if (folder / REMOVED).is_file() else ""
            stored = PackageFolder(users_text(folder / LOCK), removed)
            if stored.pinned == layer.lock:
                found[layer.folder] = stored
    return found


def ensure_packages(
    environment: Environment,
    lock_text: str,
    catalog: Catalog,
    workspace: Workspace,
    index: PackageIndex | None = None,
    *,
    renewed: set[str] | None = None,
) -> None:
    """Store a folder for each step that has none yet: its lock, installed sizes, and what ``runtime`` images remove.

    With ``renewed``, each folder that is not in it is made again from the catalogue of today, and added to it.

    They are taken from the user's own workspace if this is one below it, else made from the wheels on the index.
    Raises InfrastructureError if the index does not answer.
    """
    stored = packages_of(environment, lock_text, workspace)
    every = package_layers(environment, lock_text)
    again = {layer.folder for layer in every} - renewed if renewed is not None else set()
    missing = [layer for layer in every if layer.folder in again or layer.folder not in stored]
    known: dict[str, PackageFolder] = {}
    if missing and workspace.given and renewed is None:
        known = packages_of(environment, lock_text, Workspace(workspace.given))
    wheels = None
    for layer in missing:
        folder = known.get(layer.folder)
        if folder is None:
            wheels = wheels or Wheels(index or open_index(), environment)
            folder = wheels.folder(layer, catalog, stored.get(layer.folder))
        files = folder.files(layer.folder)
        for name, text in files.items():
            write_atomically(workspace.images / name, text.encode())
        outdated = workspace.images / PACKAGES / layer.folder / REMOVED
        if not folder.removed:
            with writing(outdated):
                outdated.unlink(missing_ok=True)
    if renewed is not None:
        renewed |= again


def rendered(environment: Environment, lock_text: str, workspace: Workspace) -> dict[str, bytes]:
    """Render all files that an environment's build needs, by their path below ``images/``.

    Raises UsageError if a file or template that its matrix names cannot be read, or if the versions of the system's
    packages or the contents of its wheels are not known yet.
    """
    added = environment.added
    texts = templates()
    if added.template:
        texts[added.template] = users_text(workspace.users(added.template))
    files = {source: read_users(workspace.users(source)) for source, _ in added.files}
    system = system_lock.of_context(workspace.context(environment.id), environment)
    hint = f"envbuilder lock -s {environment.id}"
    if system is None:
        raise UsageError(f"{environment.id}: the system's packages are not pinned as it asks for them", hint=hint)
    packages = packages_of(environment, lock_text, workspace)
    lacking = [layer.folder for layer in package_layers(environment, lock_text) if layer.folder not in packages]
    if lacking:
        raise UsageError(f"{environment.id}: images/{PACKAGES}/{lacking[0]} is missing, or of another lock", hint=hint)
    return render_context(environment, lock_text, texts, files, packages=packages, system=system)


def write_context(environment: Environment, lock_text: str, workspace: Workspace) -> dict[str, bytes]:
    """Write the files of an environment's build below ``images/``, and return them; equal files are not touched.

    Raises UsageError as `rendered` does.
    """
    wanted = rendered(environment, lock_text, workspace)
    present = build_files(environment.id, workspace)
    for name, content in wanted.items():
        if present.get(name) != content and (name in present or _stored(workspace, name) != content):
            write_atomically(workspace.images / name, content)
    for name in present.keys() - wanted.keys():
        if name.startswith(f"{environment.id}/"):
            with writing(workspace.images / name):
                (workspace.images / name).unlink(missing_ok=True)
    return wanted


def _stored(workspace: Workspace, name: str) -> bytes | None:
    path = workspace.images / name
    return read_users(path) if path.is_file() else None


_MOUNTED = re.compile(r"\bsource=(shared/[^,\s]+)")
_COPIED = re.compile(r"(?m)^COPY ((?:shared/\S+ )+)")


def build_files(environment_id: str, workspace: Workspace) -> dict[str, bytes]:
    """Read what a build of an environment needs, as it is stored: its folder, and what its Dockerfile names besides.

    Paths are below ``images/``. Empty if there is no such folder.
    """
    files = {
        f"{environment_id}/{name}": data for name, data in folder_contents(workspace.context(environment_id)).items()
    }
    dockerfile = decoding.lossy(files.get(f"{environment_id}/Dockerfile", b""))
    named = {*_MOUNTED.findall(dockerfile), *(name for found in _COPIED.findall(dockerfile) for name in found.split())}
    for name in sorted(named):
        path = workspace.images / name.rstrip("/")
        if ".." in Path(name).parts:
            continue
        if path.is_file():
            files[name] = read_users(path)
        elif path.is_dir():
            files |= {f"{name.rstrip('/')}/{inner}": data for inner, data in folder_contents(path).items()}
    return dict(sorted(files.items()))


def standalone(environment: Environment, lock_text: str, workspace: Workspace, folder: Path) -> None:
    """Write one folder that ``docker build FOLDER`` builds an environment from, without the rest of ``images/``.

    Raises UsageError if the folder is not empty.
    """
    if folder_contents(folder):
        raise UsageError(f"{folder} is not empty", hint="name a new folder")
    files = rendered(environment, lock_text, workspace)
    for name, content in {**files, "Dockerfile": files[f"{environment.id}/Dockerfile"]}.items():
        write_atomically(folder / name, content)


def stale(environment: Environment, workspace: Workspace) -> tuple[Difference, ...]:
    """Compare the stored files of an environment's build with what they should be."""
    present = build_files(environment.id, workspace)
    lock_path = workspace.context(environment.id) / LOCK
    if f"{environment.id}/{LOCK}" not in present:
        return (Difference(str(lock_path), f"missing: run envbuilder lock -s {environment.id}\n"),)
    try:
        wanted = rendered(environment, users_text(lock_path), workspace)
    except UsageError as error:
        return (Difference(str(lock_path), f"{error.message}: run envbuilder lock -s {environment.id}\n"),)
    names = sorted(wanted.keys() | present.keys())
    return tuple(
        Difference(str(path), _diff(str(path), present.get(name, b""), wanted.get(name, b"")))
        for name in names
        if wanted.get(name) != present.get(name)
        for path in (workspace.images / name,)
    )


def write_readme(workspace: Workspace) -> None:
    """Write the README of ``images/`` if it is not as it should be."""
    if stale_readme(workspace):
        write_atomically(workspace.images / "README.md", templates()["README.md"].encode())


def stale_readme(workspace: Workspace) -> tuple[Difference, ...]:
    """Compare the README of ``images/`` with what it should be."""
    wanted, present = templates()["README.md"].encode(), _stored(workspace, "README.md") or b""
    path = str(workspace.images / "README.md")
    return () if wanted == present else (Difference(path, _diff(path, present, wanted)),)


def unused(workspace: Workspace, known: Collection[str]) -> tuple[Path, ...]:
    """List the folders of ``images/`` that no known environment's build uses."""
    used = {name for one in known for name in build_files(one, workspace)}
    folders = [path for path in folders_in(workspace.images) if path.name not in known and path.name != "shared"]
    packages = workspace.images / PACKAGES
    folders += [
        path
        for path in (folders_in(packages) if packages.is_dir() else ())
        if f"{PACKAGES}/{path.name}/{LOCK}" not in used
    ]
    return tuple(sorted(folders))


def _diff(path: str, old: bytes, new: bytes) -> str:
    before, after = (decoding.lossy(text).splitlines(keepends=True) for text in (old, new))
    return "".join(difflib.unified_diff(before, after, fromfile=path, tofile=f"{path} (as it should be)"))
