"""The probe of the driver, asked on simulated hosts as it is in an image: what it sees, and how it names it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from simulated_hosts import ROOT, answers

FACTS = {
    "minimum_driver": "525.60.13",
    "cuda": "12.5",
    "simulated": True,
    "cubins": ["6.0", "7.0", "8.0", "8.9", "9.0"],
    "ptx": ["9.0"],
}
PROGRAM = """
import json, sys
from envbuilder.probes.suite import driver, elf, gpu_code, tensorflow_install
if sys.argv[2] == "generated":
    tensorflow_install.callers = lambda search: [elf.Elf(sys.argv[3])]
probe = {"identity": driver.identity, "contexts": driver.contexts, "generated": gpu_code.loaded}[sys.argv[2]]
print(json.dumps(probe(json.loads(sys.argv[1]))))
"""
KERNELS = ROOT / "tests" / "data" / "device_code" / "libkernels.so"
"""Among its constants: two generated fat binaries, with machine code for 7.5 and PTX of ISA 9.0 for sm_90a."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the driver's libraries are ELF files")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def identity(host: str, cache: Path, place: Path, probe: str = "identity") -> dict[str, Any]:
    return answers(host, PROGRAM, json.dumps(FACTS), probe, str(KERNELS), cache=cache, place=place)


@pytest.mark.parametrize(
    ("host", "outcome", "codes"),
    [
        ("driver=535.104.05,gpu=A100,gpus=8", "passed", []),
        ("driver=580.65.06,gpu=H100", "passed", []),
        ("driver=470.57.02,gpu=A100", "failed", ["DRIVER_TOO_OLD"]),
        ("driver=470.57.02,libcuda=555.42.02,gpu=A100", "passed", ["DRIVER_FORWARD_COMPAT"]),
        ("driver=535.104.05,libcuda=555.42.02,gpu=GeForce RTX 3090", "failed", ["DRIVER_FORWARD_COMPAT"]),
        ("driver=535.104.05,gpu=A100,fail=driver-mismatch", "failed", ["DRIVER_MISMATCH"]),
        ("driver=535.104.05,gpu=A100,fail=no-device", "failed", ["GPU_NOT_VISIBLE"]),
        ("driver=535.104.05,gpu=A100,fail=hidden", "failed", ["GPU_NOT_VISIBLE"]),
        ("driver=535.104.05,gpu=A100,fail=not-ready", "failed", ["GPU_NOT_VISIBLE"]),
        ("driver=535.104.05,gpu=A100,fail=unknown-error", "failed", ["GPU_NOT_VISIBLE"]),
        ("driver=535.104.05,gpu=A100,fail=stub", "failed", ["STUB_LIBCUDA"]),
        ("driver=535.104.05,gpu=A100,fail=no-nvml", "failed", ["GPU_NOT_VISIBLE"]),
        ("driver=535.104.05,gpu=GTX 980", "failed", ["NO_KERNEL_IMAGE"]),
        ("driver=535.104.05,gpu=GTX 980,gpu=A100", "failed", ["NO_KERNEL_IMAGE"]),
        ("driver=590.44.01,gpu=V100", "failed", ["GPU_NOT_VISIBLE"]),
    ],
)
def test_each_host_is_named_by_its_code(host: str, outcome: str, codes: list[str], cache: Path, tmp_path: Path) -> None:
    answer = identity(host, cache, tmp_path)
    assert [finding["code"] for finding in answer["findings"]] == codes, answer
    assert answer["outcome"] == outcome


def test_hosts_gpus_are_described(cache: Path, tmp_path: Path) -> None:
    data = identity("driver=535.104.05,gpu=A100,gpu=T4,memory=12", cache, tmp_path)["data"]
    assert (data["driver"], data["cuda"], data["count"]) == ("535.104.05", "12.2", 2)
    assert [gpu["compute_capability"] for gpu in data["gpus"]] == ["8.0", "7.5"]
    assert {gpu["memory"] for gpu in data["gpus"]} == {12 << 30}
    assert len({gpu["uuid"] for gpu in data["gpus"]}) == 2
    assert [gpu["persistence"] for gpu in data["gpus"]] == [True, True]


@pytest.mark.parametrize(
    ("host", "outcome", "codes"),
    [
        ("gpus=2", "passed", []),
        ("fail=no-nvml", "passed", []),
        ("fail=busy", "failed", ["GPU_NOT_VISIBLE"]),
        ("fail=ecc", "failed", ["GPU_ERRORS"]),
        ("gpus=2,fail=out-of-memory", "failed", ["GPU_MEMORY", "GPU_MEMORY"]),
        ("fail=cuMemAlloc_v2:2", "failed", ["GPU_MEMORY"]),
        ("fail=cuCtxPushCurrent_v2:201", "failed", ["GPU_NOT_VISIBLE"]),
        ("fail=no-device", "skipped", []),
        ("fail=hidden", "skipped", []),
    ],
)
def test_contexts_are_made(host: str, outcome: str, codes: list[str], cache: Path, tmp_path: Path) -> None:
    answer = identity(f"driver=535.104.05,gpu=A100,{host}", cache, tmp_path, "contexts")
    assert [finding["code"] for finding in answer["findings"]] == codes, answer
    assert answer["outcome"] == outcome


@pytest.mark.parametrize(
    ("host", "codes"),
    [
        ("driver=535.104.05,gpu=T4", []),
        ("driver=580.65.06,gpu=H100", []),
        ("driver=570.124.06,gpu=H100", ["PTX_TOO_NEW"]),
        ("driver=580.65.06,gpu=A100", ["NO_KERNEL_IMAGE"]),
        ("driver=580.65.06,gpu=RTX 5090", ["NO_KERNEL_IMAGE"]),
        ("driver=570.124.06,gpu=T4,gpu=H100", ["PTX_TOO_NEW"]),
        ("driver=535.104.05,gpu=H100,fail=ecc", []),
    ],
)
def test_generated_kernels_are_handed_to_the_driver(host: str, codes: list[str], cache: Path, tmp_path: Path) -> None:
    answer = identity(host, cache, tmp_path, "generated")
    assert [finding["code"] for finding in answer["findings"]] == codes, answer
    assert answer["measurements"]["generated_kernels"]["value"] == 2
