"""One table of attacks on `verify`: each has its name, what is done, and the reason that it has to be refused for.

Every row is run against an OCI 1.1 registry with native referrers, some also against docker-registry, both behind a
front that can answer anything. Rows that are data are in data/verify_attacks.yaml. An empty reason means accepted: a
document that anybody can attach must not refuse an image. There is always an answer, in time, without control
characters.
"""

from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import peak_memory
import pytest
import yaml
from factories import check as result
from factories import digest, failed_verdict, gpu_environment, gpu_verdict, inconclusive_verdict, verdict
from hostile import Front, Rules, hostile
from registries import OCI_INDEX, State, docker_registry, modern_registry

from envbuilder.attest import envelope, statements
from envbuilder.attest.envelope import BUNDLE, ENVELOPE, KeyOpener, bundled
from envbuilder.attest.keys import PrivateKey, create
from envbuilder.attest.statements import Notice, VerdictPredicate, notice_statement
from envbuilder.catalog.store import load
from envbuilder.cli import exit_codes
from envbuilder.cli.output import as_json
from envbuilder.errors import UsageError
from envbuilder.publish.attestation import links
from envbuilder.publish.verification import Verification, as_text
from envbuilder.publish.verify import VerifyQuestion, verify
from envbuilder.publish.verify_request import VerifyOptions, openers_of, requirement_of
from envbuilder.registry import transport
from envbuilder.registry.client import Repository
from envbuilder.registry.deadline import Deadline
from envbuilder.registry.manifests import OCI_MANIFEST, Descriptor, Manifest, digest_of
from envbuilder.registry.reference import Reference
from envbuilder.registry.referrers import attach, document, fallback_tag, listing
from envbuilder.verdict import GpuSeen, HostRef, ImageRef, Verdict

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
LATER, LATEST = "2026-11-20T11:00:00+00:00", "2026-11-20T11:30:00+00:00"
LIMIT_S, SHORT_S = 25.0, 0.5
"""The deadline of the command, and the one for rows that wait for it."""
MOST_BYTES = 300_000_000
"""An answer may take so much memory."""

H100_HOST = gpu_verdict().host
T4 = HostRef(driver="535.104.05", gpus=(GpuSeen(name="Tesla T4", compute_capability="7.5"),))


def words(**given: str) -> dict[str, str]:
    """Write options of the command; ``{image}`` is the beginning of the image's digest."""
    return given


ON_H100 = words(level="gpu", driver="535", gpu="H100")
GPU = words(level="gpu")
BARE = HostRef(kernel="6.1.0", cpus=2)


@dataclass
class Stage:
    """A repository with one image, under the tag ``image``; nothing is attached to it yet."""

    upstream: str
    front: str
    name: str
    rules: Rules
    keys: dict[str, PrivateKey]
    folder: Path
    state: State | None
    image: Manifest = field(init=False)
    _client: Repository | None = None
    threshold: int = 1
    trusted: tuple[str, ...] = ("ann", "bob")
    expires: dict[str, str] = field(default_factory=dict)
    key_files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.image = self.push("image")

    @property
    def native(self) -> bool:
        """Tell whether the registry has the referrers API."""
        return self.state is not None

    def client(self) -> Repository:
        """Speak to the registry itself."""
        if self._client is None:
            self._client = Repository(Reference(self.upstream, self.name), {})
        return self._client

    def push(self, tag: str) -> Manifest:
        """Push an image of nothing under a tag."""
        client = self.client()
        config = client.put_blob(b'{"architecture":"amd64","os":"linux","rootfs":{"type":"layers"}}', "text/json")
        layer = client.put_blob(tag.encode(), "text/plain")
        described = [{"mediaType": one.media_type, "digest": one.digest, "size": one.size} for one in (config, layer)]
        parts = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": described[0], "layers": described[1:]}
        client.put_manifest(tag, json.dumps(parts).encode(), OCI_MANIFEST)
        found = client.manifest(tag)
        assert found is not None
        return found

    def attach(self, content: bytes, *, kind: str = ENVELOPE, to: Manifest | None = None) -> str:
        """Attach bytes to the image; returns the digest that they are stored under."""
        return attach(self.client(), to or self.image, content, kind, {}).digest

    def seal(self, payload: bytes, *by: str, kind: str = statements.PAYLOAD_TYPE) -> bytes:
        """Sign bytes."""
        return envelope.encode(envelope.seal(payload, kind, *(self.keys[name] for name in by or ("ann",))))

    def state_that(self, value: Verdict, *by: str, about: str = "", answers: tuple[str, ...] | None = None) -> str:
        """Attach a signed verdict, as a publisher does; ``value`` speaks about the image unless it says otherwise."""
        trusted = (KeyOpener(tuple(self.keys[name].public for name in ("ann", "bob"))),)
        found = links(self.client(), trusted, self.image, self.about_image(value), NOW)
        payload = self.payload(value, about=about, answers=found[0] if answers is None else answers, previous=found[1])
        return self.attach(self.seal(payload, *by))

    def notice(self, answers: tuple[str, ...], time: str, *by: str, edit: tuple[str, str]) -> str:
        """Attach a person's decision, with a part of its text replaced."""
        made = Notice(answers=answers, time=time, reason="see ticket 17")
        text = statements.encode(notice_statement("x", self.image.digest, made)).decode()
        assert edit[0] in text
        return self.attach(self.seal(text.replace(*edit).encode(), *by))

    def lose(self, stored: str, *, deleted: bool) -> None:
        """Let the registry no longer list a statement, or no longer have it."""
        left = [one.digest for one in listing(self.client(), self.image.digest).items if one.digest != stored]
        self.rules.on(REFERRERS, answers(200, index(*left), Content_Type=OCI_INDEX))
        if deleted:
            self.rules.on(f"GET .*/manifests/{stored}", answers(404))

    def about_image(self, value: Verdict) -> Verdict:
        if value.image.digest != digest("manifest"):
            return value
        return msgspec.structs.replace(value, image=ImageRef(id="x", digest=self.image.digest))

    def payload(
        self, value: Verdict, *, about: str = "", answers: tuple[str, ...] = (), previous: tuple[str, ...] = ()
    ) -> bytes:
        """Write the statement of a verdict."""
        predicate = VerdictPredicate(verdict=self.about_image(value), answers=answers, previous=previous)
        return statements.encode(statements.about("x", about or self.image.digest, statements.VERDICT, predicate))

    def edited(self, *changes: tuple[str, str], value: Verdict | None = None) -> bytes:
        """Write a statement with parts of its text replaced."""
        text = self.payload(value or gpu_verdict()).decode()
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new)
        return text.encode()

    def ask(self, given: Mapping[str, str], target: str, seconds: float) -> Verification:
        """Verify through the front, as the command does with these words and key files."""
        asked, limits = Reference(self.front, self.name).at(self.named(target)), self.expires
        values = {name: self.named(value) for name, value in given.items()}
        files = self.key_files or tuple(
            (f"Expires: {limits[name]}\n" if name in limits else "") + f"{{{name}}}" for name in self.trusted
        )
        paths = tuple(self.folder / f"{number}.pub" for number in range(len(files)))
        for path, text in zip(paths, files, strict=True):
            path.write_text(text.format(**{name: key.public.pem for name, key in self.keys.items()}))
        none = dict.fromkeys(("identity", "issuer", "level", "driver", "gpu"))
        options: dict[str, Any] = {**none, "image": str(asked), "keys": paths, "max_age": "90d", **values}
        wanted = requirement_of(VerifyOptions(**options), load().gpu_model)
        repository = Repository(asked, {"HOME": "/nonexistent"}, Deadline(seconds))
        try:
            return verify(repository, openers_of(paths, None, None), VerifyQuestion(wanted, self.threshold), NOW)
        finally:
            repository.transport.close()

    def named(self, text: str) -> str:
        return text.format(image=self.image.digest[7:19])


@dataclass(frozen=True)
class Row:
    """One attack: what is done, and the one reason that the refusal has to name ('' where the answer is yes).

    USAGE is a word of the command that is not understood; ``given`` are its options.
    """

    name: str
    attack: Callable[[Stage], Any]
    expected: str
    given: Mapping[str, str] = field(default_factory=lambda: GPU)
    target: str = "image"


def good(stage: Stage) -> None:
    """Attach what a publisher attaches: a PASSED on an H100, at 10:03."""
    stage.state_that(gpu_verdict())


def after_good(attack: Callable[[Stage], Any]) -> Callable[[Stage], Any]:
    """Do something to an image that has been published properly."""

    def both(stage: Stage) -> None:
        good(stage)
        attack(stage)

    return both


def says(value: Verdict, *by: str) -> Callable[[Stage], Any]:
    """Attach a verdict."""
    return lambda stage: stage.state_that(value, *by)


def signs(*changes: tuple[str, str]) -> Callable[[Stage], Any]:
    """Attach a statement whose text was changed before it was signed."""
    return lambda stage: stage.attach(stage.seal(stage.edited(*changes)))


def attaches(content: bytes, kind: str = ENVELOPE) -> Callable[[Stage], Any]:
    """Attach some bytes."""
    return lambda stage: stage.attach(content, kind=kind)


