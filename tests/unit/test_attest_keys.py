"""Signing keys, and what they sign: in envelopes and bundles, as other implementations of both read and write them."""

import base64
import importlib
import json
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from factories import verdict
from securesystemslib.dsse import Envelope as TheirEnvelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer._crypto_signer import CryptoSigner
from securesystemslib.signer._key import SSlibKey

from envbuilder.attest import envelope, statements
from envbuilder.attest.envelope import BUNDLE, Envelope, KeyOpener, KeySealer, Opened, bundled
from envbuilder.attest.keys import PRIVATE, PUBLIC, PrivateKey, create, load_private, load_public_keys
from envbuilder.attest.statements import verdict_statement
from envbuilder.errors import EnvbuilderError, PublishError, UsageError


@pytest.mark.parametrize("name", [PRIVATE, PUBLIC])
def test_no_key_is_ever_overwritten(tmp_path, name) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match="never overwritten"):
        create(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_protected_key_needs_its_password(tmp_path) -> None:
    right, other = "correct", "other"
    made = create(tmp_path, password=right)
    assert load_private(tmp_path / PRIVATE, password=right).keyid == made.keyid
    for wrong in (None, other):
        with pytest.raises(UsageError, match="TF_ENVBUILDER_KEY_PASSWORD"):
            load_private(tmp_path / PRIVATE, password=wrong)


def test_wrong_half_is_named(tmp_path) -> None:
    create(tmp_path)
    with pytest.raises(UsageError, match=PUBLIC):
        load_public_keys(tmp_path / PRIVATE)


@pytest.mark.parametrize("text", ["", "hello", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"])
def test_file_that_is_not_a_key_is_refused(tmp_path, text) -> None:
    (tmp_path / "file").write_text(text)
    for load in (load_private, load_public_keys):
        with pytest.raises(EnvbuilderError):
            load(tmp_path / "file")
    with pytest.raises(UsageError):
        load_public_keys(tmp_path / "absent")


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
    document = json.loads(msgspec.json.encode(envelope.seal(PAYLOAD, statements.PAYLOAD_TYPE, one, two)))
    read = TheirEnvelope.from_dict(json.loads(json.dumps(document)))
    assert set(read.verify([theirs(one), theirs(two)], 2)) == {one.keyid, two.keyid}
    assert read.payload == PAYLOAD
    edited = TheirEnvelope(PAYLOAD + b" ", statements.PAYLOAD_TYPE, read.signatures)
    with pytest.raises(VerificationError):
        edited.verify([theirs(one)], 1)


def test_we_accept_what_securesystemslib_signs(keys) -> None:
    one, two = keys
    made = TheirEnvelope(PAYLOAD, statements.PAYLOAD_TYPE, {})
    made.sign(CryptoSigner(one._key, SSlibKey("their-name", "ed25519", "ed25519", theirs(one).keyval)))
    content = json.dumps(made.to_dict()).encode()
    opened = KeyOpener((two.public, one.public)).open(content)
    assert isinstance(opened, Opened)
    assert (opened.payload, [who.name for who in opened.signed_by]) == (PAYLOAD, [one.keyid])
    edited = json.dumps(made.to_dict() | {"payload": base64.b64encode(PAYLOAD + b" ").decode()}).encode()
    for opener, text in ((KeyOpener((two.public,)), content), (KeyOpener((one.public,)), edited)):
        assert isinstance(opener.open(text), statements.Unread)


def test_sigstore_encodes_the_same_message() -> None:
    dsse = importlib.import_module("sigstore.dsse")  # its encoder has no public name
    assert dsse._pae(statements.PAYLOAD_TYPE, PAYLOAD) == envelope.pae(statements.PAYLOAD_TYPE, PAYLOAD)


def test_file_of_two_keys_holds_both(tmp_path: Path, keys) -> None:
    one, two = keys
    file = tmp_path / "both.pub"
    file.write_text(f"{one.public.pem}# the second\nExpires: 2027-01-01T00:00:00Z\n{two.public.pem}")
    assert [(key.keyid, key.expires) for key in load_public_keys(file)] == [(one.keyid, None), (two.keyid, END)]


END = datetime(2027, 1, 1, tzinfo=UTC)
LIMIT = "Expires: 2027-01-01T00:00:00Z"
UNCLEAR = {
    "two limits": f"{LIMIT}\n{LIMIT}\n{{pem}}",
    "a word": "hello\n{pem}",
    "half a key": "{pem}-----BEGIN PUBLIC KEY-----\nAAAA\n",
    "a limit that is a word": "Expires: tomorrow\n{pem}",
    "a limit without a zone": "Expires: 2027-01-01\n{pem}",
    "a limit that is empty": "Expires: \n{pem}",
}


@pytest.mark.parametrize("text", UNCLEAR.values(), ids=UNCLEAR.keys())
def test_key_file_with_text_that_is_not_understood_is_refused(tmp_path: Path, keys, text: str) -> None:
    (tmp_path / "key.pub").write_text(text.format(pem=keys[0].public.pem))
    with pytest.raises(UsageError, match=r"key\.pub"):
        load_public_keys(tmp_path / "key.pub")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_limit_is_read_from_a_file_of_any_editor(tmp_path: Path, keys, end: str, mark: str) -> None:
    text = f"{mark}{LIMIT}\n\n{keys[0].public.pem}".replace("\n", end)
    (tmp_path / "key.pub").write_bytes(text.encode())
    assert [key.expires for key in load_public_keys(tmp_path / "key.pub")] == [END]


def test_key_that_is_given_twice_has_the_earlier_end(tmp_path: Path, keys) -> None:
    for name, limit in (("a", ""), ("b", LIMIT), ("c", LIMIT.replace("2027", "2028"))):
        (tmp_path / name).write_text(f"{limit}\n{keys[0].public.pem}")
    for order in permutations("abc"):
        assert [key.expires for key in load_public_keys(*(tmp_path / name for name in order))] == [END]


def test_bundle_holds_the_envelopes_own_signatures(tmp_path: Path) -> None:
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
    assert json.loads(bundled(msgspec.json.encode(Envelope(payload="", payload_type="", signatures=()))))[
        "dsseEnvelope"
    ]


def test_sigstores_own_reader_takes_it(tmp_path: Path) -> None:
    bundles = pytest.importorskip("sigstore_models.bundle.v1", reason="comes with the extra sigstore")
    key = create(tmp_path)
    read = bundles.Bundle.from_json(bundled(KeySealer(key).seal(b"{}")))
    assert read.verification_material.public_key.hint == key.keyid
    assert len(read.dsse_envelope.signatures) == 1
