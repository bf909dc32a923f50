"""Lock and render for every environment of some matrices: what ``envbuilder lock`` and ``render`` do."""

from __future__ import annotations

from dataclasses import dataclass

from envbuilder.choice import Choice
from envbuilder.console import Console
from envbuilder.environment import Environment
from envbuilder.image import lockfile
from envbuilder.image.context import Difference, ensure_lock, stale, write_context
from envbuilder.image.system_lock import CUDNN_LOCK, SYSTEM_LOCK
from envbuilder.workspace import Workspace, folder_contents, folders_in


@dataclass(frozen=True)
class Relocked:
    """How many locks a renewal changed, and how many it left as they were."""

    changed: int
    same: int


def relock(choices: tuple[Choice, ...], workspace: Workspace, console: Console) -> Relocked:
    """Resolve every chosen environment anew and write its context."""
    changed = same = 0
    for choice in choices:
        for environment in choice.environments:
            before = _locks(workspace, environment)
            write_context(environment, ensure_lock(environment, choice.catalog, workspace, renew=True), workspace)
            after = _locks(workspace, environment)
            console.say(f"{environment.id}: {'unchanged' if after == before else 'locked'}")
            changed, same = changed + (after != before), same + (after == before)
    return Relocked(changed, same)


def _locks(workspace: Workspace, environment: Environment) -> dict[str, bytes]:
    """Return the locks of a context: the environment's, and those of its system, where it has any."""
    there = folder_contents(workspace.context(environment.id))
    return {name: there[name] for name in (lockfile.LOCK, SYSTEM_LOCK, CUDNN_LOCK) if name in there}


def prepare_all(choices: tuple[Choice, ...], workspace: Workspace, console: Console) -> int:
    """Write every chosen environment's context, locking those that have no lock yet; return how many there are."""
    count = 0
    for choice in choices:
        for environment in choice.environments:
            if lockfile.of_context(workspace.context(environment.id)) is None:
                console.say(f"{environment.id}: locking")
            write_context(environment, ensure_lock(environment, choice.catalog, workspace), workspace)
            count += 1
    return count


def stale_all(choices: tuple[Choice, ...], workspace: Workspace, *, whole: bool) -> tuple[Difference, ...]:
    """Compare every chosen context; with ``whole``, folders that no matrix gives are differences too."""
    known = {environment.id for choice in choices for environment in choice.environments}
    found = [d for choice in choices for environment in choice.environments for d in stale(environment, workspace)]
    if whole and workspace.images.is_dir():
        orphans = sorted(folder.name for folder in folders_in(workspace.images))
        found += [
            Difference(str(workspace.context(name)), f"{workspace.context(name)}: no matrix gives this: delete it\n")
            for name in orphans
            if name not in known
        ]
    return tuple(found)
