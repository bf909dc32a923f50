"""The state of a fleet by its registry: what is pending where, and a run that does the rest once."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from command_line import ran
from factories import A100, H100, check, failed_verdict, gpu_verdict, inconclusive_verdict
from fleet_worker import AnyImage, described, judged
from fleet_world import FleetWorld, fleet_world
from registries import State, modern_registry
from table_rows import beside, rows

from envbuilder.attest.keys import PRIVATE, PUBLIC, create
from envbuilder.catalog.store import load
from envbuilder.cli import exit_codes
from envbuilder.environment import Environment
from envbuilder.errors import InfrastructureError
from envbuilder.jobs.fleet import job as fleet_job
from envbuilder.jobs.fleet import run as fleet_run
from envbuilder.jobs.fleet.job import Job, is_pending, prove
from envbuilder.jobs.fleet.run import FleetDocument, FleetOptions, FleetQuery, as_text, open_fleet
from envbuilder.validation.validate import ValidationRequest
from envbuilder.verdict import HostClassState, HostRef, Verdict

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
    world: FleetWorld

    @property
    def gpu(self) -> Environment:
        return next(one for one in self.world.choice.environments if one.flavor == "gpu")

    def become(self, host: HostRef) -> None:
        (self.world.folder / "host-here.json").write_bytes(msgspec.json.encode(host))

    def options(self, **given: Any) -> FleetOptions:
        keys = self.world.folder / "keys"
        return FleetOptions(
            matrix="matrix.yaml",
            fleet=Path("fleet.yaml"),
            repository=self.world.to.name,
            keys=(keys / PUBLIC,),
            max_age="99999d",
            **given,
        )

    def fleet(self) -> FleetQuery:
        return open_fleet(self.options(), CATALOG)

    def status(self, host: HostRef = HOPPER) -> FleetDocument:
        self.become(host)
        return self.fleet().survey("status")

    def run(self, host: HostRef = HOPPER, **given: Any) -> FleetDocument:
        """Run what is pending for a host."""
        self.become(host)
        return fleet_run.run(self.options(**given), CATALOG)

    @property
    def runs(self) -> int:
        return sum(self.world.runs().values())


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Team]:
    with modern_registry() as (address, state_):
        world = fleet_world(tmp_path / "world", address, matrix=MATRIX, hosts={"here": HOPPER})
        (world.folder / "fleet.yaml").write_text(FLEET)
        monkeypatch.chdir(world.folder)
        monkeypatch.setenv("TF_ENVBUILDER_SIGNING_KEY", str(world.folder / "keys" / PRIVATE))
        for module in (fleet_job, fleet_run):
            monkeypatch.setattr(module, "describe", lambda: described(world.folder))
        monkeypatch.setattr(fleet_job, "connect", AnyImage)
        monkeypatch.setattr(fleet_job, "validate_target", lambda request, **_: judged(world.folder, request.image))
        yield Team(state_, world)


def states(document: FleetDocument) -> dict[str, tuple[str, bool, bool]]:
    return {row.kind: (row.state, row.left, row.here) for row in document.rows}


def test_plan_names_each_validation_once(team: Team) -> None:
    """A GPU environment on each class that can run it, with the hosts counted; once for any host if no GPU is used."""
    document = team.fleet().survey("plan")
    assert states(document) == {kind: tuple(state) for kind, state in beside(__file__)["planned"].items()}
    counts = {row.kind: (row.count, row.hosts) for row in document.rows}
    assert counts["A100/550.54.15"] == (200, ("ampere",))
    assert counts["any host"][0] == 205
    assert all(row.why for row in document.rows if row.state == "impossible")
    assert exit_codes.of(document) == 0


def test_hosts_do_what_fits_them_and_nothing_twice(team: Team) -> None:
    """Each host runs each digest once; what another has proven is not run again, nor what this one has."""
    first = team.run(HOPPER)
    assert team.runs == len(first.ran) == 2
    assert states(first)["A100/550.54.15"] == ("missing", True, False)
    assert exit_codes.of(first) == 8
    assert team.run(HOPPER).ran == ()
    second = team.run(AMPERE)
    assert team.runs == 3, "the GPU environment alone: the other is proven on any host"
    assert exit_codes.of(second) == 0
    assert {state for state, *_ in states(second).values()} == {"passed", "impossible"}
    assert [row.ran_on for row in second.rows if row.kind == "A100/550.54.15"] == ["550.54.15"]


def test_failure_is_not_run_until_it_passes(team: Team) -> None:
    """A FAILED by this suite stands, of a GPU check on its class alone: the next run does nothing there."""
    team.world.answer(team.gpu.id, failed_verdict(checks=(check("matmul", "failed", level="gpu"),), level="cpu"))
    document = team.run(AMPERE)
    assert states(document)["A100/550.54.15"] == ("failed", False, True)
    assert exit_codes.of(document) == 1
    team.world.answer(team.gpu.id, gpu_verdict())
    assert team.run(AMPERE).ran == ()
    assert states(team.run(HOPPER))["H100/535"][0] == "passed"
    assert states(team.status())["A100/550.54.15"][0] == "failed"


def test_failure_below_the_gpu_leaves_nothing_to_run_anywhere(team: Team) -> None:
    """An image that does not import needs no second host to say so."""
    team.world.answer(team.gpu.id, failed_verdict())
    team.run(AMPERE)
    assert states(team.status())["H100/535"] == ("failed", False, True)


def test_inconclusive_validation_is_run_again_on_request_only(team: Team) -> None:
    """INCONCLUSIVE stands as such; --again makes it left."""
    team.world.answer(team.gpu.id, inconclusive_verdict())
    team.run()
    assert states(team.status())["H100/535"] == ("inconclusive", False, True)
    team.world.answer(team.gpu.id, gpu_verdict())
    assert team.run().ran == ()
    assert states(team.run(again=True))["H100/535"][0] == "passed"


def test_host_that_cannot_run_is_said_and_the_others_go_on(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry or the engine fails for one digest: that row has the error and its code, another is proven."""

    def validate(request: ValidationRequest, **_: Any) -> Verdict:
        if request.image.endswith(team.state.tags[team.gpu.id]):
            raise InfrastructureError("no space left on device")
        return judged(team.world.folder, request.image)

    monkeypatch.setattr(fleet_job, "validate_target", validate)
    document = team.run()
    row = next(row for row in document.rows if row.kind == "H100/535")
    assert "no space left" in row.error
    assert row.left
    assert exit_codes.of(document) == 5
    assert states(document)["any host"][0] == "passed"
    assert "no space left" in as_text(document)