def seals(**changes: Any) -> Callable[[Stage], Any]:
    """Attach the good statement in an envelope whose fields are changed after signing."""

    def attack(stage: Stage) -> None:
        document = json.loads(stage.seal(stage.payload(gpu_verdict())))
        for name, value in changes.items():
            document[name] = value(document, stage) if callable(value) else value
        stage.attach(json.dumps(document).encode())

    return attack


def signature(**changes: Any) -> Callable[[Stage], Any]:
    """Attach the good statement with its signature changed."""

    def change(document: dict[str, Any], stage: Stage) -> list[dict[str, Any]]:
        (one,) = document["signatures"]
        made = {name: value(one, stage) if callable(value) else value for name, value in changes.items()}
        return [{name: value for name, value in {**one, **made}.items() if value != "absent"}]

    return seals(signatures=change)


def beside(*more: dict[str, Any]) -> Callable[[Stage], Any]:
    """Attach the good statement with further signatures before the good one."""
    return seals(signatures=lambda document, _: [*more, *document["signatures"]])


def deep(depth: int = 60_000) -> str:
    return "[" * depth + "]" * depth


def failed(*levels: Any, host: HostRef = H100_HOST, finished: str = LATER, **given: Any) -> Verdict:
    """Make a FAILED whose checks failed in these levels."""
    names = {check.level: check.name for check in gpu_verdict().checks}
    checks = tuple(result(names.get(level, "all-reduce"), "failed", level=level) for level in levels)
    return failed_verdict(host=host, finished=finished, checks=checks, environment=gpu_environment(), **given)


def other_image(value: Verdict) -> Callable[[Stage], Any]:
    """Attach a signed verdict about another image, copied from where it belongs."""

    def attack(stage: Stage) -> None:
        other = stage.push("another")
        about = msgspec.structs.replace(value, image=ImageRef(id="x", digest=other.digest))
        stage.attach(stage.seal(stage.payload(about, about=other.digest)))

    return attack


# What the front does instead of the registry.


def answers(status: int, body: bytes = b"", **headers: str) -> Callable[[Front], None]:
    return lambda front: front.say(status, body, **headers)


def fronted(pattern: str, action: Callable[[Front], None]) -> Callable[[Stage], Any]:
    """Answer some requests about a published image in another way."""
    return after_good(lambda stage: stage.rules.on(pattern, action))


HTML = answers(200, b"<html><body>Sign in</body></html>", Content_Type="text/html")
MANIFESTS, BLOBS, REFERRERS, TAGS = "GET .*/manifests/image", "GET .*/blobs/", "GET .*/referrers/", "GET .*/tags/"


def index(*digests: str, **more: Any) -> bytes:
    entries = [{"mediaType": OCI_MANIFEST, "digest": one, "size": 1, "artifactType": ENVELOPE} for one in digests]
    return json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries, **more}).encode()


def listed(*links: str, then: Callable[[Stage], list[str]] = lambda _: []) -> Callable[[Stage], Any]:
    """Let the API list the good statement on page 1, and ``then`` on page 2; page n carries the n-th link."""

    def attack(stage: Stage) -> None:
        first = stage.state_that(gpu_verdict())
        second = then(stage)

        def answer(front: Front) -> None:
            page = 1 if "page=2" in front.path else 0
            link = links[page] if page < len(links) else ""
            body = index(*second) if page else index(first)
            front.say(200, body, Content_Type=OCI_INDEX, **({"Link": link} if link else {}))

        stage.rules.on(REFERRERS, answer)

    return attack


def page_two(rel: str = 'rel="next"', prefix: str = "") -> str:
    return f"{prefix}<?page=2>; {rel}"


def hangs(front: Front) -> None:
    front.rules.over.wait(30)


def drips(*, headers: bool) -> Callable[[Front], None]:
    """Answer a byte at a time, for ever."""

    def action(front: Front) -> None:
        if headers:
            front.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        else:
            front.send_response(200)
            front.send_header("Content-Length", "100000")
            front.end_headers()
        with suppress(OSError):
            while not front.rules.over.wait(0.2):
                front.wfile.write(b"a")
                front.wfile.flush()

    return action


def endless(front: Front) -> None:
    """Answer with more than anybody wants."""
    front.send_response(200)
    front.send_header("Connection", "close")
    front.end_headers()
    with suppress(OSError):
        while not front.rules.over.is_set():
            front.wfile.write(b" " * 1_000_000)
    front.close_connection = True


def breaks_off(front: Front) -> None:
    """Promise a document and send half of it."""
    front.say(200, b'{"schemaVersion"', Content_Length="500", Content_Type=OCI_INDEX)
    front.close_connection = True


def resets(front: Front) -> None:
    front.connection.shutdown(socket.SHUT_RDWR)
    front.close_connection = True


def alters(front: Front) -> None:
    """Answer what the registry does, with a byte more."""
    status, headers, body = front.upstream()
    front.say(status, body + b" ", **headers)


def restates(front: Front) -> None:
    """Answer what the registry does, under another digest."""
    status, headers, body = front.upstream()
    front.say(status, body, **{**headers, "Docker-Content-Digest": digest("another")})


def compresses(front: Front) -> None:
    import gzip  # noqa: PLC0415 - of this one row

    front.say(200, gzip.compress(b" " * 50_000_000, 1), Content_Encoding="gzip", Content_Type=OCI_INDEX)


def redirects(location: str) -> Callable[[Front], None]:
    return answers(307, Location=location)


def lists_missing(stage: Stage) -> None:
    """Let the list name a statement that is not there."""
    known = stage.state_that(gpu_verdict())
    stage.rules.on(REFERRERS, answers(200, index(known, digest("gone")), Content_Type=OCI_INDEX))


def lists_without_blob(stage: Stage) -> None:
    good(stage)
    stored = stage.state_that(failed("cpu"))
    manifest = stage.client().manifest(stored)
    assert manifest is not None
    layer = json.loads(manifest.content)["layers"][0]["digest"]
    stage.rules.on(f"GET .*/blobs/{layer}", answers(404))


def claims_missing(stage: Stage) -> None:
    """Push a list of our own making under the tag that old registries use, beside what the API lists."""
    good(stage)
    stage.rules.on(f"GET .*/manifests/{fallback_tag(stage.image.digest)}", answers(200, index(digest("gone"))))
    if not stage.native:
        # The registry vouches for nothing here: the API's answer is put in its place.
        known = stage.state_that(gpu_verdict())
        stage.rules.on(REFERRERS, answers(200, index(known), Content_Type=OCI_INDEX))


def odd_entries(stage: Stage) -> None:
    """List things in ways of other tools' own beside the good statement."""
    known = stage.state_that(gpu_verdict())
    entries = [
        {"digest": known, "annotations": None, "artifactType": ENVELOPE},
        {"digest": 7},
        {"mediaType": "x", "digest": "sha512:" + "a" * 128, "size": 1},
        "no descriptor",
        None,
        {"digest": "../../../etc/passwd", "size": -1, "mediaType": "x"},
    ]
    stage.rules.on(REFERRERS, answers(200, json.dumps({"manifests": entries}).encode(), Content_Type=OCI_INDEX))


def many(count: int, kind: str) -> Callable[[Stage], Any]:
    """Let the API list so many entries of a type beside the good statement; none of them is there."""

    def attack(stage: Stage) -> None:
        known = stage.state_that(gpu_verdict())
        entries = [{"mediaType": OCI_MANIFEST, "digest": known, "size": 1, "artifactType": ENVELOPE}]
        entries += [
            {"mediaType": OCI_MANIFEST, "digest": f"sha256:{i:064x}", "size": 1, "artifactType": kind}
            for i in range(count)
        ]
        stage.rules.on(REFERRERS, answers(200, json.dumps({"manifests": entries}).encode(), Content_Type=OCI_INDEX))

    return attack


def endless_pages(front: Front) -> None:
    number = int(front.path.partition("page=")[2] or 0)
    front.say(200, index(), Content_Type=OCI_INDEX, Link=f'<?page={number + 1}>; rel="next"')


def large_document(stage: Stage) -> None:
    """Attach, past our own limits, a document of 5 MB, as a stranger can."""
    good(stage)
    client = Repository(Reference(stage.upstream, stage.name), {})
    content = b" " * 5_000_000
    begun = client.transport.send("POST", f"{stage.name}/blobs/uploads/", expect=(202,), body=b"", scope="pull,push")
    location = begun.headers["Location"]
    joint = "&" if "?" in location else "?"
    kind = {"Content-Type": "application/octet-stream"}
    address = f"{location}{joint}digest={digest_of(content)}"
    client.transport.send("PUT", address, expect=(201,), headers=kind, body=content, scope="pull,push")
    put = client.put_blob
    described = msgspec.structs.replace(put(b"small", ENVELOPE), digest=digest_of(content), size=len(content))

    def lies(content: bytes, media_type: str) -> Descriptor:
        return described if content == b"large" else put(content, media_type)

    client.put_blob = lies  # type: ignore[method-assign]
    attach(client, stage.image, b"large", ENVELOPE, {})


