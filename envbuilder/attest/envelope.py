"""A DSSE envelope: a payload, its type, and signatures over both (DSSE v1, the pre-authentication encoding)."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Protocol

import msgspec

from envbuilder.attest.statement import PAYLOAD_TYPE
from envbuilder.errors import PublishError
from envbuilder.registry import bounded_json
from envbuilder.support import decoding


class Signature(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One signature, base64; ``keyid`` says which key is meant and proves nothing."""

    sig: str
    keyid: str | None = ""


class Envelope(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The signed document as it is stored; ``payload`` is base64."""

    payload: str
    payload_type: str
    signatures: tuple[Signature, ...]


class Signer(Protocol):
    """What signs: a private key."""

    @property
    def keyid(self) -> str:
        """Name the key: the SHA-256 of its public half."""

    def sign(self, message: bytes) -> bytes:
        """Sign a message."""


class Verifier(Protocol):
    """What checks a signature: a trusted public key."""

    @property
    def keyid(self) -> str:
        """Name the key: the SHA-256 of its public half."""

    @property
    def expires(self) -> str:
        """Say until when the key is trusted (ISO 8601 with a zone); '' where that is not limited."""

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Tell whether this key made this signature."""


ENVELOPE = "application/vnd.dsse.envelope.v1+json"
"""The media type under which an envelope is stored in a registry."""


MAX_SIGNATURES = 64
"""Signatures of one envelope that are looked at."""


class SignedBy(msgspec.Struct, frozen=True, kw_only=True):
    """Someone trusted whose signature holds, and until when they are trusted ('' where that is not limited)."""

    name: str
    expires: str = ""


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A payload whose signature by someone trusted holds; ``signed_by`` names them all."""

    payload: bytes
    signed_by: tuple[SignedBy, ...]


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """A sealed document that is not believed: ``unknown_signer``, or a signature that does not hold."""

    unknown_signer: bool
    message: str


class UnknownFormError(PublishError):
    """Someone trusted signed a statement, in a form that cannot be read: nobody knows what it says."""


class Sealer(Protocol):
    """What turns a payload into the sealed document that is stored under ``media_type``."""

    @property
    def media_type(self) -> str:
        """Name the form of the sealed document."""

    def seal(self, payload: bytes) -> bytes:
        """Seal a statement's bytes."""


class Opener(Protocol):
    """What opens sealed documents of one form, and believes only whom it was told to trust."""

    @property
    def media_type(self) -> str:
        """Name the form of the sealed documents that it opens."""

    @property
    def names(self) -> tuple[str, ...]:
        """Name everybody who is trusted, as in `SignedBy`."""

    def open(self, content: bytes) -> Opened | Rejected:
        """Open a sealed document. Raises PublishError where it is none."""


def pae(payload_type: str, payload: bytes) -> bytes:
    """Encode a payload and its type unambiguously: what is signed (DSSE v1 protocol, "PAE")."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def seal(payload: bytes, payload_type: str, *signers: Signer) -> Envelope:
    """Sign a payload with every key."""
    message = pae(payload_type, payload)
    signatures = tuple(
        Signature(sig=base64.b64encode(signer.sign(message)).decode(), keyid=signer.keyid) for signer in signers
    )
    return Envelope(payload=base64.b64encode(payload).decode(), payload_type=payload_type, signatures=signatures)


@dataclass(frozen=True)
class KeySealer:
    """`Sealer` by one private key, or by several together."""

    key: Signer
    media_type: str = ENVELOPE
    others: tuple[Signer, ...] = ()

    def seal(self, payload: bytes) -> bytes:
        """Seal a statement in a DSSE envelope, signed by every key."""
        return encode(seal(payload, PAYLOAD_TYPE, self.key, *self.others))


BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
"""The media type of a Sigstore bundle: how cosign, and with it admission controllers, want what was signed."""


def bundled(sealed: bytes) -> bytes:
    """Write a key's envelope as a Sigstore bundle, with the very signatures: no key is needed for that.

    The signatures lose their names, which cosign would hold against its own way of naming keys; the bundle has the
    first as its hint.
    """
    envelope = parse(sealed)
    named = envelope.signatures[0].keyid if envelope.signatures else ""
    bare = tuple(Signature(sig=one.sig) for one in envelope.signatures)
    made = {
        "mediaType": BUNDLE,
        "verificationMaterial": {"publicKey": {"hint": named or ""}, "tlogEntries": ()},
        "dsseEnvelope": msgspec.structs.replace(envelope, signatures=bare),
    }
    return msgspec.json.encode(made)


@dataclass(frozen=True)
class KeyOpener:
    """`Opener` that trusts public keys."""

    trusted: tuple[Verifier, ...]
    media_type: str = ENVELOPE

    @property
    def names(self) -> tuple[str, ...]:
        """Name the trusted keys, each once."""
        return tuple(dict.fromkeys(key.keyid for key in self.trusted))

    def open(self, content: bytes) -> Opened | Rejected:
        """Open a DSSE envelope that one of the keys signed.

        Raises UnknownFormError where that is a statement in a form that this version does not know.
        """
        envelope = parse(content)
        holding = set(signers(envelope, self.trusted))
        if envelope.payload_type != PAYLOAD_TYPE:
            text = f"the envelope holds {envelope.payload_type!r}, not a statement"
            raise UnknownFormError(text) if holding and _is_in_toto(envelope.payload_type) else PublishError(text)
        if holding:
            names = tuple(SignedBy(name=key.keyid, expires=key.expires) for key in self.trusted if key.keyid in holding)
            return Opened(payload=payload_of(envelope), signed_by=names)
        claimed = [signature.keyid or "" for signature in envelope.signatures]
        if {key.keyid for key in self.trusted} & set(claimed):
            return Rejected(unknown_signer=False, message="the signature does not hold: the statement was altered")
        said = ", ".join(keyid[:16] or "a key without a name" for keyid in claimed[:5]) or "nobody"
        return Rejected(unknown_signer=True, message=f"signed by {said}, which is not a trusted key")


def _is_in_toto(payload_type: str) -> bool:
    """Tell whether a payload is some version of a statement, however its type is written."""
    return payload_type.strip().casefold().startswith("application/vnd.in-toto")


def encode(envelope: Envelope) -> bytes:
    """Write an envelope as JSON."""
    return msgspec.json.encode(envelope)


def parse(text: bytes) -> Envelope:
    """Read an envelope. Raises PublishError where the bytes are none."""
    envelope: Envelope = bounded_json.parsed(text, Envelope, "a DSSE envelope")
    return envelope


def payload_of(envelope: Envelope) -> bytes:
    """Decode the payload, whoever signed it. Raises PublishError where it is not base64."""
    return _unbase64(envelope.payload)


def signers(envelope: Envelope, trusted: tuple[Verifier, ...]) -> tuple[str, ...]:
    """Name the trusted keys whose signature on this envelope holds; empty where none does.

    A signature's ``keyid`` is a hint and no more (DSSE v1 protocol): every key is tried on every signature, and one
    that cannot be read takes nothing from those beside it.
    """
    message = pae(envelope.payload_type, payload_of(envelope))
    signatures = [found for one in envelope.signatures[:MAX_SIGNATURES] if (found := _signature(one)) is not None]
    return tuple(key.keyid for key in trusted if any(key.verify(message, found) for found in signatures))


def _signature(signature: Signature) -> bytes | None:
    try:
        return _unbase64(signature.sig)
    except PublishError:
        return None


def _unbase64(text: str) -> bytes:
    """Decode base64 in either alphabet, the standard's and the one for addresses, as DSSE wants of a reader."""
    try:
        with decoding.damaged("not base64"):
            plain = text.encode("ascii").translate(_STANDARD)
            return base64.b64decode(plain + b"=" * (-len(plain) % 4), validate=True)
    except decoding.DamagedError as error:
        raise PublishError(f"{error} in a DSSE envelope") from error


_STANDARD = bytes.maketrans(b"-_", b"+/")
