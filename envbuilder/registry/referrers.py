"""Documents attached to a manifest: the referrers API (OCI 1.1), or tags where it is lacking.

Without the API, OCI 1.1 keeps one list a subject under the tag ``sha256-<hex>``. Two who write it at once can lose each
other's entry, and old registries have no compare-and-swap. So each document also gets a tag of its own, which nobody
else writes: what the list has lost is found there, and whoever writes the list next puts it back.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from envbuilder.errors import InfrastructureError
from envbuilder.registry.bounded_json import MalformedError, parsed
from envbuilder.registry.client import MAX_LIST, OCI_INDEX, OCI_MANIFEST, Descriptor, Manifest, Repository, digest_of
from envbuilder.registry.faults import Fault, RegistryFailedError, RegistryRefusedError
from envbuilder.registry.paging import pages
from envbuilder.registry.parallel import in_parallel

EMPTY = b"{}"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"

ATTEMPTS = 5
"""How often a list is written again that somebody else wrote over."""

PAUSE_S = 0.1
"""The first pause before what was attached is looked for again, at least; they double."""

MAX_ENTRIES = 20_000
"""Attached documents of any kind above which an image is refused: they could not be read in time."""

_OK = 200
_NO_API = (400, 404, 405, 501)
"""What registries without the referrers API answer to it."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_OWN_TAG = re.compile(r"(sha256-[0-9a-f]{64})\.([0-9a-f]{16})\Z")


class _Artifact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An OCI manifest that carries one document about a subject."""

    schema_version: int = msgspec.field(name="schemaVersion")
    media_type: str = msgspec.field(name="mediaType")
    artifact_type: str
    config: Descriptor
    layers: tuple[Descriptor, ...]
    subject: Descriptor | None = None
    annotations: dict[str, str] = {}


class _Pointer(msgspec.Struct, frozen=True, rename="camel"):
    """Of a descriptor that another tool wrote, the part that has to be right to fetch it."""

    digest: str
    artifact_type: str | None = None


class _Stored(msgspec.Struct, frozen=True):
    subject: _Pointer | None = None
    layers: tuple[msgspec.Raw, ...] | None = None


class _Layer(msgspec.Struct, frozen=True, rename="camel"):
    media_type: str
    digest: str


class _Index(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A list as it stands: entries stay as their writers wrote them. No key ``manifests`` is no list."""

    manifests: tuple[msgspec.Raw, ...] | None
    schema_version: int = msgspec.field(name="schemaVersion", default=2)
    media_type: str = msgspec.field(name="mediaType", default=OCI_INDEX)


@dataclass(frozen=True)
class Listing:
    """What is attached to a digest. ``claimed`` are those that the registry does not vouch for.

    A registry with the API knows what it lists; the tag beside it is anybody's to write.
    """

    items: tuple[Descriptor, ...]
    claimed: frozenset[str] = frozenset()


class NotADocumentError(RegistryRefusedError):
    """What is listed is there, but it is not one document about this subject."""

    def __init__(self, message: str) -> None:
        super().__init__(Fault.BAD_ANSWER, message)


def fallback_tag(digest: str) -> str:
    """Name the tag under which registries without the API keep the list (OCI distribution 1.1)."""
    return digest.replace(":", "-")


def subject_of(tag: str) -> str:
    """Return the digest that a tag of ours lists documents about; '' for any other tag."""
    name = found[1] if (found := _OWN_TAG.match(tag)) else tag
    digest = name.replace("-", ":", 1)
    return digest if name.startswith("sha256-") and _DIGEST.match(digest) else ""


def attach(
    repository: Repository, subject: Manifest, content: bytes, media_type: str, annotations: Mapping[str, str]
) -> Descriptor:
    """Attach a document to a manifest; doing so again with the same content changes nothing."""
    layer = repository.put_blob(content, media_type)
    artifact = _Artifact(
        schema_version=2,
        media_type=OCI_MANIFEST,
        artifact_type=media_type,
        config=repository.put_blob(EMPTY, EMPTY_TYPE),
        layers=(layer,),
        subject=subject.descriptor,
        annotations=dict(sorted(annotations.items())),
    )
    data = msgspec.json.encode(artifact)
    descriptor = Descriptor(
        media_type=OCI_MANIFEST,
        digest=digest_of(data),
        size=len(data),
        artifact_type=media_type,
        annotations=artifact.annotations,
    )
    if not repository.put_manifest(descriptor.digest, data, OCI_MANIFEST):
        repository.put_manifest(_own_tag(subject.digest, descriptor.digest), data, OCI_MANIFEST)
        _list_under_tag(repository, subject.digest, (descriptor,), attempts=1)
    return descriptor


