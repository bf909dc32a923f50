"""Documents attached to a manifest: the referrers API (OCI 1.1), or tags where it is lacking.

Without the API, OCI 1.1 keeps one list for each subject under the tag ``sha256-<hex>``, and old registries have no
compare-and-swap. So each document also gets a tag that nobody else writes.
"""

import random
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from envbuilder.errors import InfrastructureError, Reason
from envbuilder.registry.client import MAX_LIST, Repository
from envbuilder.registry.errors import MalformedError, RegistryRefusedError, parsed
from envbuilder.registry.manifests import IMAGES, OCI_INDEX, OCI_MANIFEST, Artifact, Descriptor, Manifest, digest_of
from envbuilder.registry.reference import DIGEST
from envbuilder.support.threads import in_parallel

ATTEMPTS, PAUSE_S = 5, 0.1  # how often a list is read back, and the first pause; the next ones are twice as long
MAX_ENTRIES = 20_000  # attached documents of any type: more could not be read in time

_OK, _NO_API = 200, (400, 404, 405, 501)  # with and without the referrers API
_TAG = re.compile(r"sha256-([0-9a-f]{64})(\.[0-9a-f]{16})?\Z")
_Lists = tuple[dict[str, str], dict[str, str] | None, RegistryRefusedError | None]
_Own = tuple[tuple[Manifest, ...], RegistryRefusedError | None]
_NotFiltered = Annotated[str, msgspec.Meta(pattern=r"\A(?!org\.opencontainers\.referrers\.filtersApplied\Z)")]


