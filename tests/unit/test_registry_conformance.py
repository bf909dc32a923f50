"""The emulation of an OCI 1.1 registry does what the distribution specification says, where the tests rely on it."""

from __future__ import annotations

import hashlib
import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest
from registries import modern_registry

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
Ask = Any


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@pytest.fixture
def ask() -> Iterator[Ask]:
    """Yield what sends a request and returns status, headers and body; ``ask.state`` is the registry's."""
    with modern_registry() as (host, state):

        def send(method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, Any, bytes]:
            connection = http.client.HTTPConnection(host, timeout=10)
            connection.request(method, f"/v2{path}", body, {k.replace("_", "-"): v for k, v in headers.items()})
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            return answer.status, answer.headers, content

        send.state = state  # type: ignore[attr-defined]
        yield send


def put(ask: Ask, target: str | None = None, **parts: Any) -> str:
    content = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, **parts}).encode()
    status, headers, _ = ask(
        "PUT", f"/team/image/manifests/{target or digest(content)}", content, Content_Type=MANIFEST
    )
    assert status == 201
    assert headers["Docker-Content-Digest"] == digest(content)
    assert headers.get("OCI-Subject") == parts.get("subject", {}).get("digest")
    return digest(content)


def test_a_referrer_is_listed_with_its_type_and_annotations(ask) -> None:
    subject = put(ask, "one", layers=[])
    named = put(ask, subject={"digest": subject}, artifactType="a/type", annotations={"a": "b"})
    unnamed = put(ask, subject={"digest": subject}, config={"mediaType": "of/config"})
    listed = {
        item["digest"]: item for item in json.loads(ask("GET", f"/team/image/referrers/{subject}")[2])["manifests"]
    }
    assert set(listed) == {named, unnamed}
    assert (listed[named]["artifactType"], listed[named]["annotations"]) == ("a/type", {"a": "b"})
    assert listed[unnamed]["artifactType"] == "of/config"
    assert listed[named]["size"] == len(ask("GET", f"/team/image/manifests/{named}")[2])


def test_a_filter_is_applied_and_said(ask) -> None:
    subject = put(ask, "one", layers=[])
    wanted = put(ask, subject={"digest": subject}, artifactType="wanted")
    put(ask, subject={"digest": subject}, artifactType="other")
    _, headers, body = ask("GET", f"/team/image/referrers/{subject}?artifactType=wanted")
    assert headers["OCI-Filters-Applied"] == "artifactType"
    assert [item["digest"] for item in json.loads(body)["manifests"]] == [wanted]


def test_pages_follow_one_another(ask) -> None:
    subject = put(ask, "one", layers=[])
    every = {put(ask, subject={"digest": subject}, artifactType=f"t/{i}") for i in range(7)}
    ask.state.page = 3
    path, found, pages = f"/team/image/referrers/{subject}", [], 0
    while path:
        _, headers, body = ask("GET", path)
        found += [item["digest"] for item in json.loads(body)["manifests"]]
        link = headers.get("Link", "")
        path = link.partition("<")[2].partition(">")[0].removeprefix("/v2")
        pages += 1
    assert pages == 3
    assert len(found) == 7
    assert set(found) == every


def test_content_has_to_match_its_digest(ask) -> None:
    assert ask("PUT", f"/team/image/manifests/{digest(b'x')}", b"{}", Content_Type=MANIFEST)[0] == 400
    assert ask("PUT", "/team/image/manifests/tag", b"no json", Content_Type=MANIFEST)[0] == 400
    status, headers, _ = ask("POST", "/team/image/blobs/uploads/")
    assert status == 202
    location = headers["Location"].removeprefix("/v2")
    assert ask("PUT", f"{location}&digest={digest(b'x')}", b"y")[0] == 400
    assert ask("PUT", f"{location}&digest={digest(b'y')}", b"y")[0] == 201
    assert ask("GET", f"/team/image/blobs/{digest(b'y')}")[2] == b"y"