def confirm(repository: Repository, subject: str, documents: tuple[Descriptor, ...]) -> None:
    """Read back until every document of ours is listed and there. Raises InfrastructureError where one stays away."""
    for attempt in range(ATTEMPTS):
        from_api = _from_api(repository, subject)
        if from_api is None:
            _list_under_tag(repository, subject, documents, attempts=ATTEMPTS)
        listed = {item.digest for item in listing(repository, subject).items}
        if listed.issuperset(item.digest for item in documents) and all(_is_kept(repository, one) for one in documents):
            return
        time.sleep(random.uniform(PAUSE_S, 3 * PAUSE_S) * 2**attempt)  # noqa: S311 - spreads writers, protects nothing
    raise InfrastructureError(
        f"the registry does not list what was attached to {subject}, or has lost it",
        hint="run it again: what is there stays",
    )


def _is_kept(repository: Repository, stored: Descriptor) -> bool:
    manifest = repository.manifest(stored.digest)
    return manifest is not None and not repository.lacking(manifest)


def attached(repository: Repository, digest: str, media_type: str) -> tuple[Descriptor, ...]:
    """List the documents of one type that are attached to a digest, from the API and from the tags alike."""
    items = listing(repository, digest, frozenset((media_type,))).items
    return tuple(item for item in items if item.artifact_type in ("", media_type))


def listing(repository: Repository, digest: str, kinds: frozenset[str] = frozenset()) -> Listing:
    """List everything that is attached to a digest: every page of the API, and the tags of what came before it.

    Both are read, since a registry may have learnt the API after documents were attached the old way. ``kinds`` are the
    types that the caller reads: what a tag lists under another type is not believed to be of it, since anybody can
    write that. Raises RegistryRefusedError where the registry's own list is none, or too long.
    """
    from_api = _from_api(repository, digest)
    try:
        old = _from_tag(repository, digest)
    except RegistryRefusedError:
        if from_api is None:
            raise
        old = ()  # anybody can push this tag; where the registry itself lists, it proves and disproves nothing
    if from_api is None:
        believed = [item for item in old if not kinds or item.artifact_type in ("", *kinds)]
        old = (*old, *_from_own_tags(repository, digest, believed))
    known = {item.digest for item in from_api or ()}
    found = {item.digest: item for item in (*(from_api or ()), *old)}
    if len(found) > MAX_ENTRIES:
        raise _too_many(digest)
    claimed = frozenset(found) - known if from_api is not None else frozenset()
    return Listing(tuple(found.values()), claimed)


def document(repository: Repository, stored: str, subject: str, media_type: str) -> bytes:
    """Fetch an attached document.

    Raises NotADocumentError where its manifest is none or names another subject, RegistryRefusedError where it is not
    in the registry (NOT_THERE) or beyond the bounds.
    """
    manifest = repository.manifest(stored)
    if manifest is None:
        raise RegistryRefusedError(Fault.NOT_THERE, f"{stored} is listed as attached but is not in the registry")
    try:
        artifact: _Stored = parsed(manifest.content, _Stored, "an attached document")
        layers = [parsed(layer, _Layer, "a descriptor") for layer in artifact.layers or ()]
    except MalformedError as error:
        raise NotADocumentError(f"{stored}: {error.message}") from error
    if artifact.subject is None or artifact.subject.digest != subject:
        raise NotADocumentError(f"{stored} is listed under {subject} but is attached to something else")
    if len(layers) != 1 or layers[0].media_type != media_type or not _DIGEST.match(layers[0].digest):
        raise NotADocumentError(f"{stored}: not one document of type {media_type}")
    return repository.blob(layers[0].digest)


def _from_api(repository: Repository, digest: str) -> tuple[Descriptor, ...] | None:
    """Read every page of the API's answer; None where the registry has no such API."""
    found: list[Descriptor] = []
    path = f"{repository.reference.repository}/referrers/{digest}"
    first = True
    for answer in pages(repository.transport, path, expect=(_OK, *_NO_API), limit=MAX_LIST):
        if answer.status != _OK:
            if first:
                return None
            raise RegistryRefusedError(
                Fault.BAD_ANSWER, f"the registry names a page that it does not have: {answer.address}"
            )
        if answer.headers.get("OCI-Filters-Applied", "").strip():
            raise RegistryRefusedError(Fault.BAD_ANSWER, "the registry leaves out of its list what it was not asked to")
        found += _entries(_decode(answer.content))
        first = False
        if len(found) > MAX_ENTRIES:
            raise _too_many(digest)
    return tuple(found)


