"""The fleet's proofs: what has to be proven where, what stands by the registry, and a run that does the rest once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from command_line import ran
from factories import A100, H100, check, failed_verdict, gpu_verdict, inconclusive_verdict, verdict
from fake_engine import FakeEngine
from publishing_world import answering
from registries import State, modern_registry

from envbuilder.attest.envelope import KeySealer
from envbuilder.attest.keys import PRIVATE, PUBLIC, PrivateKey, create
from envbuilder.catalog.store import load
from envbuilder.choice import Choice, choose, read_fleet
from envbuilder.cli import exit_codes
from envbuilder.errors import InfrastructureError
from envbuilder.jobs.fleet.document import FleetDocument, FleetRow, as_text
from envbuilder.jobs.fleet.run import run_here
from envbuilder.jobs.fleet.survey import FleetQuery, is_pending, survey
from envbuilder.publish.attestation import PublishTools, ValidationTerms, attach_verdict, state
from envbuilder.publish.verify_request import Registrar, openers_of, registrar_of, trusting
from envbuilder.registry.client import Repository
from envbuilder.registry.manifests import OCI_MANIFEST
from envbuilder.registry.reference import Reference, parse
from envbuilder.validation import suite_plan
from envbuilder.verdict import HostRef, KindStanding, Verdict
from envbuilder.workspace import Workspace

CATALOG = load()
MATRIX = """\
name: proof
include:
  - {tensorflow: 2.15.1, flavor: gpu}
  - {tensorflow: 2.15.1, flavor: cpu}
"""
FLEET = """\
- {name: hopper, driver: '535', gpus: [NVIDIA H100 80GB HBM3], count: 3}
- {name: ampere, driver: 550.54.15, gpus: [A100, A100], count: 200, labels: {pool: a100}, constraint: a100}
- {name: old, driver: 418.226.00, gpus: [A100]}
- {name: plain}
"""
HOPPER = HostRef(driver="535.104.05", gpus=(H100,))
AMPERE = HostRef(driver="550.54.15", gpus=(A100,))


@dataclass
class Team:
    """A repository with an image for each environment, a fleet, and hosts that share the repository alone."""

    state: State
    to: Reference
    choice: Choice
    folder: Path
    key: PrivateKey
    runs: list[tuple[str, str]] = field(default_factory=list)
    answers: dict[str, Verdict] = field(default_factory=dict)

    @property
    def registrar(self) -> Registrar:
        return registrar_of(self.to, {}, openers_of((self.folder / PUBLIC,), None, None), CATALOG.gpu_model, 1e9)

    def query(self, host: HostRef = HOPPER, **given: object) -> FleetQuery:
        fleet = read_fleet(self.folder / "fleet.yaml")
        return FleetQuery(self.choice, fleet, self.to.name, suite_plan.digest(), host, "x86_64", **given)  # type: ignore[arg-type]

    def status(self, host: HostRef = HOPPER, **given: object) -> FleetDocument:
        return survey("status", self.query(host, **given), self.registrar.standing)

    def run(self, host: HostRef = HOPPER, **given: object) -> FleetDocument:
        """Run what is left on a host, whose suite answers by the environment's flavour."""
        return run_here(self.query(host, **given), self.registrar.standing, lambda row: self.attach(row.digest, host))

    def attach(self, digest: str, host: HostRef) -> Verdict:
        reference = self.to.at(digest)
        name = next(tag for tag, target in self.state.tags.items() if target == digest)
        self.runs.append((name, host.driver or ""))

        def judge(asked: Reference) -> Verdict:
            answer = self.answers.get(name) or (gpu_verdict() if "-cu" in name else verdict())
            environment = next(one for one in self.choice.environments if one.id == name)
            image = answering()(asked).image
            return msgspec.structs.replace(
                answer, environment=environment, image=image, host=host, suite=suite_plan.digest()
            )

        engine = FakeEngine()
        engine._store[str(reference)] = engine.add(str(reference))
        tools = PublishTools(engine, Repository(reference, {}), KeySealer(self.key), judge, self.registrar.now)
        return attach_verdict(self.folder / "out" / f"{digest[7:19]}", reference, tools, ValidationTerms(host))


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Team]:
    (tmp_path / "matrix.yaml").write_text(MATRIX)
    (tmp_path / "fleet.yaml").write_text(FLEET)
    choice = choose(str(tmp_path / "matrix.yaml"), (), Workspace(tmp_path), CATALOG)
    with modern_registry() as (address, state_):
        client = Repository(parse(f"{address}/team/image"), {})
        config = client.put_blob(b"{}", "text/json")
        for environment in choice.environments:
            described = {"mediaType": config.media_type, "digest": config.digest, "size": config.size}
            parts = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": described, "layers": []}
            content = json.dumps({**parts, "annotations": {"of": environment.id}}).encode()
            client.put_manifest(environment.id, content, OCI_MANIFEST)
        yield Team(state_, client.reference, choice, tmp_path, create(tmp_path))


