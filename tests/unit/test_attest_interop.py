"""Our envelopes to other implementations of DSSE, and theirs to us."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from factories import verdict
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer._crypto_signer import CryptoSigner
from securesystemslib.signer._key import SSlibKey

from envbuilder.attest import envelope, statements
from envbuilder.attest.envelope import KeyOpener, Opened, Rejected
from envbuilder.attest.keys import PrivateKey, create, load_public_keys
from envbuilder.attest.statements import verdict_statement
from envbuilder.errors import PublishError

PAYLOAD = statements.encode(verdict_statement("registry.example.org/team/image", verdict()))


@pytest.fixture(scope="module")
def keys(tmp_path_factory) -> tuple[PrivateKey, PrivateKey]:
    folder = tmp_path_factory.mktemp("keys")
    return create(folder / "one"), create(folder / "two")


def theirs(key: PrivateKey) -> SSlibKey:
    """Make the key that securesystemslib knows; it has its own way to name keys."""
    raw = key.public._key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return SSlibKey(key.keyid, "ed25519", "ed25519", {"public": raw.hex()})


def test_securesystemslib_accepts_what_we_sign(keys) -> None:
    one, two = keys
    document = json.loads(envelope.encode(envelope.seal(PAYLOAD, statements.PAYLOAD_TYPE, one, two)))
    read = Envelope.from_dict(json.loads(json.dumps(document)))
    assert set(read.verify([theirs(one), theirs(two)], 2)) == {one.keyid, two.keyid}
    assert read.payload == PAYLOAD
    edited = Envelope(PAYLOAD + b" ", statements.PAYLOAD_TYPE, read.signatures)
    with pytest.raises(VerificationError):
        edited.verify([theirs(one)], 1)


def test_we_accept_what_securesystemslib_signs(keys) -> None:
    one, two = keys
    made = Envelope(PAYLOAD, statements.PAYLOAD_TYPE, {})
    made.sign(CryptoSigner(one._key, SSlibKey("their-name", "ed25519", "ed25519", theirs(one).keyval)))
    content = json.dumps(made.to_dict()).encode()
    opened = KeyOpener((two.public, one.public)).open(content)
    assert isinstance(opened, Opened)
    assert (opened.payload, [who.name for who in opened.signed_by]) == (PAYLOAD, [one.keyid])
    assert isinstance(KeyOpener((two.public,)).open(content), Rejected)


def test_sigstore_encodes_the_same_message() -> None:
    dsse = importlib.import_module("sigstore.dsse")  # its encoder has no public name
    assert dsse._pae(statements.PAYLOAD_TYPE, PAYLOAD) == envelope.pae(statements.PAYLOAD_TYPE, PAYLOAD)


def test_a_file_of_two_keys_holds_both(tmp_path: Path, keys) -> None:
    one, two = keys
    file = tmp_path / "both.pub"
    file.write_text(f"{one.public.pem}# the second\nExpires: 2027-01-01T00:00:00Z\n{two.public.pem}")
    assert [(key.keyid, key.expires) for key in load_public_keys(file)] == [
        (one.keyid, ""),
        (two.keyid, "2027-01-01T00:00:00Z"),
    ]


@pytest.mark.parametrize("limit", ["tomorrow", "2027-01-01", ""])
def test_a_limit_that_cannot_be_read_is_refused(tmp_path: Path, keys, limit: str) -> None:
    file = tmp_path / "key.pub"
    file.write_text(f"Expires: {limit}\n{keys[0].public.pem}")
    with pytest.raises(PublishError, match="not a time with a zone"):
        load_public_keys(file)