class _Listed(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of a list: other tools leave out the rest, or write it in their own form."""

    digest: str
    artifact_type: str | None = None
    size: Any = None


class _Blobs(msgspec.Struct, frozen=True):
    """The documents of an artifact: its ``layers``, its ``blobs`` by a draft of OCI 1.1; or an index of artifacts."""

    layers: tuple[_Listed, ...] | None = None
    blobs: tuple[_Listed, ...] | None = None
    manifests: tuple[_Listed, ...] | None = None
    config: _Listed | None = None


class _Index(msgspec.Struct, frozen=True, rename="camel"):
    """A list whose entries stay as they were written. A document without the key ``manifests`` is not a list."""

    manifests: tuple[msgspec.Raw, ...] | None
    annotations: dict[_NotFiltered, msgspec.Raw] | msgspec.UnsetType | None = msgspec.UNSET
    schema_version: int = 2
    media_type: str = OCI_INDEX


@dataclass(frozen=True)
class Listing:
    """The documents attached to a digest, and the type of each, '' if unknown; ``strange`` names have no digest.

    ``claimed`` are those that only the tag lists, which anybody can write. ``unlisted`` says why tags were not read.
    """

    items: dict[str, str]
    claimed: frozenset[str] = frozenset()
    strange: frozenset[str] = frozenset()
    unlisted: RegistryRefusedError | None = None


def fallback_tag(digest: str) -> str:
    return digest.replace(":", "-")


def subject_of(tag: str) -> str:
    """Return the digest whose documents a tag lists; '' for any other tag."""
    return f"sha256:{found[1]}" if (found := _TAG.match(tag)) else ""


def attach(
    repository: Repository, subject: Manifest, content: bytes, media_type: str, annotations: Mapping[str, str]
) -> Descriptor:
    """Attach a document to a manifest; doing so again with the same content changes nothing."""
    layer = repository.put_blob(content, media_type)
    artifact = Artifact(
        schema_version=2,
        media_type=OCI_MANIFEST,
        artifact_type=media_type,
        config=repository.put_blob(b"{}", "application/vnd.oci.empty.v1+json"),
        layers=(layer,),
        subject=subject.descriptor,
        annotations=dict(sorted(annotations.items())),
    )
    data = msgspec.json.encode(artifact)
    descriptor = Manifest(OCI_MANIFEST, data, digest_of(data)).descriptor
    if not repository.put_manifest(descriptor.digest, data, OCI_MANIFEST):
        repository.put_manifest(f"{fallback_tag(subject.digest)}.{descriptor.digest[7:23]}", data, OCI_MANIFEST)
        _list_under_tag(repository, subject.digest, (descriptor,))
    return descriptor


def confirm(repository: Repository, subject: str, documents: tuple[Descriptor, ...]) -> None:
    """Read each back, as `verify` does, and find it in the list. Raises InfrastructureError if one stays missing."""
    for attempt in range(ATTEMPTS):
        tagged, from_api, _ = _lists(repository, subject)
        try:
            content = [repository.blob(name) for one in documents for name in contents(repository, one.digest)]
        except RegistryRefusedError as error:
            if error.fault is not Reason.NOT_THERE:
                raise
        else:
            if content and all(one.digest in tagged | (from_api or {}) for one in documents):
                return
        if from_api is None:
            _list_under_tag(repository, subject, documents)
        time.sleep(random.uniform(PAUSE_S, 3 * PAUSE_S) * 2**attempt)  # noqa: S311 - spreads writers, protects nothing
    text = f"the registry does not have, or does not list, all that was attached to {subject}"
    raise InfrastructureError(text, hint="run the command again in a minute, or ask the registry's operator")


def listing(repository: Repository, digest: str) -> Listing:
    """List every document attached to a digest: every page of the API, and the tags of a time before it.

    Raises RegistryRefusedError if the registry's own list is invalid or too long.
    """
    found, from_api, unread = _lists(repository, digest)
    needed = from_api is None or found or unread
    own, unlisted = _from_own_tags(repository, digest, found, strict=from_api is None) if needed else ((), None)
    # Anybody can write the list under the tag: a document's manifest, or the API, says its type.
    found |= {one.digest: one.descriptor.artifact_type.casefold() for one in own} | (from_api or {})
    claimed = frozenset() if from_api is None else frozenset(found) - from_api.keys()
    items = {name: kind for name, kind in found.items() if DIGEST.match(name)}
    return Listing(items, claimed, frozenset(found) - items.keys(), unread or unlisted)


def _lists(repository: Repository, digest: str) -> _Lists:
    """Read the list under the tag, that of the API, which is None if there is no API, and why the tag was not read."""
    from_api = _from_api(repository, digest)
    try:
        return _types(_entries(repository, digest)), from_api, None
    except RegistryRefusedError as error:
        if from_api is None or error.fault in (Reason.TOO_MANY, Reason.TOO_LARGE):
            raise
        return {}, from_api, error  # anybody can push this tag: next to the registry's own list it refuses nothing


def contents(repository: Repository, stored: str, depth: int = 2) -> dict[str, Any]:
    """Return the blobs, with their sizes, of an artifact or of the artifacts in an index: one document, or several.

    The content of a document says what it is, and about what; the manifest's words prove nothing. Raises MalformedError
    if there is none, RegistryRefusedError if the manifest is not in the registry (NOT_THERE).
    """
    manifest = repository.manifest(stored)
    if manifest is None:
        raise RegistryRefusedError(Reason.NOT_THERE, f"{stored} is listed as attached but is not in the registry")
    shape: _Blobs = parsed(manifest.content, _Blobs, "an attached document")
    every = {one.digest: one.size for one in (*(shape.layers or ()), *(shape.blobs or ()), shape.config) if one}
    for one in [one.digest for one in shape.manifests or () if depth and DIGEST.match(one.digest)]:
        with suppress(MalformedError):  # an unreadable entry does not hide the others
            every = contents(repository, one, depth - 1) | every
    if found := {one: size for one, size in every.items() if DIGEST.match(one) and one != digest_of(b"{}")}:
        return found
    raise MalformedError(f"{stored}: not an attached document")


def _from_api(repository: Repository, digest: str) -> dict[str, str] | None:
    """Read every page of the API's answer; None if the registry has no such API."""
    found: dict[str, str] = {}
    own = f"{repository.reference.host}/v2/{repository.reference.repository}/referrers/{digest}"
    for number, answer in enumerate(repository.pages(f"referrers/{digest}", expect=(_OK, *_NO_API))):
        if answer.status != _OK and number == 0 and answer.address.partition("://")[2] == own:
            return None
        if answer.status != _OK or answer.headers.get("OCI-Filters-Applied", "").strip():
            text = f"the registry names a page that it does not have, or filters its list: {answer.address}"
            raise RegistryRefusedError(Reason.BAD_ANSWER, text)
        found = _types(_listed(answer.content), found)
    return found


def _entries(repository: Repository, subject: str) -> tuple[msgspec.Raw, ...]:
    """Return the entries under a list's tag; none if somebody has put an image there."""
    found = repository.manifest(fallback_tag(subject), limit=MAX_LIST)
    return () if found is None or found.media_type in IMAGES else _listed(found.content)


def _listed(content: bytes) -> tuple[msgspec.Raw, ...]:
    index: _Index = parsed(content, _Index, "a list of attached documents", ())
    return index.manifests or ()


def _types(entries: Iterable[msgspec.Raw], before: Mapping[str, str] = {}) -> dict[str, str]:
    """Return the type of each listed document. An entry that names none is there by its text: it is not a digest."""
    found = dict(before)
    for entry in entries:
        one = _Listed(digest=bytes(entry).decode(errors="replace"))
        with suppress(MalformedError):
            one = parsed(entry, _Listed, "a descriptor")
        found[one.digest] = (one.artifact_type or "").casefold()  # media types have no case
    if len(found) > MAX_ENTRIES:
        raise RegistryRefusedError(Reason.TOO_MANY, f"more than {MAX_ENTRIES} documents are attached")
    return found


def _from_own_tags(repository: Repository, digest: str, known: object = None, *, strict: bool = True) -> _Own:
    """Find documents by their own tags (each has to lead to its own if ``strict``), and why the tags may not be all."""
    try:
        tags = {tag for tag in repository.tags() if subject_of(tag) == digest}
    except RegistryRefusedError as error:
        if error.fault in (Reason.ACCESS_DENIED, Reason.REJECTED, Reason.NOT_THERE):
            return (), error
        raise
    is_cut = bool(known) and fallback_tag(digest) not in tags
    found = in_parallel(repository.manifest, own := sorted(tags - {fallback_tag(digest)}))
    for tag, manifest in zip(own, found, strict=True):
        if strict and not (manifest and tag.endswith(manifest.digest[7:23])):
            raise RegistryRefusedError(Reason.ALTERED, f"{tag} leads to another document, or to none")
    return tuple(filter(None, found)), RegistryRefusedError(Reason.REJECTED, "its list lacks some") if is_cut else None


def _list_under_tag(repository: Repository, subject: str, documents: tuple[Descriptor, ...]) -> None:
    """Add missing entries to the list that other tools read, also those that another writer has lost."""
    entries = _entries(repository, subject)
    have = _types(entries)
    if any(one.digest not in have for one in documents):
        documents = (*(one.descriptor for one in _from_own_tags(repository, subject)[0]), *documents)
        more = {one.digest: msgspec.Raw(msgspec.json.encode(one)) for one in documents if one.digest not in have}
        index = msgspec.json.encode(_Index(manifests=(*entries, *more.values())))
        repository.put_manifest(fallback_tag(subject), index, OCI_INDEX)
