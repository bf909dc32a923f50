"""What a key signed, as a Sigstore bundle: the same signature, in the form that cosign and Kyverno read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from factories import verdict
from registries import modern_registry

from envbuilder.attest import statements
from envbuilder.attest.envelope import BUNDLE, Envelope, KeyOpener, KeySealer, Opened, bundled, encode
from envbuilder.attest.keys import PUBLIC, create
from envbuilder.attest.statements import verdict_statement
from envbuilder.errors import PublishError
from envbuilder.registry.client import Repository
from envbuilder.registry.manifests import OCI_MANIFEST, digest_of
from envbuilder.registry.reference import parse
from envbuilder.registry.referrers import attach
from envbuilder.verdict import ImageRef


def test_a_bundle_holds_the_envelopes_own_signatures(tmp_path: Path) -> None:
    key, other = create(tmp_path / "one"), create(tmp_path / "two")
    sealed = KeySealer(key, others=(other,)).seal(b'{"a": 1}')
    before, made = json.loads(sealed), json.loads(bundled(sealed))
    assert made["mediaType"] == BUNDLE
    assert made["verificationMaterial"] == {"publicKey": {"hint": key.keyid}, "tlogEntries": []}
    inside = made["dsseEnvelope"]
    assert (inside["payload"], inside["payloadType"]) == (before["payload"], before["payloadType"])
    assert inside["signatures"] == [{"sig": one["sig"]} for one in before["signatures"]]
    opened = KeyOpener((key.public,)).open(json.dumps(inside).encode())
    assert isinstance(opened, Opened), "the signature stands without its name"
    with pytest.raises(PublishError):
        bundled(b"no envelope")
    assert json.loads(bundled(encode(Envelope(payload="", payload_type="", signatures=()))))["dsseEnvelope"]


def test_sigstores_own_reader_takes_it(tmp_path: Path) -> None:
    bundles = pytest.importorskip("sigstore_models.bundle.v1", reason="comes with the extra sigstore")
    key = create(tmp_path)
    read = bundles.Bundle.from_json(bundled(KeySealer(key).seal(b"{}")))
    assert read.verification_material.public_key.hint == key.keyid
    assert len(read.dsse_envelope.signatures) == 1


@pytest.mark.skipif(shutil.which("cosign") is None, reason="no cosign here")
def test_cosign_accepts_the_key_and_refuses_another(tmp_path: Path) -> None:
    key = create(tmp_path / "own")
    create(tmp_path / "other")
    (tmp_path / "root.json").write_text('{"mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1"}')
    with modern_registry() as (address, _):
        client = Repository(parse(f"{address}/team/image"), {})
        config = client.put_blob(
            b'{"architecture": "amd64", "os": "linux"}', "application/vnd.oci.image.config.v1+json"
        )
        parts = {"mediaType": config.media_type, "digest": config.digest, "size": config.size}
        image = json.dumps({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": parts, "layers": []}).encode()
        client.put_manifest("one", image, OCI_MANIFEST)
        found = client.manifest("one")
        assert found is not None
        assert found.digest == digest_of(image)
        judged = verdict(image=ImageRef(id=config.digest, digest=found.digest, reference="one"))
        sealed = KeySealer(key).seal(statements.encode(verdict_statement("one", judged)))
        attach(client, found, bundled(sealed), BUNDLE, {})

        def asked(public: Path, kind: str) -> int:
            words = ["cosign", "verify-attestation", "--new-bundle-format", "--insecure-ignore-tlog"]
            words += ["--allow-http-registry", "--trusted-root", str(tmp_path / "root.json")]
            words += ["--key", str(public), "--type", kind, f"{address}/team/image:one"]
            environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
            return subprocess.run(words, env=environment, capture_output=True, check=False, timeout=60).returncode

        assert asked(tmp_path / "own" / PUBLIC, statements.VERDICT) == 0
        assert asked(tmp_path / "own" / PUBLIC, "https://example.org/other/v1") != 0
        assert asked(tmp_path / "other" / PUBLIC, statements.VERDICT) != 0
