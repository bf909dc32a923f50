"""One repository in a registry: manifests, blobs and tags. Every digest is computed here and compared."""

from __future__ import annotations

from typing import BinaryIO
from urllib.parse import urlencode

import msgspec

from envbuilder.errors import Reason
from envbuilder.registry.errors import RegistryRefusedError, parsed
from envbuilder.registry.manifests import (
    DOCKER_LIST,
    DOCKER_MANIFEST,
    MAX_DOCUMENT,
    OCI_INDEX,
    OCI_MANIFEST,
    Descriptor,
    Manifest,
    blob_digests,
    digest_of,
)
from envbuilder.registry.transport import RegistryTransport

MAX_LIST = 32 << 20
MAX_TAGS = 100_000
"""Bytes of one page of a list, and the tags above which a repository is refused."""

_ACCEPT = f"{OCI_MANIFEST}, {OCI_INDEX}, {DOCKER_MANIFEST}, {DOCKER_LIST}"
_OK, _CREATED, _ACCEPTED, _MISSING = 200, 201, 202, 404


class Repository(RegistryTransport):
    """One repository. Methods raise RegistryRefusedError if the registry refuses, RegistryFailedError if it fails."""

    def manifest(self, target: str, *, limit: int = MAX_DOCUMENT) -> Manifest | None:
        """Fetch a manifest by tag or digest; None if it is not there."""
        accept = {"Accept": _ACCEPT}
        response = self.send("GET", f"manifests/{target}", expect=(_OK, _MISSING), headers=accept, limit=limit)
        if response.status == _MISSING:
            return None
        computed = digest_of(response.content)
        _agree(computed, response.headers.get("Docker-Content-Digest"), f"manifest {target}")
        if target.startswith("sha256:"):
            _agree(computed, target, f"manifest {target}")
        kind = response.headers.get("Content-Type", "").split(";")[0].strip()
        return Manifest(kind, response.content, computed)

    def put_manifest(self, target: str, content: bytes, media_type: str) -> bool:
        """Store a manifest under a tag or its digest; True if the registry supports referrers."""
        _check_size(content)
        path, headers, expect = f"manifests/{target}", {"Content-Type": media_type}, (_CREATED, _ACCEPTED, _OK)
        response = self.send("PUT", path, expect=expect, headers=headers, body=content, scope="pull,push")
        _agree(digest_of(content), response.headers.get("Docker-Content-Digest"), f"manifest {target}")
        return "OCI-Subject" in response.headers

    def blob(self, digest: str) -> bytes:
        """Fetch a small blob. Raises RegistryRefusedError if it is absent, too large or does not have its digest."""
        response = self.send("GET", f"blobs/{digest}", expect=(_OK,), limit=MAX_DOCUMENT)
        _agree(digest_of(response.content), digest, "blob")
        return response.content

    def has_blob(self, digest: str) -> bool:
        return self.send("HEAD", f"blobs/{digest}", expect=(_OK, _MISSING)).status == _OK

    def lacking(self, manifest: Manifest) -> str:
        """Return a blob of an image or attached document that the registry lacks; '' if it has all of them."""
        return next((digest for digest in blob_digests(manifest) if not self.has_blob(digest)), "")

    def put_blob(self, content: bytes, media_type: str) -> Descriptor:
        _check_size(content)
        digest = digest_of(content)
        self.upload(digest, content)
        return Descriptor(media_type=media_type, digest=digest, size=len(content))

    def upload(self, digest: str, body: bytes | BinaryIO) -> None:
        """Store a blob of any size, unless it is there; the registry checks its digest."""
        if self.has_blob(digest):
            return
        begun = self.send("POST", "blobs/uploads/", expect=(_ACCEPTED,), body=b"", scope="pull,push")
        location, query = begun.headers.get("Location", ""), urlencode({"digest": digest})
        self.send(
            "PUT",
            f"{location}{'&' if '?' in location else '?'}{query}",
            expect=(_CREATED,),
            headers={"Content-Type": "application/octet-stream"},
            body=body,
            scope="pull,push",
        )

    def tags(self) -> tuple[str, ...] | None:
        """List every tag; None if the repository does not exist. Raises RegistryRefusedError for too many."""
        names: list[str] = []
        for response in self.pages("tags/list?n=1000", expect=(_OK, _MISSING), limit=MAX_LIST):
            if response.status == _MISSING:
                return tuple(sorted(names)) if names else None
            names += parsed(response.content, _TagList, f"a list of tags of {self.reference.name}").tags or ()
            if len(names) > MAX_TAGS:
                raise RegistryRefusedError(Reason.TOO_MANY, f"{self.reference.name} has more than {MAX_TAGS} tags")
        return tuple(sorted(names))


class _TagList(msgspec.Struct, frozen=True):
    tags: tuple[str, ...] | None = None


def _check_size(content: bytes) -> None:
    if len(content) > MAX_DOCUMENT:
        text = f"a document of {len(content)} bytes is too large: readers refuse it"
        raise RegistryRefusedError(Reason.TOO_LARGE, text)


def _agree(computed: str, stated: str | None, what: str) -> None:
    if stated is not None and stated != computed:
        text = f"{what}: the registry says {stated}, the bytes have {computed}"
        hint = "something between here and the registry alters content: do not use this image"
        raise RegistryRefusedError(Reason.ALTERED, text, hint=hint)
