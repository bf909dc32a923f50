"""Lock and render the environments of several matrices."""

from pathlib import Path

from envbuilder.choice import Choice
from envbuilder.environment import Environment
from envbuilder.errors import UsageError
from envbuilder.image import context
from envbuilder.image.lockfile import LOCK
from envbuilder.image.system_lock import CUDNN_LOCK, SYSTEM_LOCK
from envbuilder.support.console import Console
from envbuilder.workspace import Workspace, folder_contents


def prepare_all(
    choices: tuple[Choice, ...], workspace: Workspace, console: Console, *, renew: bool = False, refresh: bool = False
) -> tuple[int, int]:
    """Write every chosen environment's files; return the numbers of changed and of unchanged locks.

    Locks that exist stay, unless ``renew`` is set.
    """
    changed, seen, renewed = 0, set[str](), set[str]()
    for choice in choices:
        context.check_templates(choice.environments, workspace)
        for environment in (one for one in choice.environments if one.id not in seen):
            before = _locks(workspace, environment)
            with console.task(environment.id) as task:
                task.update("lock")
                text = context.ensure_lock(
                    environment, choice.catalog, workspace, renew=renew, renewed=seen, refresh=refresh
                )
                task.update("packages")
                context.ensure_packages(
                    environment, text, choice.catalog, workspace, renewed=renewed if renew else None
                )
                context.write_context(environment, text, workspace)
            after = _locks(workspace, environment)
            if renew or after != before:
                console.finished(environment.id, "unchanged" if after == before else "locked")
            changed += after != before
            seen.add(environment.id)
    return changed, len(seen) - changed


def _locks(workspace: Workspace, environment: Environment) -> dict[str, bytes]:
    there = folder_contents(workspace.context(environment.id))
    return {name: there[name] for name in (LOCK, SYSTEM_LOCK, CUDNN_LOCK) if name in there}


def write_standalone(choices: tuple[Choice, ...], workspace: Workspace, folder: Path) -> str:
    """Write a self-contained folder for the one selected environment; return its id."""
    found = {environment.id: (environment, choice) for choice in choices for environment in choice.environments}
    if len(found) != 1:
        raise UsageError(
            f"{len(found)} environments are selected", hint="name one: envbuilder render --standalone DIR ID"
        )
    ((environment, choice),) = found.values()
    text = context.ensure_lock(environment, choice.catalog, workspace)
    context.ensure_packages(environment, text, choice.catalog, workspace)
    context.standalone(environment, text, workspace, folder)
    return environment.id


def stale_all(choices: tuple[Choice, ...], workspace: Workspace, *, whole: bool) -> tuple[context.Difference, ...]:
    """Compare every chosen environment's files; with ``whole``, unused folders are differences too."""
    known = {environment.id for choice in choices for environment in choice.environments}
    found = [
        d for choice in choices for environment in choice.environments for d in context.stale(environment, workspace)
    ]
    if whole and workspace.images.is_dir():
        found += [
            context.Difference(str(path), f"{path}: no matrix uses this: delete it\n")
            for path in context.unused(workspace, known)
        ]
    return tuple(dict.fromkeys(found))
