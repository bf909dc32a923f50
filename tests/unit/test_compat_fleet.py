"""Fleet files: the cells and the newest TensorFlow of twelve hosts, host classes, and mistakes with their line."""

from pathlib import Path
from typing import Any

import pytest
from frozen_catalog import up_to
from table_rows import beside, rows

from envbuilder.choice import read_fleet
from envbuilder.compat.check_text import mark
from envbuilder.compat.fleet import FleetHost, advertised, asked_of, choose_for, is_of_class, place
from envbuilder.compat.plan import plan
from envbuilder.errors import InputError
from envbuilder.finding import Code
from envbuilder.jobs.choose import newest_wanted
from envbuilder.matrix import Axes, Matrix

EXAMPLE = Path(__file__).parents[2] / "examples" / "fleets" / "example.yaml"
HOSTS = read_fleet(EXAMPLE)
CATALOG = up_to()
ENVIRONMENTS = plan(
    Matrix(name="m", axes=Axes(tensorflow=("2.10.1", "2.14.1", "2.15.1", "2.18.1", "2.21.0"), flavor=("gpu",), os=())),
    CATALOG,
).environments


EXPECTED = beside(__file__)["cells and newest release"]


@pytest.mark.parametrize(("host", "expected"), [*zip(HOSTS, EXPECTED.items(), strict=True)], ids=EXPECTED)
def test_each_cell_and_the_newest_release_of_a_host_are_right(host: FleetHost, expected: Any) -> None:
    assert host.name == expected[0]
    shown, release = expected[1]
    cells = place(ENVIRONMENTS, (host,), CATALOG)
    assert " ".join(mark(cell.findings) for cell in cells) == shown
    assert all(bool(cell.why) == (cell.compatible is not True) for cell in cells)
    found = choose_for(newest_wanted(host), host, CATALOG)
    assert (found.environment and found.environment.tensorflow) == release
    assert bool(found.refused) == (release != "2.21.0")


def test_host_without_a_gpu_runs_cpu_environments_only() -> None:
    (cell,) = place(ENVIRONMENTS[-1:], (FleetHost(name="plain"),), CATALOG)
    assert cell.compatible is False
    assert "no NVIDIA driver" in cell.why


CPU = plan(Matrix(name="m", axes=Axes(tensorflow=("2.20.0",), os=("debian-bookworm",))), CATALOG).environments
GPU = ENVIRONMENTS[-1:]


@rows
def test_environment_of_another_machine_runs_nowhere_else(flavor: str, host: FleetHost, *, runs: bool) -> None:
    (cell,) = place(GPU if flavor == "gpu" else CPU, (host,), CATALOG)
    assert (Code.ARCH_MISMATCH in {found.code for found in cell.findings}) is not runs
    assert cell.compatible is runs


def test_branch_with_the_vendor_s_letter_is_the_branch(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text("[{name: a, driver: R535, gpus: [T4]}, {name: b, driver: '535', gpus: [T4]}]")
    ours, theirs = ([cell.findings for cell in place(ENVIRONMENTS, (host,), CATALOG)] for host in read_fleet(path))
    assert ours == theirs


def test_worker_advertises_the_classes_that_jobs_ask_for() -> None:
    """Its driver and each prefix of it, as words that Dask's command line does not split."""
    h100, rtx, plain = (
        advertised("535.104.05", ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"), "x86_64", CATALOG),
        advertised("550.54.15", ("NVIDIA GeForce RTX 4090",), "x86_64", CATALOG),
        advertised(None, (), "x86_64", CATALOG),
    )
    assert all(" " not in kind and "=" not in kind for kinds in (h100, rtx, plain) for kind in kinds)
    for gpu, driver in (("H100", "535"), ("H100", "535.104"), ("H100", "535.104.05")):
        assert asked_of(gpu, driver, "x86_64") in h100
    assert asked_of("H100", "53", "x86_64") not in h100
    assert asked_of("GeForce RTX 4090", "550", "x86_64") in rtx
    assert list(plain) == [asked_of("", "", "x86_64")]


def test_slice_is_a_kind_of_its_own() -> None:
    """By NVML's name and by Kubernetes' label it is the same slice, and neither another slice nor the whole GPU."""
    slices = ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "A100 MIG 1g.5gb")
    assert {CATALOG.gpu_model(text) for text in slices} == {"A100 MIG 1g.5gb"}
    assert CATALOG.gpu_model("NVIDIA A100-SXM4-40GB") == "A100"
    assert CATALOG.gpu_model("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb.me") == "A100 MIG 1g.10gb+me"
    assert CATALOG.gpu("A100 MIG 1g.5gb") is CATALOG.gpu("A100"), (
        "what the rules know of it is what they know of its GPU"
    )
    for seen, same in (((slices[0],), True), (("NVIDIA A100-SXM4-40GB",), False), (("A100 MIG 2g.10gb",), False)):
        assert is_of_class("A100 MIG 1g.5gb", "550", "550.54.15", seen, CATALOG) is same
    assert not is_of_class("A100", "550", "550.54.15", slices[:1], CATALOG), "a slice does not prove the whole"


@rows
def test_host_that_no_host_can_be_is_a_problem_with_its_line(
    tmp_path: Path, text: str, line: int, key: str, says: str
) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_fleet(path, CATALOG)
    (problem,) = error.value.problems
    assert (problem.line, problem.key, says in problem.message) == (line, key, True), problem