def attached_elsewhere(kind: str, layers: int) -> Callable[[Stage], Any]:
    """Attach an artifact that is made in another way than ours."""

    def attack(stage: Stage) -> None:
        client = stage.client()
        one = client.put_blob(b"foreign", kind)
        described = {"mediaType": kind, "digest": one.digest, "size": one.size}
        subject = {"mediaType": OCI_MANIFEST, "digest": stage.image.digest, "size": len(stage.image.content)}
        config = client.put_blob(b"{}", "application/vnd.oci.empty.v1+json")
        parts = {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "artifactType": ENVELOPE,
            "config": {"mediaType": config.media_type, "digest": config.digest, "size": 2},
            "layers": [described] * layers,
            "subject": subject,
        }
        data = json.dumps(parts).encode()
        client.put_manifest(digest_of(data), data, OCI_MANIFEST)
        if not stage.native:
            tag = f"{fallback_tag(stage.image.digest)}.{digest_of(data)[7:23]}"
            client.put_manifest(tag, data, OCI_MANIFEST)

    return attack


def threshold(count: int, *then: Callable[[Stage], Any]) -> Callable[[Stage], Any]:
    def attack(stage: Stage) -> None:
        stage.threshold = count
        for each in then:
            each(stage)

    return attack


def retagged(stage: Stage) -> None:
    """Put the tag of one environment on the published image of another."""
    good(stage)
    stage.client().put_manifest("tf2.21.0-py311-cpu-bookworm", stage.image.content, stage.image.media_type)


def moved(stage: Stage) -> None:
    good(stage)
    stage.push("unvalidated")


def urlsafe(one: dict[str, Any], _: Stage) -> str:
    return base64.urlsafe_b64encode(base64.b64decode(one["sig"])).decode()


def hexed(one: dict[str, Any], _: Stage) -> str:
    return base64.b64decode(one["sig"]).hex()


def by_stranger(document: dict[str, Any], stage: Stage) -> list[dict[str, str]]:
    """Sign with a stranger's key, under the name of a trusted one."""
    payload = base64.b64decode(document["payload"])
    forged = json.loads(stage.seal(payload, "eve"))["signatures"][0]["sig"]
    return [{"sig": forged, "keyid": stage.keys["ann"].keyid}]


STRANGE = (
    ("an empty document", b""),
    ("a list", b"[]"),
    ("a number", b"7"),
    ("null", b"null"),
    ("a page of HTML", b"<html></html>"),
    ("bytes that are no text", b"\xff\xfe\x00"),
    ("JSON without end", b'{"payload":'),
    ("60,000 brackets", deep().encode()),
    ("60,000 brackets in an unknown field", f'{{"payload":"","payloadType":"","signatures":[],"x":{deep()}}}'.encode()),
    ("a signature that is a number", b'{"payload":"","payloadType":"x","signatures":[{"sig":7}]}'),
    (
        "10,000 signatures",
        json.dumps({"payload": "", "payloadType": "x", "signatures": [{"sig": "AA=="}] * 10_000}).encode(),
    ),
)
UNSIGNED = [Row(f"only {name} is attached", attaches(content), "UNREADABLE") for name, content in STRANGE[:9]]
NOISE = [Row(f"a stranger attaches {name}", after_good(attaches(content)), "") for name, content in STRANGE]

ENVELOPES = [
    Row("the tag was moved to another image", moved, "TAG_MOVED", target="unvalidated"),
    Row("signed by a stranger under a trusted name", seals(signatures=by_stranger), "BAD_SIGNATURE"),
    Row("no signature", seals(signatures=[]), "UNTRUSTED_KEY"),
    Row("signatures null", seals(signatures=None), "UNREADABLE"),
    Row(
        "the payload was edited",
        seals(payload=lambda d, _: base64.b64encode(base64.b64decode(d["payload"]) + b" ").decode()),
        "BAD_SIGNATURE",
    ),
    Row(
        "the payload is another statement",
        seals(payload=lambda _, s: base64.b64encode(s.payload(verdict())).decode()),
        "BAD_SIGNATURE",
    ),
    Row("the payload is not base64", seals(payload="%%%"), "UNREADABLE"),
    Row("the payload's type was edited", seals(payloadType="application/json"), "UNREADABLE"),
    Row("the signature is cut", signature(sig=lambda one, _: one["sig"][:40]), "BAD_SIGNATURE"),
    Row("the signature is empty", signature(sig=""), "BAD_SIGNATURE"),
    Row("the signature is zero", signature(sig=base64.b64encode(bytes(64)).decode()), "BAD_SIGNATURE"),
    Row("the signature is hexadecimal", signature(sig=hexed), "BAD_SIGNATURE"),
    Row(
        "the signature has a byte more",
        signature(sig=lambda one, _: base64.b64encode(base64.b64decode(one["sig"]) + b"x").decode()),
        "BAD_SIGNATURE",
    ),
    Row(
        "a trusted key signed another type of payload",
        lambda s: s.attach(s.seal(s.payload(gpu_verdict()), kind="text/x")),
        "UNREADABLE",
    ),
    Row("a keyid that is another's is a hint", signature(keyid="0" * 64), ""),
    Row("a keyid that is null is a hint", signature(keyid=None), ""),
    Row("a keyid that is empty is a hint", signature(keyid=""), ""),
    Row("a keyid that is absent is a hint", signature(keyid="absent"), ""),
    Row("base64 for addresses is base64", signature(sig=urlsafe), ""),
    Row("base64 without padding is base64", signature(sig=lambda one, _: one["sig"].rstrip("=")), ""),
    Row("an undecodable signature beside the good one", beside({"sig": "%%%", "keyid": "x"}), ""),
    Row("a stranger's signature beside the good one", beside({"sig": "AAAA", "keyid": "y"}), ""),
    Row("unknown fields in the envelope", seals(extra={"a": [1, 2]}), ""),
    Row("a terminal's control characters in a keyid", signature(sig="", keyid="\x1b[2J\nACCEPTED"), "UNTRUSTED_KEY"),
]

STATEMENTS = [
    Row("a statement of another image", other_image(gpu_verdict()), "WRONG_SUBJECT"),
    Row(
        "a statement without a subject",
        lambda s: s.attach(
            s.seal(
                b'{"_type":"https://in-toto.io/Statement/v1","subject":[],"predicateType":"'
                + statements.VERDICT.encode()
                + b'","predicate":{}}'
            )
        ),
        "WRONG_SUBJECT",
    ),
    Row(
        "the verdict is about another digest",
        lambda s: s.attach(s.seal(s.payload(gpu_verdict(image=ImageRef(id="x", digest=digest("o")))))),
        "WRONG_SUBJECT",
    ),
    Row(
        "the verdict names no digest",
        lambda s: s.attach(s.seal(s.payload(gpu_verdict(image=ImageRef(id="x"))))),
        "WRONG_SUBJECT",
    ),
    Row(
        "GH100 is not H100",
        says(gpu_verdict(host=HostRef(driver="535.1", gpus=(GpuSeen(name="NVIDIA GH100", compute_capability="9.0"),)))),
        "OTHER_GPU",
        words(gpu="H100"),
    ),
    Row(
        "PASSED although a required check failed",
        says(gpu_verdict(checks=(result("import", "failed"),))),
        "INCONSISTENT",
    ),
    Row(
        "the tag of one environment on another's image",
        retagged,
        "OTHER_ENVIRONMENT",
        words(level="gpu", environment="tf2.21.0-py311-cpu-bookworm"),
        "tf2.21.0-py311-cpu-bookworm",
    ),
    Row(
        "an image of no environment",
        says(gpu_verdict(environment=None)),
        "OTHER_ENVIRONMENT",
        words(tensorflow="2.20"),
    ),
]

NEWER = [
    (f"a newer {name}", failed(*levels), given)
    for name, levels in (
        ("FAILED in static", ("static",)),
        ("FAILED in load", ("load",)),
        ("FAILED in cpu", ("cpu",)),
        ("FAILED in all", ("static", "gpu")),
        ("FAILED without a check", ()),
    )
    for given in (GPU,)
]
FAILURES = [
    *[Row(name, after_good(says(value)), "FAILED", given) for name, value, given in NEWER],
    *[
        Row(
            f"a FAILED in {level} of a host without a driver, {name} demanded",
            after_good(says(failed(level, host=BARE))),
            "FAILED",
            given,
        )
        for level in ("static", "load", "cpu")
        for name, given in (
            ("a driver", words(level="gpu", driver="535")),
            ("a GPU", words(level="gpu", gpu="H100")),
            ("a lower level", words(level="static")),
            ("everything", ON_H100),
        )
        if level != "cpu" or name in ("everything", "a GPU")
    ],
    Row(
        "an inconsistent PASSED does not",
        after_good(
            lambda s: (
                s.state_that(failed("cpu")),
                s.state_that(gpu_verdict(finished=LATEST, checks=(result("a", "failed"),))),
            )
        ),
        "FAILED",
    ),
    Row("a FAILED of another image, copied", after_good(other_image(failed("cpu"))), ""),
]