def states(document: FleetDocument) -> dict[str, tuple[str, bool, bool]]:
    return {row.kind: (row.state, row.left, row.here) for row in document.rows}


def test_a_plan_names_each_proof_once(team: Team) -> None:
    """A GPU environment on each kind that can run it, with the hosts counted; one for any host where no GPU is used."""
    document = survey("plan", team.query(), team.registrar.standing)
    assert states(document) == {
        "H100/535": ("missing", True, True),
        "A100/550.54.15": ("missing", True, False),
        "A100/418.226.00": ("impossible", False, False),
        "no GPU": ("impossible", False, False),
        "any host": ("missing", True, True),
    }
    counts = {row.kind: (row.count, row.hosts) for row in document.rows}
    assert counts["A100/550.54.15"] == (200, ("ampere",))
    assert counts["any host"][0] == 205
    assert all(row.why for row in document.rows if row.state == "impossible")
    assert exit_codes.of(document) == 0


def test_hosts_do_what_fits_them_and_nothing_twice(team: Team) -> None:
    """Each host runs each digest once; what another has proven is not run again, nor what this one has."""
    first = team.run(HOPPER)
    assert len(team.runs) == 2
    assert len(first.ran) == 2
    assert states(first)["A100/550.54.15"] == ("missing", True, False)
    assert exit_codes.of(first) == 8
    assert team.run(HOPPER).ran == ()
    second = team.run(AMPERE)
    assert len(team.runs) == 3, "the GPU environment alone: the other is proven on any host"
    assert exit_codes.of(second) == 0
    assert {state for state, *_ in states(second).values()} == {"passed", "impossible"}
    assert [row.ran_on for row in second.rows if row.kind == "A100/550.54.15"] == ["550.54.15"]


def test_a_failure_is_not_run_until_it_passes(team: Team) -> None:
    """A FAILED by this suite stands, on its kind alone where it is a GPU's: the next run does nothing there."""
    gpu = next(one.id for one in team.choice.environments if one.flavor == "gpu")
    team.answers[gpu] = failed_verdict(checks=(check("matmul", "failed", level="gpu"),), level="cpu")
    document = team.run(AMPERE)
    assert states(document)["A100/550.54.15"] == ("failed", False, True)
    assert exit_codes.of(document) == 1
    del team.answers[gpu]
    assert team.run(AMPERE).ran == ()
    assert states(team.run(HOPPER))["H100/535"][0] == "passed"
    assert states(team.status())["A100/550.54.15"][0] == "failed"


def test_a_failure_below_the_gpu_leaves_nothing_to_run_anywhere(team: Team) -> None:
    """An image that does not import needs no second host to say so."""
    gpu = next(one.id for one in team.choice.environments if one.flavor == "gpu")
    team.answers[gpu] = failed_verdict()
    team.run(AMPERE)
    assert states(team.status())["H100/535"] == ("failed", False, True)


