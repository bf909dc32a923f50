"""One table of attacks on `verify`: each has its name, what is done, and the reason that it has to be refused for.

The registry is OCI 1.1, for some rows also docker-registry, behind a front that can answer anything. Rows that are data
are in data/verify_attacks.yaml. An empty reason means accepted: what anybody can attach must not refuse an image.
"""

import base64
import gzip
import io
import json
import re
import time
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import peak_memory
import pytest
import yaml
from factories import check as result
from factories import digest, failed_verdict, finding, gpu_environment, gpu_verdict, inconclusive_verdict, verdict
from hostile import Action, Front, Rules, hostile
from publishing_world import push_image
from registries import docker_registry, modern_registry

from envbuilder.attest import envelope, statements
from envbuilder.attest.envelope import BUNDLE, ENVELOPE, KeyOpener, bundled
from envbuilder.attest.keys import PrivateKey, create
from envbuilder.attest.statements import NOTICE, STATEMENT, Notice, VerdictPredicate
from envbuilder.catalog.store import load
from envbuilder.cli import exit_codes
from envbuilder.cli.output import as_json
from envbuilder.errors import UsageError
from envbuilder.publish.attestation import links
from envbuilder.publish.verification import Verification, as_text
from envbuilder.publish.verify_request import VerifyOptions, openers_of, requirement_of, verify
from envbuilder.registry import client
from envbuilder.registry.client import Repository
from envbuilder.registry.manifests import (
    DOCKER_LIST,
    DOCKER_MANIFEST,
    OCI_INDEX,
    OCI_MANIFEST,
    Artifact,
    Descriptor,
    Manifest,
    digest_of,
)
from envbuilder.registry.reference import Reference
from envbuilder.registry.referrers import attach, contents, fallback_tag, listing
from envbuilder.verdict import GpuSeen, HostRef, ImageRef, Verdict

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
LATER, LATEST = "2026-11-20T11:00:00+00:00", "2026-11-20T11:30:00+00:00"
LIMIT_S, SHORT_S = 25.0, 0.5
"""The deadline of the command, and the one for rows that wait for it."""
MOST_BYTES = 300_000_000
"""An answer may take so much memory."""

H100_HOST = gpu_verdict().host
T4 = HostRef(driver="535.104.05", gpus=(GpuSeen(name="Tesla T4", compute_capability="7.5"),))
BARE = HostRef(kernel="6.1.0", cpus=2)
GPU = {"level": "gpu"}
GONE, OTHER_TYPE = digest("gone"), "application/vnd.other"


@dataclass
class Stage:
    """A repository with one image, under the tag ``image``; nothing is attached to it yet."""

    upstream: str
    front: str
    name: str
    rules: Rules
    keys: dict[str, PrivateKey]
    folder: Path
    native: bool
    threshold: int = 1
    key_files: tuple[str, ...] = ("{ann}", "{bob}")
    image: Manifest = field(init=False)
    client: Repository = field(init=False)

    def __post_init__(self) -> None:
        self.client = Repository(Reference(self.upstream, self.name), {})
        self.image = self.push("image")

    def push(self, tag: str) -> Manifest:
        return push_image(self.client, tag, tag.encode())

    def attach(self, content: bytes, *, kind: str = ENVELOPE, to: Manifest | None = None) -> str:
        return attach(self.client, to or self.image, content, kind, {}).digest

    def seal(self, payload: bytes, *by: str, kind: str = statements.PAYLOAD_TYPE) -> bytes:
        return msgspec.json.encode(envelope.seal(payload, kind, *(self.keys[name] for name in by or ("ann",))))

    def state_that(self, value: Verdict, *by: str, answers: tuple[str, ...] | None = None) -> str:
        """Attach a signed verdict, as a publisher does; ``value`` is about the image unless it says otherwise."""
        trusted = (KeyOpener(tuple(self.keys[name].public for name in ("ann", "bob"))),)
        found = links(self.client, trusted, self.image, self.about_image(value), NOW)
        payload = self.payload(value, answers=found[0] if answers is None else answers, previous=found[1])
        return self.attach(self.seal(payload, *by))

    def notice(self, answers: tuple[str, ...], time: str, *by: str, edit: tuple[str, str]) -> str:
        """Attach a person's decision, with a part of its text replaced."""
        made = Notice(answers=answers, time=time, reason="see ticket 17")
        text = statements.encode(statements.about("x", self.image.digest, NOTICE, made)).decode()
        assert edit[0] in text
        return self.attach(self.seal(text.replace(*edit).encode(), *by))

    def lose(self, stored: str, *, deleted: bool) -> None:
        """Let the registry no longer list a statement, or no longer have it."""
        left = listing(self.client, self.image.digest).items.keys() - {stored}
        self.rules.on(REFERRERS, index(*map(entry, left)))
        if deleted:
            self.rules.on(f"GET .*/manifests/{stored}", answers(404))

    def surround(self) -> None:
        """Let the tag lead to an index of the image, with a PASSED; earlier statements are about the image."""
        content = index_of(entry(self.image.digest))
        self.client.put_manifest("image", content, OCI_INDEX)
        self.image = Manifest(OCI_INDEX, content, digest_of(content))
        good(self)

    def about_image(self, value: Verdict) -> Verdict:
        return about(value, self.image.digest) if value.image.digest == digest("manifest") else value

    def payload(
        self, value: Verdict, *, subject: str = "", answers: tuple[str, ...] = (), previous: tuple[str, ...] = ()
    ) -> bytes:
        predicate = VerdictPredicate(verdict=self.about_image(value), answers=answers, previous=previous)
        return statements.encode(statements.about("x", subject or self.image.digest, statements.VERDICT, predicate))

    def edited(self, *changes: tuple[str, str], value: Verdict | None = None) -> bytes:
        text = self.payload(value or gpu_verdict()).decode()
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new)
        return text.encode()

    def ask(self, given: Mapping[str, str], target: str, seconds: float) -> Verification:
        """Verify through the front, as the command does with these words and key files."""
        asked = Reference(self.front, self.name).at(self.named(target))
        paths = tuple(self.folder / f"{number}.pub" for number in range(len(self.key_files)))
        for path, text in zip(paths, self.key_files, strict=True):
            path.write_text(text.format(**{name: key.public.pem for name, key in self.keys.items()}))
        values: dict[str, Any] = dict.fromkeys(("identity", "issuer", "level", "driver", "gpu"))
        values |= {"max_age": "90d", **{name: self.named(value) for name, value in given.items()}}
        options = VerifyOptions(image=str(asked), keys=paths, threshold=self.threshold, **values)
        wanted = requirement_of(options, load().gpu_names)
        repository = Repository(asked, {"HOME": "/nonexistent"})
        return verify(repository, openers_of(paths, None, None), wanted, NOW, seconds)

    def named(self, text: str) -> str:
        return text.format(image=self.image.digest[7:19])


Attack = Callable[[Stage], Any]


@dataclass(frozen=True)
class Row:
    """One attack: what is done, and the one reason that the refusal has to name ('' where the answer is yes).

    USAGE is a word of the command that is not understood; ``given`` are its options.
    """

    name: str
    attack: Attack
    expected: str
    given: Mapping[str, str] = field(default_factory=lambda: GPU)
    target: str = "image"


def good(stage: Stage) -> str:
    """Attach what a publisher attaches: a PASSED on an H100, at 10:03."""
    return stage.state_that(gpu_verdict())


def after_good(*attacks: Attack) -> Attack:
    return in_turn(good, *attacks)


