"""The fleet example of twelve hosts: the right cells, the reasons, and the newest TensorFlow for each host."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from frozen_catalog import up_to

from envbuilder.catalog import store
from envbuilder.choice import read_fleet
from envbuilder.cli.plan_command import command
from envbuilder.compat.check_text import mark
from envbuilder.compat.fleet import FleetHost, newest, place
from envbuilder.compat.plan import plan
from envbuilder.finding import Code
from envbuilder.matrix import Axes, Matrix, Targets

EXAMPLE = Path(__file__).parents[2] / "examples" / "fleets" / "example.yaml"
HOSTS = read_fleet(EXAMPLE)
CATALOG = up_to()
ENVIRONMENTS = plan(
    Matrix(
        name="m",
        axes=Axes(tensorflow=("2.10.1", "2.14.1", "2.15.1", "2.18.1", "2.21.0"), flavor=("gpu",), os=()),
    ),
    CATALOG,
).environments


@pytest.fixture(autouse=True)
def _frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "load", up_to)


CELLS = {
    # host: TF 2.10.1, 2.14.1, 2.15.1, 2.18.1, 2.21.0
    "t4-450": "yes yes no no no",
    "t4-535": "yes yes yes yes yes",
    "v100-470": "yes yes no no no",
    "v100-580": "yes yes yes yes yes",
    "v100-590": "no no no no no",
    "a100-450": "yes no no no no",
    "a100-550": "yes yes yes yes yes",
    "l4-525": "yes yes yes yes yes",
    "h100-535": "slow slow slow no no",
    "rtx3090-470": "yes yes no no no",
    "rtx4090-560": "yes yes yes yes yes",
    "rtx5090-590": "? ? ? no no",
}

NEWEST = {
    "t4-450": "2.14.1",
    "t4-535": "2.21.0",
    "v100-470": "2.14.1",
    "v100-580": "2.21.0",
    "v100-590": None,
    "a100-450": "2.12.1",
    "a100-550": "2.21.0",
    "l4-525": "2.21.0",
    "h100-535": "2.16.2",
    "rtx3090-470": "2.14.1",
    "rtx4090-560": "2.21.0",
    "rtx5090-590": None,
}


def test_the_example_has_twelve_hosts() -> None:
    assert [host.name for host in HOSTS] == list(CELLS)
    assert len(HOSTS) == 12


@pytest.mark.parametrize("host", HOSTS, ids=[host.name for host in HOSTS])
def test_each_cell_is_right(host: FleetHost) -> None:
    cells = place(ENVIRONMENTS, (host,), CATALOG)
    assert " ".join(mark(cell.findings) for cell in cells) == CELLS[host.name]
    assert all(bool(cell.why) == (cell.compatible is not True) for cell in cells)


@pytest.mark.parametrize("host", HOSTS, ids=[host.name for host in HOSTS])
def test_the_newest_for_each_host(host: FleetHost) -> None:
    found = newest(host, CATALOG)
    assert found.tensorflow == NEWEST[host.name]
    assert bool(found.why_not_newer) == (found.tensorflow != "2.21.0")


def test_a_host_without_a_gpu_runs_cpu_environments_only() -> None:
    (cell,) = place(ENVIRONMENTS[-1:], (FleetHost(name="plain"),), CATALOG)
    assert cell.compatible is False
    assert "no NVIDIA driver" in cell.why
    assert newest(FleetHost(name="plain"), CATALOG).tensorflow is None


def test_the_newest_is_one_command() -> None:
    good = CliRunner().invoke(command, ["--newest", "--driver", "470.57.02", "--gpu", "V100", "--format", "json"])
    bad = CliRunner().invoke(command, ["--newest", "--driver", "590.44.01", "--gpu", "V100", "--format", "json"])
    assert (good.exit_code, bad.exit_code) == (0, 4)
    assert json.loads(good.stdout)["newest"][0]["tensorflow"] == "2.14.1"


def test_the_plan_shows_hosts_and_rejections() -> None:
    shown = CliRunner().invoke(command, ["tensorflow", "-s", "tf2.20.0-py311-cu*", "--fleet", str(EXAMPLE)])
    asked = CliRunner().invoke(
        command, ["tensorflow", "-s", "tf2.20.0-py311-cu*", "--fleet", str(EXAMPLE), "--format", "json"]
    )
    document = json.loads(asked.stdout)
    assert shown.exit_code == asked.exit_code == 0
    assert all(host.name in shown.stdout for host in HOSTS)
    assert len(document["cells"]) == len(document["environments"]) * len(HOSTS)


@pytest.mark.parametrize(
    ("host", "runs"),
    [
        (FleetHost(name="stated", driver="570.124.06", gpus=("H100",), arch="aarch64"), False),
        (FleetHost(name="follows", driver="570.124.06", gpus=("GH200",)), False),
        (FleetHost(name="cpu", arch="aarch64"), False),
        (FleetHost(name="same", driver="570.124.06", gpus=("H100",), arch="x86_64"), True),
        (FleetHost(name="open", driver="570.124.06", gpus=("H100",)), True),
    ],
    ids=lambda value: value.name if isinstance(value, FleetHost) else "",
)
def test_an_environment_of_another_machine_runs_nowhere_else(host: FleetHost, runs: bool) -> None:  # noqa: FBT001
    cells = place(ENVIRONMENTS[-1:], (host,), CATALOG)
    assert [Code.ARCH_MISMATCH in {found.code for found in cell.findings} for cell in cells] == [not runs]
    assert all(cell.compatible is runs for cell in cells)


def test_a_branch_with_the_vendor_s_letter_is_the_branch(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text("[{name: a, driver: R535, gpus: [T4]}, {name: b, driver: '535', gpus: [T4]}]")
    ours, theirs = ([cell.findings for cell in place(ENVIRONMENTS, (host,), CATALOG)] for host in read_fleet(path))
    assert ours == theirs
    asked = Axes(tensorflow=("2.18.1",), flavor=("gpu",), os=("debian-bookworm",))
    made = [
        plan(Matrix(name="m", axes=asked, targets=Targets(drivers=(driver,), gpus=("RTX 3090",))), CATALOG)
        for driver in ("R470", "470")
    ]
    assert made[0].rejections == made[1].rejections
    assert made[0].rejections[0].findings[0].code is Code.DRIVER_TOO_OLD


def test_a_cpu_environment_meets_the_machine_too() -> None:
    made = plan(Matrix(name="m", axes=Axes(tensorflow=("2.20.0",), flavor=("cpu",), os=("debian-bookworm",))), CATALOG)
    arm, plain = FleetHost(name="arm", arch="aarch64"), FleetHost(name="plain")
    assert [cell.compatible for cell in place(made.environments, (arm, plain), CATALOG)] == [False, True]


def test_no_release_for_an_arm_board_is_an_answer() -> None:
    found = newest(FleetHost(name="grace", driver="570.124.06", gpus=("GH200",)), CATALOG)
    assert (found.tensorflow, found.compatible) == (None, False)
    assert "aarch64" in found.why_not_newer


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ("--driver 590.44.01 --gpu V100", 4),
        ("--driver 535.104.05 --gpu Foo", 8),
        ("--driver 999.1 --gpu V100", 8),
        ("--driver 580.65.06 --gpu B200", 8),
        ("--driver 580.65.06 --gpu V100", 0),
        ("--driver 535 --gpu V100", 0),
        ("--driver R535 --gpu V100", 0),
    ],
)
def test_none_and_no_claim_are_told_apart(asked: str, code: int) -> None:
    """4 says that nothing works; 8 that the catalogue does not know the GPU, the driver, or what some release does."""
    asked_for = ["--newest", *shlex.split(asked)]
    shown = CliRunner().invoke(command, asked_for)
    found = json.loads(CliRunner().invoke(command, [*asked_for, "--format", "json"]).stdout)["newest"][0]
    assert shown.exit_code == code
    assert found["compatible"] is {0: True, 4: False, 8: None}[code]
    assert ("no claim" in shown.stdout) == (code == 8)
    assert (" none " in shown.stdout) == (code == 4)
