"""Point public tags at a validated digest: by writing the same manifest under another name, never by a rebuild."""

from __future__ import annotations

from envbuilder.errors import EnvbuilderError, PublishError
from envbuilder.registry.client import Manifest, Repository


def check_immutable(repository: Repository, tags: tuple[str, ...], digest: str) -> None:
    """Refuse where an immutable tag is taken by another digest, before any work is spent on the image."""
    for tag in tags:
        found = repository.manifest(tag)
        if found is not None and found.digest != digest:
            raise PublishError(
                f"{repository.reference.at(tag)} exists with another digest ({found.digest}) and is never overwritten",
                hint="publish under another tag, or as a moving tag with --moving",
            )


def pin(repository: Repository, tag: str, manifest: Manifest) -> None:
    """Create an immutable tag; one that has this digest already stays."""
    found = repository.manifest(tag)
    if found is None:
        repository.put_manifest(tag, manifest.content, manifest.media_type)
    elif found.digest != manifest.digest:
        check_immutable(repository, (tag,), manifest.digest)


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
                    self._repository.put_manifest(tag, manifest.content, manifest.media_type)
                    moved.append(tag)
        except EnvbuilderError as error:
            raise PublishError(f"{error.message}\n{self._put_back(moved)}", hint=error.hint) from error

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
