"""A DSSE envelope: a payload, its type, and signatures over both (DSSE v1, the pre-authentication encoding)."""

from __future__ import annotations

import base64
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import msgspec

from envbuilder.attest.keys import PrivateKey, PublicKey
from envbuilder.attest.statements import PAYLOAD_TYPE
from envbuilder.errors import PublishError
from envbuilder.registry import bounded_json
from envbuilder.support import decoding


class EnvelopeSignature(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One signature in base64; ``keyid`` names the key and proves nothing."""

    sig: str
    keyid: str | None = ""


class Envelope(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The signed document as it is stored; ``payload`` is base64."""

    payload: str
    payload_type: str
    signatures: tuple[EnvelopeSignature, ...]


ENVELOPE = "application/vnd.dsse.envelope.v1+json"
"""The media type under which an envelope is stored in a registry."""


class SignedBy(msgspec.Struct, frozen=True, kw_only=True):
    """A trusted signer with a valid signature, and the end of the trust."""

    name: str
    expires: datetime | None = None

    def is_trusted_at(self, time: datetime) -> bool:
        return self.expires is None or time <= self.expires


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A payload of any type with valid signatures of the trusted signers ``signed_by``."""

    payload_type: str
    payload: bytes
    signed_by: tuple[SignedBy, ...]


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """A sealed document without a trusted signer (``unknown_signer``), or with an invalid signature."""

    unknown_signer: bool
    message: str


class Sealer(Protocol):
    """Signs payloads; ``media_type`` is the form of the sealed document."""

    @property
    def media_type(self) -> str: ...
    @property
    def openers(self) -> tuple[Opener, ...]:
        """Open what the signer trusts: earlier statements that a new one answers or names."""

    def seal(self, payload: bytes) -> bytes: ...


class Opener(Protocol):
    """Opens sealed documents of the form ``media_type``; ``names`` are the trusted signers, as in `SignedBy`."""

    @property
    def media_type(self) -> str: ...

    @property
    def names(self) -> tuple[str, ...]: ...

    def open(self, content: bytes) -> Opened | Rejected:
        """Open a sealed document. Raises PublishError for any other content."""


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return the bytes that are signed: a payload and its type (DSSE v1 protocol, "PAE")."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def seal(payload: bytes, payload_type: str, *signers: PrivateKey) -> Envelope:
    message = pae(payload_type, payload)
    signatures = tuple(
        EnvelopeSignature(sig=base64.b64encode(signer.sign(message)).decode(), keyid=signer.keyid) for signer in signers
    )
    return Envelope(payload=base64.b64encode(payload).decode(), payload_type=payload_type, signatures=signatures)


@dataclass(frozen=True)
class KeySealer:
    """`Sealer` with one or more private keys, which trusts them and ``trusted``."""

    key: PrivateKey
    media_type: str = ENVELOPE
    others: tuple[PrivateKey, ...] = ()
    trusted: tuple[PublicKey, ...] = ()

    @property
    def openers(self) -> tuple[Opener, ...]:
        own = (self.key.public, *(one.public for one in self.others))
        keys = tuple({key.keyid: key for key in (*self.trusted, *own)}.values())
        return KeyOpener(keys), KeyOpener(keys, BUNDLE)

    def seal(self, payload: bytes) -> bytes:
        """Seal a statement in a DSSE envelope, signed by every key."""
        return msgspec.json.encode(seal(payload, PAYLOAD_TYPE, self.key, *self.others))


BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
"""The media type of a Sigstore bundle, the form that cosign and admission controllers read."""


def bundled(sealed: bytes) -> bytes:
    """Write an envelope as a Sigstore bundle with the same signatures; that needs no key.

    The signatures lose their key ids, since cosign names keys in another way; the bundle has the first as its hint.
    """
    envelope = parse(sealed)
    named = envelope.signatures[0].keyid if envelope.signatures else ""
    bare = tuple(EnvelopeSignature(sig=one.sig) for one in envelope.signatures)
    made = {
        "mediaType": BUNDLE,
        "verificationMaterial": {"publicKey": {"hint": named or ""}, "tlogEntries": ()},
        "dsseEnvelope": msgspec.structs.replace(envelope, signatures=bare),
    }
    return msgspec.json.encode(made)


class _Bundle(msgspec.Struct, frozen=True, rename="camel"):
    dsse_envelope: msgspec.Raw


@dataclass(frozen=True)
class KeyOpener:
    """`Opener` that trusts public keys; of an envelope, or of the same signatures in a Sigstore bundle."""

    trusted: tuple[PublicKey, ...]
    media_type: str = ENVELOPE

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(key.keyid for key in self.trusted)

    def open(self, content: bytes) -> Opened | Rejected:
        if self.media_type == BUNDLE:
            bundle: _Bundle = bounded_json.parsed(content, _Bundle, "a Sigstore bundle")
            content = bytes(bundle.dsse_envelope)
        envelope = parse(content)
        holding = set(signers(envelope, self.trusted))
        if holding:
            names = tuple(SignedBy(name=key.keyid, expires=key.expires) for key in self.trusted if key.keyid in holding)
            return Opened(payload_type=envelope.payload_type, payload=payload_of(envelope), signed_by=names)
        if envelope.payload_type != PAYLOAD_TYPE:
            raise PublishError(f"the envelope holds {envelope.payload_type!r}, not a statement")
        claimed = [signature.keyid or "" for signature in envelope.signatures]
        if {key.keyid for key in self.trusted} & set(claimed):
            return Rejected(unknown_signer=False, message="the signature is invalid: the statement was altered")
        claimants = ", ".join(keyid[:16] or "a key without a name" for keyid in claimed[:5]) or "nobody"
        given = ", ".join(keyid[:16] for keyid in self.names[:5]) + (", …" if len(self.names) > 5 else "")  # noqa: PLR2004
        return Rejected(unknown_signer=True, message=f"signed by {claimants}, not by a trusted key (given: {given})")


def parse(text: bytes) -> Envelope:
    """Read an envelope. Raises PublishError for any other bytes."""
    envelope: Envelope = bounded_json.parsed(text, Envelope, "a DSSE envelope")
    return envelope


def payload_of(envelope: Envelope) -> bytes:
    """Decode the payload of any signer. Raises PublishError if it is not base64."""
    return _unbase64(envelope.payload)


def signers(envelope: Envelope, trusted: tuple[PublicKey, ...]) -> tuple[str, ...]:
    """Return the trusted keys with a valid signature on this envelope.

    A signature's ``keyid`` is only a hint (DSSE v1 protocol): every key is tried on every signature, up to a limit. An
    unreadable signature does not affect the others.
    """
    message = pae(envelope.payload_type, payload_of(envelope))
    names = {key.keyid for key in trusted}
    hinted_first = sorted(envelope.signatures, key=lambda one: one.keyid not in names)[:MAX_SIGNATURES]
    signatures = dict.fromkeys(found for one in hinted_first if len(found := _signature(one)) == _SIGNATURE)
    return tuple(key.keyid for key in trusted if any(key.verify(message, found) for found in signatures))


_SIGNATURE, MAX_SIGNATURES = 64, 1_000
"""Bytes of an Ed25519 signature, and signatures that are tried: anybody can attach an envelope of many."""


def _signature(signature: EnvelopeSignature) -> bytes:
    with suppress(PublishError):
        return _unbase64(signature.sig)
    return b""


def _unbase64(text: str) -> bytes:
    """Decode base64 in the standard and in the URL-safe alphabet, as DSSE requires."""
    try:
        with decoding.damaged("not base64"):
            plain = text.encode("ascii").translate(_STANDARD)
            return base64.b64decode(plain + b"=" * (-len(plain) % 4), validate=True)
    except decoding.DamagedError as error:
        raise PublishError(f"{error} in a DSSE envelope") from error


_STANDARD = bytes.maketrans(b"-_", b"+/")
