"""The tags of a repository: their names, and pointing them at a validated digest."""

import re
import time
from collections.abc import Iterable
from contextlib import suppress

from envbuilder.attest.requirements import EnvironmentRequirement, names_another, read_environment
from envbuilder.errors import InfrastructureError, PublishError, UsageError
from envbuilder.publish.results import Tag
from envbuilder.registry.client import Repository
from envbuilder.registry.manifests import Manifest
from envbuilder.registry.reference import Reference, parse

ATTEMPTS, PAUSE_S = 5, 0.1  # how often a tag is written until it can be read back; each pause is twice as long

FORGETS = "run the command again; if it fails again, the registry loses stored content: ask its operator"


def check_immutable(repository: Repository, tags: Iterable[Tag], digest: str = "", *, zstd: bool = False) -> None:
    """Raise PublishError if an immutable tag has another digest, or layers that are not in zstd as these will be."""
    for tag in (one.name for one in tags if not one.moving):
        found = repository.manifest(tag)
        if found and (found.digest != (digest or found.digest) or (zstd and b"tar+zstd" not in found.content)):
            text = f"{repository.reference.at(tag)} exists as {found.digest} and is never overwritten"
            hint = "publish with the --compression of before, or to another repository"
            raise PublishError(text, hint=hint)


def point(repository: Repository, tag: Tag, manifest: Manifest) -> None:
    """Point a tag at a manifest, unless it does; an immutable one only if it is new."""
    before = repository.manifest(tag.name)
    if before is None or (tag.moving and before.digest != manifest.digest):
        _write(repository, tag.name, manifest, before.digest if before else "")
    check_immutable(repository, (tag,), manifest.digest)


def confirm_tags(repository: Repository, tags: Iterable[Tag]) -> None:
    if lost := [tag.name for tag in tags if repository.manifest(tag.name) is None]:
        raise _forgotten(repository, ", ".join(lost))


def _write(repository: Repository, tag: str, manifest: Manifest, before: str) -> None:
    """Write a tag until it can be read back; a third digest was written by another publisher.

    Raises InfrastructureError if the registry accepts the tag but keeps the digest ``before`` ('' for none).
    """
    for attempt in range(ATTEMPTS):
        repository.put_manifest(tag, manifest.content, manifest.media_type)
        found = repository.manifest(tag)
        if found is not None and found.digest != before:
            return
        time.sleep(PAUSE_S * 2**attempt)
    raise _forgotten(repository, tag)


def _forgotten(repository: Repository, what: str) -> InfrastructureError:
    text = f"the registry accepted {repository.reference.name}: {what}, but does not have it"
    return InfrastructureError(text, hint=FORGETS)


_STAGING = "staging-"
_LISTS = re.compile(r"sha(?:256|384|512)-")


def staging_tag(environment_id: str) -> str:
    """Return the tag of an environment's image before its verdict."""
    return f"{_STAGING}{environment_id}"[:128]


def meant_by(tag: str) -> EnvironmentRequirement | None:
    """Return the environment, and the image, that a tag names; None for any other tag."""
    with suppress(UsageError):
        return read_environment(tag.removeprefix(_STAGING), in_tag=True)
    return None


_NAME = r"(?:tf|tensorflow)(?:[-_.]?(?:cpu|gpu|nightly))?"
_TENSORFLOW = re.compile(
    rf"(?:(?<![a-z0-9]){_NAME}[-_.]*v?(?=[0-9]+\.[0-9])|{_NAME}[-_.]*v?(?=[12]\.[0-9])"
    rf"|(?<![a-z0-9]){_NAME}v?(?=[0-9](?:(?:rc|[ab])[0-9]+)?(?![a-z0-9.])))"
    r"([0-9]+(?:\.[0-9]{1,4}(?![0-9]))*+)"
    r"(?:(?:[._-]?(rc|(?:dev|alpha|beta)(?=[._-]?[0-9]))|\.?([ab])(?=[0-9]))[._-]?([0-9]{0,8}))?"
)
"""A version after the name, whatever surrounds them; a major version, or another than 1 or 2, if they are a word.

A pre-release is spelled as in PEP 440. A stage without a number is an application's.
"""
_WITHOUT_DOTS = re.compile(rf"({_NAME}v?[12])[-_]([0-9]{{1,2}})[-_]([0-9])(?![0-9a-z.])")
_KINDS = {"alpha": "a", "beta": "b", "dev": ".dev"}


def tensorflow_in(tag: str) -> tuple[str, ...]:
    """Return the versions that a tag names, as in ``app-tf2.20`` or ``tf2_20_0``; a number alone may be another one."""
    dotted = _WITHOUT_DOTS.sub(r"\1.\2.\3", tag.lower())
    found = ((one[1], (one[2] or one[3] or ""), one[4] or "0") for one in _TENSORFLOW.finditer(dotted))
    return tuple(number + (_KINDS.get(kind, kind) + count if kind else "") for number, kind, count in found)


def check_moving(tags: tuple[str, ...], to: Reference, versions: Iterable[str] = ()) -> None:
    """Raise UsageError for moving tags that no registry accepts, or that mean something else than these TensorFlows."""
    for tag in tags:
        to.at(tag)
        other = [one for one in versions if names_another(one, tensorflow_in(tag))]
        reasons = (
            (_LISTS.match(tag), "is where a registry keeps the list of an image's statements"),
            (tag.startswith(_STAGING), "is a tag of images without a verdict"),
            (meant_by(tag), "is the tag of an environment and moves only with its image"),
            (other, f"names another TensorFlow than {', '.join(other)}: `verify` would refuse it"),
        )
        if why := next((text for is_taken, text in reasons if is_taken), ""):
            raise UsageError(f"{tag} {why}", hint="choose another tag, such as latest")


def destination(text: str) -> Reference:
    """Read a repository. Raises UsageError for a tag or digest: `publish` makes the tags."""
    reference = parse(text)
    if reference.tag or reference.digest:
        more = f"; `publish` makes the tag with --moving {reference.tag}" if reference.tag else ""
        raise UsageError(f"{text!r} names more than a repository", hint=f"give {reference.name}{more}")
    return reference
