"""`fleet run --dask` with a real scheduler, TLS, workers of three host classes and a real registry.

Faults are named meanwhile and at the end. Only the hosts' GPUs, builds and the suite's answers come from the test
(`fleet_worker`).
"""

import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from dask_cluster import DaskCluster, dask_cluster, start_scheduler
from fleet_world import KINDS, FleetWorld, begin, command, ended, fleet_world, start, start_worker, states, until
from registries import docker_registry, free_port
from waiting import wait_for

from envbuilder.validation.verdict_store import History

pytestmark = pytest.mark.engine  # docker-registry is installed with the engine

HOSTS = {**KINDS, "n4": KINDS["n2"]}
"""Four workers: an H100, two A100 alike, a T4."""

SECOND = """\
name: second
include:
  - {tensorflow: 2.14.1, flavor: gpu}
  - {tensorflow: 2.15.0, flavor: gpu}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DaskCluster]:
    with dask_cluster(tmp_path / "dask") as running:
        yield running


@pytest.fixture
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with docker_registry(tmp_path_factory.mktemp("registry")) as address:
        yield address


@pytest.fixture
def world(tmp_path: Path, registry: str) -> FleetWorld:
    return fleet_world(tmp_path / "world", registry, hosts=HOSTS)


def test_two_matrices_are_complete_after_workers_were_killed_in_a_build_and_a_validation(
    tmp_path: Path, cluster: DaskCluster, registry: str
) -> None:
    """Four images, each built once and validated once on each host class, except for the killed jobs.

    Nothing that Dask stored or logged holds the key.
    """
    one = fleet_world(tmp_path / "world", registry, hosts=HOSTS, published=False)
    two = fleet_world(tmp_path / "second", registry, matrix=SECOND, hosts=HOSTS, published=False)
    for path in two.folder.glob("verdict-*"):  # the workers belong to one team: one key, all answers
        (one.folder / path.name).write_bytes(path.read_bytes())
    (two.folder / "keys" / "envbuilder.pub").write_bytes((one.folder / "keys" / "envbuilder.pub").read_bytes())
    for node in HOSTS:
        (one.folder / f"hold-make-{node}").touch()
        start_worker(cluster, one, node)
    runs = [begin(one, cluster, "--build"), begin(two, cluster, "--build")]
    builder = until(one, "make-", tuple(HOSTS), runs[0])
    cluster.kill(builder)
    for node in HOSTS:
        (one.folder / f"hold-make-{node}").unlink()
    (one.folder / "hold-n2").touch()
    (one.folder / "hold-n4").touch()
    start_worker(cluster, one, builder)
    prover = until(one, "sha256:", ("n2", "n4"), runs[0])
    cluster.kill(prover)
    for node in ("n2", "n4"):
        (one.folder / f"hold-{node}").unlink()
    for run in runs:
        code, document, err = ended(run)
        assert code == 0, (err, document)
        assert len(document["rows"]) == 6
        assert {row["state"] for row in document["rows"]} == {"passed"}
    seen = one.runs()
    made = Counter(what for _, what in seen.elements() if "make-" in what)
    assert sorted(made.values()) == [1, 1, 1, 2], made
    proofs = Counter(node for node, what in seen.elements() if what.startswith("sha256:"))
    assert (proofs.total(), proofs["n1"], proofs["n3"]) == (13, 4, 4), seen
    assert ended(begin(one, cluster))[:2][0] == 0
    assert one.runs() == seen
    assert not one.secrets_in(tmp_path / "dask")
    assert not [path for path in one.secrets_in(one.folder) if "keys" not in path.parts]


def test_run_joins_what_a_killed_run_started(cluster: DaskCluster, world: FleetWorld) -> None:
    """Also a second attempt. Each is started once; nobody waits for one that died while no run was there."""
    (world.folder / "fleet.yaml").write_text("- {name: ampere, driver: 550.54.15, gpus: [A100]}\n")
    words = ("-s", world.choice.environments[0].id)
    for name in ("n2", "n4"):
        (world.folder / f"hold-{name}").touch()
        start_worker(cluster, world, name)
    wait_for_workers(cluster, "n2", "n4")
    running = begin(world, cluster, *words)
    first = until(world, "sha256:", ("n2", "n4"), running)
    second = "n4" if first == "n2" else "n2"
    kill(running)
    running = begin(world, cluster, *words)
    wait_for_line(running, f"joined on {first}")
    cluster.kill(first)
    wait_for_line(running, f"started on {second}, attempt 2 of 4")
    until(world, "sha256:", (second,), running)
    kill(running)
    start_worker(cluster, world, first)
    wait_for_workers(cluster, first, times=2)
    running = begin(world, cluster, *words)
    wait_for_line(running, f"joined on {second}")
    kill(running)
    cluster.kill(second)
    (world.folder / f"hold-{first}").unlink()
    code, document, err = ended(begin(world, cluster, *words))
    assert (code, set(states(document).values()), " lost " in err) == (0, {"passed"}, False), err
    assert sorted(node for node, _ in world.runs().elements()) == sorted((first, first, second))


@pytest.mark.full
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", range(int(os.environ.get("FLEET_ROUNDS", "1"))))
def test_random_kills_lose_nothing_and_do_nothing_twice(tmp_path: Path, cluster: DaskCluster, seed: int) -> None:
    """Each thing is killed once, at a random moment, while two runs want the same; a supervisor starts it again."""
    draw, port, folder = random.Random(seed), free_port(), tmp_path / "registry"  # noqa: S311 - a seed names a round
    victims = draw.sample(("worker", "nanny", "scheduler", "registry", "run"), 5)
    over = threading.Event()
    with ThreadPoolExecutor() as threads, ExitStack() as end, ExitStack() as up:
        end.callback(over.set)
        world = fleet_world(tmp_path / "world", up.enter_context(docker_registry(folder, port=port)), hosts=HOSTS)
        (world.folder / "slow").write_text("8")
        supervisor = threads.submit(supervise, cluster, world, over)
        runs = [begin(world, cluster), begin(world, cluster)]
        until(world, "sha256:", tuple(HOSTS))
        for victim in victims:
            time.sleep(draw.uniform(1, 7))
            node = cluster.processes.get(draw.choice(tuple(HOSTS)))
            match victim:
                case "worker" if node:
                    for child in Path(f"/proc/{node.pid}/task/{node.pid}/children").read_text().split():
                        os.kill(int(child), signal.SIGKILL)
                case "nanny" if node:
                    node.kill()
                case "scheduler":
                    cluster.kill(victim)
                    start_scheduler(cluster)
                case "registry":
                    up.close()
                    up.enter_context(docker_registry(folder, port=port))
                case "run":
                    kill(runs[0])
                    runs[0] = begin(world, cluster)
        said = [ended(run, 200) for run in runs]
        said.append(ended(begin(world, cluster), 200))
        over.set()
        supervisor.result()
    seen = (seed, victims, world.runs(), [err for *_, err in said])
    assert (said[2][0], set(states(said[2][1]).values())) == (0, {"passed"}), seen
    away = {"the scheduler" in document.get("message", "") for code, document, _ in said if code}
    assert away <= {True}, "a run ends at once without a scheduler: its address may be wrong"
    histories = cluster.folder.glob("*/out/history")  # not before: a killed suite has to run again
    stored = Counter((one.host.driver, one.image.digest) for path in histories for one in History(path).read()[0])
    assert (len(stored), set(stored.values())) == (6, {1}), (stored, seen)
    named = any("lost on" in err or "does not answer" in err for *_, err in said)
    assert named or sum(world.runs().values()) == 6, seen


def supervise(cluster: DaskCluster, world: FleetWorld, over: threading.Event) -> None:
    """Start workers that have ended."""
    while not over.wait(0.5):
        for name in HOSTS:
            if name not in cluster.processes or cluster.processes[name].poll() is not None:
                start_worker(cluster, world, name)


def test_registry_that_is_away_loses_no_verdict(tmp_path: Path, cluster: DaskCluster) -> None:
    """Verdicts are attached when it is back. No suite runs twice: that would repeat it until it passes."""
    port, folder = free_port(), tmp_path / "registry"
    with ExitStack() as up:
        world = fleet_world(tmp_path / "world", up.enter_context(docker_registry(folder, port=port)))
        for node in KINDS:
            (world.folder / f"hold-{node}").touch()
            start_worker(cluster, world, node)
        running = begin(world, cluster)
        for node in KINDS:
            until(world, "sha256:", (node,), running)
        up.close()
        for node in KINDS:
            (world.folder / f"hold-{node}").unlink()
        time.sleep(6)
        up.enter_context(docker_registry(folder, port=port))
        code, document, err = ended(running, 200)
        assert (code, set(states(document).values())) == (0, {"passed"}), err
        assert sorted(world.runs().values()) == [1] * 6, world.runs()


def test_run_without_dask_builds_and_validates_only_for_its_own_host(tmp_path: Path, registry: str) -> None:
    world = fleet_world(tmp_path / "world", registry, published=False)
    program = (str(world.folder / "bin" / "envbuilder"),)
    variables = {**world.variables, "WORKER_NAME": "n2"}
    run = start(world, "--build", variables=variables, program=program)
    code, document, err = ended(run)
    assert code == 8, err
    found = states(document)
    assert {state for (_, name), state in found.items() if name == "A100/550.54.15"} == {"passed"}
    assert {state for (_, name), state in found.items() if name != "A100/550.54.15"} == {"missing"}
    assert {node for node, _ in world.runs()} == {"n2"}
    assert sum(world.runs().values()) == 4, "two builds and two validations"


def kill(run: subprocess.Popen[str]) -> None:
    with run:
        run.kill()


def wait_for_line(run: subprocess.Popen[str], text: str) -> None:
    assert run.stderr
    assert any(text in line for line in run.stderr), text


def wait_for_workers(cluster: DaskCluster, *names: str, times: int = 1) -> None:
    """Wait until the workers have passed their checks and are connected."""
    logs = [cluster.folder / f"{name}.log" for name in names]
    wait_for(lambda: all(log.read_text().count("Registered to") >= times for log in logs), 60, lambda: logs)


def test_worker_is_refused_when_it_starts(cluster: DaskCluster, world: FleetWorld) -> None:
    """Without an engine, without a key, with an address that anybody may listen to."""
    (world.folder / "broken-n1").touch()
    start_worker(cluster, world, "n1")
    start_worker(cluster, world, "n2", TF_ENVBUILDER_SIGNING_KEY="")
    start_worker(cluster, world, "n3", TF_ENVBUILDER_SIGNING_KEY="/nowhere/envbuilder.key")
    for name, code, text in (
        ("n1", 5, "no container engine answers"),
        ("n2", 2, "no signing key"),
        ("n3", 2, "/nowhere/envbuilder.key"),
    ):
        assert cluster.processes.pop(name).wait(60) == code
        assert text in (cluster.folder / f"{name}.log").read_text()
    refused = command(world, "fleet", "worker", "tcp://192.0.2.1:8786")
    assert (refused.returncode, "no TLS" in refused.stderr) == (2, True)


def test_broken_worker_gets_no_job_and_class_without_workers_is_named(cluster: DaskCluster, world: FleetWorld) -> None:
    """The engine of n2 ends after its start, the clock of n4 is wrong, nobody is of n3's class."""
    for name in ("n1", "n2", "n4"):
        start_worker(cluster, world, name)
    wait_for_workers(cluster, "n1", "n2", "n4")
    (world.folder / "broken-n2").touch()
    (world.folder / "clock-n4").write_text(str(200 * 86400))
    code, document, err = ended(begin(world, cluster, "--timeout", "12s"))
    assert code == 5, err
    rows = {row["kind"]: row for row in document["rows"]}
    assert {name: row["state"] for name, row in rows.items()} == {
        "H100/535": "passed",
        "A100/550.54.15": "missing",
        "T4/545": "missing",
    }
    assert {node for node, _ in world.runs()} == {"n1"}
    assert len(document["ran"]) == 2
    assert err.count("n2 is not used: no container engine answers (next: start it)") == 1
    assert err.count("n4 is not used: this host's clock differs by 200 days") == 1
    assert "no usable worker of host class A100/550.54.15: " in rows["A100/550.54.15"]["error"]
    assert "no worker of host class T4/545; there are: 2 of A100/550.54.15, 1 of H100/535.104.05; waiting" in err
    assert "for H100/535: started on n1" in err
    assert " for H100/535 on n1: validating " in err


