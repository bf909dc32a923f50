"""Sign and open payloads: DSSE envelopes by keys (DSSE v1), and Sigstore's bundles by keys or by an identity."""

import base64
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import Any

import msgspec

from envbuilder.attest.keys import PrivateKey, PublicKey
from envbuilder.attest.statements import PAYLOAD_TYPE, Unread
from envbuilder.errors import InfrastructureError, PublishError, Reason
from envbuilder.registry.errors import MAX_VALUES, MalformedError, parsed
from envbuilder.support import decoding

ENVELOPE = "application/vnd.dsse.envelope.v1+json"
BUNDLES = "application/vnd.dev.sigstore.bundle"
BUNDLE = f"{BUNDLES}.v0.3+json"  # which cosign and admission controllers read; any version begins so
STATEMENTS = (ENVELOPE, BUNDLES)
_ROOTS = frozenset(("payload", "dsseEnvelope"))  # of an envelope and of a bundle
_SHORTEST = 40  # characters of an envelope: its fields alone have more
_FIELDS = ("payload", "payloadType", "signatures", "sig", "keyid", "dsseEnvelope", "verificationMaterial", "publicKey")


class Envelope(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The signed document as it is stored; ``payload`` is base64.

    A signature is ``sig`` in base64 and ``keyid``, which proves nothing. An entry of another form affects none.
    """

    payload: str
    payload_type: str
    signatures: tuple[Any, ...] | dict[str, Any]

    @property
    def signed(self) -> tuple[dict[str, Any], ...]:
        given = self.signatures if isinstance(self.signatures, tuple) else (self.signatures,)
        return tuple(one for one in given if isinstance(one, dict) and isinstance(one.get("sig"), str))


class _Material(msgspec.Struct, frozen=True, rename="camel"):
    """A bundle's ``hint`` of its signer's key, which proves nothing; a certificate has none."""

    public_key: dict[str, Any] = {}


class SignedBy(msgspec.Struct, frozen=True, kw_only=True):
    """A trusted signer with a valid signature, and the end of the trust."""

    name: str
    expires: datetime | None = None


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A payload of any type with valid signatures of the trusted signers ``signed_by``."""

    payload_type: str
    payload: bytes
    signed_by: tuple[SignedBy, ...]


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return the bytes that are signed: a payload and its type (DSSE v1 protocol, "PAE")."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def seal(payload: bytes, payload_type: str, *signers: PrivateKey) -> Envelope:
    message = pae(payload_type, payload)
    signatures = tuple(
        {"sig": base64.b64encode(signer.sign(message)).decode(), "keyid": signer.public.keyid} for signer in signers
    )
    return Envelope(payload=base64.b64encode(payload).decode(), payload_type=payload_type, signatures=signatures)


@dataclass(frozen=True)
class KeySealer:
    """Signs with one or more private keys; ``openers`` trust them and ``trusted``."""

    media_type = ENVELOPE
    key: PrivateKey
    others: tuple[PrivateKey, ...] = ()
    trusted: tuple[PublicKey, ...] = ()

    @property
    def openers(self) -> "Openers":
        own = (self.key.public, *(one.public for one in self.others))
        return (KeyOpener(tuple({key.keyid: key for key in (*self.trusted, *own)}.values())),)

    def seal(self, payload: bytes) -> bytes:
        return msgspec.json.encode(seal(payload, PAYLOAD_TYPE, self.key, *self.others))


def bundled(sealed: bytes) -> bytes:
    """Write an envelope as a Sigstore bundle with the same signatures; that needs no key.

    The signatures lose their key ids, since cosign names keys in another way; the bundle has the first as its hint.
    """
    envelope: Envelope = parsed(sealed, Envelope, "a DSSE envelope")
    named = envelope.signed[0].get("keyid") if envelope.signed else ""
    bare = tuple({"sig": one["sig"]} for one in envelope.signed)
    material = {"publicKey": {"hint": named or ""}, "tlogEntries": ()}
    signed = msgspec.structs.replace(envelope, signatures=bare)
    return msgspec.json.encode({"mediaType": BUNDLE, "verificationMaterial": material, "dsseEnvelope": signed})


@dataclass(frozen=True)
class KeyOpener:
    """Opens what public keys signed, an envelope or a bundle. A ``keyid`` is only a hint: every key is tried."""

    trusted: tuple[PublicKey, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(key.keyid for key in self.trusted)

    def open(self, content: bytes) -> Opened | Unread:
        """Open a sealed document, or say why its signer is not trusted. Raises PublishError for any other content."""
        # Its content says what it is, not the type that it was published under.
        parts: dict[str, msgspec.Raw] = parsed(content, dict[str, msgspec.Raw], "a DSSE envelope")
        envelope: Envelope = parsed(parts.get("dsseEnvelope", content), Envelope, "a DSSE envelope")
        payload, signatures = decoded(envelope.payload), {decoded(one["sig"]) for one in envelope.signed}
        message = pae(envelope.payload_type, payload)
        holding = (key for key in self.trusted if any(key.verify(message, one) for one in signatures))
        if signed_by := tuple(SignedBy(name=key.keyid, expires=key.expires) for key in holding):
            return Opened(payload_type=envelope.payload_type, payload=payload, signed_by=signed_by)
        if envelope.payload_type != PAYLOAD_TYPE:
            raise MalformedError(f"the envelope holds {envelope.payload_type!r}, not a statement")
        material: _Material = parsed(parts.get("verificationMaterial", b"{}"), _Material, "a bundle with its signer")
        claims = (*(one.get("keyid") for one in envelope.signed), material.public_key.get("hint"))
        claimed = list(map(str, filter(None, claims)))
        in_cosign = (base64.b64encode(bytes.fromhex(name)).decode() for name in self.names)
        if {*self.names, *in_cosign} & set(claimed):
            text = "it names a trusted key, whose signature it does not have: it was altered, or another key signed it"
            return Unread(Reason.BAD_SIGNATURE, text, blocks=False)
        claimants = ", ".join(name[:16] for name in claimed[:5]) or "a key without a name"
        given = ", ".join([*(keyid[:16] for keyid in self.names[:5]), *(["…"] if self.names[5:] else [])])
        text = f"signed by {claimants}, not by a trusted key (given: {given})"
        return Unread(Reason.UNTRUSTED_KEY, text, blocks=False)


def decoded(text: str) -> bytes:
    """Decode base64 as the most lenient readers do: in either alphabet, in pieces, without other characters."""
    plain = re.sub("[^A-Za-z0-9+/=]", "", text.replace("-", "+").replace("_", "/"))
    pieces = (one[: len(one) - (len(one) % 4 == 1)] for one in plain.split("="))
    return b"".join(base64.b64decode(one + "=" * (-len(one) % 4)) for one in pieces)


def readings(content: bytes) -> tuple[bytes, ...]:
    """Return each envelope and bundle in a document, as each reader takes it; else the document."""
    whole = decoding.readings(content, MAX_VALUES, _FIELDS)
    several = b"[%b]" % b",".join(_objects(whole[0].decode(errors="replace")))
    texts = (one.decode(errors="replace") for one in (*whole, *decoding.readings(several, MAX_VALUES, _FIELDS)))
    return tuple(dict.fromkeys(part for text in texts for part in _within(text))) or whole


def _objects(text: str) -> Iterator[bytes]:
    """Yield the objects in lines, or one after the other, whatever is around them; none of what is one document."""
    with suppress(MalformedError):
        parsed(text.encode(), object, "one document")
        return
    for part in dict.fromkeys((*re.split(r"(?<=\})\s*(?=\{)", text), *text.splitlines())):
        if len(one := part[part.find("{") : part.rfind("}") + 1].encode()) >= _SHORTEST:
            with suppress(MalformedError):
                parsed(one, object, "one document")
                yield one


def _within(text: str) -> Iterator[bytes]:
    waiting: list[object] = [text]
    while waiting:
        match waiting.pop():
            case dict() as part:
                waiting += part.values()
                for root in (roots := _ROOTS & part.keys()):
                    yield msgspec.json.encode({name: part[name] for name in part.keys() - roots | {root}})
            case list() as several:
                waiting += several
            case str() as said if said.lstrip()[:1] in ("{", "[", '"'):
                with suppress(MalformedError):
                    waiting.append(parsed(said.encode(), object, "one document"))


_REACHABLE = "is it reachable (curl -I https://tuf-repo-cdn.sigstore.dev)? or use --key"


class SigstoreSealer:
    """Signs with the identity of a CI job (its OpenID Connect token)."""

    media_type = BUNDLE
    openers: "Openers" = ()

    def token(self) -> str:
        """Return the identity of this job. Raises PublishError if it has none."""
        sigstore = _sigstore()
        try:
            token = sigstore.oidc.detect_credential()
        except (sigstore.errors.Error, OSError) as error:
            raise InfrastructureError(f"this job's identity cannot be read: {error}", hint="use --key") from error
        if not token:
            hint = "in CI allow OpenID Connect tokens (GitHub: `permissions: id-token: write`), or use --key"
            raise PublishError("this job has no identity to sign with", hint=hint)
        return str(token)

    def seal(self, payload: bytes) -> bytes:
        sigstore, token = _sigstore(), self.token()
        try:
            context = sigstore.sign.SigningContext.from_trust_config(sigstore.models.ClientTrustConfig.production())
            with context.signer(sigstore.oidc.IdentityToken(token)) as signer:
                bundle = signer.sign_dsse(sigstore.dsse.Statement(payload))
        except (sigstore.errors.Error, OSError) as error:
            raise InfrastructureError(f"Sigstore did not sign: {error}", hint=_REACHABLE) from error
        return str(bundle.to_json()).encode()


@dataclass(frozen=True)
class SigstoreOpener:
    """Opens what one identity (a workflow's address, an e-mail address) of one issuer signed."""

    identity: str
    issuer: str

    @property
    def names(self) -> tuple[str, ...]:
        return (self.identity,)

    def open(self, content: bytes) -> Opened | Unread:
        if "payload" in parsed(content, dict[str, msgspec.Raw], "a DSSE envelope"):
            return Unread(Reason.UNTRUSTED_KEY, f"signed by a key; only {self.identity} is trusted", blocks=False)
        sigstore = _sigstore()
        try:
            bundle = sigstore.models.Bundle.from_json(content)
        except Exception as error:
            raise MalformedError(f"not a Sigstore bundle: {error}") from error
        policy = sigstore.verify.policy.Identity(identity=self.identity, issuer=self.issuer)
        try:
            kind, payload = sigstore.verify.Verifier.production().verify_dsse(bundle, policy)
        except sigstore.errors.VerificationError as error:
            return Unread(Reason.UNTRUSTED_KEY, f"not signed by {self.identity}: {error}", blocks=False)
        except (sigstore.errors.Error, OSError) as error:
            raise InfrastructureError(f"Sigstore's trust root cannot be fetched: {error}", hint=_REACHABLE) from error
        except Exception as error:
            raise MalformedError(f"a Sigstore bundle that cannot be checked: {error}") from error
        return Opened(payload_type=kind, payload=payload, signed_by=(SignedBy(name=self.identity),))


Sealer = KeySealer | SigstoreSealer
Opener = KeyOpener | SigstoreOpener
Openers = tuple[Opener, ...]


def _sigstore() -> Any:  # noqa: ANN401 - an optional package's modules
    """Import Sigstore's client with the modules that are used. It is optional and heavy."""
    try:
        for name in ("dsse", "errors", "models", "oidc", "sign", "verify.policy"):
            import_module(f"sigstore.{name}")
    except ImportError as error:
        hint = "pip install 'tf-envbuilder[sigstore]', or use --key"
        raise PublishError("keyless signing needs the package sigstore", hint=hint) from error
    return import_module("sigstore")