def in_turn(*attacks: Attack) -> Attack:
    return lambda stage: [attack(stage) for attack in attacks]


def about(value: Verdict, image: str) -> Verdict:
    return msgspec.structs.replace(value, image=ImageRef(id=image, digest=image))


def says(value: Verdict, *by: str, answers: tuple[str, ...] | None = None) -> Callable[[Stage], str]:
    return lambda stage: stage.state_that(value, *by, answers=answers)


def signs(*changes: tuple[str, str], value: Verdict | None = None, kind: str = statements.PAYLOAD_TYPE) -> Attack:
    return lambda stage: stage.attach(stage.seal(stage.edited(*changes, value=value), kind=kind))


def attaches(content: bytes, kind: str = ENVELOPE) -> Attack:
    return lambda stage: stage.attach(content, kind=kind)


def bundles(value: Verdict, *by: str) -> Attack:
    return lambda stage: stage.attach(bundled(stage.seal(stage.payload(value), *by)), kind=BUNDLE)


def bundle_by_stranger(in_form: Callable[[bytes], bytes]) -> Attack:
    """Attach a stranger's bundle whose hint is a trusted key: the digest of it as envbuilder or as cosign writes it."""

    def attack(stage: Stage) -> None:
        eve, ann = (stage.keys[name].public.keyid for name in ("eve", "ann"))
        forged = bundled(stage.seal(stage.payload(gpu_verdict()), "eve"))
        stage.attach(forged.replace(eve.encode(), in_form(bytes.fromhex(ann))), kind=BUNDLE)

    return attack


def with_material(material: Any) -> Callable[[bytes], bytes]:
    return lambda sealed: json.dumps({**json.loads(bundled(sealed)), "verificationMaterial": material}).encode()


def sealed_as(kind: str, form: Callable[[bytes], bytes]) -> Attack:
    return lambda stage: stage.attach(form(stage.seal(stage.payload(failed("cpu")))), kind=kind)


def seals(change: Callable[[dict[str, Any], Stage], dict[str, Any]], value: Verdict | None = None) -> Attack:
    def attack(stage: Stage) -> None:
        document = json.loads(stage.seal(stage.payload(value or gpu_verdict())))
        stage.attach(json.dumps(document | change(document, stage)).encode())

    return attack


def signature(change: Callable[[str], dict[str, Any]]) -> Attack:
    return seals(lambda document, _: {"signatures": [one | change(one["sig"]) for one in document["signatures"]]})


def resigned(change: Callable[[str], str]) -> Attack:
    return signature(lambda sig: {"sig": change(sig)})


def beside(*more: dict[str, Any], value: Verdict | None = None) -> Attack:
    return seals(lambda document, _: {"signatures": [*more, *document["signatures"]]}, value)


def by_stranger(document: dict[str, Any], stage: Stage) -> dict[str, Any]:
    """Sign with a stranger's key, under the name of a trusted one."""
    forged = json.loads(stage.seal(base64.b64decode(document["payload"]), "eve"))["signatures"][0]["sig"]
    return {"signatures": [{"sig": forged, "keyid": stage.keys["ann"].public.keyid}]}


def in_pieces(content: bytes) -> str:
    return base64_of(content[:100]) + base64_of(content[100:])


def base64_of(content: bytes) -> str:
    return base64.b64encode(content).decode()


def hidden_failure(stage: Stage) -> None:
    """Attach a FAILED with 5,000 signatures of nobody before the trusted one."""
    others = ({"sig": base64_of(bytes([*number.to_bytes(2), *[7] * 62]))} for number in range(5_000))
    beside(*others, value=failed("cpu"))(stage)


def twice(first: str, last: str, value: Verdict | None = None) -> Attack:
    """Attach an envelope, of the good verdict by default, with two payloads; '' is the one that was signed."""

    def attack(stage: Stage) -> None:
        text = stage.seal(stage.payload(value or gpu_verdict())).decode()
        payload = json.loads(text)["payload"]
        both = f'"payload":"{first or payload}","payload":"{last or payload}"'
        stage.attach(text.replace(f'"payload":"{payload}"', both).encode())

    return attack


def deep(depth: int = 60_000) -> str:
    return "[" * depth + "]" * depth


def failed(*levels: Any, **given: Any) -> Verdict:
    """Make a FAILED whose checks failed in these levels, unless its checks are given."""
    names = {check.level: check.name for check in gpu_verdict().checks}
    checks = tuple(result(names.get(level, "all-reduce"), "failed", level=level) for level in levels)
    usual = {"host": H100_HOST, "finished": LATER, "checks": checks, "environment": gpu_environment()}
    return failed_verdict(**(usual | given))


def capitals(value: Verdict) -> Attack:
    def attack(stage: Stage) -> None:
        name = stage.image.digest.removeprefix("sha256:")
        signs((f'"sha256":"{name}"', f'"sha256":"{name.upper()}"'), value=value)(stage)

    return attack


def other_image(value: Verdict, *, there: bool = False) -> Callable[[Stage], str]:
    """Attach a signed verdict about another image: copied to the image, or ``there`` where it belongs."""

    def attack(stage: Stage) -> str:
        other = stage.push("another")
        payload = stage.payload(about(value, other.digest), subject=other.digest)
        return stage.attach(stage.seal(payload), to=other if there else None)

    return attack


def follows_other_image(stage: Stage) -> None:
    """Attach a PASSED that says that it follows a statement about another image."""
    stored = other_image(gpu_verdict(), there=True)(stage)
    stage.attach(stage.seal(stage.payload(gpu_verdict(finished=LATEST), previous=(stored,))))


def says_result(value: Verdict, *by: str) -> Callable[[Stage], str]:
    def attack(stage: Stage) -> str:
        made = statements.result_statement("x", about(value, stage.image.digest))
        assert made is not None
        return stage.attach(stage.seal(statements.encode(made), *by))

    return attack


def again(change: Callable[[bytes], bytes], kind: str) -> Attack:
    """Attach a FAILED by two keys and its answer, then copies of the FAILED that anybody can make."""

    def attack(stage: Stage) -> None:
        stored = stage.state_that(failed("cpu"), "ann", "bob")
        stage.state_that(gpu_verdict(finished=LATEST))
        content = stage.client.blob(*contents(stage.client, stored))
        stage.attach(change(content), kind=kind)

    return attack


def one_signature(content: bytes) -> bytes:
    document = json.loads(content)
    return json.dumps({**document, "signatures": document["signatures"][:1]}).encode()


# What the front does instead of the registry.

LIST = "GET .*/manifests/sha256-"  # the tag
MANIFESTS, BLOBS, REFERRERS, TAGS = "GET .*/manifests/image", "GET .*/blobs/", "GET .*/referrers/", "GET .*/tags/"
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def answers(status: int, body: bytes = b"", **headers: str) -> Action:
    return lambda front: front.say(status, body, **headers)


def relays(more: bytes = b"", **changed: str) -> Action:
    def action(front: Front) -> None:
        status, headers, body = front.upstream()
        front.say(status, body + more, **headers | {name.replace("_", "-"): value for name, value in changed.items()})

    return action


def raw(*pieces: bytes, forever: bytes = b"", every: float = 0.0) -> Action:
    """Answer with bytes, some of them for ever, and hang up."""

    def action(front: Front) -> None:
        with suppress(OSError):
            front.wfile.write(b"".join(pieces))
            while forever and not front.rules.over.wait(every):
                front.wfile.write(forever)
        front.close_connection = True

    return action


