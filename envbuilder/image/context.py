"""Lock and render: from a resolved environment to a complete build context in ``images/``."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import OperatingSystem
from envbuilder.environment import Environment
from envbuilder.errors import InputError, NoClaimError, Problem, UsageError
from envbuilder.image import lockfile, omissions, system_lock
from envbuilder.image.lock import lock, lock_alone
from envbuilder.image.lockfile import LOCK
from envbuilder.image.names import TOOLS_SYSTEM
from envbuilder.image.render import render_context
from envbuilder.support import decoding
from envbuilder.versions import pin_or_none, same
from envbuilder.workspace import (
    Workspace,
    folder_contents,
    packaged_in,
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

    Forms of one environment have the same pins: where there is none, those of another form are taken, and in a
    renewal those of a form that was ``renewed`` just now.
    Raises InputError where the committed lock does not pin what the environment asks for: a lock never changes
    unasked.
    """
    path = workspace.context(environment.id) / LOCK
    wanted = renew or not path.exists()
    others = [name for name in environment.other_forms if wanted and (name in renewed or not renew)]
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
    """Give an environment the locks of the first of its other forms that has some; tell whether one has."""
    folders = [workspace.context(name) for name in others]
    found = next((folder for folder in folders if lockfile.of_context(folder) is not None), None)
    if found is None:
        return False
    _demand(environment, users_text(found / LOCK), found / LOCK)
    for name in (*system_lock.needed(environment), LOCK):
        if (found / name).is_file():
            write_atomically(workspace.context(environment.id) / name, users_text(found / name).encode())
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
        text = lock_alone(environment, system.glibc, cuda.cudnn)
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
    """Read the templates that ship with the package, by name."""
    folder = shipped("templates")
    names = sorted(one.name for one in packaged_in(folder) if one.is_file())
    return {name: users_text(folder / name) for name in names}


def left_out_of(context: Path, lock_text: str) -> str:
    """Return the list of what a context leaves out; '' where there is none that was derived from this lock."""
    text = omissions.of_context(context)
    return text if text and omissions.parse(text).lock == lockfile.digest(lock_text) else ""


def underived(environment: Environment, lock_text: str, workspace: Workspace) -> bool:
    """Tell whether no build has found out yet what an environment's form leaves out of this lock."""
    return bool(environment.form) and not left_out_of(workspace.context(environment.id), lock_text)


def left_out(environment: Environment, lock_text: str, workspace: Workspace) -> str:
    """Return the list of what an environment's form leaves out; '' where it leaves nothing out.

    Raises UsageError where it is not known yet.
    """
    text = left_out_of(workspace.context(environment.id), lock_text) if environment.form else ""
    if environment.form and not text:
        hint = f"envbuilder build -s {environment.id} derives it, once"
        raise UsageError(f"{environment.id}: what this form leaves out is not known yet", hint=hint)
    return text


def rendered(environment: Environment, lock_text: str, workspace: Workspace) -> dict[str, bytes]:
    """Render a context with the files and the template that its matrix names in the workspace.

    Raises UsageError where one cannot be read, or where what its form leaves out, or the versions of the system's
    packages, are not known yet.
    """
    added = environment.added
    texts = templates()
    if added.template:
        texts[added.template] = users_text(workspace.users(added.template))
    files = {source: read_users(workspace.users(source)) for source, _ in added.files}
    system = system_lock.of_context(workspace.context(environment.id), environment)
    if system is None:
        hint = f"envbuilder lock -s {environment.id}"
        raise UsageError(f"{environment.id}: the system's packages are not pinned as it asks for them", hint=hint)
    gone = left_out(environment, lock_text, workspace)
    return render_context(environment, lock_text, texts, files, left_out=gone, system=system)


def write_context(environment: Environment, lock_text: str, workspace: Workspace) -> None:
    """Write an environment's build context; files that are as they should be are not touched.

    Raises UsageError where its form leaves something out and no build has found out yet what.
    """
    folder = workspace.context(environment.id)
    wanted = rendered(environment, lock_text, workspace)
    present = folder_contents(folder)
    for name, content in wanted.items():
        if present.get(name) != content:
            write_atomically(folder / name, content)
    for name in present.keys() - wanted.keys():
        with writing(folder / name):
            (folder / name).unlink(missing_ok=True)


def stale(environment: Environment, workspace: Workspace) -> tuple[Difference, ...]:
    """Compare an environment's committed context with what it should be."""
    folder = workspace.context(environment.id)
    present = folder_contents(folder)
    if LOCK not in present:
        return (Difference(f"{folder}/{LOCK}", f"missing: run envbuilder lock -s {environment.id}\n"),)
    lock_text = users_text(folder / LOCK)
    if underived(environment, lock_text, workspace):
        found = f"missing, or of another lock: run envbuilder build -s {environment.id}\n"
        return (Difference(f"{folder}/{omissions.OMISSIONS}", found),)
    if system_lock.of_context(folder, environment) is None:
        found = f"missing, or of other packages: run envbuilder lock -s {environment.id}\n"
        return (Difference(f"{folder}/{system_lock.SYSTEM_LOCK}", found),)
    wanted = rendered(environment, lock_text, workspace)
    names = sorted(wanted.keys() | present.keys())
    return tuple(
        Difference(str(folder / name), _diff(str(folder / name), present.get(name, b""), wanted.get(name, b"")))
        for name in names
        if wanted.get(name) != present.get(name)
    )


def _diff(path: str, old: bytes, new: bytes) -> str:
    before, after = (decoding.lossy(text).splitlines(keepends=True) for text in (old, new))
    return "".join(difflib.unified_diff(before, after, fromfile=path, tofile=f"{path} (as it should be)"))