DEEP = ('"verdict":{', f'"x":{deep(3_000)},"verdict":{{')
UNKNOWN = (
    ("of a newer predicate", (statements.VERDICT, "urn:envbuilder:attestation/verdict/v2"), "NEWER_SCHEMA"),
    (
        "of an unknown predicate of ours",
        (statements.VERDICT, "urn:envbuilder:attestation/revocation/v1"),
        "NEWER_SCHEMA",
    ),
    ("of schema v99", ("envbuilder/verdict/v1", "envbuilder/verdict/v99"), "NEWER_SCHEMA"),
    ("that says REVOKED", ('"verdict":"PASSED"', '"verdict":"REVOKED"'), "UNKNOWN_WORD"),
    ("that says passed", ('"verdict":"PASSED"', '"verdict":"passed"'), "UNKNOWN_WORD"),
    ("of level ultra", ('"level":"gpu"', '"level":"ultra"'), "UNREADABLE"),
    ("of an unknown tier", ('"tier":"static"', '"tier":"quantum"'), "UNREADABLE"),
    ("without a time", ('"finished":"2026-11-20T10:03:00+00:00"', '"end":""'), "UNREADABLE"),
    ("of yesterday", ("2026-11-20T10:03:00+00:00", "yesterday"), "UNREADABLE"),
    ("without a time zone", ("2026-11-20T10:03:00+00:00", "2026-11-20T10:03:00"), "UNREADABLE"),
    ("that is simulated by a word", ('"simulated":false', '"simulated":"no"'), "UNREADABLE"),
    ("with 3,000 brackets", DEEP, "UNREADABLE"),
    (
        "about another digest by its subject's word",
        ('"image":{"id":"x","digest":"sha256:', '"image":{"id":"x","digest":"sha256:0'),
        "WRONG_SUBJECT",
    ),
)
TRUSTED = [
    *[Row(f"only a trusted verdict {name}", signs(change), reason) for name, change, reason in UNKNOWN],
    *[
        Row(f"a good verdict, and a trusted one {name}", after_good(signs(change)), reason)
        for name, change, reason in UNKNOWN
    ],
    Row(
        "a good verdict, and a trusted key on no statement", after_good(lambda s: s.attach(s.seal(b"[]"))), "UNREADABLE"
    ),
]

STRANGERS = [
    *NOISE,
    Row("a stranger attaches 5 MB", large_document, ""),
    Row("a stranger attaches another type", after_good(attaches(b"{}", "application/vnd.dev.cosign")), ""),
    Row("a stranger attaches another type under ours", after_good(attached_elsewhere("text/plain", 1)), ""),
    Row("a stranger attaches two documents in one", after_good(attached_elsewhere(ENVELOPE, 2)), ""),
    Row("a stranger attaches none in one", after_good(attached_elsewhere(ENVELOPE, 0)), ""),
    Row("a stranger lists what is not there, in the tag beside the API", claims_missing, ""),
    Row("entries that other tools wrote in their own way", odd_entries, ""),
    Row("5,000 entries of other types", many(5_000, "application/vnd.other"), ""),
]


def no_list(status: int) -> Callable[[Stage], Any]:
    """Let the API answer a status, and nothing be under a tag."""

    def attack(stage: Stage) -> None:
        good(stage)
        stage.rules.on(REFERRERS, answers(status)).on("GET .*/manifests/sha256-", answers(404)).on(TAGS, answers(404))

    return attack


LISTS = [
    Row("a statement is listed and not there", lists_missing, "NOT_THERE"),
    Row("a statement's content is not there", lists_without_blob, "NOT_THERE"),
    Row("a newer FAILED on page 2", listed(page_two(), then=lambda s: [s.state_that(failed("cpu"))]), "FAILED"),
    Row(
        "a newer FAILED on page 2, rel without quotes",
        listed(page_two("rel=next"), then=lambda s: [s.state_that(failed("cpu"))]),
        "FAILED",
    ),
    Row(
        "a newer FAILED on page 2, rel after another parameter",
        listed(page_two('title="a, b"; REL="Next"'), then=lambda s: [s.state_that(failed("cpu"))]),
        "FAILED",
    ),
    Row(
        "a newer FAILED on page 2, the second of two links",
        listed(page_two(prefix='</x>; rel="first", '), then=lambda s: [s.state_that(failed("cpu"))]),
        "FAILED",
    ),
    Row("nothing new on page 2", listed(page_two()), ""),
    Row("page 2 leads to itself", listed(page_two(), page_two()), "BAD_LINK"),
    Row("page 1 leads to itself", listed('<>; rel="next"'), "BAD_LINK"),
    Row("page 2 leads back", listed(page_two(), '<?page=3>; rel="next"', then=lambda _: []), "TOO_MANY_OR_BAD_LINK"),
    Row("page 2 is at another host", listed('<http://198.51.100.1/v2/x>; rel="next"'), "BAD_LINK"),
    Row("page 2 is a file", listed('<file:///etc/passwd>; rel="next"'), "BAD_LINK"),
    Row("page 2 is at no address", listed('<http://[::1>; rel="next"'), "BAD_LINK"),
    Row("page 2 in no known form", listed('?page=2; rel="next"'), "BAD_LINK"),
    Row(
        "page 2 fails",
        after_good(
            lambda s: (
                s.rules.on("referrers/.*page=2", answers(500)),
                s.rules.on(REFERRERS, answers(200, index(), Content_Type=OCI_INDEX, Link=page_two())),
            )
        ),
        "SERVER_ERROR",
    ),
    Row(
        "page 2 is not there",
        after_good(
            lambda s: (
                s.rules.on("referrers/.*page=2", answers(404)),
                s.rules.on(REFERRERS, answers(200, index(), Content_Type=OCI_INDEX, Link=page_two())),
            )
        ),
        "BAD_ANSWER",
    ),
    Row("pages without end", fronted(REFERRERS, endless_pages), "TOO_MANY_OR_TOO_SLOW"),
    Row("20,001 statements", many(20_001, ENVELOPE), "TOO_MANY"),
    Row(
        "the list is 60,000 brackets",
        fronted(REFERRERS, answers(200, deep().encode(), Content_Type=OCI_INDEX)),
        "BAD_ANSWER",
    ),
    Row(
        "the list has 60,000 brackets in an entry",
        fronted(REFERRERS, answers(200, f'{{"manifests":[{deep()}]}}'.encode())),
        "BAD_ANSWER",
    ),
    Row(
        "the list's entries are null",
        after_good(
            lambda s: (
                s.rules.on(REFERRERS, answers(200, b'{"manifests":null}')),
                s.rules.on("GET .*/manifests/sha256-", answers(404)),
            )
        ),
        "NO_STATEMENT",
    ),
    *[
        Row(f"the API answers {status} and there is no other list", no_list(status), "NO_STATEMENT")
        for status in (400, 404, 405, 501)
    ],
]


def everywhere(name: str, action: Callable[[Front], None], expected: str) -> list[Row]:
    """Let each kind of request meet the same answer."""
    kinds = (("manifest", MANIFESTS), ("list", REFERRERS), ("statement", BLOBS))
    return [Row(f"{name} instead of the {kind}", fronted(pattern, action), expected) for kind, pattern in kinds]


def html_token(stage: Stage) -> None:
    """Send the login to a page for people."""
    challenge = f'Bearer realm="http://{stage.front}/html",service="x"'
    stage.rules.on(MANIFESTS, answers(401, WWW_Authenticate=challenge)).on("GET /html", HTML)


def busy_once(stage: Stage) -> None:
    """Fail the first request of every kind, as docker-registry does while somebody writes a tag."""
    seen: set[str] = set()

    def action(front: Front) -> None:
        if front.path in seen:
            front.forward()
        else:
            seen.add(front.path)
            front.say(500 if "blobs" in front.path else 503, Retry_After="0")

    stage.rules.on("GET .*/(manifests|blobs|referrers)/", action)


WIRE = [
    *everywhere("500", answers(500, b"oops"), "SERVER_ERROR"),
    *everywhere("503", answers(503), "SERVER_ERROR"),
    *everywhere("429", answers(429), "THROTTLED"),
    *everywhere("429 for 46 minutes", answers(429, Retry_After="2760"), "THROTTLED"),
    *everywhere("503 until a date", answers(503, Retry_After="Wed, 21 Oct 2099 07:28:00 GMT"), "THROTTLED"),
    *everywhere("403", answers(403), "ACCESS_DENIED"),
    *everywhere("401 without a challenge", answers(401), "ACCESS_DENIED"),
    *everywhere("a redirect to a file", redirects("file:///etc/passwd"), "BAD_REDIRECT"),
    *everywhere("a redirect to no address", redirects("http://[::1"), "BAD_REDIRECT"),
    *everywhere("a redirect without end", redirects("?again=1"), "BAD_REDIRECT"),
    *everywhere("a connection that breaks off", breaks_off, "UNREACHABLE"),
    *everywhere("a connection that is reset", resets, "UNREACHABLE"),
    *everywhere("no answer", hangs, "TOO_SLOW"),
    *everywhere("a byte at a time", drips(headers=False), "TOO_SLOW"),
    *everywhere("a header at a time", drips(headers=True), "TOO_SLOW"),
    *everywhere("what was not asked to be compressed", compresses, "BAD_ANSWER"),
    Row("a manifest without end", fronted(MANIFESTS, endless), "TOO_LARGE"),
    Row("a list without end", fronted(REFERRERS, endless), "TOO_LARGE"),
    Row("a statement without end, and no other", fronted(BLOBS, endless), "UNREADABLE"),
    Row("another manifest than its digest", fronted("GET .*/manifests/image", alters), "ALTERED"),
    Row("another digest than the manifest's", fronted("GET .*/manifests/image", restates), "ALTERED"),
    Row("another statement than its digest", fronted(BLOBS, alters), "ALTERED"),
    Row("another artifact than its digest", fronted("GET .*/manifests/sha256:", alters), "ALTERED"),
    Row(
        "a token service that answers HTML",
        html_token,
        "BAD_ANSWER",
    ),
    Row("tags that are HTML, nothing attached", lambda s: s.rules.on(TAGS, HTML), "NO_STATEMENT_OR_BAD_ANSWER"),
    Row(
        "tags whose pages lead to themselves, nothing attached",
        lambda s: s.rules.on(TAGS, answers(200, b'{"tags":["x"]}', Link='<>; rel="next"')),
        "NO_STATEMENT_OR_BAD_LINK",
    ),
    Row(
        "tags that are words, nothing attached",
        lambda s: s.rules.on(TAGS, answers(200, b'{"tags":"x"}')),
        "NO_STATEMENT_OR_BAD_ANSWER",
    ),
    Row("a registry that is busy once", after_good(busy_once), ""),
]