@pytest.mark.full
def test_job_that_kills_workers_is_started_four_times_and_names_them(cluster: DaskCluster, world: FleetWorld) -> None:
    """Dask's own count does not multiply ours."""
    (world.folder / "fleet.yaml").write_text("- {name: ampere, driver: 550.54.15, gpus: [A100]}\n")
    for name in ("n2", "n4"):
        start_worker(cluster, world, name)
        (world.folder / f"kill-{name}").touch()
    environment = world.choice.environments[0].id
    code, document, err = ended(begin(world, cluster, "-s", environment))
    assert code == 5, err
    assert sorted(node for node, _ in world.runs().elements()) == ["n2", "n2", "n4", "n4"]
    (row,) = document["rows"]
    assert sorted(row["error"].split("; ")) == [f"{name}: the worker died" for name in ("n2", "n2", "n4", "n4")]
    assert err.count(": the worker died") == 4
    assert ", attempt 4 of 4" in err


@pytest.mark.full
def test_scheduler_that_stays_away_ends_with_a_table_of_known_states(cluster: DaskCluster, world: FleetWorld) -> None:
    (world.folder / "hold-n1").touch()
    start_worker(cluster, world, "n1")
    start_worker(cluster, world, "n3")
    running = begin(world, cluster, "--timeout", "20s")
    until(world, "sha256:", ("n1",), running)
    until(world, "sha256:", ("n3",), running)
    cluster.kill("scheduler")
    code, document, err = ended(running)
    assert code == 5, err
    assert len(document["rows"]) == 6
    assert "does not answer" in err
    assert any("does not answer" in row["error"] for row in document["rows"])
    assert "Traceback" not in err
    assert set(states(document).values()) <= {"passed", "missing"}


def test_wrong_address_ends_at_once_without_a_traceback(world: FleetWorld) -> None:
    """Dask's own client waits for a minute at a port that is silent."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for address, code, text in (
            ("tls://bla", 2, "is not the address of a scheduler"),
            (f"tcp://127.0.0.1:{silent.getsockname()[1]}", 5, "does not answer"),
        ):
            begun = time.monotonic()
            refused = command(world, "fleet", "run", *world.words, "--dask", address)
            assert (refused.returncode, text in refused.stderr) == (code, True), refused.stderr
            assert "Traceback" not in refused.stderr
            assert time.monotonic() - begun < 20, "5 s, on a busy machine"
