"""A verdict that travels: reached on this host, attached to a digest in a registry, added up by whoever verifies."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from command_line import ran
from factories import A100, H100, check, digest, failed_verdict, gpu_verdict
from fake_engine import FakeEngine
from hostile import hostile
from publishing_world import answering, push_image
from registries import State, modern_registry
from table_rows import rows

from envbuilder.attest.keys import PRIVATE, PUBLIC, create, load_public_keys
from envbuilder.catalog.store import load
from envbuilder.engine.port import Image
from envbuilder.errors import InfrastructureError, PublishError, Reason
from envbuilder.publish import attestation, verification
from envbuilder.publish.attached_statements import read_statements
from envbuilder.publish.attestation import PublishSession, PublishTools, ValidationTerms, attach_verdict, exclusively
from envbuilder.publish.publish_all import sealer_of
from envbuilder.publish.verification import Verification
from envbuilder.publish.verify_request import VerifyOptions, fetch, standings, verify_image
from envbuilder.registry import referrers
from envbuilder.registry.client import Repository
from envbuilder.registry.manifests import OCI_INDEX, OCI_MANIFEST, Manifest, digest_of
from envbuilder.registry.reference import Reference, parse
from envbuilder.registry.referrers import listing
from envbuilder.report.page import write
from envbuilder.report.report_data import Material
from envbuilder.validation import suite_plan
from envbuilder.validation.verdict_store import History
from envbuilder.verdict import HostRef, Verdict
from envbuilder.workspace import Workspace

HOPPER = HostRef(driver="535.104.05", gpus=(H100,))
AMPERE = HostRef(driver="550.54.15", gpus=(A100,))
ENVIRONMENT = "tf2.20.0-py311-cu12.5-cudnn9.3-bookworm"


@dataclass
class Host:
    folder: Path
    host: HostRef
    reference: Reference
    judged: list[str] = field(default_factory=list)
    trusts: tuple[Path, ...] = ()

    def tools(self, verdict: Verdict | None) -> PublishTools:
        name = str(self.reference)
        image = Image(digest("image"), (name,), (name,), 1, {}, {}, "", "amd64")
        session = PublishSession(
            FakeEngine(registry={name: image}), Workspace(self.folder), lambda _: None, {}, self.host
        )
        answer = verdict or gpu_verdict(finished=datetime.now(UTC).isoformat())
        fitting = msgspec.structs.replace(answer, host=self.host, suite=suite_plan.digest())

        def judge(reference: Reference) -> Verdict:
            self.judged.append(str(reference))
            return msgspec.structs.replace(fitting, image=answering()(reference).image)

        sealer = sealer_of((self.folder / PRIVATE, *self.trusts), keyless=False, environment={})
        folder, terms = self.folder / "attached", ValidationTerms(self.host)
        return PublishTools(session, Repository(self.reference, {}), sealer, judge, folder, terms)

    def attach(self, verdict: Verdict | None = None) -> Verdict:
        return attach_verdict(self.tools(verdict))


@dataclass
class World:
    state: State
    image: Manifest
    hopper: Host
    ampere: Host

    @property
    def options(self) -> VerifyOptions:
        keys = (self.hopper.folder / PUBLIC, self.ampere.folder / PUBLIC)
        values: dict[str, Any] = {"level": None, "driver": None, "gpu": None, "max_age": "90d"}
        return VerifyOptions(str(self.hopper.reference), keys, None, None, **values)

    def verify(self, on: str = "H100/535, A100/550") -> Verification:
        return verify_image(replace(self.options, on=on), load().gpu_names)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with modern_registry() as (address, state):
        client = Repository(parse(f"{address}/team/image"), {})
        image = push_image(client, ENVIRONMENT)
        hosts = []
        for name, host in (("hopper", HOPPER), ("ampere", AMPERE)):
            create(tmp_path / name)
            hosts.append(Host(tmp_path / name, host, client.reference.at(image.digest)))
        yield World(state, image, *hosts)


def states(found: Verification) -> list[str]:
    return [kind.state for kind in found.kinds]


def test_hosts_that_share_only_the_registry_add_up(world: World) -> None:
    assert states(world.verify()) == ["missing", "missing"]
    world.hopper.attach()
    found = world.verify()
    assert (states(found), found.accepted) == (["passed", "missing"], False)
    text = verification.as_text(found)
    assert "\n  A100/550: missing\n  KIND_MISSING: A100/550: " in text
    assert "\n  H100/535: passed at level gpu " in text
    world.ampere.attach()
    found = world.verify()
    assert found.accepted
    assert found.level == "gpu"
    assert [kind.ran_on for kind in found.kinds] == ["535.104.05", "550.54.15"]
    assert len(found.signers) == 2
    assert world.verify("H100/550").accepted is False


@pytest.mark.parametrize("step", ["History", "attach_all", "remove"])
def test_interrupted_attachment_goes_on_without_a_second_run(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    broken = failed_verdict(finished=datetime.now(UTC).isoformat())
    gone = InfrastructureError("the registry does not answer")
    with monkeypatch.context() as patch:
        patch.setattr(attestation, step, lambda *_: (_ for _ in ()).throw(gone))
        with pytest.raises(InfrastructureError):
            world.hopper.attach(broken)
    assert world.hopper.attach().verdict == "FAILED", "what was reached counts: no run until it passes"
    assert len(world.hopper.judged) == 1
    assert world.hopper.attach().verdict == "PASSED", "once it is attached, whoever asks again has it run again"
    kept, _ = History(Workspace(world.hopper.folder).history).read()
    assert (len(world.hopper.judged), len(kept)) == (2, 2)


def test_second_command_for_one_digest_is_refused(tmp_path: Path) -> None:
    with exclusively(tmp_path), pytest.raises(PublishError, match="another envbuilder command"), exclusively(tmp_path):
        pass


def test_statements_are_those_that_publish_attaches(world: World) -> None:
    tags = dict(world.state.tags)
    world.hopper.attach()
    listed = listing(Repository(world.hopper.reference, {}), world.image.digest).items
    kinds = {
        json.loads(world.state.manifests[stored][1])["annotations"]["in-toto.io/predicate-type"] for stored in listed
    }
    assert read_statements(Repository(world.hopper.reference, {}), world.image, ()) == (), "no signer is trusted"
    assert kinds == {"urn:envbuilder:attestation/verdict/v1", "https://in-toto.io/attestation/test-result/v0.1"}
    assert world.state.tags == tags, "a registry with the referrers API gets no tag"


def test_report_adds_the_hosts_up(world: World, tmp_path: Path) -> None:
    world.hopper.attach()
    keys = (world.hopper.folder / PUBLIC, world.ampere.folder / PUBLIC)
    said: list[str] = []
    published = fetch(world.hopper.reference.name, keys, said.append)
    (one,) = standings(published, "H100/535, A100/550", "90d", load().gpu_names)
    assert (one.digest, one.environment) == (world.image.digest, ENVIRONMENT)
    assert [kind.state for kind in one.kinds] == states(world.verify())
    assert standings(published, None, "90d", load().gpu_names) == ()
    page = write(Material(verdicts={}, standings=(one,)), tmp_path / "page", datetime.now(UTC)).read_text()
    assert all(word in page for word in ("Host classes", "A100/550", "missing", "passed"))
    assert len(published.verdicts) == len(said) == 1, "one key signed nothing"
    world.state.blobs |= {name: b"{}" for name, content in world.state.blobs.items() if b"payload" in content}
    assert fetch(world.hopper.reference.name, keys, said.append).verdicts == []
    assert "the report leaves" in said[1]


def test_digest_that_may_be_several_images_is_not_judged(world: World) -> None:
    """One of them would run here, and the verdict would be about all: nothing runs, nothing is attached."""
    entry = {"mediaType": OCI_MANIFEST, "digest": world.image.digest, "size": 1}
    content = json.dumps({"schemaVersion": 2, "manifests": [entry, entry]}).encode()
    Repository(world.hopper.reference, {}).put_manifest("several", content, OCI_INDEX)
    world.hopper.reference = world.hopper.reference.at(digest_of(content))
    with pytest.raises(PublishError, match="images"):
        world.hopper.attach()
    assert not world.hopper.judged
    assert Reason.AMBIGUOUS in {refusal.reason for refusal in world.verify("H100/535").refusals}


@rows
def test_options_that_do_not_fit_together_are_refused(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert ran(capsys, "validate", *words)[0] == 2


def test_image_is_withdrawn_and_answered(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """The refusal says who, when and why, and the digest that an answer names."""
    world.hopper.attach()
    image, signing = str(world.hopper.reference), ("--key", str(world.hopper.folder / PRIVATE))
    assert world.verify("H100/535").accepted
    withdraw = ("publish", "--withdraw", image, "--reason", "see ticket 17", *signing)
    for _ in range(2):
        code, out, _ = ran(capsys, *withdraw)
        assert (code, "withdrawn" in out) == (0, True)
    refusal, _ = world.verify("H100/535").refusals  # an answer to one of two answers the repeated command too
    assert (refusal.reason, refusal.statement[:7]) == (Reason.WITHDRAWN, "sha256:")
    signer = load_public_keys(world.hopper.folder / PUBLIC)[0].keyid[:16]
    assert f"see ticket 17; said by {signer} on 20" in refusal.message
    world.ampere.attach()
    assert not world.verify("A100/550").accepted, "a validation does not answer a person"
    other = ("--key", str(world.ampere.folder / PRIVATE), "--key", str(world.hopper.folder / PUBLIC))
    answer = ("publish", "--answer", image, refusal.statement, "--reason", "fixed driver")
    assert "--key SIGNER.pub" in ran(capsys, *answer, *other[:2])[2]
    code, out, said = ran(capsys, *answer, *other, "--format", "json")
    assert (code, "still refused" in said) == (0, False)
    assert world.verify().accepted
    (answered,) = json.loads(out)["rows"][0]["statements"]
    assert ran(capsys, "publish", "--answer", image, answered, "--reason", "a mistake", *other)[0] == 7
    assert ran(capsys, *withdraw)[0] == ran(capsys, *withdraw[:4], "recalled", *signing)[0] == 0
    first, second = (one.statement for one in world.verify("A100/550").refusals)  # it is withdrawn again
    assert {first, second} <= {*ran(capsys, *answer, *other)[2].replace(",", "").split()}, "it was said before"
    said = ran(capsys, "publish", "--answer", image, first, "--reason", "fixed", *other)[2]
    assert f"still refused: WITHDRAWN {second}\n" in said


def test_refusal_says_what_to_do_on_which_host(world: World) -> None:
    world.hopper.attach()
    (refusal,) = world.verify().refusals
    assert refusal.next == (f"on a host with A100/550: envbuilder validate {world.hopper.reference} --attach --key KEY")
    options = replace(world.options, on=None, gpu="A100", driver="550")
    other, gpu = verify_image(options, load().gpu_names).refusals
    assert (other.reason, gpu.reason) == (Reason.OTHER_DRIVER, Reason.OTHER_GPU)
    assert other.next == gpu.next == refusal.next.replace("A100/550", "A100 and driver 550")
    foreign = create(world.hopper.folder / "foreign").public.keyid[:16]
    untrusted, *_ = verify_image(
        replace(world.options, on=None, keys=(world.hopper.folder / "foreign" / PUBLIC,)), load().gpu_names
    ).refusals
    assert f"(given: {foreign})" in untrusted.message
    assert untrusted.next.endswith("--key")


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_explained(reason: Reason, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ran(capsys, "explain", reason.lower(), "--format", "json")
    assert code == 0
    found = json.loads(out)["explanation"]
    assert (found["code"], bool(found["means"]), "{" in found["fix"]) == (reason, True, False)


def test_notice_that_says_too_little_signs_nothing(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    image, signing = str(world.hopper.reference), ("--key", str(world.hopper.folder / PRIVATE))
    before = len(listing(Repository(world.hopper.reference, {}), world.image.digest).items)
    for words, code, why in (
        (("--withdraw", image), 2, "reason"),
        (("--withdraw", image, "--reason", "a\nb"), 2, "reason"),
        (("--withdraw", world.hopper.reference.name, "--reason", "x"), 2, "no digest"),
        (("--withdraw", image, "--reason", "x", "--to", world.hopper.reference.name), 2, "--to"),
        (("--withdraw", image, "--answer", image, digest("x"), "--reason", "x"), 2, "one image"),
        (("--answer", image, "--reason", "x"), 2, "give IMAGE@DIGEST STATEMENT after it"),
        (("--withdraw", "--reason", "x"), 2, "'--withdraw' lacks a value: --reason is an option"),
        (("--withdraw", image, "--reason", "x", "--dry-run"), 2, "--dry-run"),
        (("--withdraw", image, "--reason", "bad", "disk"), 2, "[MATRIX]"),
        (("--answer", image, "sha256:abc", "--reason", "x"), 2, "not the digest of a statement"),
        (("--withdraw", image, "--reason", " "), 2, "reason"),
        (("--to", world.hopper.reference.name, "--reason", "x"), 2, "--reason"),
        (("--answer", image, digest("x"), "--reason", "x"), 7, digest("x")),
        (("--withdraw", image.replace(image[-4:], "0000"), "--reason", "x"), 7, "the registry has no"),
    ):
        found = ran(capsys, "publish", *words, *signing)
        assert found[0] == code, found
        assert why in found[2]
    assert len(listing(Repository(world.hopper.reference, {}), world.image.digest).items) == before


@pytest.mark.parametrize(("body", "code"), [(b"", 7), (b"{}", 7), (None, 5)], ids=["nothing", "other bytes", "gone"])
def test_notice_that_the_registry_does_not_give_back_is_an_error(
    world: World, capsys: pytest.CaptureFixture[str], body: bytes | None, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(referrers, "PAUSE_S", 0.001)
    with hostile(world.hopper.reference.host) as (front, rules):
        rules.on("GET .*/blobs/", lambda to: to.say(404 if body is None else 200, body or b""))
        image = str(replace(world.hopper.reference, host=front))
        words = ("--withdraw", image, "--reason", "x", "--key", str(world.hopper.folder / PRIVATE))
        assert ran(capsys, "publish", *words)[0] == code


def test_pass_answers_the_failures_of_keys_that_its_signer_trusts(world: World) -> None:
    """Without the other host's public key a signer does not see its FAILED, and does not answer it."""
    older = {"environment": gpu_verdict().environment, "finished": "2026-11-20T09:00:00+00:00"}
    world.hopper.attach(failed_verdict(checks=(check("import", "failed"),), **older))
    world.ampere.attach()
    assert Reason.FAILED in {one.reason for one in world.verify("A100/550").refusals}
    keys = (world.hopper.folder / PUBLIC, world.ampere.folder / PUBLIC)
    assert fetch(world.hopper.reference.name, keys, print).answered == []
    world.ampere.trusts = (world.hopper.folder / PUBLIC,)
    world.ampere.attach()
    assert world.verify("A100/550").accepted
    assert [one.verdict for one in fetch(world.hopper.reference.name, keys, print).answered] == ["FAILED"]
