"""One repository in a registry: manifests, blobs and tags. Every digest is computed here and compared."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit, urlunsplit

import msgspec

from envbuilder.errors import PublishError
from envbuilder.registry.reference import Reference
from envbuilder.registry.transport import Transport

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"

MAX_DOCUMENT = 64 << 20
"""Bytes above which a manifest or statement is refused: ours are a hundredth of it."""

_ACCEPT = f"{OCI_MANIFEST}, {OCI_INDEX}, {DOCKER_MANIFEST}, {DOCKER_LIST}"
_NEXT = re.compile(r'<([^>]+)>\s*;\s*rel="?next"?')
_OK, _CREATED, _ACCEPTED, _MISSING = 200, 201, 202, 404


class Descriptor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What a manifest says of another document: its type, digest and size in bytes."""

    media_type: str
    digest: str
    size: int
    artifact_type: str = ""
    annotations: dict[str, str] = {}


@dataclass(frozen=True)
class Manifest:
    """A manifest's very bytes, their type, and the digest that they have."""

    media_type: str
    content: bytes
    digest: str

    @property
    def descriptor(self) -> Descriptor:
        """Describe it for another manifest's ``subject``."""
        return Descriptor(media_type=self.media_type, digest=self.digest, size=len(self.content))


def digest_of(content: bytes) -> str:
    """Return the SHA-256 digest of content, as registries write it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class Repository:
    """One repository. Methods raise PublishError on a refusal and InfrastructureError where the registry fails."""

    def __init__(self, reference: Reference, environment: Mapping[str, str] | None = None) -> None:
        self.reference = reference
        self.transport = Transport(reference, os.environ if environment is None else environment)
        self._path = f"{reference.repository}/"

    def manifest(self, target: str) -> Manifest | None:
        """Fetch a manifest by tag or digest; None where there is none."""
        answer = self.transport.send(
            "GET", f"{self._path}manifests/{target}", expect=(_OK, _MISSING), headers={"Accept": _ACCEPT}
        )
        if answer.status_code == _MISSING:
            return None
        content = _bounded(answer.content)
        computed = digest_of(content)
        _agree(computed, answer.headers.get("Docker-Content-Digest"), f"manifest {target}")
        if target.startswith("sha256:"):
            _agree(computed, target, f"manifest {target}")
        kind = answer.headers.get("Content-Type", "").split(";")[0].strip()
        return Manifest(kind, content, computed)

    def put_manifest(self, target: str, content: bytes, media_type: str) -> bool:
        """Store a manifest under a tag or its digest; True where the registry says that it handles referrers."""
        answer = self.transport.send(
            "PUT",
            f"{self._path}manifests/{target}",
            expect=(_CREATED, _ACCEPTED, _OK),
            headers={"Content-Type": media_type},
            body=content,
            scope="pull,push",
        )
        _agree(digest_of(content), answer.headers.get("Docker-Content-Digest"), f"manifest {target}")
        return "OCI-Subject" in answer.headers

    def blob(self, digest: str) -> bytes:
        """Fetch a small blob. Raises PublishError where it is absent or not what its digest says."""
        answer = self.transport.send("GET", f"{self._path}blobs/{digest}", expect=(_OK,))
        content = _bounded(answer.content)
        _agree(digest_of(content), digest, "blob")
        return content

    def put_blob(self, content: bytes, media_type: str) -> Descriptor:
        """Store a blob, unless it is there already."""
        digest = digest_of(content)
        found = self.transport.send("HEAD", f"{self._path}blobs/{digest}", expect=(_OK, _MISSING))
        if found.status_code == _MISSING:
            begun = self.transport.send(
                "POST", f"{self._path}blobs/uploads/", expect=(_ACCEPTED,), body=b"", scope="pull,push"
            )
            self.transport.send(
                "PUT",
                _with_digest(begun.headers["Location"], digest),
                expect=(_CREATED,),
                headers={"Content-Type": "application/octet-stream"},
                body=content,
                scope="pull,push",
            )
        return Descriptor(media_type=media_type, digest=digest, size=len(content))

    def tags(self) -> tuple[str, ...]:
        """List every tag; empty where the repository does not exist yet."""
        names: list[str] = []
        page: str | None = f"{self._path}tags/list?n=1000"
        while page:
            answer = self.transport.send("GET", page, expect=(_OK, _MISSING))
            if answer.status_code == _MISSING:
                return ()
            names += msgspec.json.decode(answer.content, type=_Tags).tags or ()
            following = _NEXT.search(answer.headers.get("Link", ""))
            page = following[1] if following else None
        return tuple(sorted(names))


class _Tags(msgspec.Struct, frozen=True):
    tags: tuple[str, ...] | None = None


def _with_digest(location: str, digest: str) -> str:
    parts = urlsplit(location)
    query = "&".join(filter(None, (parts.query, urlencode({"digest": digest}))))
    return urlunsplit(parts._replace(query=query))


def _bounded(content: bytes) -> bytes:
    if len(content) > MAX_DOCUMENT:
        raise PublishError(f"the registry sent {len(content)} bytes where a small document was expected")
    return content


def _agree(computed: str, stated: str | None, what: str) -> None:
    if stated is not None and stated != computed:
        raise PublishError(
            f"{what}: the registry says {stated}, the bytes have {computed}",
            hint="something between here and the registry alters content: do not use this image",
        )
