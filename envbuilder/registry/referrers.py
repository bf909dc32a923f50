"""Documents attached to a manifest: the referrers API (OCI 1.1), or tags where it is lacking.

Without the API, OCI 1.1 keeps one list for each subject under the tag ``sha256-<hex>``, and old registries have no
compare-and-swap. So each document also gets a tag that nobody else writes.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from envbuilder.errors import InfrastructureError, Reason
from envbuilder.registry.client import MAX_LIST, Repository
from envbuilder.registry.errors import MalformedError, RegistryFailedError, RegistryRefusedError, in_parallel, parsed
from envbuilder.registry.manifests import (
    DOCKER_MANIFEST,
    OCI_INDEX,
    OCI_MANIFEST,
    Artifact,
    Descriptor,
    Manifest,
    digest_of,
    shape_of,
)
from envbuilder.registry.reference import DIGEST

EMPTY = b"{}"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"

ATTEMPTS = 5
"""How often the list is read back, and written again if another writer has replaced it."""

PAUSE_S = 0.1
"""The first pause between two checks of the list, at least; each is twice as long as the one before."""

MAX_ENTRIES = 20_000
"""Attached documents of any type above which an image is refused: they could not be read in time."""

_OK = 200
_NO_API = (400, 404, 405, 501)
"""Answers of registries without the referrers API."""

_OWN_TAG = re.compile(r"(sha256-[0-9a-f]{64})\.([0-9a-f]{16})\Z")


class _Listed(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of a list: other tools leave out the rest, or write it in their own form."""

    digest: str
    artifact_type: str | None = None


