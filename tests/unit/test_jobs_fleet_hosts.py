"""Fleet files from clusters: Kubernetes' labels and Slurm's words, read back by the one reader of fleet files."""

import json
from pathlib import Path

import pytest
from command_line import ran
from hypothesis import given
from hypothesis import strategies as st

from envbuilder.catalog.store import load
from envbuilder.choice import read_fleet
from envbuilder.compat.fleet import advertised, asked_of, is_of_class
from envbuilder.errors import InputError, UsageError
from envbuilder.jobs.fleet.hosts import as_yaml, of_kubernetes, of_slurm

OLDER = {
    "kubernetes.io/arch": "amd64",
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/cuda.driver.major": "535",
    "nvidia.com/cuda.driver.minor": "104",
    "nvidia.com/cuda.driver.rev": "05",
}
NEWER = {
    "kubernetes.io/arch": "arm64",
    "nvidia.com/gpu.product": "NVIDIA-GH200-480GB",
    "nvidia.com/gpu.count": "1",
    "nvidia.com/cuda.driver-version.full": "570.124.06",
    "nvidia.com/cuda.driver.major": "570",
}


def nodes(**labels: dict[str, str]) -> bytes:
    """Write what kubectl prints, as far as it is read."""
    items = [{"kind": "Node", "metadata": {"name": name, "labels": own}, "spec": {}} for name, own in labels.items()]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()


def test_nodes_of_kubernetes_are_kinds_with_selectors(tmp_path: Path) -> None:
    """Alike nodes are one row with its count; the labels that tell a kind select it; the file reads back the same."""
    found = of_kubernetes(nodes(a=OLDER, b=OLDER, c=NEWER, d={"kubernetes.io/arch": "amd64"}))
    assert [(one.name, one.count, one.driver, set(one.gpus), one.arch) for one in found.fleet] == [
        ("a", 2, "535.104.05", {"NVIDIA-A100-SXM4-80GB"}, "x86_64"),
        ("c", 1, "570.124.06", {"NVIDIA-GH200-480GB"}, "aarch64"),
        ("d", 1, None, set(), "x86_64"),
    ]
    assert len(found.fleet[0].gpus) == 8
    assert found.fleet[0].labels["nvidia.com/cuda.driver.rev"] == "05"
    assert found.fleet[1].labels["nvidia.com/cuda.driver-version.full"] == "570.124.06"
    assert not found.left_out
    (tmp_path / "fleet.yaml").write_text(as_yaml(found.fleet))
    assert read_fleet(tmp_path / "fleet.yaml") == found.fleet


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ({**OLDER, "nvidia.com/gpu.product": ""}, "GPU"),
        ({key: value for key, value in OLDER.items() if "driver" not in key}, "driver"),
        ({**OLDER, "kubernetes.io/arch": "s390x"}, "s390x"),
        ({}, "unknown"),
    ],
)
def test_node_without_a_label_is_left_out_by_name(labels: dict[str, str], why: str) -> None:
    """A GPU without its driver is no CPU host: the node is named with what is missing, never guessed."""
    found = of_kubernetes(nodes(odd=labels))
    assert found.fleet == ()
    assert found.left_out[0].startswith("odd: ")
    assert why in found.left_out[0]


def test_nodes_of_slurm_are_kinds_with_constraints(tmp_path: Path) -> None:
    """A node of two partitions is one; models come from the resources, drivers from a feature; the file reads back."""
    text = (
        "n1|gpu:a100:4(S:0-1)|a100,driver-535.104.05\n"
        "n1|gpu:a100:4(S:0-1)|a100,driver-535.104.05\n"
        "n2|gpu:a100:4(S:0-1)|a100,driver-535.104.05\n"
        "n3|gpu:h100:8,craynetwork:4|nvidia_550\n"
        "n4|(null)|(null)\n"
        "n5|gpu:4|driver-535\n"
        "n6|gpu:t4:1|t4\n"
    )
    found = of_slurm(text.encode())
    assert [(one.name, one.count, one.driver, one.gpus, one.constraint) for one in found.fleet] == [
        ("n1", 2, "535.104.05", ("a100",), "a100&driver-535.104.05"),
        ("n3", 1, "550", ("h100",), "nvidia_550"),
        ("n4", 1, None, (), ""),
    ]
    assert [line.partition(":")[0] for line in found.left_out] == ["n5", "n6"]
    (tmp_path / "fleet.yaml").write_text(as_yaml(found.fleet))
    assert read_fleet(tmp_path / "fleet.yaml") == found.fleet