def hangs(front: Front) -> None:
    front.rules.over.wait(30)


def entry(stored: str, kind: str = ENVELOPE) -> dict[str, Any]:
    return {"mediaType": OCI_MANIFEST, "digest": stored, "size": 1, "artifactType": kind}


def index_of(*entries: Any) -> bytes:
    return json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}).encode()


def index(*entries: Any, **headers: str) -> Action:
    return answers(200, index_of(*entries), Content_Type=OCI_INDEX, **headers)


def fronted(pattern: str, action: Action) -> Attack:
    return after_good(lambda stage: stage.rules.on(pattern, action))


def everywhere(name: str, action: Action, expected: str) -> list[Row]:
    kinds = (("manifest", MANIFESTS), ("list", REFERRERS), ("statement", BLOBS))
    return [Row(f"{name} instead of the {kind}", fronted(pattern, action), expected) for kind, pattern in kinds]


def lists(entries: Callable[[Stage, str], list[Any]]) -> Attack:
    """Let the API list these entries, which may include the good statement, the second argument."""

    def attack(stage: Stage) -> None:
        stage.rules.on(REFERRERS, index(*entries(stage, good(stage))))

    return attack


def many(count: int, kind: str) -> Attack:
    """Let the API list so many entries of a type, too; none of them is there."""
    return lists(lambda _, known: [entry(known), *(entry(f"sha256:{i:064x}", kind) for i in range(count))])


def pages(*links: str, then: Callable[[Stage], str] | None = None) -> Attack:
    """Let the API list the good statement on page 1, and ``then`` on page 2; page n carries the n-th link."""

    def attack(stage: Stage) -> None:
        bodies = [index_of(entry(good(stage))), index_of(*([entry(then(stage))] if then else []))]

        def answer(front: Front) -> None:
            page = int("page=2" in front.path)
            link = {"Link": links[page]} if page < len(links) else {}
            front.say(200, bodies[page], Content_Type=OCI_INDEX, **link)

        stage.rules.on(REFERRERS, answer)

    return attack


def second_page(action: Action) -> Attack:
    link = index(Link='<?page=2>; rel="next"')
    return after_good(lambda s: s.rules.on("referrers/.*page=2", action).on(REFERRERS, link))


def broken_tags(status: int) -> Attack:
    """Let a registry without the API list tags on two pages, of which the second has a status."""
    link = answers(200, b'{"tags":["x"]}', Link='<?last=x>; rel="next"')
    without = (REFERRERS, answers(404))
    return after_good(lambda s: s.rules.on("tags/list.*last=x", answers(status)).on("tags/list", link).on(*without))


def endless_pages(front: Front) -> None:
    number = int(front.path.partition("page=")[2] or 0)
    index(Link=f'<?page={number + 1}>; rel="next"')(front)


def no_list(status: int, body: bytes = b"") -> Attack:
    """Let the API answer a status, and nothing be under a tag."""
    found = answers(status, body)
    return after_good(
        lambda s: s.rules.on(REFERRERS, found).on("GET .*/manifests/sha256-", answers(404)).on(TAGS, answers(404))
    )


def put_artifact(stage: Stage, *layers: Descriptor, subject: bool = True) -> str:
    client = stage.client
    made = Artifact(
        schema_version=2,
        media_type=OCI_MANIFEST,
        artifact_type=ENVELOPE,
        config=client.put_blob(b"{}", "application/vnd.oci.empty.v1+json"),
        layers=layers,
        subject=stage.image.descriptor if subject else None,
    )
    data = msgspec.json.encode(made)
    client.put_manifest(digest_of(data), data, OCI_MANIFEST)
    if not stage.native:
        client.put_manifest(f"{fallback_tag(stage.image.digest)}.{digest_of(data)[7:23]}", data, OCI_MANIFEST)
    return digest_of(data)


def layered(*values: Verdict | None) -> Attack:
    """Attach one artifact with several documents; None is one that somebody else made."""

    def attack(stage: Stage) -> None:
        contents = (stage.seal(stage.payload(value)) if value else b'{"spdxVersion":"SPDX-2.3"}' for value in values)
        put_artifact(stage, *[stage.client.put_blob(content, ENVELOPE) for content in contents])

    return attack


def indexed(value: Verdict) -> Attack:
    """Attach an index of one artifact."""

    def attack(stage: Stage) -> None:
        layer = stage.client.put_blob(stage.seal(stage.payload(value)), ENVELOPE)
        listed = {**entry(put_artifact(stage, layer, subject=False))}
        content = json.loads(index_of(listed)) | {"subject": {"digest": stage.image.digest}, "artifactType": ENVELOPE}
        data = json.dumps(content).encode()
        stage.client.put_manifest(digest_of(data), data, OCI_INDEX)

    return attack


def hinted(front: Front) -> None:
    """Answer with hints before the answer, as RFC 8297 allows."""
    front.wfile.write(b"HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n")
    front.forward()


def foreign_artifact(kind: str, layers: int) -> Attack:
    return after_good(lambda s: put_artifact(s, *[s.client.put_blob(b"foreign", kind)] * layers))


def large_document(stage: Stage) -> str:
    """Attach, past envbuilder's own limits, a document of 5 MB, as a stranger can."""
    content = b" " * 5_000_000
    stage.client.upload(digest_of(content), io.BytesIO(content))
    return put_artifact(stage, Descriptor(media_type=ENVELOPE, digest=digest_of(content), size=len(content)))


def names_large_document(stage: Stage) -> None:
    stage.attach(stage.seal(stage.payload(gpu_verdict(), previous=(large_document(stage),))))


def without_subject(stage: Stage, known: str) -> list[Any]:
    layer = stage.client.put_blob(stage.seal(stage.payload(failed("cpu"))), ENVELOPE)
    return [entry(known), entry(put_artifact(stage, layer, subject=False))]


def loses_blob(stage: Stage) -> None:
    manifest = stage.client.manifest(stage.state_that(failed("cpu")))
    layer = json.loads(manifest.content)["layers"][0]["digest"]
    stage.rules.on(f"GET .*/blobs/{layer}", answers(404))


def claims_missing(stage: Stage) -> None:
    """Push a list of a stranger under the tag that old registries use, next to what the API lists."""
    known = good(stage)
    stage.rules.on(f"GET .*/manifests/{fallback_tag(stage.image.digest)}", answers(200, index_of(entry(GONE))))
    if not stage.native:  # the registry vouches for nothing here: the API's answer is put in its place
        stage.rules.on(REFERRERS, index(entry(known)))


def lists_by_tag(api: str, tag: str) -> Attack:
    """Let the API ('-' if there is none) and the tag of old registries list documents, each by its letter.

    ``p`` is a good statement, ``f`` a FAILED, and ``o`` the FAILED as a type that nobody reads. Its own tag stays.
    """

    def attack(stage: Stage) -> None:
        passed, broken = good(stage), stage.state_that(failed("cpu"))
        tagged(stage, broken, broken)
        named = {"p": entry(passed), "f": entry(broken), "o": entry(broken, OTHER_TYPE)}
        from_api = index(*(named[one] for one in api.strip("-")))
        stage.rules.on(REFERRERS, answers(404) if api == "-" else from_api)
        stage.rules.on(f"GET .*/manifests/{fallback_tag(stage.image.digest)}$", index(*(named[one] for one in tag)))

    return attack


def tagged(stage: Stage, stored: str, target: str) -> None:
    """Let the own tag of a document lead to a target."""
    found = stage.client.manifest(target)
    stage.client.put_manifest(f"{fallback_tag(stage.image.digest)}.{stored[7:23]}", found.content, OCI_MANIFEST)


