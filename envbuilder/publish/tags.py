"""The tags of a repository: their names, and pointing them at a validated digest."""

from __future__ import annotations

import re
import time

from envbuilder.errors import EnvbuilderError, InfrastructureError, PublishError, UsageError
from envbuilder.registry.client import Repository
from envbuilder.registry.manifests import Manifest
from envbuilder.registry.reference import Reference, parse

ATTEMPTS = 5
PAUSE_S = 0.1
"""How often a tag is written that cannot be read back, and the first pause before it is tried again; they double."""

FORGETS = "run it again: what is there stays; where it stays so, the registry forgets what it takes: ask who runs it"


def check_immutable(repository: Repository, tags: tuple[str, ...], digest: str) -> None:
    """Refuse where an immutable tag is taken by another digest, before any work is spent on the image."""
    for tag in tags:
        found = repository.manifest(tag)
        if found is not None and found.digest != digest:
            raise PublishError(
                f"{repository.reference.at(tag)} exists with another digest ({found.digest}) and is never overwritten",
                hint="it may have been published with another --compression; publish under another tag with --moving",
            )


def pin(repository: Repository, tag: str, manifest: Manifest) -> None:
    """Create an immutable tag; one that has this digest already stays."""
    found = repository.manifest(tag)
    if found is None:
        _write(repository, tag, manifest, "")
        check_immutable(repository, (tag,), manifest.digest)
    elif found.digest != manifest.digest:
        check_immutable(repository, (tag,), manifest.digest)


def confirm_tags(repository: Repository, tags: tuple[str, ...]) -> None:
    """Look whether every tag is there in the end. Raises InfrastructureError where one is not."""
    lost = [tag for tag in tags if repository.manifest(tag) is None]
    if lost:
        raise _forgotten(repository, ", ".join(lost))


def _write(repository: Repository, tag: str, manifest: Manifest, before: str) -> None:
    """Write a tag until it can be read back; a third digest is one that somebody else has written since.

    Raises InfrastructureError where the registry says yes and keeps what was there ``before`` ('' for nothing).
    """
    for attempt in range(ATTEMPTS):
        repository.put_manifest(tag, manifest.content, manifest.media_type)
        found = repository.manifest(tag)
        if found is not None and found.digest != before:
            return
        time.sleep(PAUSE_S * 2**attempt)
    raise _forgotten(repository, tag)


def _forgotten(repository: Repository, what: str) -> InfrastructureError:
    return InfrastructureError(f"the registry took {repository.reference.name}: {what}, and has it not", hint=FORGETS)


class Mover:
    """Moves tags together: where one cannot be moved, those before it go back to where they were.

    ``before`` is where each tag pointed ('' for a tag that is new).
    """

    def __init__(self, repository: Repository, tags: tuple[str, ...]) -> None:
        self._repository = repository
        self._old = {tag: repository.manifest(tag) for tag in tags}

    @property
    def before(self) -> dict[str, str]:
        """Say where each tag pointed."""
        return {tag: manifest.digest if manifest else "" for tag, manifest in self._old.items()}

    def move(self, manifest: Manifest) -> None:
        """Move every tag. Raises what the registry raised, after putting back what was moved."""
        moved: list[str] = []
        try:
            for tag, old in self._old.items():
                if old is None or old.digest != manifest.digest:
                    _write(self._repository, tag, manifest, old.digest if old else "")
                    moved.append(tag)
        except EnvbuilderError as error:
            kind = InfrastructureError if isinstance(error, InfrastructureError) else PublishError
            raise kind(f"{error.message}\n{self._put_back(moved)}", hint=error.hint) from error

    def _put_back(self, moved: list[str]) -> str:
        """Undo moves; a tag that was new stays, on a digest that was validated."""
        stuck = []
        for tag in moved:
            old = self._old[tag]
            try:
                if old is not None:
                    self._repository.put_manifest(tag, old.content, old.media_type)
            except EnvbuilderError:
                stuck.append(tag)
        if stuck:
            return f"{', '.join(stuck)} could not be put back: they point at the validated digest; run again to finish"
        return "moving tags are where they were"


_STAGING = "staging-"
_LISTS = re.compile(r"sha(?:256|384|512)-")
_OURS = re.compile(r"(?:staging-)?(tf[0-9][0-9A-Za-z.]*-py[0-9]+-[A-Za-z0-9_.-]+)\Z")


def staging_tag(environment_id: str) -> str:
    """Name the tag under which an environment's image waits for its verdict."""
    return f"{_STAGING}{environment_id}"[:128]


def meant_by(tag: str) -> str | None:
    """Return the environment that a tag names, where it is an id of ours; None for any other tag."""
    found = _OURS.match(tag)
    return found[1] if found else None


def check_moving(tags: tuple[str, ...]) -> None:
    """Refuse moving tags that have a meaning of their own: they would overwrite what others rely on."""
    for tag in tags:
        if _LISTS.match(tag):
            raise UsageError(f"{tag} is where a registry keeps the list of an image's statements", hint=_ANOTHER)
        if tag.startswith(_STAGING):
            raise UsageError(f"{tag} is a name for images that were not validated yet", hint=_ANOTHER)
        if meant_by(tag):
            raise UsageError(f"{tag} is an environment's own tag and moves with its image alone", hint=_ANOTHER)


def destination(text: str) -> Reference:
    """Read where images go. Raises UsageError for a tag or digest: publish makes the tags itself."""
    reference = parse(text)
    if reference.tag or reference.digest:
        raise UsageError(
            f"{text!r} names more than a repository",
            hint=f"--to {reference.name}" + (f" --moving {reference.tag}" if reference.tag else ""),
        )
    return reference


_ANOTHER = "choose another tag, such as latest"