@given(st.binary(max_size=60))
def test_any_bytes_are_a_fleet_or_a_usage_error(data: bytes) -> None:
    """What a pipe brings never ends in a traceback."""
    for read in (of_kubernetes, of_slurm):
        try:
            read(data)
        except UsageError:
            continue


def test_command_writes_the_file_and_says_what_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file goes to standard output, what is left out to standard error."""
    (tmp_path / "nodes.json").write_bytes(nodes(a=OLDER, b={}))
    code, out, err = ran(capsys, "fleet", "hosts", "kubernetes", str(tmp_path / "nodes.json"))
    assert code == 0
    assert out.startswith("- {")
    assert "left out: b" in err


def test_worker_advertises_the_classes_that_jobs_ask_for() -> None:
    """Its driver and each prefix of it, as words that Dask's command line does not split."""
    catalog = load()
    h100, rtx, plain = (
        advertised("535.104.05", ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"), "x86_64", catalog),
        advertised("550.54.15", ("NVIDIA GeForce RTX 4090",), "x86_64", catalog),
        advertised(None, (), "x86_64", catalog),
    )
    assert all(" " not in kind and "=" not in kind for kinds in (h100, rtx, plain) for kind in kinds)
    for gpu, driver in (("H100", "535"), ("H100", "535.104"), ("H100", "535.104.05")):
        assert asked_of(gpu, driver, "x86_64") in h100
    assert asked_of("H100", "53", "x86_64") not in h100
    assert asked_of("GeForce RTX 4090", "550", "x86_64") in rtx
    assert list(plain) == [asked_of("", "", "x86_64")]


def test_slice_is_a_kind_of_its_own() -> None:
    """By NVML's name and by Kubernetes' label it is the same slice, and neither another slice nor the whole GPU."""
    catalog = load()
    slices = ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "A100 MIG 1g.5gb")
    assert {catalog.gpu_model(text) for text in slices} == {"A100 MIG 1g.5gb"}
    assert catalog.gpu_model("NVIDIA A100-SXM4-40GB") == "A100"
    assert catalog.gpu_model("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb.me") == "A100 MIG 1g.10gb+me"
    assert catalog.gpu("A100 MIG 1g.5gb") is catalog.gpu("A100"), (
        "what the rules know of it is what they know of its GPU"
    )
    for seen, same in (((slices[0],), True), (("NVIDIA A100-SXM4-40GB",), False), (("A100 MIG 2g.10gb",), False)):
        assert is_of_class("A100 MIG 1g.5gb", "550", "550.54.15", seen, catalog) is same
    assert not is_of_class("A100", "550", "550.54.15", slices[:1], catalog), "a slice does not prove the whole"


@pytest.mark.parametrize(
    ("text", "line", "key", "says"),
    [
        ("- {name: a}\n- {name: a, count: 2}\n", 1, "name", "2 hosts have the name a: join them with count"),
        ("- {name: b}\n- {name: a, gpus: [H100]}\n", 2, "driver", "a has GPUs: give its driver too, such as 535"),
        ("- {name: a, driver: '535'}\n", 1, "gpus", "a has a driver: give its gpus too, such as [A100]"),
        ("- {name: a, driver: '535', gpus: [A1000X]}\n", 1, "gpus", "did you mean A100X or"),
        ("- {name: a, driver: '535', gpus: [H10O]}\n", 1, "gpus", "did you mean H100?"),
        ("- {name: a, driver: '535', gpus: [zzzz]}\n", 1, "gpus", "see envbuilder catalog list gpus"),
    ],
)
def test_host_that_no_host_can_be_is_a_problem_with_its_line(
    tmp_path: Path, text: str, line: int, key: str, says: str
) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_fleet(path, load())
    (problem,) = error.value.problems
    assert (problem.line, problem.key, says in problem.message) == (line, key, True), problem