def relisted(own: str, listed: Callable[[Stage, str], Manifest]) -> Attack:
    """Without the API, write the list again as anybody may who pushes, and let the FAILED's own tag lead elsewhere.

    ``own`` is where it leads: to the PASSED (``passed``) or to the ``image``; with '' there is no FAILED.
    """

    def attack(stage: Stage) -> None:
        passed = good(stage)
        tagged(stage, passed, passed)
        if own:
            tagged(stage, stage.state_that(failed("cpu")), passed if own == "passed" else stage.image.digest)
        written = listed(stage, passed)
        stage.client.put_manifest(fallback_tag(stage.image.digest), written.content, written.media_type)
        stage.rules.on(REFERRERS, answers(404))

    return attack


def only(_: Stage, passed: str) -> Manifest:
    return Manifest(OCI_INDEX, index_of(entry(passed)), "")


def moves_meanwhile(stage: Stage) -> None:
    def action(front: Front) -> None:
        front.forward()
        later = stage.push("image-of-later")
        stage.client.put_manifest("image", later.content, later.media_type)

    stage.rules.on("GET .*/manifests/image$", action)


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


def tokens(service: Action) -> Attack:
    def attack(stage: Stage) -> None:
        challenge = f'Bearer realm="http://{stage.front}/service",service="x"'
        stage.rules.on(MANIFESTS, answers(401, WWW_Authenticate=challenge)).on("GET /service", service)

    return after_good(attack)


def served(document: dict[str, Any] | bytes, kind: str = OCI_MANIFEST) -> Attack:
    """Let the tag lead to a manifest of another making, about which there is a good statement."""

    def attack(stage: Stage) -> None:
        content = document if isinstance(document, bytes) else json.dumps(document).encode()
        stage.image = Manifest(kind, content, digest_of(content))
        stage.rules.on(f"GET .*/manifests/(image|{stage.image.digest})", answers(200, content, Content_Type=kind))
        stage.rules.on(f"GET .*/manifests/{digest_of(ONE)}", answers(200, ONE, Content_Type=OCI_MANIFEST))
        good(stage)

    return attack


def platforms(*names: str, kind: str = OCI_MANIFEST) -> dict[str, Any]:
    """Write a list of images for platforms (``os/architecture/feature``; '' for no platform)."""
    entries: list[dict[str, Any]] = []
    for number, name in enumerate(names):
        entries.append({"mediaType": kind, "digest": digest(f"{number}") if number else digest_of(ONE), "size": 1})
        if name:
            system, architecture, *features = name.split("/")
            platform = {"os": system, "architecture": architecture}
            entries[-1]["platform"] = platform | ({"os.features": features} if features else {})
        if name == "unknown/unknown":
            entries[-1]["annotations"] = {"vnd.docker.reference.type": "attestation-manifest"}
    return {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}


STRANGE = {
    "an empty document": b"",
    "a list": b"[]",
    "a page of HTML": b"<html></html>",
    "bytes that are no text": b"\xff\xfe\x00",
    "JSON without end": b'{"payload":',
    "60,000 brackets": deep().encode(),
    "60,000 brackets in an unknown field": f'{{"payload":"","payloadType":"","signatures":[],"x":{deep()}}}'.encode(),
    "a signature that is a number": b'{"payload":"","payloadType":"x","signatures":[{"sig":7}]}',
    "10,000 signatures": b'{"payload":"","payloadType":"x","signatures":[%s]}'
    % b",".join([b'{"sig":"AA=="}'] * 10_000),
}
STRANGERS = [
    *[Row(f"only {name} is attached", attaches(STRANGE[name]), "UNREADABLE") for name in list(STRANGE)[:7]],
    *[Row(f"a stranger attaches {name}", after_good(attaches(content)), "") for name, content in STRANGE.items()],
    Row("a stranger attaches 5 MB", after_good(large_document), ""),
    Row("a PASSED names a document of 5 MB", names_large_document, "UNREADABLE"),
    Row("a stranger attaches another type", after_good(attaches(b"{}", "application/vnd.dev.cosign")), ""),
    Row("a stranger attaches another type under ours", foreign_artifact("text/plain", 1), ""),
    Row("a stranger attaches two documents in one", foreign_artifact(ENVELOPE, 2), ""),
    Row("a stranger lists what is not there, in the tag beside the API", claims_missing, ""),
    Row("a bundle by a stranger", after_good(bundles(failed("cpu"), "eve")), ""),
    Row("a bundle without an envelope", after_good(attaches(b"{}", BUNDLE)), ""),
    *[
        Row(f"an answered FAILED that a stranger attaches again {how}", after_good(again(change, kind)), "")
        for how, change, kind in (
            ("as a bundle", bundled, BUNDLE),
            ("with another layout", lambda content: content + b"\n", ENVELOPE),
            ("with one of two signatures", one_signature, ENVELOPE),
        )
    ],
]

EMPTY = b'{"payload":"","payloadType":"","signatures":[]}'
OLDER = b'{"_type":"%b/v0.1","subject":[],"predicateType":"https://spdx.dev","predicate":0}' % STATEMENT[:-3].encode()
ENVELOPES = [
    Row("the tag was moved to another image", after_good(lambda s: s.push("new")), "TAG_MOVED", target="new"),
    Row("signed by a stranger under a trusted name", seals(by_stranger), "BAD_SIGNATURE"),
    *[
        Row(f"a bundle by a stranger under a trusted name in {form}", bundle_by_stranger(write), "BAD_SIGNATURE")
        for form, write in (("hexadecimal", lambda name: name.hex().encode()), ("base64", base64.b64encode))
    ],
    Row("a bundle by a stranger alone", bundles(gpu_verdict(), "eve"), "UNTRUSTED_KEY"),
    Row("a FAILED in a bundle whose material is a list", after_good(sealed_as(BUNDLE, with_material([]))), "FAILED"),
    Row("no signature", seals(lambda *_: {"signatures": []}), "UNTRUSTED_KEY"),
    Row("signatures null", seals(lambda *_: {"signatures": None}), "UNREADABLE"),
    Row("another payload", seals(lambda _, s: {"payload": base64_of(s.payload(verdict()))}), "BAD_SIGNATURE"),
    Row("a list of packages of an older form, by the same key", after_good(lambda s: s.attach(s.seal(OLDER))), ""),
    Row("the payload is not base64", seals(lambda *_: {"payload": "%%%"}), "BAD_SIGNATURE"),
    Row("the payload's type was edited", seals(lambda *_: {"payloadType": "application/json"}), "UNREADABLE"),
    *[
        Row(f"{name}, of a {value.verdict}", after_good(twice(*payloads, value)), expected)
        for value, expected in ((failed("cpu"), "FAILED"), (gpu_verdict(finished=LATEST), ""))
        for name, payloads in (
            ("the signed payload, then another", ("", "e30=")),
            ("another payload, then the signed one", ("e30=", "")),
            ("the signed payload, then a number of 5,000 digits", ("", '","payload":' + "9" * 5_000 + ',"x":"')),
        )
    ],
    *[
        Row(f"the signature {name}", resigned(change), reason)
        for name, change, reason in (
            ("is empty", lambda _: "", "BAD_SIGNATURE"),
            ("is zero", lambda _: base64_of(bytes(64)), "BAD_SIGNATURE"),
            ("has a byte more", lambda sig: base64_of(base64.b64decode(sig) + b"x"), "BAD_SIGNATURE"),
            ("is in base64 for addresses", lambda sig: sig.replace("+", "-").replace("/", "_"), ""),
            ("is in base64 without padding", lambda sig: sig.rstrip("="), ""),
        )
    ],
    Row("a keyid that is another's is a hint", signature(lambda _: {"keyid": "0" * 64}), ""),
    Row("a keyid that is null is a hint", signature(lambda _: {"keyid": None}), ""),
    Row(
        "a keyid that is absent is a hint", seals(lambda d, _: {"signatures": [{"sig": d["signatures"][0]["sig"]}]}), ""
    ),
    Row("an undecodable signature beside the good one", beside({"sig": "%%%", "keyid": "x"}), ""),
    Row("a stranger's signature beside the good one", beside({"sig": "AAAA", "keyid": "y"}), ""),
    Row("unknown fields in the envelope", seals(lambda *_: {"extra": {"a": [1, 2]}}), ""),
    Row("a terminal's controls", signature(lambda _: {"sig": "", "keyid": "\x1b[2J\nACCEPTED"}), "UNTRUSTED_KEY"),
    Row("a FAILED whose trusted signature is the 5,001st (A32)", after_good(hidden_failure), "FAILED"),
]

