"""An in-toto Statement v1: a subject (a manifest digest), a predicate type and a predicate."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from envbuilder.errors import PublishError
from envbuilder.registry import bounded_json

STATEMENT = "https://in-toto.io/Statement/v1"
TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
OURS = "urn:envbuilder:attestation/"
VERDICT = f"{OURS}verdict/v1"
CYCLONEDX = "https://cyclonedx.org/bom"
PROVENANCE = "https://slsa.dev/provenance/v1"

REHEARSAL = "urn:envbuilder:rehearsal/v1"
"""What came of a simulated driver, about the same digest. It is no attestation of ours: no demand is met by it, and a
version that does not know it passes it over."""

PAYLOAD_TYPE = "application/vnd.in-toto+json"
"""The DSSE payload type of a statement (in-toto attestation framework, envelope layer)."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")


class Resource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An in-toto ResourceDescriptor: something named, with its digests by algorithm (hexadecimal)."""

    name: str = ""
    uri: str = ""
    digest: dict[str, str] = {}
    media_type: str = ""
    annotations: dict[str, tuple[str, ...]] = {}


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """One claim about its subjects; ``predicate`` is kept as JSON until someone who knows its type reads it."""

    type: str = msgspec.field(name="_type", default=STATEMENT)
    subject: tuple[Resource, ...]
    predicate_type: str = msgspec.field(name="predicateType")
    predicate: msgspec.Raw


def digest_hex(digest: str) -> str:
    """Return the hexadecimal part of ``sha256:…``. Raises PublishError for anything else."""
    if not _DIGEST.match(digest):
        raise PublishError(f"not a sha256 digest: {digest!r}")
    return digest.removeprefix("sha256:")


def resource(name: str, digest: str) -> Resource:
    """Describe something by its name and its ``sha256:…`` digest."""
    return Resource(name=name, digest={"sha256": digest_hex(digest)})


def about(name: str, digest: str, predicate_type: str, predicate: Any) -> Statement:  # noqa: ANN401 - any Struct or dict
    """Make a statement about one manifest digest; ``predicate`` is anything that msgspec can write as JSON."""
    return Statement(
        subject=(resource(name, digest),),
        predicate_type=predicate_type,
        predicate=msgspec.Raw(msgspec.json.encode(predicate, order="deterministic")),
    )


def encode(statement: Statement) -> bytes:
    """Write a statement as the bytes that are signed; the same statement gives the same bytes."""
    return msgspec.json.encode(statement)


def parse(payload: bytes) -> Statement:
    """Read a statement. Raises PublishError where the bytes are not an in-toto Statement v1, or are two at once."""
    statement: Statement = bounded_json.parsed(payload, Statement, "an in-toto statement")
    bounded_json.check_unambiguous(payload, "one in-toto statement")
    if statement.type != STATEMENT:
        raise PublishError(f"not an in-toto Statement v1: _type is {statement.type!r}")
    return statement
