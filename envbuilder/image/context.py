"""Lock and render: from a resolved environment to a complete build context in ``images/``."""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import OperatingSystem
from envbuilder.environment import Environment
from envbuilder.errors import InputError, NoClaimError, Problem, UsageError
from envbuilder.image import lockfile, system_lock
from envbuilder.image.layers import PACKAGES, PackageFolder, PackageLayer, make_folder, package_layers
from envbuilder.image.lockfile import LOCK
from envbuilder.image.removed_files import REMOVED
from envbuilder.image.render import check_template, render_context
from envbuilder.image.system_lock import CUDNN_LOCK, SYSTEM_LOCK
from envbuilder.pypi.client import PackageIndex, open_index
from envbuilder.support import decoding, pem
from envbuilder.support.templates import shipped
from envbuilder.versions import pin_or_none, pins, same
from envbuilder.workspace import (
    KNOWN,
    Workspace,
    folder_contents,
    folders_in,
    packaged,
    read_stored,
    read_users,
    remove,
    users_text,
    write_atomically,
)


@dataclass(frozen=True)
class Difference:
    """One file of ``images/`` that differs from what facts, matrix and lock give; ``diff`` is unified."""

    path: str
    diff: str


def system_of(environment: Environment, catalog: Catalog) -> OperatingSystem:
    """Return the catalogue's row of an environment's operating system. Raises NoClaimError without one."""
    system = catalog.system(environment.base_system)
    if system is None:
        name = environment.base_system
        raise NoClaimError(f"the catalogue has no operating system {name}", hint="envbuilder catalog list")
    return system


def ensure_lock(
    environment: Environment,
    catalog: Catalog,
    workspace: Workspace,
    *,
    renew: bool = False,
    renewed: Collection[str] = (),
    refresh: bool = False,
) -> str:
    """Return an environment's lock; make it if there is none, or if ``renew`` is set.

    Variants of one environment have the same pins: a new lock is copied from another variant, in a renewal from one
    that was ``renewed`` before; if that lacks packages, as it does for a notebook, its versions are kept. Raises
    InputError if the committed lock does not pin what the environment asks for: a lock changes on request only.
    """
    path = workspace.context(environment.id) / LOCK
    found: Path | None = None
    text = None if renew else lockfile.of_context(path.parent)
    if text is None:
        names = (name for name in environment.other_variants if name in renewed or not renew)
        found = next((one for one in map(workspace.context, names) if (one / LOCK).is_file()), None)
        text = lockfile.for_variant(users_text(found / LOCK), environment) if found else ""
        lacking = pins(environment.cuda_wheels).keys() - {one.name for one in lockfile.parse(text)}
        if found is None or environment.variant == "notebook" or lacking:
            text = lockfile.resolve(environment, system_of(environment, catalog).glibc, keep=text, refresh=refresh)
            ensure_system_locks(environment, catalog, workspace, renew=renew)
            write_atomically(path, text.encode())
            return text
    _check(environment, text, (found or path.parent) / LOCK, workspace)
    if found is not None:
        for name, content in {**system_lock.texts(found, environment), LOCK: text}.items():
            write_atomically(path.parent / name, content.encode())
    ensure_system_locks(environment, catalog, workspace)
    return text


def ensure_system_locks(
    environment: Environment, catalog: Catalog, workspace: Workspace, *, renew: bool = False
) -> None:
    """Pin the system's packages of an environment if they are not pinned yet, or if ``renew`` is set.

    Raises InputError if a stored lock does not pin what the environment asks for, and InfrastructureError if apt cannot
    pin it here.
    """
    context = workspace.context(environment.id)
    hint = workspace.command("lock", environment.id)
    wanted = system_lock.needed(environment) if renew else system_lock.absent(context, environment, hint)
    system, cuda = system_of(environment, catalog), environment.packaged_cuda
    if cuda is not None and CUDNN_LOCK in wanted:
        write_atomically(context / CUDNN_LOCK, lockfile.with_hashes((cuda.cudnn,), environment, system.glibc).encode())
    if SYSTEM_LOCK in wanted:
        place = (cuda.component, cuda.repository) if cuda else ("", "")
        text = system_lock.resolve(system.suite, environment.pinned_packages, *place)
        write_atomically(context / SYSTEM_LOCK, text.encode())