STATEMENTS = [
    Row("a statement of another image", other_image(gpu_verdict()), "WRONG_SUBJECT"),
    *[
        Row(f"the verdict {what}", says(gpu_verdict(image=ImageRef(id="x", digest=it)), answers=()), "WRONG_SUBJECT")
        for what, it in (("is about another digest", digest("o")), ("names no digest", None))
    ],
    Row("a FAILED whose subject is in capitals", after_good(capitals(failed("cpu"))), "FAILED"),
    Row("a PASSED whose subject is in capitals", capitals(gpu_verdict()), ""),
    Row("a FAILED whose artifact names no subject (A31)", lists(without_subject), "FAILED"),
    Row(
        "a FAILED of another image is listed",
        lists(lambda s, known: [entry(known), entry(other_image(failed("cpu"), there=True)(s))]),
        "",
    ),
    Row("a PASSED that follows a statement about another image", after_good(follows_other_image), "UNREADABLE"),
    Row("a FAILED of another image, copied", after_good(other_image(failed("cpu"))), ""),
    Row("a FAILED that is there as a bundle alone (A8)", after_good(bundles(failed("cpu"))), "FAILED"),
    *[
        Row(f"a FAILED in {form.__name__}, published as {kind} (M11)", after_good(sealed_as(kind, form)), "FAILED")
        for form in (bytes, bundled)
        for kind in (
            *("application/vnd.dev.sigstore.bundle+json;version=0.2", "application/vnd.dev.sigstore.bundle.v1+json"),
            *(ENVELOPE.upper(), "application/json", "application/octet-stream", "text/plain", OTHER_TYPE),
        )
    ],
    *[
        Row(f"a FAILED whose {name}", after_good(seals(change, failed("cpu"))), "FAILED")
        for name, change in (
            ("payload is in lines", lambda one, _: {"payload": "\n".join(re.findall(".{1,76}", one["payload"]))}),
            ("payload has other characters", lambda one, _: {"payload": one["payload"].replace("e", "!e")}),
            ("payload is in two pieces", lambda one, _: {"payload": in_pieces(base64.b64decode(one["payload"]))}),
            ("signature is not in a list", lambda one, _: {"signatures": one["signatures"][0]}),
            ("signature is beside null", lambda one, _: {"signatures": [None, *one["signatures"]]}),
            ("signature's key is 7", lambda one, _: {"signatures": [e | {"keyid": 7} for e in one["signatures"]]}),
        )
    ],
    *[
        Row(f"a FAILED {name}", after_good(sealed_as(ENVELOPE, form)), "FAILED")
        for name, form in (
            ("after a byte order mark", lambda sealed: BOM_UTF8 + sealed),
            ("in a text of JSON", lambda sealed: json.dumps([{"text": json.dumps(sealed.decode())}]).encode()),
            ("in UTF-16", lambda sealed: sealed.decode().encode("utf-16")),
            ("in UTF-32 without a mark", lambda sealed: sealed.decode().encode("utf-32-be")),
            ("in a bundle with the field's other name", lambda one: bundled(one).replace(b"dsseEnv", b"dsse_env")),
            ("whose fields are in capitals", lambda one: one.replace(b'"payload', b'"PAYLOAD')),
            ("next to another one in a bundle", lambda one: b'{"dsseEnvelope":%b,%b' % (EMPTY, one[1:])),
            ("in a bundle's content", lambda sealed: b'{"content":{"DsseEnvelope":%b}}' % sealed),
            ("in a bundle within a bundle", lambda sealed: b'{"dsseEnvelope":%b}' % bundled(sealed)),
            ("in a line of several", lambda sealed: b"{}\n%b\n" % sealed),
            ("in a line after a broken one", lambda sealed: b'# {"a":\ndata: %b;\n' % sealed),
            ("right after another document", lambda sealed: b"%b%b" % (EMPTY, sealed)),
            ("before a zero byte", lambda sealed: sealed + b"\0"),
        )
    ],
    Row("a FAILED in an index", after_good(indexed(failed("cpu"))), "FAILED"),
    *[
        Row(f"one artifact with {name}", after_good(layered(*values)), expected)
        for name, values, expected in (
            ("a PASSED and a FAILED", (gpu_verdict(finished=LATEST), failed("cpu")), "FAILED"),
            ("a FAILED and another document", (failed("cpu"), None), "FAILED"),
            ("another document and a FAILED", (None, failed("cpu")), "FAILED"),
            ("another document and a PASSED", (None, gpu_verdict()), ""),
        )
    ],
    Row("a PASSED that is there as a bundle too", after_good(bundles(gpu_verdict())), ""),
    Row("a good verdict, and a trusted key on a list", after_good(lambda s: s.attach(s.seal(b"[]"))), "UNREADABLE"),
]

CPUS = '"cpus":64'
VERDICTS = [
    Row(
        "only a trusted verdict with 3,000 brackets",
        signs(('"verdict":{', f'"x":{deep(3_000)},"verdict":{{')),
        "UNREADABLE",
    ),
    Row("a number of 5,000 digits", signs((CPUS, f'"cpus":{"9" * 5_000}')), "UNREADABLE"),
    Row("5,000 digits in an unknown field", after_good(signs((CPUS, f'"x":{"9" * 5_000},{CPUS}'))), "UNREADABLE"),
]