def test_what_came_to_no_answer_is_run_again_only_where_that_is_asked(team: Team) -> None:
    """INCONCLUSIVE stands as such; --again makes it left."""
    gpu = next(one.id for one in team.choice.environments if one.flavor == "gpu")
    team.answers[gpu] = inconclusive_verdict()
    team.run()
    assert states(team.status())["H100/535"] == ("inconclusive", False, True)
    del team.answers[gpu]
    assert team.run().ran == ()
    assert states(team.run(again=True))["H100/535"][0] == "passed"


def test_a_simulated_verdict_that_somebody_signed_proves_nothing(team: Team) -> None:
    """Even under a trusted key: its kind is still missing, and left, until the same is said of a real one."""
    gpu = next(one for one in team.choice.environments if one.flavor == "gpu")
    digest = team.state.tags[gpu.id]
    client = Repository(team.to.at(digest), {})
    manifest = client.manifest(digest)
    assert manifest is not None
    real = msgspec.structs.replace(answering(environment=gpu)(team.to.at(digest)), host=AMPERE)
    forging = _Forging(KeySealer(team.key))
    for sealer, expected in ((forging, ("missing", True, False)), (forging.sealer, ("passed", False, False))):
        state(
            team.to.name, manifest, real, PublishTools(FakeEngine(), client, sealer, lambda _: real, team.registrar.now)
        )
        assert states(team.status())["A100/550.54.15"] == expected


class _Forging:
    """Signs as if a verdict had been simulated: what no command of ours does."""

    def __init__(self, sealer: KeySealer) -> None:
        self.sealer = sealer
        self.media_type, self.openers = sealer.media_type, sealer.openers

    def seal(self, payload: bytes) -> bytes:
        """Seal the statement with one word changed."""
        return self.sealer.seal(payload.replace(b'"simulated":false', b'"simulated":true'))


def test_a_host_that_cannot_run_is_said_and_the_others_go_on(team: Team) -> None:
    """The registry or the engine fails for one digest: that row has the error and its code, another is proven."""
    gpu = next(one.id for one in team.choice.environments if one.flavor == "gpu")

    def attach(row: FleetRow) -> Verdict:
        if row.digest == team.state.tags[gpu]:
            raise InfrastructureError("no space left on device")
        return team.attach(row.digest, HOPPER)

    document = run_here(team.query(), team.registrar.standing, attach)
    row = next(row for row in document.rows if row.kind == "H100/535")
    assert "no space left" in row.error
    assert row.left
    assert exit_codes.of(document) == 5
    assert states(document)["any host"][0] == "passed"
    assert "no space left" in as_text(document)


def test_an_image_that_is_not_there_is_unpublished(team: Team) -> None:
    """Nothing can be run for it, and nobody says that it is proven."""
    team.state.tags.clear()
    document = team.run()
    assert {state for state, *_ in states(document).values()} == {"unpublished", "impossible"}
    assert document.ran == ()
    assert exit_codes.of(document) == 8


def test_this_host_is_of_a_kind_by_its_facts(team: Team) -> None:
    """A host without a GPU, with another driver or another machine does not do another kind's work."""
    for host, expected in (
        (HostRef(), set()),
        (HostRef(driver="545.23.06", gpus=(H100,)), set()),
        (HOPPER, {"H100/535"}),
    ):
        rows = team.status(host).rows
        assert {row.kind for row in rows if row.here and row.gpu} == expected
    query = FleetQuery(team.choice, read_fleet(team.folder / "fleet.yaml"), "x", "y", HOPPER, "aarch64")
    assert not any(row.here for row in survey("plan", query, team.registrar.standing).rows)