def test_this_host_is_of_a_class_by_its_facts(team: Team) -> None:
    """A host without a GPU, with another driver or another machine does not do another class's work."""
    for host, expected in (
        (HostRef(), set()),
        (HostRef(driver="545.23.06", gpus=(H100,)), set()),
        (HOPPER, {"H100/535"}),
    ):
        assert {row.kind for row in team.status(host).rows if row.here and row.gpu} == expected
    assert not any(row.here for row in replace(team.fleet(), arch="aarch64").survey("plan").rows)


def job_of(team: Team, host_class: str) -> Job:
    fleet = team.fleet()
    return next(job for job in fleet.jobs(fleet.survey("plan")).values() if job.host_class == host_class)


def test_job_whose_result_exists_runs_nothing(team: Team) -> None:
    """A lost job is started again without asking the registry first: its host does."""
    job = job_of(team, "H100/535")
    assert [prove(job.data, CATALOG).did for _ in range(2)] == ["attached", "stands"]
    assert team.runs == 1
    build = msgspec.structs.replace(job, digest="", matrix=team.world.choice.matrix)
    assert prove(build.data, CATALOG).did == "stands"
    assert not list(Path("made").iterdir()), "neither a folder of this attempt nor of a lost one is left"


@rows
def test_host_that_fails_its_check_refuses_its_job(
    team: Team, changes: dict[str, Any], code: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Suite, machine, clock, driver, key, registry and engine; nothing runs."""
    if "trusted" in changes:
        create(team.world.folder / "other")
        changes = {"trusted": ((team.world.folder / "other" / PUBLIC).read_text(),)}
    if "profile" in changes:
        monkeypatch.setattr(fleet_job, "connect", broken_engine)
    job = msgspec.structs.replace(job_of(team, "H100/535"), **changes)
    document = prove(job.data, CATALOG)
    assert (document.did, document.exit_code, says in document.reasons[0]) == ("refused", code, True), document
    assert team.runs == 0


def broken_engine() -> None:
    raise InfrastructureError("no engine")


@rows
def test_pending_validation_follows_from_state_and_suite(
    state_: str, suites: tuple[str, ...], asked: str, expected: str
) -> None:
    """No state is run twice under one suite but what is stale, and no FAILED is ever retried under its own."""
    standing = HostClassState(kind="x", gpu="x", driver="1", state=state_, suites=suites)  # type: ignore[arg-type]
    assert is_pending(standing, "now", again=asked == "again") == (expected == "left")


def test_environment_that_runs_nowhere_asks_nothing_of_the_registry(team: Team) -> None:
    Path("fleet.yaml").write_text("- {name: old, driver: 418.226.00, gpus: [A100], arch: aarch64}\n")
    nowhere = msgspec.structs.replace(team.options(), repository="127.0.0.1:1/team/image")
    assert {row.state for row in open_fleet(nowhere, CATALOG).survey("plan").rows} == {"impossible"}


def test_commands_answer(team: Team, capsys: pytest.CaptureFixture[str]) -> None:
    """Plan exits 0, status by what is proven, both with one document; a key that is not given is a usage error."""
    code, out, _ = ran(capsys, "fleet", "plan", *team.world.words, "--format", "json")
    assert (code, json.loads(out)["asked"]) == (0, "plan")
    code, out, _ = ran(capsys, "fleet", "status", *team.world.words)
    assert (code, "A100/550.54.15" in out) == (8, True)
    assert ran(capsys, "fleet", "status", *team.world.words[:-2])[0] == 2
    code, _, err = ran(capsys, "fleet", "export", "dask", *team.world.words)
    assert (code, "envbuilder fleet export --help" in err) == (2, True)
    assert "`envbuilder fleet run --dask`" in " ".join(ran(capsys, "fleet", "export", "--help")[1].split())
    for host in (HOPPER, AMPERE):
        team.run(host)
    code, _, err = ran(capsys, "fleet", "export", "slurm", *team.world.words)
    assert (code, "nothing is left to validate" in err, Path("out/fleet").exists()) == (0, True, False)
    _, out, _ = ran(capsys, "fleet", "status", *team.world.words, "--max-age", "0s", "--format", "json")
    assert re.search(r"validated [0-9.]+ \S+ ago; at most 0", out), out


def test_key_that_nobody_trusts_signs_nothing(
    team: Team, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its verdicts would prove nothing, and every run would do everything again: a usage error, before any engine."""
    create(tmp_path / "other")
    monkeypatch.setenv("TF_ENVBUILDER_SIGNING_KEY", str(tmp_path / "other" / PRIVATE))
    code, _, err = ran(capsys, "fleet", "run", *team.world.words)
    assert (code, "trusted" in err, team.runs) == (2, True, 0)


def test_images_are_found_under_the_tags_of_the_matrix_and_others_are_unpublished(team: Team) -> None:
    """A run names the commands that publish the missing ones, and does nothing for them."""
    Path("matrix.yaml").write_text(f'id: "team-{{id}}"\n{MATRIX}')
    document = team.run()
    assert {state for state, *_ in states(document).values()} == {"unpublished", "impossible"}
    assert (document.ran, exit_codes.of(document)) == ((), 8)
    assert document.states["unpublished"] == 3
    assert document.next.startswith("envbuilder run matrix.yaml, then envbuilder publish matrix.yaml --to ")
    for name in list(team.state.tags):
        team.state.tags[f"team-{name}"] = team.state.tags.pop(name)
    document = team.status()
    assert (document.states.get("unpublished", 0), document.next, document.left) == (0, "", 3)