MANY = [entry(f"sha256:{i:064x}") for i in range(20_001)]
LISTS = [
    *[
        Row(f"page 2 of the tags is {status}", broken_tags(status), "BAD_ANSWER")
        for status in (204, 401, 403, 404, 405)
    ],
    Row("a statement is listed and not there", lists(lambda _, known: [entry(known), entry(GONE)]), "NOT_THERE"),
    Row("a statement's content is not there", after_good(loses_blob), "NOT_THERE"),
    Row(
        "entries that other tools wrote in their own way",
        lists(
            lambda _, known: [
                {"digest": known, "annotations": None, "artifactType": ENVELOPE},
                {"mediaType": "x", "digest": "sha512:" + "a" * 128, "size": 1},
                "no descriptor",
                None,
                {"digest": "../../../etc/passwd", "size": -1, "mediaType": "x"},
            ]
        ),
        "",
    ),
    Row(
        "a descriptor that lies about content, place and size",
        lists(
            lambda s, known: [
                entry(known) | {"data": "e30=", "urls": ["http://198.51.100.1/"], "size": -1},
                entry(s.image.digest),
            ]
        ),
        "",
    ),
    Row("1,000 entries of other types", many(1_000, OTHER_TYPE), ""),
    Row("20,001 statements", many(20_001, ENVELOPE), "TOO_MANY"),
    Row("page 2 fails", second_page(answers(500)), "SERVER_ERROR"),
    Row("page 2 is not there", second_page(answers(404)), "BAD_ANSWER"),
    Row("pages without end", fronted(REFERRERS, endless_pages), "TOO_MANY_OR_TOO_SLOW"),
    Row("the list is 60,000 brackets", fronted(REFERRERS, answers(200, deep().encode())), "BAD_ANSWER"),
    Row("the list's entries are null", no_list(200, b'{"manifests":null}'), "NO_STATEMENT"),
    *[
        Row(f"the API answers {status} and there is no other list", no_list(status), "NO_STATEMENT")
        for status in (400, 404, 405, 501)
    ],
    Row("the API lists the PASSED, the tag the FAILED too", lists_by_tag("p", "pf"), "FAILED"),
    Row("the API and the tag list the PASSED, and the FAILED has its own tag", lists_by_tag("p", "p"), "FAILED"),
    Row("the API lists nothing, the tag both", lists_by_tag("", "pf"), "FAILED"),
    Row("the API lists both, the tag the FAILED as another type", lists_by_tag("pf", "po"), "FAILED"),
    Row("without the API, the tag lists the FAILED as another type", lists_by_tag("-", "po"), "FAILED"),
    Row("the list without a FAILED, whose own tag leads to the PASSED (A3)", relisted("passed", only), "ALTERED"),
    Row("the list without a FAILED, whose own tag leads to the image (A4)", relisted("image", only), "ALTERED"),
    Row("the API lists the PASSED, the tag 20,001 others", fronted(LIST, index(*MANY)), "TOO_MANY"),
    Row("an image where the list was", relisted("", lambda stage, _: stage.push("foreign")), ""),
    Row("the tag moves after it was read", after_good(moves_meanwhile), ""),
]

ODD = "UNREACHABLE_OR_BAD_ANSWER_OR_TOO_LARGE"
ENDLESS, LONG = raw(OK, b"\r\n", forever=b" " * 1_000_000), "a" * 60_000
UNTIL_A_DATE = answers(503, Retry_After="Wed, 21 Oct 2099 07:28:00 GMT")
WIRE = [
    *everywhere("503", answers(503), "SERVER_ERROR"),
    *everywhere("503 with a long page", answers(503, b" " * 5_000_000, Content_Encoding="gzip"), "SERVER_ERROR"),
    *everywhere("429", answers(429), "THROTTLED"),
    *everywhere("429 for 46 minutes", answers(429, Retry_After="2760"), "THROTTLED"),
    *everywhere("503 until a date", UNTIL_A_DATE, "THROTTLED"),
    *everywhere("408", answers(408), "TOO_SLOW"),
    *everywhere("401 without a challenge", answers(401), "ACCESS_DENIED"),
    *everywhere("a redirect to a file", answers(307, Location="file:///etc/passwd"), "BAD_REDIRECT"),
    *everywhere("a redirect out of this machine", answers(307, Location="http://192.0.2.1/x"), "BAD_REDIRECT"),
    *everywhere("a redirect to no address", answers(307, Location="http://[::1"), "BAD_REDIRECT"),
    *everywhere("a redirect without end", answers(307, Location="?again=1"), "BAD_REDIRECT"),
    *everywhere("a connection that breaks off", raw(OK, b"Content-Length: 500\r\n\r\n{"), "UNREACHABLE"),
    *everywhere("a connection that is reset", raw(), "UNREACHABLE"),
    *everywhere("no answer", hangs, "TOO_SLOW"),
    *everywhere("a byte at a time", raw(OK, b"Content-Length: 99999\r\n\r\n", forever=b"a", every=0.2), "TOO_SLOW"),
    *everywhere("a header at a time", raw(OK, b"X-Slow: ", forever=b"a", every=0.2), "TOO_SLOW"),
    *everywhere(
        "what was not asked to be compressed",
        lambda front: front.say(200, gzip.compress(b" " * 50_000_000, 1), Content_Encoding="gzip"),
        "BAD_ANSWER",
    ),
    *[
        Row(name, fronted(pattern, action), reason)
        for name, pattern, action, reason in (
            ("a manifest without end", MANIFESTS, ENDLESS, "TOO_LARGE"),
            ("a page of login everywhere", "GET", answers(200, b"<html>", Content_Type="text/html"), "BAD_ANSWER"),
            ("a list without end", REFERRERS, ENDLESS, "TOO_LARGE"),
            ("a statement without end, and no other", BLOBS, ENDLESS, "TOO_LARGE"),
            ("another manifest than its digest", MANIFESTS, relays(b" "), "ALTERED"),
            ("another digest than the manifest's", MANIFESTS, relays(Docker_Content_Digest=digest("x")), "ALTERED"),
            ("a manifest under another algorithm", MANIFESTS, relays(Docker_Content_Digest="sha512:aa"), "ALTERED"),
            ("another statement than its digest", BLOBS, relays(b" "), "ALTERED"),
            ("another artifact than its digest", "GET .*/manifests/sha256:", relays(b" "), "ALTERED"),
            ("a challenge of 60,000 letters", MANIFESTS, answers(401, WWW_Authenticate="Bearer " + LONG), "BAD_ANSWER"),
            ("a link of 60,000 brackets", REFERRERS, index(Link="<" * 60_000), "BAD_LINK"),
        )
    ],
    Row("a token service that answers HTML", tokens(answers(200, b"<html>")), "BAD_ANSWER"),
    Row("a token with a line end", tokens(answers(200, b'{"token":"a\\r\\nX-Admin: yes"}')), "BAD_ANSWER"),
    Row("a token that is a number", tokens(answers(200, b'{"token":7}')), "BAD_ANSWER"),
    Row("a token service that gives none", tokens(answers(200, b"{}")), "BAD_ANSWER"),
    Row("a token that is refused again and again", tokens(answers(200, b'{"token":"a"}')), "ACCESS_DENIED"),
    Row("a registry that is busy once", after_good(busy_once), ""),
    *everywhere("hints before the answer are read over,", hinted, ""),
    *[
        Row(
            f"the API leads to {page}, which is not there",
            fronted("GET /v2/.*/referrers/", answers(302, Location=page)),
            "BAD_ANSWER",
        )
        for page in ("/login", "/login?to=/referrers/")
    ],
    *[
        Row(name, fronted(REFERRERS, action), reason)
        for name, action, reason in (
            ("chunks without end", raw(CHUNKED, forever=b"40000\r\n" + b" " * 0x40000 + b"\r\n"), "TOO_LARGE"),
            ("a chunk of all memory", raw(CHUNKED, b"FFFFFFFFFFFFFFF\r\n", forever=b" " * 100_000), "TOO_LARGE"),
            ("chunks that break off", raw(CHUNKED, b'5\r\n{"man\r\n'), "UNREACHABLE"),
            ("go on, for ever", raw(forever=b"HTTP/1.1 100 Continue\r\n\r\n", every=0.01), "TOO_SLOW"),
            ("no HTTP at all", raw(b"220 ready\r\n"), ODD),
            ("1,000 headers", raw(OK, *[b"X-%d: y\r\n" % i for i in range(1_000)], b"\r\n"), ODD),
            ("two lengths", raw(OK, b"Content-Length: 2\r\nContent-Length: 200\r\n\r\n{}"), ODD),
            ("a negative length", raw(OK, b"Content-Length: -1\r\n\r\n{}"), ODD),
            (
                "a refusal that writes on the terminal",
                answers(403, b'{"errors":[{"message":"\x1b[2J\nACCEPTED\xe2\x80\xae"}]}'),
                "ACCESS_DENIED",
            ),
        )
    ],
]

