"""One repository in a registry: manifests, blobs and tags. Every digest is computed here and compared."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import BinaryIO
from urllib.parse import urlencode, urlsplit, urlunsplit

import msgspec

from envbuilder.registry.bounded_json import MalformedError, parsed
from envbuilder.registry.deadline import Deadline
from envbuilder.registry.exchange import Answer
from envbuilder.registry.faults import Fault, RegistryRefusedError
from envbuilder.registry.paging import pages
from envbuilder.registry.reference import Reference
from envbuilder.registry.transport import Transport

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"

MAX_DOCUMENT = 4 << 20
"""Bytes above which a manifest or statement is refused, written or read: ours are a tenth of it."""

MAX_LIST = 32 << 20
MAX_TAGS = 100_000
"""Bytes of one page of a list, and the tags above which a repository is refused."""

_ACCEPT = f"{OCI_MANIFEST}, {OCI_INDEX}, {DOCKER_MANIFEST}, {DOCKER_LIST}"
_PIECE = 1 << 20
_OK, _CREATED, _ACCEPTED, _MISSING, _CHANGED = 200, 201, 202, 404, 412


class Descriptor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What a manifest says of another document: its type, digest and size in bytes."""

    media_type: str
    digest: str
    size: int
    artifact_type: str = ""
    annotations: dict[str, str] = {}


@dataclass(frozen=True)
class Manifest:
    """A manifest's very bytes, their type, and the digest that they have; ``etag`` as the registry gave it."""

    media_type: str
    content: bytes
    digest: str
    etag: str = field(default="", compare=False)

    @property
    def descriptor(self) -> Descriptor:
        """Describe it for another manifest's ``subject``."""
        return Descriptor(media_type=self.media_type, digest=self.digest, size=len(self.content))


