"""The names that tags may have: which of them name an environment, and which are not for a user to choose."""

from __future__ import annotations

import re

from envbuilder.errors import UsageError
from envbuilder.registry.reference import Reference, parse

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