def _from_tag(repository: Repository, digest: str) -> tuple[Descriptor, ...]:
    manifest = repository.manifest(fallback_tag(digest), limit=MAX_LIST)
    return () if manifest is None else tuple(_entries(_decode(manifest.content)))


def _from_own_tags(repository: Repository, digest: str, listed: Iterable[Descriptor]) -> tuple[Descriptor, ...]:
    """Find documents by their own tags that a list has lost."""
    have = {item.digest[7:23] for item in listed}
    try:
        tags = repository.tags()
    except RegistryRefusedError as error:
        if error.fault in (Fault.ACCESS_DENIED, Fault.REJECTED):
            return ()  # a registry that keeps its tags to itself: then the list is all there is
        raise
    lost = [tag for tag in tags if (own := _OWN_TAG.match(tag)) and subject_of(tag) == digest and own[2] not in have]
    if len(lost) > MAX_ENTRIES:
        raise _too_many(digest)
    return tuple(
        filter(None, in_parallel(lambda tag: _described(repository, tag), lost, repository.transport.deadline))
    )


def _described(repository: Repository, tag: str) -> Descriptor | None:
    manifest = repository.manifest(tag)
    if manifest is None:
        return None
    try:
        artifact: _Artifact = parsed(manifest.content, _Artifact, "an attached document")
    except MalformedError:
        return None  # this tag is anybody's to write as well
    return Descriptor(
        media_type=manifest.media_type,
        digest=manifest.digest,
        size=len(manifest.content),
        artifact_type=artifact.artifact_type,
        annotations=artifact.annotations,
    )


def _own_tag(subject: str, stored: str) -> str:
    return f"{fallback_tag(subject)}.{stored.removeprefix('sha256:')[:16]}"


def _list_under_tag(repository: Repository, subject: str, documents: tuple[Descriptor, ...], *, attempts: int) -> None:
    """Write into the list what is missing from it, until it stays there or the attempts are spent.

    What the list never takes, because others write it or the registry fails, stands under its own tag all the same.
    """
    for attempt in range(attempts):
        try:
            current = repository.manifest(fallback_tag(subject), limit=MAX_LIST)
            entries = _decode(current.content).manifests or () if current else ()
            have = {item.digest for item in _parsed(entries)}
            wanted = {item.digest: item for item in documents if item.digest not in have}
            if not wanted:
                return
            lost = _from_own_tags(repository, subject, (*_parsed(entries), *wanted.values()))
            more = tuple(msgspec.Raw(msgspec.json.encode(item)) for item in (*wanted.values(), *lost))
            index = msgspec.json.encode(_Index(manifests=(*entries, *more)))
            repository.replace_manifest(fallback_tag(subject), current, index, OCI_INDEX)
        except RegistryFailedError as error:
            if error.fault not in (Fault.SERVER_ERROR, Fault.UNREACHABLE):
                raise
        if attempt < attempts - 1:
            time.sleep(random.uniform(0.01, 0.05) * 2 ** min(attempt, 4))  # noqa: S311 - spreads writers


def _decode(content: bytes) -> _Index:
    try:
        index: _Index = parsed(content, _Index, "a list of attached documents")
    except MalformedError as error:
        raise RegistryRefusedError(
            Fault.BAD_ANSWER, f"the registry's list of attached documents: {error.message}"
        ) from error
    return index


def _entries(index: _Index) -> list[Descriptor]:
    return _parsed(index.manifests or ())


def _parsed(entries: Iterable[msgspec.Raw]) -> list[Descriptor]:
    """Read entries; what another tool wrote in its own way is read as far as is needed, or is not ours at all."""
    found = []
    for entry in entries:
        try:
            found.append(parsed(entry, Descriptor, "a descriptor"))
        except MalformedError:
            try:
                pointer: _Pointer = parsed(entry, _Pointer, "a descriptor")
            except MalformedError:
                continue
            kind = pointer.artifact_type or ""
            found.append(Descriptor(media_type="", digest=pointer.digest, size=0, artifact_type=kind))
    return [item for item in found if _DIGEST.match(item.digest)]


def _too_many(digest: str) -> RegistryRefusedError:
    return RegistryRefusedError(Fault.TOO_MANY, f"more than {MAX_ENTRIES} documents are attached to {digest}")