ONE_IMAGE: dict[str, Any] = {
    "schemaVersion": 2,
    "mediaType": OCI_MANIFEST,
    "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest("config"), "size": 2},
    "layers": [{"digest": digest("layer")}],
}
ONE = json.dumps(ONE_IMAGE).encode()
EMPTY_CONFIG = {"mediaType": "application/vnd.oci.empty.v1+json", "digest": digest_of(b"{}"), "size": 2}
UNTYPED = {name: value for name, value in ONE_IMAGE.items() if name != "mediaType"}
TWICE = ONE.replace(b'"layers"', b'"layers": [], "layers"')
LISTED = platforms("linux/amd64")["manifests"]
SHAPES = [
    *[
        Row(f"a list of {name}", served(platforms(*names), OCI_INDEX), reason)
        for name, names, reason in (
            ("two platforms, and a verdict about the list", ("linux/amd64", "linux/arm64"), "MANY_PLATFORMS"),
            ("one platform and the record of its build", ("linux/amd64", "unknown/unknown"), ""),
            ("one platform and one that nobody knows", ("linux/amd64", "unknown/unknown/x"), "MANY_PLATFORMS"),
            ("one image without a platform", ("",), ""),
            ("two images for one platform (A22)", ("linux/amd64", "linux/amd64"), "AMBIGUOUS"),
            ("two images for one platform, one with a feature (A23)", ("linux/amd64", "linux/amd64/x"), "AMBIGUOUS"),
            ("two images without a platform (A24)", ("", ""), "AMBIGUOUS"),
            ("an image with and one without a platform", ("linux/amd64", ""), "AMBIGUOUS"),
            ("a platform of an unknown architecture", ("linux/unknown", "linux/amd64"), "MANY_PLATFORMS"),
            ("nothing", (), "AMBIGUOUS"),
        )
    ],
    Row(
        "a list of one image, which has the statement",
        after_good(lambda s: s.client.put_manifest("one", index_of(entry(s.image.digest)), OCI_INDEX)),
        "NO_STATEMENT",
        target="one",
    ),
    Row("a list of one image that is gone", served(index_of(entry(GONE)), OCI_INDEX), "NO_IMAGE"),
    Row("a list of a list (A25)", served(platforms("linux/amd64", kind=OCI_INDEX), OCI_INDEX), "AMBIGUOUS"),
    Row("an image without a type that is called a list (A26)", served(UNTYPED, OCI_INDEX), "AMBIGUOUS"),
    *[
        Row(name, served(document), "AMBIGUOUS")
        for name, document in (
            ("a list without a type that is called an image (A27)", {"schemaVersion": 2, "manifests": LISTED}),
            ("an image with layers and Layers (A28)", {**ONE_IMAGE, "Layers": []}),
            ("an image with layers and Manifests (A29)", {**ONE_IMAGE, "Manifests": []}),
            ("an image that is a list too", {**ONE_IMAGE, "manifests": LISTED}),
            ("an image that calls itself a list", {**ONE_IMAGE, "mediaType": OCI_INDEX}),
            ("a list that the registry calls an image", platforms("linux/amd64")),
            ("an image with two sets of layers", TWICE),
            ("an image that is no JSON", b"an image"),
            ("an image that is a list of JSON", b"[]"),
            ("an image that is no text", b"\xff\xfe"),
            ("an image of 60,000 brackets", f'{{"manifests":{deep()}}}'.encode()),
            ("an image that is a manifest of schema 1 too", {**ONE_IMAGE, "fsLayers": [], "history": []}),
            ("an image that says schema 1", {**ONE_IMAGE, "schemaVersion": 1}),
            ("an image without a configuration", {key: ONE_IMAGE[key] for key in ONE_IMAGE.keys() - {"config"}}),
            ("an image without layers", {key: ONE_IMAGE[key] for key in ONE_IMAGE.keys() - {"layers"}}),
            ("an image with a number of 6,000 digits", ONE.replace(b'"size": 2', b'"size": ' + b"2" * 6_000)),
            ("an image of no layer", {**ONE_IMAGE, "layers": []}),
            ("an image with other bytes as its configuration", ONE.replace(b'"size"', b'"data":"e30=","size"')),
            ("an image with other bytes as a layer", {**ONE_IMAGE, "layers": [{"digest": GONE, "data": "e30="}]}),
            ("an image with a digest of SHA-512", ONE.replace(digest("config").encode(), b"sha512:" + b"a" * 128)),
            ("an artifact that is no image (S07)", {**ONE_IMAGE, "artifactType": ENVELOPE}),
            ("an artifact by its empty configuration", {**ONE_IMAGE, "config": EMPTY_CONFIG}),
        )
    ],
    *[
        Row(f"{name} is one image", served(document, kind), "")
        for name, document, kind in (
            ("Docker's own form", {**ONE_IMAGE, "mediaType": DOCKER_MANIFEST}, DOCKER_MANIFEST),
            ("a list in Docker's own form", {**platforms("linux/amd64"), "mediaType": DOCKER_LIST}, DOCKER_LIST),
            ("an image without a type", UNTYPED, OCI_MANIFEST),
            ("an image with a copy", {**ONE_IMAGE, "layers": [{**EMPTY_CONFIG, "data": "e30="}]}, OCI_MANIFEST),
            ("an image about another one", {**ONE_IMAGE, "subject": {"digest": GONE}}, OCI_MANIFEST),
        )
    ],
]

HOSTS = {"h100": H100_HOST, "t4": T4, "bare": BARE}
TIMES = {"later": LATER, "latest": LATEST, "next year": "2027-06-01T00:00:00+00:00"}
REQUESTS = {"manifest": MANIFESTS, "statement": BLOBS, "list": REFERRERS, "tags": TAGS}


