"""What a manifest is, and whether everybody takes it for the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from envbuilder.registry.manifests import (
    DOCKER_LIST,
    DOCKER_MANIFEST,
    OCI_INDEX,
    OCI_MANIFEST,
    Manifest,
    ambiguity,
    platforms,
)

IMAGE: dict[str, Any] = {"schemaVersion": 2, "config": {"digest": "sha256:1"}, "layers": []}


def manifest(document: Any, kind: str = OCI_MANIFEST) -> Manifest:
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    return Manifest(kind, content, "sha256:x")


def entry(os: str, architecture: str, **more: str) -> dict[str, Any]:
    return {"digest": "sha256:1", "platform": {"os": os, "architecture": architecture, **more}}


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        (IMAGE, OCI_MANIFEST),
        ({**IMAGE, "mediaType": OCI_MANIFEST}, OCI_MANIFEST),
        ({**IMAGE, "mediaType": DOCKER_MANIFEST}, DOCKER_MANIFEST),
        ({**IMAGE, "mediaType": OCI_MANIFEST}, ""),
        ({"manifests": [entry("linux", "amd64")]}, OCI_INDEX),
        ({"manifests": [entry("linux", "amd64")], "mediaType": DOCKER_LIST}, DOCKER_LIST),
        ({**IMAGE, "subject": {"digest": "sha256:2"}, "artifactType": "x/y", "annotations": {}}, OCI_MANIFEST),
    ],
)
def test_ordinary_manifests_are_one_thing(document: Any, kind: str) -> None:
    assert ambiguity(manifest(document, kind)) == ""


@pytest.mark.parametrize(
    ("document", "kind", "why"),
    [
        ({**IMAGE, "manifests": [entry("linux", "amd64")]}, OCI_MANIFEST, "at once"),
        ({"manifests": [], "layers": []}, OCI_INDEX, "at once"),
        ({**IMAGE, "mediaType": OCI_INDEX}, OCI_MANIFEST, "it says"),
        (b'{"layers":[],"config":{},"layers":[]}', OCI_MANIFEST, "twice"),
        (b'{"layers":[],"config":{"digest":"a","digest":"b"}}', OCI_MANIFEST, "twice"),
        (b"\xff\xfe", OCI_MANIFEST, "not a manifest"),
        (b'{"manifests":' + b"[" * 60_000, OCI_INDEX, "not a manifest"),
        (b"[]", OCI_MANIFEST, "not a manifest"),
    ],
)
def test_what_can_be_read_in_two_ways_says_in_which(document: Any, kind: str, why: str) -> None:
    assert why in ambiguity(manifest(document, kind))


def test_platforms_are_counted_once_and_records_of_builds_are_none() -> None:
    entries = [
        entry("linux", "amd64"),
        entry("linux", "amd64"),
        entry("linux", "arm", variant="v7"),
        entry("linux", "arm", variant="v8"),
        entry("unknown", "unknown"),
    ]
    assert platforms(manifest({"manifests": entries}, OCI_INDEX)) == ("linux/amd64", "linux/arm/v7", "linux/arm/v8")
    assert platforms(manifest(IMAGE)) == ()
    assert platforms(manifest(b"[]")) == ()