def served(document: dict[str, Any] | bytes, kind: str = OCI_MANIFEST) -> Callable[[Stage], Any]:
    """Let the tag lead to a manifest of another making, about which there is a good statement."""

    def attack(stage: Stage) -> None:
        content = document if isinstance(document, bytes) else json.dumps(document).encode()
        stage.image = Manifest(kind, content, digest_of(content))
        stage.rules.on(f"GET .*/manifests/(image|{stage.image.digest})", answers(200, content, Content_Type=kind))
        good(stage)

    return attack


def platforms(*names: str, kind: str = OCI_MANIFEST) -> dict[str, Any]:
    """Write a list of images for platforms (``os/architecture/feature``; '' for no platform)."""
    entries: list[dict[str, Any]] = []
    for number, name in enumerate(names):
        entries.append({"mediaType": kind, "digest": digest(f"{number}"), "size": 1})
        if name:
            system, architecture, *features = name.split("/")
            platform = {"os": system, "architecture": architecture}
            entries[-1]["platform"] = platform | ({"os.features": features} if features else {})
    return {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}


ONE_IMAGE: dict[str, Any] = {
    "schemaVersion": 2,
    "mediaType": OCI_MANIFEST,
    "config": {"mediaType": "text/json", "digest": digest("config"), "size": 2},
    "layers": [],
}
UNTYPED = {name: value for name, value in ONE_IMAGE.items() if name != "mediaType"}
TWICE = json.dumps(ONE_IMAGE).replace('"layers": []', '"layers": [], "layers": [{"mediaType": "x"}]').encode()

SHAPES = [
    Row(
        "a list of two platforms, and a verdict about the list",
        served(platforms("linux/amd64", "linux/arm64"), OCI_INDEX),
        "MANY_PLATFORMS",
    ),
    Row(
        "a list of one platform and the record of its build",
        served(platforms("linux/amd64", "unknown/unknown"), OCI_INDEX),
        "",
    ),
    *[
        Row(f"a list of {name}", served(platforms(*names), OCI_INDEX), "AMBIGUOUS")
        for name, names in (
            ("two images for one platform (A22)", ("linux/amd64", "linux/amd64")),
            ("two images for one platform, one with a feature (A23)", ("linux/amd64", "linux/amd64/x")),
            ("two images without a platform (A24)", ("", "")),
            ("an image with and one without a platform", ("linux/amd64", "")),
            ("nothing", ()),
            ("records of builds", ("unknown/unknown",)),
        )
    ],
    Row("a list of one image without a platform", served(platforms(""), OCI_INDEX), ""),
    Row("a list of a list (A25)", served(platforms("linux/amd64", kind=OCI_INDEX), OCI_INDEX), "AMBIGUOUS"),
    Row("an image without a type that is called a list (A26)", served(UNTYPED, OCI_INDEX), "AMBIGUOUS"),
    Row(
        "a list without a type that is called an image (A27)",
        served({"schemaVersion": 2, "manifests": platforms("linux/amd64")["manifests"]}),
        "AMBIGUOUS",
    ),
    Row("an image with layers and Layers (A28)", served({**ONE_IMAGE, "Layers": []}), "AMBIGUOUS"),
    Row("an image with layers and Manifests (A29)", served({**ONE_IMAGE, "Manifests": []}), "AMBIGUOUS"),
    Row("an image with Layers alone", served({**UNTYPED, "layers": None, "Layers": []}), "AMBIGUOUS"),
    Row("an image with a long s in its key", served({**ONE_IMAGE, "layer\u017f": []}), "AMBIGUOUS"),
    Row(
        "an image that is a list too",
        served({**ONE_IMAGE, "manifests": platforms("linux/amd64")["manifests"]}),
        "AMBIGUOUS",
    ),
    Row("an image that is an empty list too", served({**ONE_IMAGE, "manifests": []}), "AMBIGUOUS"),
    Row("an image that calls itself a list", served({**ONE_IMAGE, "mediaType": OCI_INDEX}), "AMBIGUOUS"),
    Row("a list that the registry calls an image", served(platforms("linux/amd64")), "AMBIGUOUS"),
    Row("an image with two sets of layers", served(TWICE), "AMBIGUOUS"),
    Row("an image that is no JSON", served(b"an image"), "AMBIGUOUS"),
]


def capitals(value: Verdict) -> Callable[[Stage], Any]:
    """Attach a statement that writes its subject's digest in capitals."""

    def attack(stage: Stage) -> None:
        name = stage.image.digest.removeprefix("sha256:")
        text = stage.payload(value).decode()
        assert f'"sha256":"{name}"' in text
        stage.attach(stage.seal(text.replace(f'"sha256":"{name}"', f'"sha256":"{name.upper()}"').encode()))

    return attack


def sealed_as(kind: str) -> Callable[[Stage], Any]:
    """Sign a statement as another type of payload."""
    return lambda stage: stage.attach(stage.seal(stage.payload(failed("cpu")), kind=kind))


def twice(first: str, last: str) -> Callable[[Stage], Any]:
    """Attach the good envelope with two payloads; '' stands for the one that was signed."""

    def attack(stage: Stage) -> None:
        text = stage.seal(stage.payload(gpu_verdict())).decode()
        payload = json.loads(text)["payload"]
        both = f'"payload":"{first or payload}","payload":"{last or payload}"'
        stage.attach(text.replace(f'"payload":"{payload}"', both).encode())

    return attack


def trusting(*names: str, then: Callable[[Stage], Any]) -> Callable[[Stage], Any]:
    def attack(stage: Stage) -> None:
        stage.trusted = names
        then(stage)

    return attack


CPUS, WORD = '"cpus":64', '"verdict":"PASSED"'
CRASHED = result("kernels", "error", level="gpu")
HUNG = result("import", "timeout")
MEANING = [
    Row("the signed payload, then another", twice("", "e30="), "BAD_SIGNATURE"),
    Row("another payload, then the signed one", twice("e30=", ""), ""),
    Row(
        "a FAILED as a newer kind of statement",
        after_good(sealed_as("application/vnd.in-toto+json; version=2")),
        "NEWER_SCHEMA",
    ),
    Row("a FAILED as a statement in capitals", after_good(sealed_as("application/vnd.In-Toto+JSON")), "NEWER_SCHEMA"),
    Row(
        "a trusted key signed something else",
        after_good(sealed_as("application/vnd.dev.cosign.simplesigning.v1+json")),
        "",
    ),
    Row("a FAILED whose subject is in capitals", after_good(capitals(failed("cpu"))), "FAILED"),
    Row("a PASSED whose subject is in capitals", capitals(gpu_verdict()), ""),
    Row("a number of 5,000 digits", signs((CPUS, f'"cpus":{"9" * 5_000}')), "UNREADABLE"),
    Row(
        "a number of 5,000 digits in an unknown field",
        after_good(signs((CPUS, f'"x":{"9" * 5_000},{CPUS}'))),
        "UNREADABLE",
    ),
    Row(
        "an environment with a Cyrillic letter",
        says(gpu_verdict(environment=gpu_environment(id=gpu_environment().id.replace("o", "\u043e")))),
        "OTHER_ENVIRONMENT",
        words(environment=gpu_environment().id),
    ),
    Row(
        "an environment that writes on the terminal",
        says(gpu_verdict(environment=gpu_environment(id="tf2.20.0-py311-cu12.5-x\nACCEPTED\x1b[2J\u202e"))),
        "",
    ),
    Row(
        "the same key is given twice, two are demanded", threshold(2, trusting("ann", "ann", then=good)), "TOO_FEW_KEYS"
    ),
    Row("PASSED that required nothing", says(gpu_verdict(requires=(), checks=())), "INCONSISTENT"),
    Row(
        "PASSED although a required check was skipped",
        says(gpu_verdict(checks=(*gpu_verdict().checks, result("m", "skipped", level="gpu")))),
        "INCONSISTENT",
    ),
    Row(
        "PASSED although a required check hung", says(gpu_verdict(checks=(*gpu_verdict().checks, HUNG))), "INCONSISTENT"
    ),
    Row("PASSED without a check of the GPU", says(gpu_verdict(checks=verdict().checks)), "INCONSISTENT"),
    Row(
        "a crash on another GPU is shown",
        after_good(says(failed_verdict(host=T4, finished=LATER, checks=(CRASHED,)))),
        "",
        ON_H100,
    ),
    Row(
        "a crash on the same GPU",
        after_good(says(failed_verdict(host=H100_HOST, finished=LATER, checks=(CRASHED,)))),
        "FAILED",
        ON_H100,
    ),
    Row(
        "a hang before any GPU, on another host",
        after_good(says(failed_verdict(host=T4, finished=LATER, checks=(HUNG,)))),
        "FAILED",
        ON_H100,
    ),
]


