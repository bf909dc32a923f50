"""What a publication begins with: words of the command, tags, finished steps, records of builds, earlier verdicts."""

import ast
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner
from factories import A100, H100, check, digest, failed_verdict, gpu_verdict, inconclusive_verdict, verdict
from fake_engine import FakeEngine
from google.protobuf import json_format
from hostile import hostile
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from publishing_world import ENVIRONMENT, NOW, World, answering, attached, public_tags, scratch_world
from registries import modern_registry
from table_rows import rows

from envbuilder.attest import envelope, sbom, statements
from envbuilder.attest.envelope import ENVELOPE
from envbuilder.attest.keys import PRIVATE, PUBLIC, create
from envbuilder.attest.requirements import EnvironmentRequirement
from envbuilder.attest.statements import NOTICE, PROVENANCE, Notice, about
from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.cli import root
from envbuilder.errors import EnvbuilderError, InfrastructureError, InputError, PublishError, Reason, UsageError
from envbuilder.image import debian
from envbuilder.image.build import Built, ensure
from envbuilder.image.names import BASE_KEY_LABEL
from envbuilder.matrix import Budgets
from envbuilder.publish import attached_statements, attestation
from envbuilder.publish.attestation import PublishSession, ValidationTerms, exclusively
from envbuilder.publish.publish_all import PublishOptions, _statements, plan_all, publish, publish_all, sealer_of
from envbuilder.publish.tags import check_immutable, check_moving, destination, meant_by, staging_tag
from envbuilder.publish.verification import advising
from envbuilder.publish.verify_request import fetch
from envbuilder.registry.client import Repository
from envbuilder.registry.errors import RegistryFailedError, RegistryRefusedError
from envbuilder.registry.manifests import OCI_MANIFEST, Manifest, config_digest
from envbuilder.registry.reference import Reference, parse
from envbuilder.registry.referrers import contents
from envbuilder.support import decoding
from envbuilder.support.terminal_text import duration
from envbuilder.validation import suite_plan
from envbuilder.verdict import EngineRef, HostRef, Verdict
from envbuilder.workspace import Workspace, cache, cache_dir, write_document


def test_index_has_no_configuration() -> None:
    assert config_digest(Manifest("x", b'{"config":{"digest":"%b"}}' % digest("c").encode(), "d")) == digest("c")
    assert config_digest(Manifest("x", b'{"manifests":[]}', "d")) == ""
    assert config_digest(Manifest("x", b"no json", "d")) == ""


def test_durations_have_units() -> None:
    assert [duration(text) for text in ("90d", "12h", "30m", "45s", "2w")] == [7_776_000, 43_200, 1_800, 45, 1_209_600]
    with pytest.raises(UsageError):
        duration("90")


@pytest.mark.parametrize(
    "words", [("--allow", "failed"), ("--allow", "FAILED"), ("--moving", ""), ("--moving", "-x"), ("--to", "a.b/c:d")]
)
def test_publish_refuses_words_that_do_not_fit(tmp_path, monkeypatch, words) -> None:
    monkeypatch.chdir(tmp_path)
    run("publish", "--to", "a.b/c", "--dry-run", *words, expect=(UsageError, click.UsageError))


def test_somebody_has_to_sign() -> None:
    for given, keyless in (((), False), ((Path("k"),), True), ((), True)):  # the last: there is no package for it
        with pytest.raises(EnvbuilderError, match="--key"):
            sealer_of(given, keyless=keyless, environment={})


def run(*words: str, expect: type[BaseException] | tuple[type[BaseException], ...] | None = None) -> str:
    answer = CliRunner().invoke(root, list(words), standalone_mode=False)
    if expect is not None:
        assert isinstance(answer.exception, expect), answer.exception
        return str(answer.exception)
    assert answer.exception is None, answer.exception
    return answer.output


def test_keys_are_made_and_shown(tmp_path) -> None:
    folder, before = tmp_path / "keys", os.umask(0)
    try:
        made = run("keys", "new", str(folder))
    finally:
        os.umask(before)
    assert run("keys", "show", str(folder / PUBLIC)).splitlines()[0] in made
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / PRIVATE)] == [0o755, 0o600]
    assert "never overwritten" in run("keys", "new", str(folder), expect=UsageError)


