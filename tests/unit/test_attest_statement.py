"""Statements: their published shapes, their envelope, and which verdict becomes which word."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from factories import (
    check,
    digest,
    failed_verdict,
    finding,
    gpu_verdict,
    inconclusive_verdict,
    verdict,
)
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from in_toto_attestation.predicates.test_result.v0 import test_result_pb2
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement as Published

from envbuilder.attest import envelope, statements
from envbuilder.attest.keys import PrivateKey, create
from envbuilder.attest.statements import VerdictPredicate, result_statement, verdict_statement
from envbuilder.errors import PublishError
from envbuilder.finding import Code, Severity
from envbuilder.verdict import ImageRef, Verdict

NAME = "registry.example.org/team/image"


@pytest.fixture(scope="module")
def key(tmp_path_factory) -> PrivateKey:
    return create(tmp_path_factory.mktemp("key"))


def predicate(made: statements.Statement | None) -> dict[str, Any]:
    assert made is not None
    found: dict[str, Any] = json.loads(bytes(made.predicate))
    return found


@pytest.mark.parametrize("make", [verdict, gpu_verdict, failed_verdict])
def test_statements_have_the_shape_that_in_toto_publishes(make) -> None:
    result = result_statement(NAME, make())
    assert result is not None
    for made in (result, verdict_statement(NAME, make())):
        parsed = json_format.Parse(statements.encode(made), statement_pb2.Statement())
        Published.copy_from_pb(parsed).validate()
        assert parsed.subject[0].digest["sha256"] == make().image.digest.removeprefix("sha256:")
    fields = {key: value for key, value in predicate(result).items() if not key.startswith("envbuilder_")}
    shape = json_format.ParseDict(fields, test_result_pb2.TestResult())
    assert shape.result in ("PASSED", "WARNED", "FAILED")
    assert {item.name for item in shape.configuration} == {"suite", "requirements.lock"}


def test_each_verdict_has_its_word() -> None:
    warned = verdict(checks=(check(findings=(finding(Code.PTX_JIT, Severity.WARNING),)), check("labels")))
    assert predicate(result_statement(NAME, verdict()))["result"] == "PASSED"
    assert predicate(result_statement(NAME, failed_verdict()))["failedTests"] == ["import"]
    stated = predicate(result_statement(NAME, warned))
    assert (stated["result"], stated["warnedTests"], stated["passedTests"]) == ("WARNED", ["import"], ["labels"])


def test_inconclusive_never_becomes_passed() -> None:
    assert result_statement(NAME, inconclusive_verdict()) is None
    stated = predicate(result_statement(NAME, inconclusive_verdict(), allowed=("inconclusive",)))
    assert stated["result"] == "WARNED"
    assert stated["envbuilder_allowed"] == ["inconclusive"]
    assert stated["envbuilder_verdict"] == "INCONCLUSIVE"
    assert stated["envbuilder_skippedTests"] == ["matmul"]
    assert stated["envbuilder_unfinishedTests"] == ["conv"]


@pytest.mark.parametrize("word", ["PASSED", "FAILED", "INCONCLUSIVE"])
@pytest.mark.parametrize("state", [result_statement, verdict_statement])
def test_a_simulated_verdict_is_never_stated(state, word) -> None:
    with pytest.raises(PublishError, match="simulated"):
        state(NAME, verdict(simulated=True, verdict=word), allowed=("inconclusive",))


def test_a_verdict_without_a_digest_is_never_stated() -> None:
    with pytest.raises(PublishError, match="manifest digest"):
        verdict_statement(NAME, verdict(image=ImageRef(id=digest("image"))))


def test_the_whole_verdict_is_in_our_predicate() -> None:
    made = verdict_statement(NAME, failed_verdict())
    again = statements.parse(statements.encode(made))
    assert msgspec.json.decode(again.predicate, type=VerdictPredicate).verdict == failed_verdict()
    assert isinstance(msgspec.json.decode(again.predicate, type=VerdictPredicate).verdict, Verdict)


def test_the_encoding_that_is_signed_is_the_published_one() -> None:
    assert envelope.pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


@given(st.text(max_size=20), st.binary(max_size=20), st.text(max_size=20), st.binary(max_size=20))
def test_two_messages_never_share_an_encoding(kind: str, payload: bytes, kind2: str, payload2: bytes) -> None:
    same = envelope.pae(kind, payload) == envelope.pae(kind2, payload2)
    assert same == ((kind, payload) == (kind2, payload2))


@given(st.integers(min_value=0), st.integers(min_value=1, max_value=255))
def test_any_changed_byte_breaks_the_signature(key: PrivateKey, position: int, change: int) -> None:
    payload = statements.encode(verdict_statement(NAME, verdict()))
    sealed = envelope.parse(envelope.encode(envelope.seal(payload, statements.PAYLOAD_TYPE, key)))
    assert envelope.signers(sealed, (key.public,)) == (key.keyid,)
    altered = bytearray(payload)
    altered[position % len(payload)] ^= change
    forged = envelope.Envelope(
        payload=base64.b64encode(bytes(altered)).decode(),
        payload_type=sealed.payload_type,
        signatures=sealed.signatures,
    )
    assert envelope.signers(forged, (key.public,)) == ()


def test_only_the_trusted_key_counts(tmp_path) -> None:
    mine, other = create(tmp_path / "mine"), create(tmp_path / "other")
    sealed = envelope.seal(b"{}", statements.PAYLOAD_TYPE, other)
    assert envelope.signers(sealed, (mine.public,)) == ()
    claimed = envelope.Envelope(
        payload=sealed.payload,
        payload_type=sealed.payload_type,
        signatures=(envelope.EnvelopeSignature(sig=sealed.signatures[0].sig, keyid=mine.keyid),),
    )
    assert envelope.signers(claimed, (mine.public,)) == ()


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"payload":1}', b'{"_type":"x","subject":[]}'])
def test_what_is_no_statement_is_refused(text: bytes) -> None:
    with pytest.raises(PublishError):
        statements.parse(text)
    with pytest.raises(PublishError):
        envelope.parse(text)