class _Index(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A list whose entries stay as they were written. A document without the key ``manifests`` is not a list."""

    manifests: tuple[msgspec.Raw, ...] | None
    schema_version: int = msgspec.field(name="schemaVersion", default=2)
    media_type: str = msgspec.field(name="mediaType", default=OCI_INDEX)


@dataclass(frozen=True)
class Listing:
    """The documents attached to a digest, and the type of each, '' if unknown.

    ``claimed`` are those that only the tag lists, which anybody can write.
    """

    items: dict[str, str]
    claimed: frozenset[str] = frozenset()


def fallback_tag(digest: str) -> str:
    """Return the tag under which registries without the API keep the list (OCI distribution 1.1)."""
    return digest.replace(":", "-")


def subject_of(tag: str) -> str:
    """Return the digest whose documents a tag lists; '' for any other tag."""
    name = found[1] if (found := _OWN_TAG.match(tag)) else tag
    digest = name.replace("-", ":", 1)
    return digest if name.startswith("sha256-") and DIGEST.match(digest) else ""


def attach(
    repository: Repository, subject: Manifest, content: bytes, media_type: str, annotations: Mapping[str, str]
) -> Descriptor:
    """Attach a document to a manifest; doing so again with the same content changes nothing."""
    layer = repository.put_blob(content, media_type)
    artifact = Artifact(
        schema_version=2,
        media_type=OCI_MANIFEST,
        artifact_type=media_type,
        config=repository.put_blob(EMPTY, EMPTY_TYPE),
        layers=(layer,),
        subject=subject.descriptor,
        annotations=dict(sorted(annotations.items())),
    )
    data = msgspec.json.encode(artifact)
    descriptor = _entry(Manifest(OCI_MANIFEST, data, digest_of(data)))
    if not repository.put_manifest(descriptor.digest, data, OCI_MANIFEST):
        repository.put_manifest(f"{fallback_tag(subject.digest)}.{descriptor.digest[7:23]}", data, OCI_MANIFEST)
        _list_under_tag(repository, subject.digest, (descriptor,))
    return descriptor


def confirm(repository: Repository, subject: str, documents: tuple[Descriptor, ...]) -> None:
    """Read back until every document is listed and stored. Raises InfrastructureError if one is still missing."""
    for attempt in range(ATTEMPTS):
        if _from_api(repository, subject) is None:
            _list_under_tag(repository, subject, documents)
        listed = listing(repository, subject).items
        found = [repository.manifest(one.digest) for one in documents if one.digest in listed]
        if len(found) == len(documents) and not any(one is None or repository.lacking(one) for one in found):
            return
        time.sleep(random.uniform(PAUSE_S, 3 * PAUSE_S) * 2**attempt)  # noqa: S311 - spreads writers, protects nothing
    text = f"the registry does not list the documents attached to {subject}, or has lost them"
    raise InfrastructureError(text, hint="run the command again: stored documents stay")


def listing(repository: Repository, digest: str, kinds: frozenset[str] = frozenset()) -> Listing:
    """List every document attached to a digest: every page of the API, and the tags.

    Both are read: a registry may have got the API after documents were attached by tags. ``kinds`` are the types that
    the caller reads: an entry of a tag under another type is not believed, since anybody can write it.
    Raises RegistryRefusedError if the registry's own list is invalid or too long.
    """
    from_api = _from_api(repository, digest)
    try:
        old = _parsed(_entries(repository, digest))
    except RegistryRefusedError:
        if from_api is None:
            raise
        old = {}  # anybody can push this tag: next to the registry's own list it proves nothing
    if from_api is None:
        believed = [name for name, kind in old.items() if not kinds or kind in ("", *kinds)]
        lost = _from_own_tags(repository, digest, believed)
        old |= {manifest.digest: shape_of(manifest).artifact_type for manifest in lost}
    found = old | (from_api or {})  # the tag changes no type that the registry states
    _check_number(digest, found)
    return Listing(found, frozenset(found) - from_api.keys() if from_api is not None else frozenset())


def document(repository: Repository, stored: str, kinds: frozenset[str]) -> tuple[str, bytes]:
    """Fetch an attached document of one of the media types, and return its type.

    Its own content says what it is about; the manifest's subject proves nothing. Raises RegistryRefusedError if its
    manifest is not that of one such document (UNREADABLE), if it is not in the registry (NOT_THERE) or too large.
    """
    manifest = repository.manifest(stored)
    if manifest is None:
        raise RegistryRefusedError(Reason.NOT_THERE, f"{stored} is listed as attached but is not in the registry")
    layers = shape_of(manifest).layers or ()
    if len(layers) != 1 or layers[0].media_type not in kinds or not DIGEST.match(layers[0].digest):
        text = f"{stored}: not one document of type {' or '.join(sorted(kinds))}"
        raise RegistryRefusedError(Reason.UNREADABLE, text)
    return layers[0].media_type, repository.blob(layers[0].digest)


def _from_api(repository: Repository, digest: str) -> dict[str, str] | None:
    """Read every page of the API's answer; None if the registry has no such API."""
    found: dict[str, str] = {}
    path = f"referrers/{digest}"
    for number, answer in enumerate(repository.pages(path, expect=(_OK, *_NO_API), limit=MAX_LIST)):
        if answer.status != _OK and number == 0:
            return None
        if answer.status != _OK or answer.headers.get("OCI-Filters-Applied", "").strip():
            text = f"the registry names a page that it does not have, or filters its list: {answer.address}"
            raise RegistryRefusedError(Reason.BAD_ANSWER, text)
        found |= _parsed(_decode(answer.content))
        _check_number(digest, found)
    return found


def _entries(repository: Repository, subject: str) -> tuple[msgspec.Raw, ...]:
    """Return the entries under a list's tag; none if somebody has put an image there."""
    listed = repository.manifest(fallback_tag(subject), limit=MAX_LIST)
    return () if listed is None or listed.media_type in (OCI_MANIFEST, DOCKER_MANIFEST) else _decode(listed.content)


def _from_own_tags(repository: Repository, digest: str, listed: Iterable[str]) -> tuple[Manifest, ...]:
    """Find documents that a list has lost, by their tags."""
    have = {name[7:23] for name in listed}
    try:
        tags = repository.tags() or ()
    except RegistryRefusedError as error:
        if error.fault in (Reason.ACCESS_DENIED, Reason.REJECTED):
            return ()  # the registry does not list tags
        raise
    lost = [tag for tag in tags if (own := _OWN_TAG.match(tag)) and subject_of(tag) == digest and own[2] not in have]
    _check_number(digest, lost)
    found = zip(lost, in_parallel(repository.manifest, lost), strict=True)
    known = [(tag, manifest) for tag, manifest in found if manifest is not None]
    for tag, manifest in known:
        if not tag.endswith(manifest.digest[7:23]):
            text = f"{tag} leads to {manifest.digest}, another document than it names"
            raise RegistryRefusedError(Reason.ALTERED, text)
    return tuple(manifest for _, manifest in known)


def _entry(manifest: Manifest) -> Descriptor:
    shape = shape_of(manifest)
    return msgspec.structs.replace(
        manifest.descriptor, artifact_type=shape.artifact_type, annotations=shape.annotations
    )


def _list_under_tag(repository: Repository, subject: str, documents: tuple[Descriptor, ...]) -> None:
    """Add missing entries to the list that other tools read.

    Two writers can lose each other's entry. `verify` finds a document by its own tag, and the next writer restores it.
    """
    try:
        entries = _entries(repository, subject)
        have = _parsed(entries)
        wanted = [item for item in documents if item.digest not in have]
        if wanted:
            lost = _from_own_tags(repository, subject, (*have, *(item.digest for item in wanted)))
            more = tuple(msgspec.Raw(msgspec.json.encode(item)) for item in (*wanted, *map(_entry, lost)))
            index = msgspec.json.encode(_Index(manifests=(*entries, *more)))
            repository.put_manifest(fallback_tag(subject), index, OCI_INDEX)
    except RegistryFailedError as error:
        if error.fault not in (Reason.SERVER_ERROR, Reason.UNREACHABLE):
            raise


def _decode(content: bytes) -> tuple[msgspec.Raw, ...]:
    index: _Index = parsed(content, _Index, "a list of attached documents")
    return index.manifests or ()


def _parsed(entries: Iterable[msgspec.Raw]) -> dict[str, str]:
    """Return the type of each listed document; an entry that names none is skipped."""
    found = {}
    for entry in entries:
        with suppress(MalformedError):
            one: _Listed = parsed(entry, _Listed, "a descriptor")
            found[one.digest] = one.artifact_type or ""
    return {name: kind for name, kind in found.items() if DIGEST.match(name)}


def _check_number(digest: str, found: Collection[str]) -> None:
    if len(found) > MAX_ENTRIES:
        raise RegistryRefusedError(Reason.TOO_MANY, f"more than {MAX_ENTRIES} documents are attached to {digest}")