def digest_of(content: bytes) -> str:
    """Return the SHA-256 digest of content, as registries write it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def digest_of_file(file: BinaryIO) -> str:
    """Return the digest of a file from its beginning; it stands at its beginning again then."""
    hashed = hashlib.sha256()
    file.seek(0)
    while piece := file.read(_PIECE):
        hashed.update(piece)
    file.seek(0)
    return f"sha256:{hashed.hexdigest()}"


class Repository:
    """One repository. Methods raise PublishError on a refusal and InfrastructureError where the registry fails."""

    def __init__(
        self,
        reference: Reference,
        environment: Mapping[str, str] | None = None,
        deadline: Deadline | None = None,
    ) -> None:
        self.reference = reference
        self.transport = Transport(reference, os.environ if environment is None else environment, deadline)
        self._path = f"{reference.repository}/"

    def manifest(self, target: str, *, limit: int = MAX_DOCUMENT) -> Manifest | None:
        """Fetch a manifest by tag or digest; None where there is none."""
        answer = self.transport.send(
            "GET",
            f"{self._path}manifests/{target}",
            expect=(_OK, _MISSING),
            headers={"Accept": _ACCEPT},
            limit=limit,
        )
        if answer.status == _MISSING:
            return None
        computed = digest_of(answer.content)
        _agree(computed, answer.headers.get("Docker-Content-Digest"), f"manifest {target}")
        if target.startswith("sha256:"):
            _agree(computed, target, f"manifest {target}")
        kind = answer.headers.get("Content-Type", "").split(";")[0].strip()
        return Manifest(kind, answer.content, computed, answer.headers.get("ETag", ""))

    def put_manifest(self, target: str, content: bytes, media_type: str) -> bool:
        """Store a manifest under a tag or its digest; True where the registry says that it handles referrers."""
        if len(content) > MAX_DOCUMENT:
            raise RegistryRefusedError(
                Fault.TOO_LARGE, f"a manifest of {len(content)} bytes is more than anybody would read"
            )
        answer = self._put(target, content, {"Content-Type": media_type}, expect=(_CREATED, _ACCEPTED, _OK), again=True)
        return "OCI-Subject" in answer.headers

    def replace_manifest(self, tag: str, old: Manifest | None, content: bytes, media_type: str) -> bool:
        """Store a manifest in the place of another (None: of nothing); False where that has changed meanwhile.

        A registry that knows conditional requests refuses by itself; with one that ignores them, the caller has to
        read back. A failure is not tried again here, since what is to be written may be stale by then.
        """
        condition = {"If-Match": old.etag} if old and old.etag else {} if old else {"If-None-Match": "*"}
        headers = {"Content-Type": media_type, **condition}
        answer = self._put(tag, content, headers, expect=(_CREATED, _ACCEPTED, _OK, _CHANGED), again=False)
        return answer.status != _CHANGED

    def _put(
        self, target: str, content: bytes, headers: Mapping[str, str], *, expect: tuple[int, ...], again: bool
    ) -> Answer:
        answer = self.transport.send(
            "PUT",
            f"{self._path}manifests/{target}",
            expect=expect,
            headers=headers,
            body=content,
            scope="pull,push",
            again=again,
        )
        if answer.status != _CHANGED:
            _agree(digest_of(content), answer.headers.get("Docker-Content-Digest"), f"manifest {target}")
        return answer

    def blob(self, digest: str) -> bytes:
        """Fetch a small blob. Raises RegistryRefusedError where it is absent, too large, or other than its digest."""
        answer = self.transport.send("GET", f"{self._path}blobs/{digest}", expect=(_OK,), limit=MAX_DOCUMENT)
        _agree(digest_of(answer.content), digest, "blob")
        return answer.content

    def has_blob(self, digest: str) -> bool:
        """Tell whether the registry says that it has a blob."""
        return self.transport.send("HEAD", f"{self._path}blobs/{digest}", expect=(_OK, _MISSING)).status == _OK

    def lacking(self, manifest: Manifest) -> str:
        """Name a blob of an image, or of an attached document, that the registry has not; '' where it has all.

        A manifest without blobs of its own, such as an index, lacks none; neither does one lack what it says is kept
        elsewhere.
        """
        try:
            parts: _Parts = parsed(manifest.content, _Parts, "a manifest")
        except MalformedError:
            return ""
        named = [part.digest for part in (parts.config, *(parts.layers or ())) if part is not None and not part.urls]
        return next((digest for digest in dict.fromkeys(named) if not self.has_blob(digest)), "")

    def put_blob(self, content: bytes, media_type: str) -> Descriptor:
        """Store a blob, unless it is there already."""
        if len(content) > MAX_DOCUMENT:
            raise RegistryRefusedError(
                Fault.TOO_LARGE, f"a document of {len(content)} bytes is more than anybody would read"
            )
        digest = digest_of(content)
        self._upload(digest, content, again=True)
        return Descriptor(media_type=media_type, digest=digest, size=len(content))

    def upload(self, digest: str, file: BinaryIO) -> None:
        """Store a file of any size as a blob, unless it is there already; the registry holds it to its digest."""
        self._upload(digest, file, again=False)  # of a long upload that broke off, the registry may keep a part

    def _upload(self, digest: str, body: bytes | BinaryIO, *, again: bool) -> None:
        if self.has_blob(digest):
            return
        begun = self.transport.send(
            "POST", f"{self._path}blobs/uploads/", expect=(_ACCEPTED,), body=b"", scope="pull,push"
        )
        self.transport.send(
            "PUT",
            _with_digest(begun.headers.get("Location", ""), digest),
            expect=(_CREATED,),
            headers={"Content-Type": "application/octet-stream"},
            body=body,
            scope="pull,push",
            again=again,
        )

    def tags(self) -> tuple[str, ...]:
        """List every tag; empty where the repository does not exist yet."""
        return self.tags_if_there() or ()

    def tags_if_there(self) -> tuple[str, ...] | None:
        """List every tag; None where the repository does not exist. Raises RegistryRefusedError for too many."""
        names: list[str] = []
        for answer in pages(self.transport, f"{self._path}tags/list?n=1000", expect=(_OK, _MISSING), limit=MAX_LIST):
            if answer.status == _MISSING:
                return tuple(sorted(names)) if names else None
            try:
                names += parsed(answer.content, _Tags, "a list of tags").tags or ()
            except MalformedError as error:
                raise RegistryRefusedError(Fault.BAD_ANSWER, f"{self.reference.name}: {error.message}") from error
            if len(names) > MAX_TAGS:
                raise RegistryRefusedError(Fault.TOO_MANY, f"{self.reference.name} has more than {MAX_TAGS} tags")
        return tuple(sorted(names))


class _Part(msgspec.Struct, frozen=True):
    digest: str
    urls: tuple[str, ...] = ()


class _Parts(msgspec.Struct, frozen=True):
    config: _Part | None = None
    layers: tuple[_Part, ...] | None = None


class _Tags(msgspec.Struct, frozen=True):
    tags: tuple[str, ...] | None = None


def _with_digest(location: str, digest: str) -> str:
    parts = urlsplit(location)
    query = "&".join(filter(None, (parts.query, urlencode({"digest": digest}))))
    return urlunsplit(parts._replace(query=query))


def _agree(computed: str, stated: str | None, what: str) -> None:
    if stated is not None and stated != computed:
        raise RegistryRefusedError(
            Fault.ALTERED,
            f"{what}: the registry says {stated}, the bytes have {computed}",
            hint="something between here and the registry alters content: do not use this image",
        )