def _check(environment: Environment, text: str, path: Path, workspace: Workspace) -> None:
    """Raise InputError if a lock is damaged, or does not pin what an environment asks for."""
    problems = []
    try:
        pinned = {package.name: package.version for package in lockfile.parse(text)}
        for pin in filter(None, map(pin_or_none, (*environment.requirements, *environment.cuda_wheels))):
            found = pinned.get(pin.name)
            if not same(found, pin.version):
                message = f"pins {pin.name} at {found or 'nothing'}, the environment asks for {pin.version}"
                problems.append(Problem(str(path), 1, pin.name, message))
    except ValueError as error:
        problems.append(Problem(str(path), 1, "", str(error)))
    if problems:
        raise InputError(tuple(problems), hint=workspace.command("lock", environment.id))


def templates() -> dict[str, str]:
    """Read the templates of the package, by their path in ``templates/``: Dockerfile, steps, installer."""
    folder = shipped("templates")
    names = [name for name in folder_contents(folder) if not name.startswith(("report/", "project/"))]
    programs = ("byte_compile.py", "remove_files.py")
    steps = {f"steps/{name}": decoding.text(packaged(f"probes/slimming/{name}")) for name in programs}
    return {name: users_text(folder / name) for name in names} | steps


def _stored_packages(
    environment: Environment, lock_text: str, workspace: Workspace
) -> dict[PackageLayer, PackageFolder | None]:
    """Read the stored folder of each step; None if there is none, or one of another lock."""
    found: dict[PackageLayer, PackageFolder | None] = {}
    for layer in package_layers(environment, lock_text):
        folder = workspace.images / PACKAGES / layer.folder
        removed = users_text(folder / REMOVED) if (folder / REMOVED).is_file() else ""
        stored = PackageFolder(lockfile.of_context(folder) or "", removed)
        found[layer] = stored if stored.pinned == layer.lock else None
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

    They are copied from the user's workspace if this is one below it, else made from the wheels on the index. With
    ``renewed``, each folder that is not in it is made again from today's catalogue, and added to it.
    Raises InfrastructureError if the index does not answer.
    """
    stored = _stored_packages(environment, lock_text, workspace)
    again = {layer for layer in stored if renewed is not None and layer.folder not in renewed}
    missing = [layer for layer, folder in stored.items() if folder is None or layer in again]
    given = workspace.given if missing and renewed is None else None
    users = _stored_packages(environment, lock_text, Workspace(given)) if given else {}
    opened = None
    for layer in missing:
        folder = users.get(layer)
        if folder is None:
            opened = opened or (index or open_index()).with_indexes(environment.added.indexes)
            folder = make_folder(layer, environment, catalog, opened, stored[layer])
        for name, text in folder.files(layer.folder).items():
            write_atomically(workspace.images / name, text.encode())
        if not folder.removed:
            remove(workspace.images / PACKAGES / layer.folder / REMOVED)
    if renewed is not None:
        renewed |= {layer.folder for layer in again}


def check_templates(environments: Iterable[Environment], workspace: Workspace) -> None:
    """Check the templates of a matrix before anything is locked or built. Raises InputError with the lines."""
    for name in dict.fromkeys(one.added.template for one in environments if one.added.template):
        check_template(name, templates() | {name: users_text(workspace.users(name))})


def rendered(environment: Environment, lock_text: str, workspace: Workspace) -> dict[str, bytes]:
    """Render all files that an environment's build needs, by their path below ``images/``.

    Raises UsageError if a file or template of its matrix cannot be read, or if the versions of the system's packages or
    the contents of its wheels are not known yet; InputError for a lock of them that does not fit.
    """
    added = environment.added
    texts = templates()
    if added.template:
        texts[added.template] = users_text(workspace.users(added.template))
    sources = (*(source for source, _ in added.files), *added.certificates)
    files = {source: read_users(workspace.users(source)) for source in sources}
    context, hint = workspace.context(environment.id), workspace.command("lock", environment.id)
    if system_lock.absent(context, environment, hint):
        raise UsageError(f"{environment.id}: the system's packages are not pinned", hint=hint)
    packages = {}
    for layer, folder in _stored_packages(environment, lock_text, workspace).items():
        if folder is None:
            text = f"{environment.id}: images/{PACKAGES}/{layer.folder} is missing, or of another lock"
            raise UsageError(text, hint=hint)
        packages[layer.folder] = folder
    system = system_lock.texts(context, environment)
    return render_context(environment, lock_text, texts, files, packages=packages, system=system)


def write_context(environment: Environment, lock_text: str, workspace: Workspace) -> dict[str, bytes]:
    """Write the files of an environment's build below ``images/``, and return them; equal files are not touched.

    The README of ``images/`` is written as well. Raises UsageError as `rendered` does.
    """
    wanted = rendered(environment, lock_text, workspace)
    for name, content in (wanted | _readme()).items():
        if read_stored(workspace.images / name) != content:
            write_atomically(workspace.images / name, content)
    for name in folder_contents(workspace.context(environment.id)):
        if f"{environment.id}/{name}" not in wanted and name != KNOWN:
            remove(workspace.context(environment.id) / name)
    return wanted


def _readme() -> dict[str, bytes]:
    return {"README.md": read_users(shipped("templates") / "images.README.md")}


_MOUNTED = re.compile(r"\bsource=(shared/[^,\s]+)")
_COPIED = re.compile(r"(?m)^COPY ((?:shared/\S+ )+)")


def build_files(environment_id: str, workspace: Workspace) -> dict[str, bytes]:
    """Read the stored files of an environment's build: its folder, and the shared files that its Dockerfile names.

    Paths are below ``images/``. Empty if there is no such folder.
    """
    own = folder_contents(workspace.context(environment_id))
    files = {f"{environment_id}/{name}": data for name, data in own.items() if name != KNOWN}
    dockerfile = decoding.lossy(own.get("Dockerfile", b""))
    copied = (name for found in _COPIED.findall(dockerfile) for name in found.split())
    for name in {path.rstrip("/") for path in (*_MOUNTED.findall(dockerfile), *copied)}:
        path = workspace.images / name
        if ".." in Path(name).parts:
            continue
        if path.is_file():
            files[name] = read_users(path)
        files |= {f"{name}/{inner}": data for inner, data in folder_contents(path).items()}
    return dict(sorted(files.items()))


def authorities(environment: Environment, files: Mapping[str, bytes]) -> frozenset[bytes]:
    """Return the certificates that a matrix adds to the system's, from the files of the build."""
    texts = (files.get(f"{environment.id}/files/{path}", b"") for path in environment.added.certificates)
    return frozenset().union(*map(pem.certificates, texts))


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
    """Compare the stored files of an environment's build, and the README, with what they should be."""
    path, found = workspace.context(environment.id) / LOCK, list[Difference]()
    lock = workspace.command("lock", environment.id)
    text = lockfile.of_context(path.parent)
    if text is None:
        return (Difference(str(path), f"missing: run {lock}\n"),)
    try:
        wanted = rendered(environment, text, workspace) | _readme()
    except (InputError, UsageError) as error:
        return (Difference(str(path), f"{error.message}: run {lock}\n"),)
    present = {name: read_stored(workspace.images / name) for name in wanted} | build_files(environment.id, workspace)
    for name, content in sorted(present.items()):
        if content != wanted.get(name):
            place = str(workspace.images / name)
            old, new = (decoding.lossy(one or b"").splitlines(keepends=True) for one in (content, wanted.get(name)))
            lines = difflib.unified_diff(old, new, fromfile=place, tofile=f"{place} (as it should be)")
            found.append(Difference(place, "".join(lines)))
    return tuple(found)


def unused(workspace: Workspace, known: Collection[str]) -> tuple[Path, ...]:
    """Return the folders of ``images/`` that no known environment's build uses."""
    used = {workspace.images / name for one in known for name in build_files(one, workspace)}
    folders = [path for path in folders_in(workspace.images) if path.name not in known and path.name != "shared"]
    folders += [path for path in workspace.images.glob(f"{PACKAGES}/*/") if path / LOCK not in used]
    return tuple(sorted(folders))