def verdict_of(spec: dict[str, Any]) -> Verdict:
    """Make a verdict of the table: what it is, in which levels it failed, on which host, and further fields."""
    given: dict[str, Any] = {name: spec[name] for name in ("level", "simulated", "requires", "lock") if name in spec}
    given |= {name: TIMES.get(spec[name], spec[name]) for name in ("started", "finished") if name in spec}
    for key, before in (("checks", ()), ("more", gpu_verdict().checks)):
        if key in spec:
            made = (
                result(name, is_, level=level, findings=(finding(),) * len(error))
                for name, is_, level, *error in spec[key]
            )
            given["checks"] = (*before, *made)
    if "errors" in spec:
        given["findings"] = (finding(),) * spec["errors"]
    if "suite" in spec:
        given["suite"] = spec["suite"] and digest(spec["suite"])
    if "environment" in spec:
        given["environment"] = spec["environment"] and gpu_environment(**spec["environment"])
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
    def attack(stage: Stage) -> None:
        stage.threshold = data.get("threshold", 1)
        limits = {name: TIMES.get(time, time) for name, time in data.get("expires", {}).items()}
        ends = {name: f"Expires: {time}\n" for name, time in limits.items()}
        dated = (f"{ends.get(name, '')}{{{name}}}" for name in ("ann", "bob"))
        stage.key_files = tuple(data.get("key_files", dated))
        if data.get("good"):
            good(stage)
        stored = list(listing(stage.client, stage.image.digest).items)

        def state(specs: list[dict[str, Any]]) -> None:
            for spec in specs:
                answered = tuple(map(named, spec["answers"])) if "answers" in spec else None
                stored.append(stage.state_that(verdict_of(spec), *spec.get("by", ()), answers=answered))

        def named(one: int | str) -> str:
            known = {"absent": GONE, "image": stage.image.digest}
            return stored[one] if isinstance(one, int) else known.get(one, one)

        state(data.get("verdicts", []))
        for spec in data.get("notices", ()):
            time = TIMES.get(spec.get("time", "latest"), "today")
            answered = tuple(map(named, spec.get("answers", ())))
            stored.append(stage.notice(answered, time, *spec.get("by", ()), edit=spec.get("edit", ("", ""))))
        stored.extend(says_result(verdict_of(spec), *spec.get("by", ()))(stage) for spec in data.get("results", ()))
        state(data.get("then", []))
        for kind in ("deleted", "hidden"):
            for number in data.get(kind, ()):
                stage.lose(stored[number], deleted=kind == "deleted")
        if "claimed" in data:
            claimed = index(*(entry(stored[number]) for number in data["claimed"]))
            stage.rules.on(f"GET .*/manifests/{fallback_tag(stage.image.digest)}$", claimed)
        if "around" in data:
            stage.surround()
        for tag in data.get("tags", ()):
            stage.client.put_manifest(stage.named(tag), stage.image.content, stage.image.media_type)
        if "pages" in data:
            pages(*data["pages"], then=says(failed("cpu")) if data["expected"] == "FAILED" else None)(stage)
        if "edit" in data:
            value = verdict_of(data.get("of", {"is": "passed"}))
            signs(*map(tuple, data["edit"]), value=value, kind=data.get("as", statements.PAYLOAD_TYPE))(stage)
        for request, given in data.get("serve", {}).items():
            kind = {"index": OCI_INDEX}.get(given.get("type", ""), given.get("type"))
            headers = {**({"Content-Type": kind} if kind else {}), **given.get("headers", {})}
            stage.rules.on(
                REQUESTS[request], answers(given.get("status", 200), given.get("body", "").encode(), **headers)
            )

    return Row(data["name"], attack, data.get("expected", ""), data.get("given", GPU), data.get("target", "image"))


TABLE = Path(__file__).parents[1] / "data" / "verify_attacks.yaml"
FROM_YAML = [row_of(data) for data in yaml.safe_load(TABLE.read_text())]
AFTER_GOOD = [
    Row(row.name.replace("only a", "a good verdict, and a"), after_good(row.attack), row.expected)
    for row in (*FROM_YAML, *VERDICTS)
    if row.name.startswith("only a trusted verdict")
]
ROWS = [*FROM_YAML, *AFTER_GOOD, *STRANGERS, *ENVELOPES, *STATEMENTS, *VERDICTS, *LISTS, *WIRE, *SHAPES]
WITHOUT_API = (
    "nothing is attached",
    "the tag was moved to another image",
    "signed by a stranger under a trusted name",
    "a newer FAILED in cpu",
    "a FAILED by a stranger",
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
    monkeypatch.setattr(client, "PAUSE_S", 0.005)
    native, name = request.param == "OCI 1.1", f"team/n{digest(request.node.name)[7:23]}"
    with ExitStack() as running:
        host = running.enter_context(modern_registry())[0] if native else request.getfixturevalue("debian")
        front, rules = running.enter_context(hostile(host))
        yield Stage(host, front, name, rules, keys, tmp_path, native)


def test_table_is_complete() -> None:
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
    assert found.accepted == (not row.expected) == (not reasons), reasons
    assert not found.accepted or found.digest == stage.image.digest
    if row.expected:
        assert reasons & set(row.expected.split("_OR_")), (reasons, as_text(found))
    assert exit_codes.of(found) == (0 if found.accepted else 5 if found.unanswered else 7)
    assert json.loads(as_json(found))["accepted"] == found.accepted
    assert all(one.next and "{" not in one.next for one in found.refusals)
    text = as_text(found)
    assert all(char.isprintable() for char in text.replace("\n", ""))
    assert not re.search(r"Error\(|\('| at 0x|sys\.|recursion", text), "no objects or words of Python"
    first, *others = (line.startswith("ACCEPTED") for line in text.splitlines())
    assert (first, any(others)) == (found.accepted, False)
    assert (found.age_s or 0) >= 0


@pytest.mark.parametrize("stage", ["OCI 1.1"], indirect=True)
@pytest.mark.parametrize("status", [200, 401, 403, 410])
def test_list_that_cannot_be_read_next_to_the_api_is_a_note(stage: Stage, status: int) -> None:
    good(stage)
    stage.rules.on(LIST, answers(status))
    found = stage.ask(GPU, "image", LIMIT_S)
    assert found.accepted
    assert ["not all tags were read" in one.message for one in found.notes] == [True]


@pytest.mark.parametrize("stage", ["OCI 1.1"], indirect=True)
@pytest.mark.parametrize("answer", [*((one, b"") for one in (301, 400, 401, 403, 404, 405)), (200, b'{"tags":null}')])
def test_tags_that_were_not_listed_are_a_note(stage: Stage, answer: tuple[int, bytes]) -> None:
    relisted("", only)(stage)
    stage.rules.on(TAGS, answers(*answer))
    found = stage.ask(GPU, "image", LIMIT_S)
    assert found.accepted
    assert ["not all tags were read" in one.message for one in found.notes] == [True]


@pytest.mark.parametrize("stage", ["OCI 1.1"], indirect=True)
@pytest.mark.parametrize("api", [True, False])
@pytest.mark.parametrize("strange", [None, "no descriptor", {"size": 1}, entry("sha512:" + "a" * 128), entry("x/../y")])
def test_listed_entry_that_names_no_document_is_a_note(stage: Stage, *, api: bool, strange: Any) -> None:
    known = entry(good(stage))
    stage.rules.on(REFERRERS, index(known, strange) if api else answers(404))
    stage.rules.on(f"GET .*/manifests/{fallback_tag(stage.image.digest)}$", index(known, strange))
    found = stage.ask(GPU, "image", LIMIT_S)
    assert found.accepted
    note, *_ = found.notes  # the registry's own tags lack the list's
    assert note.message.startswith("1 of the listed documents cannot be read: ")


@pytest.mark.parametrize("stage", ["OCI 1.1"], indirect=True)
def test_withdrawal_by_an_expired_key_is_a_note(stage: Stage) -> None:
    stage.key_files = ("{ann}", "Expires: 2026-11-20T10:30:00Z\n{bob}")
    good(stage)
    stage.notice((), LATER, "bob", edit=("", ""))
    (note,) = stage.ask(GPU, "image", LIMIT_S).notes
    assert note.message.startswith("this withdrawal (see ticket 17) does not count: ")


def delete(stage: Stage, stored: str) -> None:
    """Delete a statement from the registry, and from the list that registries without the API keep under a tag."""
    client, tag = stage.client, fallback_tag(stage.image.digest)
    client.send("DELETE", f"manifests/{stored}", expect=(202,), scope="delete")
    if not stage.native:
        left = listing(client, stage.image.digest).items.keys() - {stored}
        client.put_manifest(tag, index_of(*map(entry, left)), OCI_INDEX)


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
def test_deleted_statement_that_another_one_names_is_missed(stage: Stage, number: int) -> None:
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