@pytest.mark.parametrize(
    ("state_", "suites", "asked", "expected"),
    [
        ("passed", (), "", ""),
        ("missing", (), "", "left"),
        ("stale", ("now",), "", "left"),
        ("failed", ("now",), "again", ""),
        ("failed", ("older",), "", "left"),
        ("inconclusive", ("now",), "", ""),
        ("inconclusive", ("now",), "again", "left"),
        ("inconclusive", ("older",), "", "left"),
        ("refused", ("now",), "", ""),
    ],
)
def test_what_is_left(state_: str, suites: tuple[str, ...], asked: str, expected: str) -> None:
    """No state is run twice under one suite but what is stale, and no FAILED is ever retried under its own."""
    standing = KindStanding(kind="x", gpu="x", driver="1", state=state_, suites=suites)  # type: ignore[arg-type]
    assert is_pending(standing, "now", again=asked == "again") == (expected == "left")


def test_an_environment_that_runs_nowhere_asks_nothing_of_the_registry(team: Team) -> None:
    """Where no host of the fleet can run it, there is nothing to look up."""
    (team.folder / "fleet.yaml").write_text("- {name: old, driver: 418.226.00, gpus: [A100], arch: aarch64}\n")
    asked: list[str] = []

    def ask(environment: str, level: str, kinds: Iterable[tuple[str, str]]) -> None:
        asked.append(f"{environment} {level} {list(kinds)}")

    assert {row.state for row in survey("plan", team.query(), ask).rows} == {"impossible"}
    assert asked == []


def test_the_commands_answer(team: Team, capsys: pytest.CaptureFixture[str]) -> None:
    """Plan exits 0, status by what is proven, both with one document; a key that is not given is a usage error."""
    files = (str(team.folder / "matrix.yaml"), "--fleet", str(team.folder / "fleet.yaml"), "--from", team.to.name)
    key = ("--key", str(team.folder / PUBLIC))
    code, out, _ = ran(capsys, "fleet", "plan", *files, *key, "--format", "json")
    assert (code, json.loads(out)["asked"]) == (0, "plan")
    code, out, _ = ran(capsys, "fleet", "status", *files, *key)
    assert code == 8
    assert "A100/550.54.15" in out
    assert ran(capsys, "fleet", "status", *files)[0] == 2


def test_a_key_that_nobody_trusts_signs_nothing(team: Team, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Its verdicts would prove nothing, and every run would do everything again: a usage error, before any engine."""
    create(tmp_path / "other")
    files = (str(team.folder / "matrix.yaml"), "--fleet", str(team.folder / "fleet.yaml"), "--from", team.to.name)
    words = (*files, "--key", str(team.folder / PUBLIC), "--sign", str(tmp_path / "other" / PRIVATE))
    code, _, err = ran(capsys, "fleet", "run", *words)
    assert code == 2
    assert "trusted" in err
    assert trusting(KeySealer(team.key), team.registrar.openers).openers == team.registrar.openers[:2]


def test_images_are_found_under_the_tags_of_the_matrix_and_others_are_unpublished(
    team: Team, capsys: pytest.CaptureFixture[str]
) -> None:
    """`fleet plan` names the commands that publish the missing ones."""
    (team.folder / "matrix.yaml").write_text(f'id: "team-{{id}}"\n{MATRIX}')
    files = (str(team.folder / "matrix.yaml"), "--fleet", str(team.folder / "fleet.yaml"), "--from", team.to.name)
    words = ("fleet", "plan", *files, "--key", str(team.folder / PUBLIC), "--format", "json")
    document = json.loads(ran(capsys, *words)[1])
    assert document["states"]["unpublished"] == 3
    assert document["next"].startswith(f"envbuilder run {files[0]}, then envbuilder publish {files[0]} --to ")
    for name in list(team.state.tags):
        team.state.tags[f"team-{name}"] = team.state.tags.pop(name)
    document = json.loads(ran(capsys, *words)[1])
    assert (document["states"].get("unpublished", 0), document["next"]) == (0, "")
    assert document["left"] == 3
