"""In-toto Statements v1: a subject (a manifest digest), a predicate type and a predicate; and those about verdicts."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

import msgspec

from envbuilder.attest.requirements import moment
from envbuilder.errors import PublishError, Reason
from envbuilder.registry.errors import MalformedError, parsed
from envbuilder.registry.manifests import Digest
from envbuilder.registry.reference import DIGEST
from envbuilder.support import decoding
from envbuilder.verdict import SCHEMA, Level, Outcome, Verdict, Word

STATEMENT = "https://in-toto.io/Statement/v1"
_OLDER = "https://in-toto.io/Statement/v0.1"  # which other tools still write about other subjects than tests
TEST_RESULTS = "https://in-toto.io/attestation/test-result/"
TEST_RESULT = f"{TEST_RESULTS}v0.1"
OURS = "urn:envbuilder:attestation/"
VERDICT = f"{OURS}verdict/v1"
NOTICE = f"{OURS}notice/v1"
CYCLONEDX = "https://cyclonedx.org/bom"
PROVENANCE = "https://slsa.dev/provenance/v1"

PAYLOAD_TYPE = "application/vnd.in-toto+json"  # of DSSE (in-toto attestation framework, envelope layer)


class Resource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An in-toto ResourceDescriptor with its digests by algorithm (hexadecimal)."""

    name: str = ""
    uri: str = ""
    digest: dict[str, str] = {}
    annotations: dict[str, tuple[str, ...]] = {}


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """One claim about its subjects; ``predicate`` stays JSON until code for its type reads it."""

    type: str = msgspec.field(name="_type")
    subject: tuple[Resource, ...] = ()
    predicate_type: str = msgspec.field(name="predicateType")
    predicate: msgspec.Raw


def resource(name: str, digest: str) -> Resource:
    if not DIGEST.match(digest):
        raise PublishError(f"not a sha256 digest: {digest!r}", hint="envbuilder build, then envbuilder validate")
    return Resource(name=name, digest={"sha256": digest.removeprefix("sha256:")})


def about(name: str, digest: str, predicate_type: str, predicate: Any) -> Statement:  # noqa: ANN401 - any Struct or dict
    said, subject = msgspec.Raw(msgspec.json.encode(predicate, order="deterministic")), (resource(name, digest),)
    return Statement(type=STATEMENT, subject=subject, predicate_type=predicate_type, predicate=said)


def encode(statement: Statement) -> bytes:
    return msgspec.json.encode(statement)


def parse(payload: bytes) -> Statement:
    """Read one in-toto Statement v1, or v0.1 if it is not about tests. Raises PublishError if it is ambiguous."""
    statement: Statement = parsed(payload, Statement, "one in-toto statement", ())
    if statement.type != STATEMENT and (statement.type != _OLDER or _may_be_about_tests(statement.predicate_type)):
        raise MalformedError(f"not an in-toto Statement v1: _type is {statement.type!r}")
    return statement


def _may_be_about_tests(kind: str) -> bool:
    plain = kind.strip().casefold()  # a URN's scheme and name have no case
    return not re.fullmatch("[!-~]+", kind) or plain.startswith(("urn:envbuilder:", TEST_RESULTS.rstrip("/")))


Allowance = Literal["inconclusive"]
Result = Literal["PASSED", "WARNED", "FAILED"]


class FailedResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A test result: the checks that failed or did not finish; its verdict is a statement of its own."""

    result: str
    finished: str = msgspec.field(name="envbuilder_finished", default="")
    failed_tests: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = msgspec.field(name="envbuilder_unfinishedTests", default=())

    @property
    def checks(self) -> frozenset[str]:
        return frozenset(self.failed_tests + self.unfinished)

    def is_of(self, verdict: Verdict) -> bool:
        """Return True if this is the result of a verdict; older results do not say when it ended."""
        failed = {check.name for check in verdict.checks if check.outcome not in ("passed", "skipped")}
        return verdict.verdict == "FAILED" and self.checks == failed and self.finished in ("", verdict.finished)


class ResultPredicate(FailedResult, frozen=True, kw_only=True):
    """The predicate test-result v0.1; fields with the prefix ``envbuilder_`` are extensions."""

    configuration: tuple[Resource, ...]
    passed_tests: tuple[str, ...]
    warned_tests: tuple[str, ...]
    skipped: tuple[str, ...] = msgspec.field(name="envbuilder_skippedTests", default=())
    verdict: str = msgspec.field(name="envbuilder_verdict", default="")
    level: str = msgspec.field(name="envbuilder_level", default="")
    allowed: tuple[str, ...] = msgspec.field(name="envbuilder_allowed", default=())


class Linked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``previous``: the trusted statements that its signer saw, as stored; ``answers``: the FAILED that it answers."""

    answers: tuple[Digest, ...] = ()
    previous: tuple[Digest, ...] = ()


class VerdictPredicate(Linked, frozen=True, kw_only=True):
    """The full verdict, and what the publisher allowed although it is not PASSED."""

    verdict: Verdict
    allowed: tuple[Allowance, ...] = ()


class Notice(Linked, frozen=True, kw_only=True):
    """A person's decision and its reason: it answers statements, or withdraws the image if it names none."""

    reason: Annotated[str, msgspec.Meta(pattern=r"\w")]
    time: str


def verdict_statement(name: str, verdict: Verdict, **more: tuple[Any, ...]) -> Statement:
    """Return the statement of a complete verdict. Raises PublishError if it names no digest."""
    return about(name, _digest(verdict), VERDICT, VerdictPredicate(verdict=verdict, **more))


