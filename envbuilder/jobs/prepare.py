"""Lock and render the environments of several matrices."""

from __future__ import annotations

from dataclasses import dataclass

from envbuilder.choice import Choice
from envbuilder.environment import Environment
from envbuilder.errors import UsageError
from envbuilder.image import lockfile
from envbuilder.image.context import Difference, ensure_lock, stale, underived, write_context
from envbuilder.image.system_lock import CUDNN_LOCK, SYSTEM_LOCK
from envbuilder.support.console import Console
from envbuilder.workspace import Workspace, folder_contents, folders_in


@dataclass(frozen=True)
class Relocked:
    """Numbers of changed and unchanged locks."""

    changed: int
    same: int


def relock(choices: tuple[Choice, ...], workspace: Workspace, console: Console) -> Relocked:
    """Resolve every selected environment again and write its context.

    A context is left to the next build if its list of removed files is not known yet.
    """
    changed, seen = 0, set[str]()
    for choice in choices:
        for environment in (one for one in choice.environments if one.id not in seen):
            before = _locks(workspace, environment)
            text = ensure_lock(environment, choice.catalog, workspace, renew=True, renewed=seen)
            waits = underived(environment, text, workspace)
            if not waits:
                write_context(environment, text, workspace)
            after = _locks(workspace, environment)
            result = "unchanged" if after == before else "locked"
            console.say(f"{environment.id}: {result}{'; `envbuilder build` finds its removed files' if waits else ''}")
            changed += after != before
            seen.add(environment.id)
    return Relocked(changed, len(seen) - changed)


def _locks(workspace: Workspace, environment: Environment) -> dict[str, bytes]:
    """Return the locks of a context: the environment's and its system's."""
    there = folder_contents(workspace.context(environment.id))
    return {name: there[name] for name in (lockfile.LOCK, SYSTEM_LOCK, CUDNN_LOCK) if name in there}


def prepare_all(choices: tuple[Choice, ...], workspace: Workspace, console: Console) -> int:
    """Write the context of every selected environment, with a lock if it has none; return their number.

    Raises UsageError at the end if the removed files of some are not known yet.
    """
    count, waiting = 0, []
    for choice in choices:
        for environment in choice.environments:
            if lockfile.of_context(workspace.context(environment.id)) is None:
                console.say(f"{environment.id}: locking")
            text = ensure_lock(environment, choice.catalog, workspace)
            if underived(environment, text, workspace):
                waiting.append(environment.id)
            else:
                write_context(environment, text, workspace)
                count += 1
    if waiting:
        message = f"{', '.join(waiting)}: the removed files are not known yet ({count} contexts are current)"
        words = " ".join(f"-s {name}" for name in waiting)
        raise UsageError(message, hint=f"`envbuilder build {words}` derives them, once")
    return count


def stale_all(choices: tuple[Choice, ...], workspace: Workspace, *, whole: bool) -> tuple[Difference, ...]:
    """Compare every selected context; with ``whole``, report folders of no matrix too."""
    known = {environment.id for choice in choices for environment in choice.environments}
    found = [d for choice in choices for environment in choice.environments for d in stale(environment, workspace)]
    if whole and workspace.images.is_dir():
        orphans = sorted(folder.name for folder in folders_in(workspace.images))
        found += [
            Difference(str(workspace.context(name)), f"{workspace.context(name)}: in no matrix: delete it\n")
            for name in orphans
            if name not in known
        ]
    return tuple(found)