def unattached(stage: Stage) -> None:
    """Let the API list a FAILED whose artifact names no subject."""
    known = stage.state_that(gpu_verdict())
    client, content = stage.client(), stage.seal(stage.payload(failed("cpu")))
    described = [(ENVELOPE, client.put_blob(content, ENVELOPE)), ("x/y", client.put_blob(b"{}", "x/y"))]
    layer, config = ({"mediaType": kind, "digest": one.digest, "size": one.size} for kind, one in described)
    data = json.dumps({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": [layer]}).encode()
    client.put_manifest(digest_of(data), data, OCI_MANIFEST)
    stage.rules.on(REFERRERS, answers(200, index(known, digest_of(data)), Content_Type=OCI_INDEX))


def elsewhere(stage: Stage) -> None:
    """Let the API list what is attached to another image, and is about that."""
    known, other = stage.state_that(gpu_verdict()), stage.push("another")
    about = msgspec.structs.replace(failed("cpu"), image=ImageRef(id="x", digest=other.digest))
    there = stage.attach(stage.seal(stage.payload(about, about=other.digest)), to=other)
    stage.rules.on(REFERRERS, answers(200, index(known, there), Content_Type=OCI_INDEX))


def last_of(count: int) -> Callable[[Stage], Any]:
    """Attach a FAILED whose trusted signature comes after many others."""

    def attack(stage: Stage) -> None:
        document = json.loads(stage.seal(stage.payload(failed("cpu"))))
        others = [
            {"sig": base64.b64encode(bytes([*number.to_bytes(2), *[7] * 62])).decode()} for number in range(count)
        ]
        document["signatures"] = [*others, *document["signatures"]]
        stage.attach(json.dumps(document).encode())

    return attack


def says_result(value: Verdict, *by: str) -> Callable[[Stage], Any]:
    """Attach the test result of a verdict, without the verdict."""

    def attack(stage: Stage) -> None:
        about = msgspec.structs.replace(value, image=ImageRef(id="x", digest=stage.image.digest))
        made = statements.result_statement("x", about)
        assert made is not None
        stage.attach(stage.seal(statements.encode(made), *by))

    return attack


def then_by(suite: str) -> Callable[[Stage], Any]:
    """State a FAILED of a newer suite, then a PASSED of another."""

    def attack(stage: Stage) -> None:
        stage.state_that(failed("cpu", suite=digest("newer")))
        stage.state_that(gpu_verdict(finished=LATEST, suite=suite))

    return attack


def one_signature(content: bytes) -> bytes:
    document = json.loads(content)
    return json.dumps({**document, "signatures": document["signatures"][:1]}).encode()


def again(change: Callable[[bytes], bytes], kind: str) -> Callable[[Stage], Any]:
    """Attach a FAILED by two keys and its answer, then copies of the FAILED that anybody can make."""

    def attack(stage: Stage) -> None:
        stored = stage.state_that(failed("cpu"), "ann", "bob")
        stage.state_that(gpu_verdict(finished=LATEST))
        _, content = document(stage.client(), stored, frozenset({ENVELOPE}))
        stage.attach(change(content), kind=kind)

    return attack


NOT_UNDERSTOOD = [
    Row("a FAILED test result whose verdict is lost (A9)", after_good(says_result(failed("cpu"))), "FAILED"),
    Row("a FAILED test result by a stranger", after_good(says_result(failed("cpu"), "eve")), ""),
    Row("a PASSED test result whose verdict is lost", after_good(says_result(verdict())), ""),
    Row(
        "a FAILED with its test result, answered by a newer PASSED",
        after_good(
            lambda s: (
                says_result(failed("cpu"))(s),
                s.state_that(failed("cpu")),
                s.state_that(gpu_verdict(finished=LATEST)),
            )
        ),
        "",
    ),
    Row(
        "a FAILED in a check that a newer PASSED has not made (A5)",
        after_good(
            lambda s: (
                s.state_that(failed_verdict(host=H100_HOST, finished=LATER, checks=(result("deep", "failed"),))),
                s.state_that(gpu_verdict(finished=LATEST)),
            )
        ),
        "FAILED",
    ),
    *[
        Row(
            f"a FAILED by the newer suite, then a PASSED by the {name}",
            after_good(then_by(suite)),
            reason,
        )
        for name, suite, reason in (
            ("older (A6)", digest("suite"), "FAILED"),
            ("same", digest("newer"), ""),
            ("newest", digest("newest"), ""),
        )
    ],
    *[
        Row(f"an answered FAILED that a stranger attaches again {how}", again(change, kind), "")
        for how, change, kind in (
            ("as a bundle", bundled, BUNDLE),
            ("with another layout", lambda content: content + b"\n", ENVELOPE),
            ("with one of two signatures", one_signature, ENVELOPE),
        )
    ],
    Row(
        "a FAILED that is there as a bundle alone (A8)",
        after_good(lambda s: s.attach(bundled(s.seal(s.payload(failed("cpu")))), kind=BUNDLE)),
        "FAILED",
    ),
    Row(
        "a PASSED that is there as a bundle too",
        after_good(lambda s: s.attach(bundled(s.seal(s.payload(gpu_verdict()))), kind=BUNDLE)),
        "",
    ),
    Row(
        "a bundle by a stranger",
        after_good(lambda s: s.attach(bundled(s.seal(s.payload(failed("cpu")), "eve")), kind=BUNDLE)),
        "",
    ),
    Row("a bundle without an envelope", after_good(attaches(b"{}", BUNDLE)), ""),
    Row(
        "a FAILED whose subject says SHA256 (A30)",
        after_good(
            lambda s: s.attach(s.seal(s.edited(('"digest":{"sha256"', '"digest":{"SHA256"'), value=failed("cpu"))))
        ),
        "WRONG_SUBJECT",
    ),
    Row(
        "a FAILED without a subject",
        after_good(lambda s: s.attach(s.seal(s.edited(('"subject":[', '"subject":[],"x":['), value=failed("cpu"))))),
        "WRONG_SUBJECT",
    ),
    Row("a FAILED whose artifact names no subject (A31)", unattached, "FAILED"),
    Row("a FAILED of another image is listed", elsewhere, ""),
    Row("a FAILED whose trusted signature is the 65th (A32)", after_good(last_of(64)), "FAILED"),
    Row("a FAILED whose trusted signature is the 5,001st", after_good(last_of(5_000)), "FAILED"),
    Row("a suite without a digest (A33)", says(gpu_verdict(suite="")), "INCONSISTENT"),
    Row(
        "a cpu environment with CUDA in its id (A34)",
        says(gpu_verdict(environment=gpu_environment(flavor="cpu"))),
        "INCONSISTENT",
    ),
    Row(
        "another TensorFlow than in its id (A35)",
        says(gpu_verdict(environment=gpu_environment(tensorflow="2.21.0"))),
        "INCONSISTENT",
        words(tensorflow="2.21.0"),
    ),
    Row("another Python than in its id", says(gpu_verdict(environment=gpu_environment(python="3.12"))), "INCONSISTENT"),
    Row("another CUDA than in its id", says(gpu_verdict(environment=gpu_environment(cuda="12.9"))), "INCONSISTENT"),
    Row("a PASSED that ended before it began", says(gpu_verdict(started=LATER)), "INCONSISTENT"),
    Row("a beginning that is not a time", says(gpu_verdict(started="today")), "UNREADABLE"),
]


def moves_meanwhile(stage: Stage) -> None:
    """Move the tag to another image as soon as it has been read."""
    good(stage)

    def action(front: Front) -> None:
        front.forward()
        stage.push("image-of-later")
        later = stage.client().manifest("image-of-later")
        assert later is not None
        stage.client().put_manifest("image", later.content, later.media_type)

    stage.rules.on("GET .*/manifests/image$", action)


def lists_by_tag(then: Callable[[Stage, str, str], tuple[bytes, bytes]], *, api: int = 200) -> Callable[[Stage], Any]:
    """Let the API and the tag of old registries list what ``then`` says of a good statement and a FAILED."""

    def attack(stage: Stage) -> None:
        passed = stage.state_that(gpu_verdict())
        broken = stage.state_that(failed("cpu"))
        from_api, from_tag = then(stage, passed, broken)
        stage.rules.on(REFERRERS, answers(api, from_api, Content_Type=OCI_INDEX))
        tag = fallback_tag(stage.image.digest)
        stage.rules.on(f"GET .*/manifests/{tag}$", answers(200, from_tag, Content_Type=OCI_INDEX))

    return attack


def retyped(stage: Stage, passed: str, broken: str) -> tuple[bytes, bytes]:
    """List the FAILED as something that nobody reads; its own tag stands."""
    found = stage.client().manifest(broken)
    assert found is not None
    stage.client().put_manifest(f"{fallback_tag(stage.image.digest)}.{broken[7:23]}", found.content, OCI_MANIFEST)
    listed = json.loads(index(passed, broken))
    listed["manifests"][1]["artifactType"] = "application/vnd.other"
    return b"", json.dumps(listed).encode()


def relisted(own: str, listed: Callable[[Stage, str], Manifest | None]) -> Callable[[Stage], Any]:
    """Without the API, write the list again as anybody may who pushes, and let the FAILED's own tag lead elsewhere.

    ``own`` is where it leads: to the PASSED (``failed``) or to the ``image``; with '' there is no FAILED.
    """

    def attack(stage: Stage) -> None:
        stored = {"passed": stage.state_that(gpu_verdict())}
        if own:
            stored["failed"] = stage.state_that(failed("cpu"))
        client, tag = stage.client(), fallback_tag(stage.image.digest)
        for name, one in stored.items():
            elsewhere = {"failed": client.manifest(stored["passed"]), "image": stage.image}
            target = elsewhere[own] if name == "failed" else client.manifest(one)
            assert target is not None
            client.put_manifest(f"{tag}.{one[7:23]}", target.content, OCI_MANIFEST)
        written = listed(stage, stored["passed"])
        assert written is not None
        client.put_manifest(tag, written.content, written.media_type)
        stage.rules.on(REFERRERS, answers(404))

    return attack


def only(_: Stage, passed: str) -> Manifest:
    return Manifest(OCI_INDEX, index(passed), "")


def lies_beside(stage: Stage) -> None:
    """List the good statement with content and addresses of somebody's own, and the image itself as a statement."""
    known = stage.state_that(gpu_verdict())
    listed = json.loads(index(known, stage.image.digest))
    listed["manifests"][0] |= {"data": "e30=", "urls": ["http://198.51.100.1/"], "size": -1}
    stage.rules.on(REFERRERS, answers(200, json.dumps(listed).encode(), Content_Type=OCI_INDEX))


def chunks(*pieces: bytes, endless: bytes = b"") -> Callable[[Front], None]:
    """Answer in chunks as they are given, then with one of them for ever, or by hanging up."""

    def action(front: Front) -> None:
        front.send_response(200)
        front.send_header("Transfer-Encoding", "chunked")
        front.end_headers()
        with suppress(OSError):
            for piece in pieces:
                front.wfile.write(piece)
            while endless and not front.rules.over.is_set():
                front.wfile.write(endless)
        front.close_connection = True

    return action


def raw(*pieces: bytes, forever: bool = False) -> Callable[[Front], None]:
    """Answer with bytes that are no HTTP of ours."""

    def action(front: Front) -> None:
        with suppress(OSError):
            for piece in pieces:
                front.wfile.write(piece)
            while forever and not front.rules.over.wait(0.01):
                front.wfile.write(pieces[-1])
        front.close_connection = True

    return action


def tokens(body: bytes) -> Callable[[Stage], Any]:
    """Ask for a login at a service that answers so."""

    def attack(stage: Stage) -> None:
        good(stage)
        challenge = f'Bearer realm="http://{stage.front}/service",service="x"'
        stage.rules.on(MANIFESTS, answers(401, WWW_Authenticate=challenge)).on("GET /service", answers(200, body))

    return attack


def says_digest(value: str) -> Callable[[Front], None]:
    """Answer what the registry does, under a digest of another algorithm."""

    def action(front: Front) -> None:
        status, headers, body = front.upstream()
        front.say(status, body, **{**headers, "Docker-Content-Digest": value})

    return action


ODD = "UNREACHABLE_OR_BAD_ANSWER_OR_TOO_LARGE"
CHUNK = b"40000\r\n" + b" " * 0x40000 + b"\r\n"
MANNERS = [
    Row("the tag moves after it was read", moves_meanwhile, ""),
    Row(
        "the API lists the PASSED, the tag the FAILED too",
        lists_by_tag(lambda _, p, f: (index(p), index(p, f))),
        "FAILED",
    ),
    Row("the API lists nothing, the tag both", lists_by_tag(lambda _, p, f: (index(), index(p, f))), "FAILED"),
    Row("the API lists both, the tag the PASSED", lists_by_tag(lambda _, p, f: (index(p, f), index(p))), "FAILED"),
    Row("the API lists nothing, the tag the PASSED", lists_by_tag(lambda _, p, __: (index(), index(p))), ""),
    Row("without the API, the tag lists the FAILED as another type", lists_by_tag(retyped, api=404), "FAILED"),
    Row("the list without a FAILED, whose own tag leads to the PASSED (A3)", relisted("failed", only), "ALTERED"),
    Row("the list without a FAILED, whose own tag leads to the image (A4)", relisted("image", only), "ALTERED"),
    Row("an image where the list was", relisted("", lambda stage, _: stage.push("foreign")), ""),
    Row("a descriptor that lies about content, place and size", lies_beside, ""),
    Row("page 2 in single quotes", listed("<?page=2>; rel='next'"), "BAD_LINK"),
    Row("page 2 without a relation", listed("<?page=2>"), "BAD_LINK"),
    Row("page 2 by a relation of somebody's own", listed('<?page=2>; rel="https://example.org/next-page"'), "BAD_LINK"),
    Row("page 2 at another port", listed('<http://127.0.0.1:1/v2/x>; rel="next"'), "BAD_LINK"),
    Row("page 2 at another host of the same scheme", listed('<//198.51.100.1/v2/x>; rel="next"'), "BAD_LINK"),
    Row("page 2 with a login", listed('<http://ann:b@127.0.0.1/v2/x>; rel="next"'), "BAD_LINK"),
    Row("a link to the first page alone", listed('<?page=1>; rel="first"'), ""),
    Row(
        "a manifest under a digest of another algorithm",
        fronted(MANIFESTS, says_digest("sha512:" + "a" * 128)),
        "ALTERED",
    ),
    Row("chunks without end", fronted(REFERRERS, chunks(endless=CHUNK)), "TOO_LARGE"),
    Row(
        "a chunk of all memory", fronted(REFERRERS, chunks(b"FFFFFFFFFFFFFFF\r\n", endless=b" " * 100_000)), "TOO_LARGE"
    ),
    Row("chunks that break off", fronted(REFERRERS, chunks(b'5\r\n{"man\r\n')), "UNREACHABLE"),
    Row("a chunk of negative size", fronted(REFERRERS, chunks(b"-5\r\n{}\r\n0\r\n\r\n")), ODD),
    Row("a chunk of no size", fronted(REFERRERS, chunks(b"many\r\n{}\r\n0\r\n\r\n")), ODD),
    Row("go on, for ever", fronted(REFERRERS, raw(b"HTTP/1.1 100 Continue\r\n\r\n", forever=True)), "TOO_SLOW"),
    Row("a status that is a word", fronted(REFERRERS, raw(b"HTTP/1.1 fine\r\n\r\n")), ODD),
    Row("no HTTP at all", fronted(REFERRERS, raw(b"220 ready\r\n")), ODD),
    Row(
        "1,000 headers",
        fronted(REFERRERS, raw(b"HTTP/1.1 200 OK\r\n", *[b"X-%d: y\r\n" % i for i in range(1_000)], b"\r\n")),
        ODD,
    ),
    Row("a header of 1 MB", fronted(REFERRERS, raw(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 1_000_000 + b"\r\n\r\n")), ODD),
    Row(
        "two lengths",
        fronted(REFERRERS, raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 200\r\n\r\n{}")),
        ODD,
    ),
    Row("a length that is a power", fronted(REFERRERS, raw(b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\n{}")), ODD),
    Row("a negative length", fronted(REFERRERS, raw(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}")), ODD),
    Row("a token with a line end", tokens(b'{"token":"a\\r\\nX-Admin: yes"}'), "BAD_ANSWER"),
    Row("a token that no header holds", tokens('{"token":"\u043a\u043b\u044e\u0447"}'.encode()), "BAD_ANSWER"),
    Row("a token that is a number", tokens(b'{"token":7}'), "BAD_ANSWER"),
    Row("a token that is refused again and again", tokens(b'{"token":"a"}'), "ACCESS_DENIED"),
    Row(
        "a refusal that writes on the terminal",
        fronted(REFERRERS, answers(403, b'{"errors":[{"message":"\x1b[2J\nACCEPTED\xe2\x80\xae"}]}')),
        "ACCESS_DENIED",
    ),
]


HOSTS = {"h100": H100_HOST, "t4": T4, "bare": BARE}
TIMES = {"later": LATER, "latest": LATEST, "next year": "2027-06-01T00:00:00+00:00"}
REQUESTS = {"manifest": MANIFESTS, "statement": BLOBS, "list": REFERRERS, "tags": TAGS}


def verdict_of(spec: dict[str, Any]) -> Verdict:
    """Make a verdict of the table: what it is, in which levels it failed, on which host, and further fields."""
    given: dict[str, Any] = {name: value for name, value in spec.items() if name in ("level", "simulated")}
    if "checks" in spec:
        given |= {"checks": tuple(spec["checks"])}
    if "finished" in spec:
        given["finished"] = TIMES.get(spec["finished"], spec["finished"])
    host = spec.get("host")
    if isinstance(host, str):
        given["host"] = HOSTS[host]
    elif host is not None:
        memory = int(host.get("memory", 0) * (1 << 30))
        gpus = tuple(GpuSeen(name=name, compute_capability="9.0", memory=memory) for name in host.get("gpus", ()))
        given["host"] = HostRef(driver=host["driver"], gpus=gpus)
    if spec["is"] == "failed":
        return failed(*spec["in"], **given)
    return {"passed": gpu_verdict, "inconclusive": inconclusive_verdict}[spec["is"]](**given)


def row_of(data: dict[str, Any]) -> Row:
    """Make a row of the table in YAML."""

    def attack(stage: Stage) -> None:
        stage.threshold = data.get("threshold", 1)
        stage.expires = {name: TIMES.get(time, time) for name, time in data.get("expires", {}).items()}
        stage.key_files = tuple(data.get("key_files", ()))
        if data.get("good"):
            good(stage)
        stored = [item.digest for item in listing(stage.client(), stage.image.digest).items]

        def state(specs: list[dict[str, Any]]) -> None:
            for spec in specs:
                answered = tuple(map(named, spec["answers"])) if "answers" in spec else None
                stored.append(stage.state_that(verdict_of(spec), *spec.get("by", ()), answers=answered))

        def named(one: int | str) -> str:
            known = {"absent": digest("gone"), "image": stage.image.digest}
            return stored[one] if isinstance(one, int) else known.get(one, one)

        state(data.get("verdicts", []))
        for spec in data.get("notices", ()):
            time = TIMES.get(spec.get("time", "latest"), "today")
            answered = tuple(map(named, spec.get("answers", ())))
            stored.append(stage.notice(answered, time, *spec.get("by", ()), edit=spec.get("edit", ("", ""))))
        state(data.get("then", []))
        for kind in ("deleted", "hidden"):
            for number in data.get(kind, ()):
                stage.lose(stored[number], deleted=kind == "deleted")
        for tag in data.get("tags", ()):
            stage.client().put_manifest(stage.named(tag), stage.image.content, stage.image.media_type)
        if "edit" in data:
            stage.attach(stage.seal(stage.edited(*map(tuple, data["edit"]))))
        if "attach" in data:
            stage.attach(data["attach"].encode())
        for request, given in data.get("serve", {}).items():
            kind = {"index": OCI_INDEX}.get(given.get("type", ""), given.get("type"))
            headers = {**({"Content-Type": kind} if kind else {}), **given.get("headers", {})}
            stage.rules.on(
                REQUESTS[request], answers(given.get("status", 200), given.get("body", "").encode(), **headers)
            )

    return Row(data["name"], attack, data.get("expected", ""), data.get("given", GPU), data.get("target", "image"))


TABLE = Path(__file__).parents[1] / "data" / "verify_attacks.yaml"
ROWS = [
    *[row_of(data) for data in yaml.safe_load(TABLE.read_text())],
    *[*UNSIGNED, *ENVELOPES, *STATEMENTS, *FAILURES, *TRUSTED, *STRANGERS, *LISTS, *WIRE],
    *[*SHAPES, *MEANING, *NOT_UNDERSTOOD, *MANNERS],
]
WITHOUT_API = (
    "nothing is attached",
    "the tag was moved to another image",
    "signed by a stranger under a trusted name",
    "a newer FAILED in cpu",
    "a newer PASSED of the same kind makes up for it",
    "a FAILED by a stranger",
    "a stranger attaches 5 MB",
    "a stranger attaches another type under ours",
    "a stranger attaches two documents in one",
    "a stranger lists what is not there, in the tag beside the API",
    "a statement's content is not there",
    "another artifact than its digest",
    "the tag moves after it was read",
    "without the API, the tag lists the FAILED as another type",
    "a registry that is busy once",
    "the list without a FAILED, whose own tag leads to the PASSED (A3)",
    "the list without a FAILED, whose own tag leads to the image (A4)",
    "an image where the list was",
)
"""The rows that are also run against docker-registry, which lists statements under tags."""
CASES = [pytest.param(row, "OCI 1.1", id=row.name) for row in ROWS] + [
    pytest.param(row, "docker-registry", id=f"{row.name}, docker-registry", marks=pytest.mark.engine)
    for row in ROWS
    if row.name in WITHOUT_API
]


@pytest.fixture(scope="module")
def keys(tmp_path_factory) -> dict[str, PrivateKey]:
    return {name: create(tmp_path_factory.mktemp(name)) for name in ("ann", "bob", "eve")}


@pytest.fixture(scope="module")
def debian(tmp_path_factory) -> Iterator[str]:
    with docker_registry(tmp_path_factory.mktemp("registry"), memory=True) as host:
        yield host


@pytest.fixture
def stage(
    request: pytest.FixtureRequest, keys: dict[str, PrivateKey], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Stage]:
    """Yield a fresh repository in each kind of registry, behind a front that is queried again without long pauses."""
    monkeypatch.setattr(transport, "PAUSE_S", 0.005)
    if request.param == "OCI 1.1":
        with modern_registry() as (host, state), hostile(host) as (front, rules):
            yield Stage(host, front, "team/image", rules, keys, tmp_path, state)
    else:
        host = request.getfixturevalue("debian")
        name = f"team/n{digest(request.node.name)[7:23]}"
        with hostile(host) as (front, rules):
            yield Stage(host, front, name, rules, keys, tmp_path, None)


def test_the_table_is_complete() -> None:
    assert len(ROWS) >= 400
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert {row.name for row in ROWS} >= set(WITHOUT_API)


@pytest.mark.parametrize(("row", "stage"), CASES, indirect=["stage"])
def test_attack(stage: Stage, row: Row) -> None:
    """The answer is the right one, for the right reason, in time, and it can be written."""
    row.attack(stage)
    if row.expected == "USAGE":
        with pytest.raises(UsageError):
            stage.ask(row.given, row.target, LIMIT_S)
        return
    begun = time.monotonic()
    limit = SHORT_S if "TOO_SLOW" in row.expected else LIMIT_S
    before = peak_memory.from_now_on()
    found = stage.ask(row.given, row.target, limit)
    assert time.monotonic() - begun < limit + 4
    assert peak_memory.most() - before < MOST_BYTES  # the registry that attacks is in this process too
    reasons = {str(refusal.reason) for refusal in found.refusals}
    assert found.accepted == (not row.expected), reasons
    assert found.accepted == (not reasons)
    assert not found.accepted or found.digest == stage.image.digest
    if row.expected:
        assert reasons & set(row.expected.split("_OR_")), (reasons, as_text(found))
    assert exit_codes.of(found) == (0 if found.accepted else 5 if found.unanswered else 7)
    assert json.loads(as_json(found))["accepted"] == found.accepted
    assert all(one.next and "{" not in one.next for one in found.refusals)
    text = as_text(found)
    assert all(char.isprintable() for char in text.replace("\n", ""))
    assert [line for line in text.splitlines() if line.startswith("ACCEPTED")] == (
        [text.splitlines()[0]] if found.accepted else []
    )
    assert timedelta(0) <= timedelta(seconds=found.age_s or 0)


def delete(stage: Stage, stored: str) -> None:
    """Delete a statement from the registry, and from the list that registries without the API keep under a tag."""
    client, tag = stage.client(), fallback_tag(stage.image.digest)
    client.transport.send("DELETE", f"{stage.name}/manifests/{stored}", expect=(202,), scope="delete")
    if not stage.native:
        left = [one.digest for one in listing(client, stage.image.digest).items if one.digest != stored]
        client.put_manifest(tag, index(*left), OCI_INDEX)


AT_40, AT_45, AT_50 = (f"2026-11-20T11:{minute}:00+00:00" for minute in (40, 45, 50))
HISTORY: tuple[tuple[Verdict, str], ...] = (
    (gpu_verdict(), ""),
    (failed("cpu"), "FAILED"),
    (gpu_verdict(finished=LATEST), ""),
    (failed("gpu", finished=AT_40), "FAILED"),
    (inconclusive_verdict(finished=AT_45), "FAILED"),
    (gpu_verdict(finished=AT_50), ""),
)
"""What is stated, one after the other, and the answer after each."""


@pytest.mark.parametrize("number", range(len(HISTORY)))
@pytest.mark.parametrize(
    "stage", ["OCI 1.1", pytest.param("docker-registry", marks=pytest.mark.engine)], indirect=["stage"]
)
def test_a_deleted_statement_that_another_one_names_is_missed(stage: Stage, number: int) -> None:
    """Without the newest statement the answer is the one of before: nothing names it, and --max-age is the limit."""
    stored = []
    for value, answer in HISTORY:
        stored.append(stage.state_that(value))
        assert {one.reason for one in stage.ask(GPU, "image", LIMIT_S).refusals} == ({answer} - {""})
    delete(stage, stored[number])
    found = stage.ask(GPU, "image", LIMIT_S)
    assert not found.accepted
    expected = "FAILED" if number == len(HISTORY) - 1 else "STATEMENT_MISSING"
    assert expected in {refusal.reason for refusal in found.refusals}, as_text(found)