def result_statement(name: str, verdict: Verdict, *, allowed: tuple[Allowance, ...] = ()) -> Statement | None:
    """Return the statement of the checks' outcomes; None for an INCONCLUSIVE verdict that is not allowed.

    An allowed INCONCLUSIVE is WARNED, never PASSED.
    """
    digest = _digest(verdict)
    if verdict.verdict == "INCONCLUSIVE" and "inconclusive" not in allowed:
        return None
    names: dict[str, tuple[str, ...]] = {}
    for check in verdict.checks:
        is_warned = check.outcome == "passed" and any(one.severity == "warning" for one in check.findings)
        outcome = "warned" if is_warned else check.outcome
        names[outcome] = (*names.get(outcome, ()), check.name)
    passed: Result = "PASSED" if verdict.verdict == "PASSED" and "warned" not in names else "WARNED"
    made_with = (("suite", verdict.suite), ("requirements.lock", verdict.lock))  # a foreign image has no lock
    predicate = ResultPredicate(
        result="FAILED" if verdict.verdict == "FAILED" else passed,
        configuration=tuple(resource(name, text) for name, text in made_with if DIGEST.match(text)),
        passed_tests=names.get("passed", ()),
        warned_tests=names.get("warned", ()),
        failed_tests=names.get("failed", ()),
        skipped=names.get("skipped", ()),
        unfinished=tuple(one.name for one in verdict.checks if one.outcome in ("error", "timeout")),
        finished=verdict.finished,
        verdict=verdict.verdict,
        level=verdict.level,
        allowed=allowed,
    )
    return about(name, digest, TEST_RESULT, predicate)


@dataclass(frozen=True)
class Unread:
    """Why a document gives no verdict, whether that refuses the image, and what to do ('': what its reason says)."""

    reason: Reason
    message: str
    blocks: bool = True
    next: str = ""


Meaning = VerdictPredicate | Notice | FailedResult | Unread | None

_WORDS: dict[str, Any] = {"verdict": Word, "level": Level, "outcome": Outcome, "tier": Level}
_SIGNATURE = "application/vnd.dev.cosign.simplesigning.v1+json"  # of cosign: it says nothing about tests


def understood(digest: str, payload_type: str, payload: bytes) -> Meaning:
    """Return what a trusted key says about an image; None for a statement of another kind.

    Everything that may be a verdict about this image and is not understood refuses it. A statement about another image
    neither accepts nor refuses: anybody can copy it to this image.
    """
    if payload_type not in (PAYLOAD_TYPE, _SIGNATURE):
        plain = payload_type.strip().casefold()
        newer = plain.startswith("application/vnd.in-toto") and plain != PAYLOAD_TYPE
        text = f"a trusted key signed {payload_type!r}, which this version cannot read"
        return Unread(Reason.NEWER_SCHEMA if newer else Reason.UNREADABLE, text)
    try:
        return _understood(digest, parse(payload)) if payload_type != _SIGNATURE else None
    except (PublishError, ValueError, OverflowError) as error:
        return Unread(Reason.UNREADABLE, f"a trusted statement cannot be read: {error}")


def _understood(digest: str, statement: Statement) -> Meaning:
    kind = statement.predicate_type
    if not _may_be_about_tests(kind):
        return None
    subjects = [f"sha256:{subject.digest.get('sha256', '').lower()}" for subject in statement.subject]
    if digest not in subjects:
        clear = bool(subjects) and all(map(DIGEST.match, subjects))
        about = ", ".join(one if one != "sha256:" else "no sha256 digest" for one in subjects) or "nothing"
        return Unread(Reason.WRONG_SUBJECT, f"a trusted statement is about {about}", blocks=not clear)
    if kind == TEST_RESULT:
        found: FailedResult = parsed(statement.predicate, FailedResult, "a test result", ())
        if found.result not in get_args(Result):
            return Unread(Reason.UNKNOWN_WORD, f"a trusted test result says {found.result!r}, not a known word")
        return found if found.result == "FAILED" or found.checks else None
    if kind == NOTICE:
        notice: Notice = parsed(statement.predicate, Notice, "a notice", ())
        moment(notice.time)
        return notice
    if kind != VERDICT:
        return Unread(Reason.NEWER_SCHEMA, f"a trusted statement of type {kind}, which this version cannot read")
    said = decoding.converted(parsed(statement.predicate, dict, "a verdict").get("verdict"), dict, "no verdict")
    schema, checks = said.get("schema"), said.get("checks")
    if schema != SCHEMA:
        return Unread(Reason.NEWER_SCHEMA, f"a trusted verdict of schema {schema!r}, which cannot be read")
    parts = (said, *decoding.converted(checks, list[dict[str, Any]], "not a verdict"))
    words = [(one[key], known) for one in parts for key, known in _WORDS.items() if key in one]
    if strange := [word for word, known in words if word not in get_args(known)]:
        return Unread(Reason.UNKNOWN_WORD, f"a trusted verdict says {strange[0]!r}, which is not a known word")
    stated: VerdictPredicate = parsed(statement.predicate, VerdictPredicate, "a verdict", ())
    moment(stated.verdict.started)
    moment(stated.verdict.finished)
    if stated.verdict.image.digest != digest:
        return Unread(Reason.WRONG_SUBJECT, f"the verdict is about {stated.verdict.image.digest}")
    return stated


def _digest(verdict: Verdict) -> str:
    if verdict.unreal:
        hint = "validate on a host with that driver and GPU"
        raise PublishError("a simulated verdict is never stated: its driver or GPU was not real", hint=hint)
    if verdict.image.digest is None:
        hint = "envbuilder validate IMAGE@sha256:… --attach --key KEY"
        raise PublishError("the verdict names no manifest digest: validate the image by its registry digest", hint=hint)
    return verdict.image.digest