def test_protected_key_by_the_environment(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TF_ENVBUILDER_KEY_PASSWORD", "")
    assert "is empty" in run("keys", "new", str(tmp_path), expect=UsageError)
    monkeypatch.setenv("TF_ENVBUILDER_KEY_PASSWORD", "secret")
    run("keys", "new", str(tmp_path))
    assert b"ENCRYPTED" in (tmp_path / PRIVATE).read_bytes()
    with pytest.raises(UsageError):
        sealer_of((tmp_path / PRIVATE,), keyless=False, environment={})
    create(tmp_path / "open")
    keys, said = (tmp_path / PRIVATE, tmp_path / "open" / PRIVATE), list[str]()
    sealer_of(keys, keyless=False, environment={"TF_ENVBUILDER_KEY_PASSWORD": "secret"}, say=said.append)
    assert [str(keys[1]) in one for one in said] == [True]


def test_key_that_has_expired_signs_nothing_and_one_that_others_can_read_is_named(tmp_path) -> None:
    said: list[str] = []
    for name, days in (("old", -1), ("new", 1)):
        create(tmp_path / name, expires=datetime.now(UTC) + timedelta(days=days))
    for half in (PRIVATE, PUBLIC):  # the limit is in both
        text = (tmp_path / "old" / half).read_text()
        (tmp_path / "old" / half).write_text(text.partition("\n")[2])
        with pytest.raises(UsageError, match="expired on"):
            sealer_of((tmp_path / "old" / PRIVATE,), keyless=False, environment={})
        (tmp_path / "old" / half).write_text(text)
    sealer_of((tmp_path / "new" / PRIVATE,), keyless=False, environment={}, say=said.append)
    assert not said
    (tmp_path / "new" / PRIVATE).chmod(0o644)
    sealer_of((tmp_path / "new" / PRIVATE,), keyless=False, environment={}, say=said.append)
    assert "chmod 600" in said[0]


@rows
def test_verify_refuses_words_that_do_not_fit(tmp_path, words, message) -> None:
    run("keys", "new", str(tmp_path))
    given_words = [str(tmp_path / PUBLIC) if word == "KEY" else word for word in words]
    assert message in run("verify", *given_words, expect=UsageError)


def test_no_command_waits_for_a_key_that_is_a_pipe_that_nobody_writes(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(decoding, "READ_S", 0.2)
    os.mkfifo(tmp_path / "pipe")
    signing = ("publish", "--withdraw", f"a.b/c@{digest('x')}", "--reason", "x", "--key")
    policy = ("upgrade", "2.19.1", "2.20.0", "--dry-run", "--policy")
    show = (("keys", "show"), ("export", "junit"), ("diagnose", "--captured"), ("report", "--from", "a.b/c", "--key"))
    for words in (("verify", "a.b/c:d", "--key"), *show, signing, policy):
        assert "not read in 0.2 s" in run(*words, str(tmp_path / "pipe"), expect=(UsageError, InputError))
    run("keys", "new", str(tmp_path))
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    named = (("REQUESTS_CA_BUNDLE", "absent"), ("SSL_CERT_FILE", "pipe"))  # the later ones come first
    for name, bundle in (*named, ("SSLKEYLOGFILE", "pipe"), ("SSLKEYLOGFILE", "absent/keys")):
        monkeypatch.setenv(name, str(tmp_path / bundle))
        said = run("verify", "a.b/c:d", "--key", str(tmp_path / PUBLIC), expect=UsageError)
        assert f"{name} is {tmp_path / bundle}: " in said


def test_verify_makes_no_home(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "absent"))
    cache(cache_dir() / "x", b"content")
    assert not (tmp_path / "absent").exists()


@pytest.fixture
def workspace(tmp_path, monkeypatch) -> Workspace:
    monkeypatch.chdir(tmp_path)
    made = Workspace(tmp_path)
    levels = (check("labels", level="static"), check("libraries", level="load"), check())
    unproved = inconclusive_verdict(level="cpu", checks=(*levels, check("matmul", "skipped", level="gpu")))
    for one in (verdict(), unproved):
        write_document(made.results(one.environment.id) / "verdict.json", one)
    write_document(made.out / "controls" / "x" / "verdict.json", failed_verdict())
    return made


def test_export_speaks_of_what_is_in_out(workspace) -> None:
    assert "1 PASSED, 1 INCONCLUSIVE" in run("export", "markdown")
    assert "1 PASSED" in (only := run("export", "markdown", "-s", "flavor=cpu"))
    assert "INCONCLUSIVE" not in only
    run("export", "junit", "-o", "x/junit.xml")
    assert (workspace.root / "x" / "junit.xml").read_text().count("<testsuite ") == 2


def test_export_refuses_what_is_no_verdict(workspace) -> None:
    (workspace.root / "other.json").write_text("{}")
    assert "other.json" in run("export", "junit", "other.json", expect=EnvbuilderError)
    assert "of a history" in run("export", "junit", "a.json", "--since", "2026-01-01", expect=UsageError)
    for words in ("github --since 1d", "compose --store .", "gitlab --repository a/b", "junit --repository a/b"):
        form, option, _ = words.split()
        assert f"{option} has no effect on {form}" in run("export", *words.split(), expect=UsageError)
    assert "does not exist" in run("export", "junit", "--store", "empty", expect=click.UsageError)


def test_report_writes_a_page(workspace) -> None:
    path = workspace.root / run("report", "-o", "page").strip()
    assert "tf2.20.0-py311-cpu-bookworm" in path.read_text()
    assert list((workspace.out / "history").glob("*.json"))
    assert "1 PASSED" in run("export", "markdown", "--since", "2026-01-01")


ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "envbuilder"
NEEDS_HINT = ("PublishError", "UsageError", "InputError", "InfrastructureError")
DIGEST = "sha256:" + "d" * 64


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PublishSession:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (environment,) = choose("quickstart", (), Workspace(ROOT), load()).environments
    shutil.copytree(ROOT / "images" / environment.id, Workspace(tmp_path).context(environment.id))
    shutil.copytree(ROOT / "images" / "shared", tmp_path / "images" / "shared")
    engine = FakeEngine()
    engine.add("envbuilder/base:debian-bookworm", b"root", {BASE_KEY_LABEL: debian.recipe("bookworm")})
    return PublishSession(engine, Workspace(tmp_path), lambda _: None, {}, HostRef())


def built(session: PublishSession) -> Built:
    (environment,) = choose("quickstart", (), Workspace(ROOT), load()).environments
    return ensure(environment, load(), session.workspace, session.engine, lambda _: None)


@pytest.mark.parametrize("engine", [EngineRef(name="fake", version="1", builder="fake"), None], ids=["", "older"])
def test_provenance_has_the_shape_that_is_published(session: PublishSession, engine: EngineRef | None) -> None:
    what = built(session)
    image = session.engine.image(what.record.image)
    assert image is not None
    what = Built(what.environment, msgspec.structs.replace(what.record, engine=engine), what.lock)
    (made,) = _statements(what, session, "a.b/c", DIGEST, image, sbom=False)
    assert made.predicate_type == PROVENANCE
    stated = json_format.ParseDict(json.loads(bytes(made.predicate)), provenance_pb2.Provenance())
    inputs = {item.name: item.digest["sha256"] for item in stated.build_definition.resolved_dependencies}
    assert f"sha256:{inputs['envbuilder/base:debian-bookworm']}" == what.record.base_id
    assert {name.rpartition("/")[2] for name in inputs} >= {"Dockerfile", "requirements.lock", "tools.lock"}
    tools = stated.run_details.builder.version
    assert (tools["builder"], "fake" in tools) == ("fake" if engine else "fake 1 fake", engine is not None)
    of_image = sbom.provenance("a.b/c", DIGEST, what.record, {}, (), {}, digest("known")).predicate
    assert json.loads(bytes(of_image))["runDetails"]["byproducts"][0]["digest"]["sha256"] == digest("known")[7:]


def test_environment_that_was_never_built_is_named(session: PublishSession) -> None:
    choice = choose("quickstart", (), Workspace(ROOT), load())
    (row,) = plan_all(choice, PublishOptions(to=parse("127.0.0.1:1/team/image")), session).rows
    assert "envbuilder build" in row.error
    what = built(session)
    write_document(
        session.workspace.image_record(what.environment.id), msgspec.structs.replace(what.record, engine=None)
    )
    (row,) = plan_all(choice, PublishOptions(to=parse("127.0.0.1:1/team/image")), session).rows
    assert "is not built" not in row.error
    session.engine.remove(what.record.reference)
    of_a_matrix = replace(session, workspace=replace(session.workspace, matrices=("team.yaml",)))
    nobody: Any = None
    (row,) = publish_all(choice, PublishOptions(to=parse("127.0.0.1:1/team/image")), nobody, of_a_matrix).rows
    assert row.error.endswith(f"(next: envbuilder build team.yaml -s {what.environment.id})")


@pytest.mark.parametrize(
    "tag", ["sha256-" + "a" * 64, "sha256-x.att", "sha512-1", "staging-x", "tf2.20.0-py311-cpu-bookworm", "tf2.19.1"]
)
def test_tag_with_a_meaning_of_its_own_is_refused(tag: str) -> None:
    with pytest.raises(UsageError):
        check_moving(("latest", tag), parse("a.b/c"), ("2.20.0",))
    check_moving(("latest", "stable", "sha256", "tf2.20", "2.20.0-gpu"), parse("a.b/c"), ("2.20.0",))


@pytest.mark.parametrize("more", [":latest", "@sha256:" + "a" * 64])
def test_tag_in_the_destination_is_refused(more: str) -> None:
    assert destination("a.b/c/d") == parse("a.b/c/d")
    with pytest.raises(UsageError, match="more than a repository"):
        destination(f"a.b/c/d{more}")


def test_tag_of_ours_names_its_environment() -> None:
    assert len(parse("registry.example.org/a").at(staging_tag("x" * 300)).tag) == 128
    for tag in ("tf2.20.0-py311-cu12.5-cudnn9.3-bookworm", "tf2.20.0-py311-cpu-bookworm-numpy2.0.0"):
        assert meant_by(tag) == EnvironmentRequirement(tag, in_tag=True)
        assert meant_by(f"{tag}-0123456789ab") == EnvironmentRequirement(tag, "0123456789ab", in_tag=True)
        assert meant_by(f"staging-{tag}") == EnvironmentRequirement(tag, in_tag=True)
    assert [meant_by(tag) for tag in ("latest", "", "tf", "v2.20.0")] == [None] * 4


def test_tag_of_a_shipped_environment_means_no_other_one() -> None:
    """A word after an id may be yours; the words of variants, systems and packages are not."""
    ids = [path.name for path in (Path(__file__).parents[2] / "images").glob("tf*")]
    systems = [row.short for row in load().systems]
    ids += [f"tf2.20.0-py311-cpu-{system}{more}" for system in systems for more in ("", "-runtime", "-tensorflow-cpu")]
    for tag, other in product(ids, ids):
        meant = meant_by(tag)
        assert meant is not None
        assert meant.is_met_by(other) == (tag == other)


def test_folder_that_cannot_be_written_is_an_error_of_the_host(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(InfrastructureError, match="cannot write"), exclusively(tmp_path / "out" / "publish"):
        pass


@pytest.mark.parametrize("words", [("--on", "H100/570"), ("--key", "k"), ("--from", "a.b/c", "--max-age", "1d")])
def test_report_refuses_options_without_effect(words: tuple[str, ...]) -> None:
    assert f"{words[-2]} needs --" in run("report", *words, expect=UsageError)


def test_report_from_nowhere_or_from_strangers_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = create(tmp_path)
    said: list[str] = []
    with modern_registry() as (host, state):
        Repository(parse(f"{host}/team/image"), {}).put_manifest("one", b"{}", OCI_MANIFEST)
        assert fetch(f"{host}/team/image", (tmp_path / PUBLIC,), said.append).verdicts == []
        assert key.public.keyid[:16] in "".join(said), said
        state.missing = True
        with pytest.raises(RegistryRefusedError, match="is there a repository"):
            fetch(f"{host}/team/image", (tmp_path / PUBLIC,), said.append)
        state.missing = False
        with hostile(host) as (front, rules):
            rules.on("manifests/one", lambda front: front.say(200, b"{}", Docker_Content_Digest="sha256:0"))
            assert fetch(f"{front}/team/image", (tmp_path / PUBLIC,), said.append).verdicts == []
            assert "image:one or a verdict on it out: manifest one: " in "".join(said), said
            rules.actions.insert(0, ("tags", lambda front: front.say(200 + rules.over.wait(20))))
            monkeypatch.setattr(attached_statements, "ANSWER_S", 0.2)
            with pytest.raises(RegistryFailedError, match=r"more than 0\.2 s"):
                fetch(f"{front}/team/image", (tmp_path / PUBLIC,), said.append)


HOST = HostRef(driver="535.104.05", gpus=(H100,))
TERMS = ValidationTerms(HOST)


@dataclass
class Publisher:
    world: World
    judged: list[str] = field(default_factory=list)

    def publish(self, terms: ValidationTerms = TERMS, **tools: Any) -> None:
        def judge(reference: Reference) -> Verdict:
            self.judged.append(str(reference))
            return answering()(reference)

        made = self.world.tools(judge, terms=terms, **tools)
        assert publish(self.world.publication("scratch:1"), made).published


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[Publisher]:
    with modern_registry() as (address, _):
        made = Publisher(scratch_world(tmp_path, address, tmp_path))
        made.publish()
        yield made


def test_same_terms_are_not_asked_again(publisher: Publisher) -> None:
    publisher.publish()
    publisher.publish(ValidationTerms(HostRef(driver=HOST.driver, gpus=HOST.gpus, kernel="another", cpus=7)))
    assert len(publisher.judged) == 1


@pytest.mark.parametrize(
    "terms",
    [
        *(ValidationTerms(HostRef(driver=driver, gpus=(H100,))) for driver in ("550.54.15", None)),
        *(ValidationTerms(HostRef(driver=HOST.driver, gpus=gpus)) for gpus in ((), (H100, H100), (A100,))),
        replace(TERMS, profile="full"),
        replace(TERMS, gpus="none"),
        replace(TERMS, budgets=Budgets(import_s=1.0)),
    ],
    ids=["driver", "no driver", "no GPU", "two GPUs", "another GPU", "profile", "--gpus", "budgets"],
)
def test_other_terms_are_another_run(publisher: Publisher, terms: ValidationTerms) -> None:
    publisher.publish(terms)
    assert len(publisher.judged) == 2
    publisher.publish(terms)
    assert len(publisher.judged) == 2


def test_withdrawn_image_is_not_published_again(publisher: Publisher) -> None:
    world = publisher.world
    tools = world.tools(answering())
    manifest = tools.repository.manifest(world.publication("scratch:1").tags[0].name)
    assert manifest is not None
    said = Notice(reason="it crashes", time=NOW.isoformat(), answers=(), previous=())
    notice = about(tools.repository.reference.name, manifest.digest, NOTICE, said)
    attestation.attach_signed(tools.repository, tools.sealer, manifest, notice)
    with pytest.raises(PublishError, match="withdrawn: it crashes"):
        publisher.publish()


def test_pinned_image_is_not_compressed_again(publisher: Publisher) -> None:
    tags = publisher.world.publication("scratch:1").tags
    check_immutable(publisher.world.client(), tags)
    with pytest.raises(PublishError, match="never overwritten"):
        check_immutable(publisher.world.client(), tags, zstd=True)


def test_another_suite_is_another_run(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite_plan, "digest", lambda: "sha256:" + "5" * 64)
    publisher.publish()
    assert len(publisher.judged) == 2


def damaged(publisher: Publisher) -> dict[str, Any]:
    (path,) = (publisher.world.folder / "publish").glob("*.verdict.json")
    path.write_text(path.read_text()[:100])
    return {}


def a_day_later(_: Publisher) -> dict[str, Any]:
    return {"now": lambda: NOW + timedelta(days=1)}


@pytest.mark.parametrize("happens", [damaged, a_day_later])
def test_untrusted_evidence_is_asked_for_again(
    publisher: Publisher, happens: Callable[[Publisher], dict[str, Any]]
) -> None:
    publisher.publish(**happens(publisher))
    assert len(publisher.judged) == 2


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with modern_registry() as (address, _):
        yield scratch_world(tmp_path, address, tmp_path)


def test_inconclusive_image_is_public_only_if_that_is_allowed(world: World) -> None:
    tools = world.tools(answering(inconclusive_verdict))
    row = publish(world.publication("scratch:1"), tools)
    assert (row.published, row.exit_code, row.tags, public_tags(world.client())) == (False, 8, (), {})
    row = publish(world.publication("scratch:1", allow=("inconclusive",)), tools)
    assert (row.published, row.allowed) == (True, ("inconclusive",))
    assert {refusal.reason for refusal in world.verified().refusals} >= {Reason.INCONCLUSIVE}


@pytest.mark.parametrize(
    ("judged", "message"), [(answering(simulated=True), "simulated"), (lambda _: gpu_verdict(), "not about")]
)
def test_verdict_that_is_simulated_or_about_another_image_publishes_nothing(
    world: World, judged: Callable[[Reference], Verdict], message: str
) -> None:
    with pytest.raises(PublishError, match=message):
        publish(world.publication("scratch:1", allow=("inconclusive",)), world.tools(judged))
    assert set(world.client().tags()) == {f"staging-{ENVIRONMENT}"}
    image = world.engine.image("scratch:1")
    assert image is not None
    assert image.tags == ("scratch:1",), "the engine has no name of it that publishing gave"


def test_signed_verdict_is_the_evaluated_one(world: World) -> None:
    row = publish(world.publication("scratch:1"), world.tools(answering(suite=digest("b"))))
    client = world.client()
    sealed = (client.blob(*contents(client, name)) for name in attached(client, row.digest, ENVELOPE))
    said = [
        statements.parse(envelope.decoded(msgspec.json.decode(one, type=envelope.Envelope).payload)) for one in sealed
    ]
    (item,) = (one for one in said if one.predicate_type == statements.VERDICT)
    verdict = msgspec.json.decode(item.predicate, type=statements.VerdictPredicate).verdict
    assert (verdict.suite, verdict.image.digest) == (digest("b"), row.digest)


def test_folder_in_use_is_named(world: World) -> None:
    folder = world.folder / "publish"
    with exclusively(folder), pytest.raises(PublishError, match=f"is using {folder}"):
        publish(world.publication("scratch:1"), world.tools())


def test_every_error_has_a_next_step() -> None:
    """An error of a registry gets it from its reason; one of a document (MalformedError) is a reason of `verify`."""
    for path in sorted(path for part in ("publish", "attest", "registry") for path in (PACKAGE / part).glob("*.py")):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Name) and call.func.id in NEEDS_HINT:
                assert any(word.arg == "hint" for word in call.keywords), f"{path}:{call.lineno}"


@pytest.mark.parametrize("reason", Reason)
def test_error_of_the_registry_has_the_next_step_of_its_reason(reason: Reason) -> None:
    with pytest.raises(RegistryRefusedError) as caught, advising(parse("a.b/c:d")):
        raise RegistryRefusedError(reason, "refused")
    assert caught.value.hint
    assert "{" not in caught.value.hint
    with pytest.raises(InfrastructureError) as failed, advising(parse("a.b/c:d")):
        raise InfrastructureError("could not push a.b/c:d: denied")
    assert "docker login a.b" in failed.value.hint
