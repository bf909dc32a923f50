"""A DSSE envelope: a payload, its type, and signatures over both (DSSE v1, the pre-authentication encoding)."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Protocol

import msgspec

from envbuilder.attest.statement import PAYLOAD_TYPE
from envbuilder.errors import PublishError


class Signature(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One signature, base64; ``keyid`` says which key is meant and proves nothing."""

    sig: str
    keyid: str = ""


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

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Tell whether this key made this signature."""


ENVELOPE = "application/vnd.dsse.envelope.v1+json"
"""The media type under which an envelope is stored in a registry."""


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A payload whose signature by someone trusted holds."""

    payload: bytes
    signed_by: str


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """A sealed document that is not believed: ``unknown_signer``, or a signature that does not hold."""

    unknown_signer: bool
    message: str


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

    def open(self, content: bytes) -> Opened | Rejected:
        """Open a sealed document. Raises PublishError where it is none."""


def pae(payload_type: str, payload: bytes) -> bytes:
    """Encode a payload and its type unambiguously: what is signed (DSSE v1 protocol, "PAE")."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def seal(payload: bytes, payload_type: str, signer: Signer) -> Envelope:
    """Sign a payload with one key."""
    signature = signer.sign(pae(payload_type, payload))
    return Envelope(
        payload=base64.b64encode(payload).decode(),
        payload_type=payload_type,
        signatures=(Signature(sig=base64.b64encode(signature).decode(), keyid=signer.keyid),),
    )


@dataclass(frozen=True)
class KeySealer:
    """`Sealer` by one private key."""

    key: Signer
    media_type: str = ENVELOPE

    def seal(self, payload: bytes) -> bytes:
        """Seal a statement in a DSSE envelope."""
        return encode(seal(payload, PAYLOAD_TYPE, self.key))


@dataclass(frozen=True)
class KeyOpener:
    """`Opener` that trusts public keys."""

    trusted: tuple[Verifier, ...]
    media_type: str = ENVELOPE

    def open(self, content: bytes) -> Opened | Rejected:
        """Open a DSSE envelope that one of the keys signed."""
        envelope = decode(content)
        if envelope.payload_type != PAYLOAD_TYPE:
            raise PublishError(f"the envelope holds {envelope.payload_type!r}, not a statement")
        signed_by = signers(envelope, self.trusted)
        if signed_by:
            return Opened(payload=payload_of(envelope), signed_by=signed_by[0])
        claimed = [signature.keyid for signature in envelope.signatures]
        if {key.keyid for key in self.trusted} & set(claimed):
            return Rejected(unknown_signer=False, message="the signature does not hold: the statement was altered")
        names = ", ".join(keyid[:16] or "a key without a name" for keyid in claimed) or "nobody"
        return Rejected(unknown_signer=True, message=f"signed by {names}, which is not a trusted key")


def encode(envelope: Envelope) -> bytes:
    """Write an envelope as JSON."""
    return msgspec.json.encode(envelope)


def decode(text: bytes) -> Envelope:
    """Read an envelope. Raises PublishError where the bytes are none."""
    try:
        return msgspec.json.decode(text, type=Envelope)
    except msgspec.MsgspecError as error:
        raise PublishError(f"not a DSSE envelope: {error}") from error


def payload_of(envelope: Envelope) -> bytes:
    """Decode the payload, whoever signed it. Raises PublishError where it is not base64."""
    return _unbase64(envelope.payload)


def signers(envelope: Envelope, trusted: tuple[Verifier, ...]) -> tuple[str, ...]:
    """Name the trusted keys whose signature on this envelope holds; empty where none does."""
    message = pae(envelope.payload_type, payload_of(envelope))
    return tuple(key.keyid for key in trusted if any(_holds(key, message, s) for s in envelope.signatures))


def _holds(key: Verifier, message: bytes, signature: Signature) -> bool:
    if signature.keyid not in ("", key.keyid):
        return False
    return key.verify(message, _unbase64(signature.sig))


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise PublishError(f"not base64 in a DSSE envelope: {error}") from error
