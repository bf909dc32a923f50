"""Documents attached to a manifest: the referrers API (OCI 1.1), or an index under a tag where it is lacking."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from envbuilder.errors import InfrastructureError, PublishError
from envbuilder.registry.client import OCI_INDEX, OCI_MANIFEST, Descriptor, Manifest, Repository, digest_of

EMPTY = b"{}"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"

ATTEMPTS = 5
"""How often an index is written again that somebody else wrote over: the old registries have no compare-and-swap."""

_OK, _MISSING = 200, 404


class _Artifact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An OCI manifest that carries one document about a subject."""

    schema_version: int = msgspec.field(name="schemaVersion")
    media_type: str = msgspec.field(name="mediaType")
    artifact_type: str
    config: Descriptor
    layers: tuple[Descriptor, ...]
    subject: Descriptor | None = None
    annotations: dict[str, str] = {}


class _Index(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    schema_version: int = msgspec.field(name="schemaVersion", default=2)
    media_type: str = msgspec.field(name="mediaType", default=OCI_INDEX)
    manifests: tuple[Descriptor, ...] = ()


def fallback_tag(digest: str) -> str:
    """Name the tag under which registries without the API keep the list (OCI distribution 1.1)."""
    return digest.replace(":", "-")


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
        _list_under_tag(repository, subject.digest, descriptor)
    return descriptor


def attached(repository: Repository, digest: str, media_type: str) -> tuple[Descriptor, ...]:
    """List the documents of one type that are attached to a digest, from the API and from the tag alike.

    Both are read, since a registry may have learnt the API after documents were attached the old way.
    """
    found = {item.digest: item for item in (*_from_api(repository, digest), *_from_tag(repository, digest))}
    return tuple(item for item in found.values() if item.artifact_type in ("", media_type))


def document(repository: Repository, stored: str, subject: str, media_type: str) -> bytes:
    """Fetch an attached document. Raises PublishError where its manifest is not one, or names another subject."""
    manifest = repository.manifest(stored)
    if manifest is None:
        raise PublishError(f"{stored} is listed as attached but is not in the registry")
    try:
        artifact = msgspec.json.decode(manifest.content, type=_Artifact)
    except msgspec.MsgspecError as error:
        raise PublishError(f"{stored}: not an attached document: {error}") from error
    if artifact.subject is None or artifact.subject.digest != subject:
        raise PublishError(f"{stored} is listed under {subject} but is attached to something else")
    if len(artifact.layers) != 1 or artifact.layers[0].media_type != media_type:
        raise PublishError(f"{stored}: not one document of type {media_type}")
    return repository.blob(artifact.layers[0].digest)


def _from_api(repository: Repository, digest: str) -> tuple[Descriptor, ...]:
    path = f"{repository.reference.repository}/referrers/{digest}"
    answer = repository.transport.send("GET", path, expect=(_OK, _MISSING))
    kind = answer.headers.get("Content-Type", "").split(";")[0].strip()
    if answer.status_code == _MISSING or kind != OCI_INDEX:
        return ()
    return _decode(answer.content).manifests


def _from_tag(repository: Repository, digest: str) -> tuple[Descriptor, ...]:
    manifest = repository.manifest(fallback_tag(digest))
    return () if manifest is None else _decode(manifest.content).manifests


def _list_under_tag(repository: Repository, subject: str, descriptor: Descriptor) -> None:
    for _ in range(ATTEMPTS):
        listed = _from_tag(repository, subject)
        if any(item.digest == descriptor.digest for item in listed):
            return
        index = _Index(manifests=(*listed, descriptor))
        repository.put_manifest(fallback_tag(subject), msgspec.json.encode(index), OCI_INDEX)
    if all(item.digest != descriptor.digest for item in _from_tag(repository, subject)):
        raise InfrastructureError(
            f"the list of documents about {subject} is being written by others all the time", hint="run it again"
        )


def _decode(content: bytes) -> _Index:
    try:
        return msgspec.json.decode(content, type=_Index)
    except msgspec.MsgspecError as error:
        raise PublishError(f"the registry's list of attached documents is not one: {error}") from error
