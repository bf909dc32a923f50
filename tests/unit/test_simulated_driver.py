"""The simulated driver: compiled, loaded by a fresh process, and asked as programs and the suite's probes ask it."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from table_rows import beside, rows

from envbuilder import versions
from envbuilder.catalog.store import load
from envbuilder.errors import InfrastructureError, NoClaimError, UsageError
from envbuilder.simulated import compiler
from envbuilder.simulated import profile as profiles
from envbuilder.simulated.compiler import STUB, compiled
from envbuilder.simulated.profile import Profile

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the driver's libraries are ELF files")

ROOT = Path(__file__).parents[2]
PROGRAMS = beside(__file__)


def answers(host: str, program: str, *words: str, cache: Path, place: Path, **variables: str) -> dict[str, Any]:
    """Write the simulated driver to a folder, and run a Python program that prints JSON."""
    simulation = compiler.simulation(profiles.parse(host, load()), cache=cache, root=str(place))
    for name, content in simulation.files.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_bytes(content)
    environment = {**simulation.environment(dict(os.environ)), "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


OLDEST_GLIBC = "2.17"
"""What the wheels of TensorFlow 2.10 and newer ask for (manylinux2014): no image is older than that."""


def test_program_gets_as_far_as_launching_a_kernel(cache: Path, tmp_path: Path) -> None:
    seen = answers(
        "driver=535.104.05,gpu=NVIDIA A100-SXM4-80GB,gpus=2,memory=80", PROGRAMS["cuda"], cache=cache, place=tmp_path
    )
    assert seen["cuInit"] == 0
    assert (seen["version"], seen["count"], seen["name"]) == (12020, 2, "NVIDIA A100-SXM4-80GB")
    assert seen["capability"] == [8, 0]
    assert seen["back"] == "through the device"
    assert seen["total"] == 80 << 30
    assert seen["free"] <= (80 << 30) - (1 << 36)
    assert (seen["second"], seen["twice"]) == (2, 1), "80 GiB do not hold two blocks of 64; freed twice is an error"
    assert (seen["plain"], seen["newer_ptx"], seen["newer_gpu"]) == (0, 222, 218)
    assert (seen["cuLaunchKernel"], seen["cuGraphCreate"]) == (801, 801)
    assert seen["known"] == [0, True, 0]
    assert seen["unknown"] == [0, 1]


GENERATED = Path(__file__).parents[1] / "data" / "device_code" / "generated_2.20.fatbin"
"""A kernel that MLIR generated: machine code for 6.0, 7.0, 8.0 and 8.9, PTX of ISA 8.5 for sm_90a, packed by LZ4."""


@rows
def test_generated_kernel_is_taken_as_by_the_real_driver(host: str, result: int, cache: Path, tmp_path: Path) -> None:
    """Machine code first, then PTX: refused by its ISA (222) or, for sm_90a, on every GPU but 9.0 (209).

    A bundle that is spoilt from some byte on ends in an answer, too.
    """
    whole, bundles = GENERATED.read_bytes(), [GENERATED]
    for cut in (17, 60, 100, 4000):
        bundles.append(tmp_path / str(cut))
        bundles[-1].write_bytes(whole[:cut] + b"\xff" * (len(whole) - cut))
    program = PROGRAMS["bundle"].format(list(map(str, bundles)))
    found, *spoilt = answers(host, program, cache=cache, place=tmp_path)["results"]
    assert found == result
    assert set(spoilt) <= {0, 200, 209, 218, 222}


RECORDED = ROOT / "tests" / "data" / "driver"
OF_A_MODEL = ("13", "16", "33", "36", "37", "38", "134")
"""Attributes that say how large, how fast and where a GPU is: the catalogue does not know them."""


def test_simulated_driver_answers_as_a_real_one(cache: Path, tmp_path: Path) -> None:
    """A real H200 was asked the same; what the simulated driver does not know it leaves out or calls not supported."""
    recorded = json.loads((RECORDED / "h200-580.159.04.json").read_bytes())
    with zipfile.ZipFile(RECORDED / "code.zip") as archive:
        archive.extractall(tmp_path / "code")
    program = (ROOT / "tests" / "support" / "driver_questions.py").read_text()
    seen = answers("driver=580.159.04,gpu=NVIDIA H200", program, str(tmp_path / "code"), cache=cache, place=tmp_path)
    assert len(seen["errors"]) > 50
    recorded["errors"] = {code: recorded["errors"][code] for code in seen["errors"]}
    real, own = recorded["devices"].pop("attributes"), seen["devices"].pop("attributes")
    assert seen == recorded
    supported = [number for number, (_, value) in own.items() if value and number not in OF_A_MODEL]
    assert len(supported) > 30
    assert {number: own[number] for number in supported} == {number: real[number] for number in supported}


@rows
def test_failed_start_makes_a_driver_unusable(fail: str, code: int, sentence: str, cache: Path, tmp_path: Path) -> None:
    seen = answers(f"driver=535.104.05,gpu=A100,fail={fail}", PROGRAMS["cuda"], cache=cache, place=tmp_path)
    assert (seen["cuInit"], seen["sentence"]) == (code, sentence)
    assert seen["cuDeviceGetCount"] == 3
    assert seen["cuDriverGetVersion"] == 0, "the version can be asked for without a device"


@rows
def test_visible_devices_limit_cuda_and_not_nvml(visible: str, names: list[str], cache: Path, tmp_path: Path) -> None:
    """CUDA_VISIBLE_DEVICES selects and orders; without any the driver reports no device."""
    text = "driver=535.104.05,gpu=NVIDIA A100-SXM4-40GB,gpu=NVIDIA H100 PCIe"
    seen = answers(text, PROGRAMS["cuda"], cache=cache, place=tmp_path, CUDA_VISIBLE_DEVICES=visible)
    assert seen["cuInit"] == (0 if names else 100)
    if names:
        assert (seen["count"], seen["name"]) == (len(names), names[0])
    assert answers(text, PROGRAMS["nvml"], cache=cache, place=tmp_path, CUDA_VISIBLE_DEVICES=visible)["count"] == 2


def test_nvml_tells_what_cuda_tells(cache: Path, tmp_path: Path) -> None:
    text = "driver=535.104.05,gpu=A100,gpu=H100,fail=ecc"
    seen = answers(text, PROGRAMS["nvml"], cache=cache, place=tmp_path)
    host = profiles.parse(text, load())
    assert (seen["driver"], seen["count"]) == ("535.104.05", 2)
    assert [gpu["name"] for gpu in seen["gpus"]] == [gpu.name for gpu in host.visible]
    assert [gpu["memory"] for gpu in seen["gpus"]] == [gpu.memory for gpu in host.visible]
    assert [gpu["capability"] for gpu in seen["gpus"]] == [[8, 0], [9, 0]]
    assert [gpu["errors"] for gpu in seen["gpus"]] == [1, 1]
    assert len({gpu["uuid"] for gpu in seen["gpus"]}) == len({gpu["bus"] for gpu in seen["gpus"]}) == 2


def test_nvml_refuses_another_versions_module(cache: Path, tmp_path: Path) -> None:
    seen = answers("driver=535.104.05,gpu=A100,fail=driver-mismatch", PROGRAMS["nvml"], cache=cache, place=tmp_path)
    assert seen == {"error": "Driver/library version mismatch", "code": 18}


@pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump reads the libraries back")
def test_libraries_load_in_old_images(cache: Path, tmp_path: Path) -> None:
    """They need only the C library, and no symbol that is newer than in the oldest image."""
    for name, content in compiled(cache).items():
        path = tmp_path / Path(name).name
        path.write_bytes(content)
        text = subprocess.run(["objdump", "-p", "-T", str(path)], capture_output=True, text=True, check=True).stdout
        needed_files = [name for name in re.findall(r"NEEDED +(\S+)", text) if not name.startswith("ld-linux")]
        assert set(needed_files) <= {"libc.so.6"}
        needed = set(re.findall(r"GLIBC_([0-9.]+)", text))
        assert all(versions.at_least(OLDEST_GLIBC, version) for version in needed), needed
        exported = re.findall(r"\.text\s+\S+\s+(?:Base\s+)?(\S+)$", text, re.MULTILINE)
        assert exported
        assert all(name.startswith(("cu", "nvml")) for name in exported), "only the driver's interface is exported"


def test_images_own_paths_come_after_the_simulated_driver(cache: Path) -> None:
    simulation = compiler.simulation(profiles.parse("driver=535.104.05,gpu=A100,fail=no-nvml", load()), cache=cache)
    merged = simulation.environment({"LD_LIBRARY_PATH": "/usr/local/cuda/lib64", "HOME": "/root"})
    assert merged["LD_LIBRARY_PATH"] == "/envbuilder/simulated:/usr/local/cuda/lib64"
    assert set(simulation.files) == {"simulated/libcuda.so.1", "simulated/profile"}


FACTS = PROGRAMS["facts"]
KERNELS = ROOT / "tests" / "data" / "device_code" / "libkernels.so"
"""Among its constants: two generated fat binaries, with machine code for 7.5 and PTX of ISA 9.0 for sm_90a."""


def identity(host: str, cache: Path, place: Path, probe: str = "identity") -> dict[str, Any]:
    return answers(host, PROGRAMS["probe"], json.dumps(FACTS), probe, str(KERNELS), cache=cache, place=place)


@rows
def test_each_host_is_named_by_its_code(host: str, outcome: str, codes: list[str], cache: Path, tmp_path: Path) -> None:
    answer = identity(host, cache, tmp_path)
    assert [finding["code"] for finding in answer["findings"]] == codes, answer
    assert answer["outcome"] == outcome


@rows
def test_only_another_drivers_library_carries_forward(name: str, codes: list[str], cache: Path, tmp_path: Path) -> None:
    """CUDA 11.2 needs driver 450.80.02; 450.51.06 has CUDA 11.0. The version is read from the file's name."""
    host, facts = "driver=450.51.06,gpu=A100", json.dumps({**FACTS, "minimum_driver": "450.80.02", "cuda": "11.2"})
    program = PROGRAMS["probe"] if name == "libcuda.so.1" else PROGRAMS["rename"].format(name) + PROGRAMS["probe"]
    answer = answers(host, program, facts, "identity", "", cache=cache, place=tmp_path)
    assert [finding["code"] for finding in answer["findings"]] == codes


def test_hosts_gpus_are_described(cache: Path, tmp_path: Path) -> None:
    data = identity("driver=535.104.05,gpu=A100,gpu=T4,memory=12", cache, tmp_path)["data"]
    assert (data["driver"], data["cuda"], data["count"]) == ("535.104.05", "12.2", 2)
    assert [gpu["compute_capability"] for gpu in data["gpus"]] == ["8.0", "7.5"]
    assert {gpu["memory"] for gpu in data["gpus"]} == {12 << 30}
    assert len({gpu["uuid"] for gpu in data["gpus"]}) == 2
    assert [gpu["persistence"] for gpu in data["gpus"]] == [True, True]


@rows
def test_contexts_are_made(host: str, outcome: str, codes: list[str], cache: Path, tmp_path: Path) -> None:
    answer = identity(f"driver=535.104.05,gpu=A100,{host}", cache, tmp_path, "contexts")
    assert [finding["code"] for finding in answer["findings"]] == codes, answer
    assert answer["outcome"] == outcome


@rows
def test_generated_kernels_are_handed_to_the_driver(host: str, codes: list[str], cache: Path, tmp_path: Path) -> None:
    answer = identity(host, cache, tmp_path, "generated")
    assert [finding["code"] for finding in answer["findings"]] == codes, answer
    assert answer["measurements"]["generated_kernels"]["value"] == 2


def test_cache_serves_the_same_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compiled(tmp_path)
    (folder,) = tmp_path.iterdir()
    (folder / STUB).write_bytes(b"from the cache")
    assert compiled(tmp_path) == {**first, STUB: b"from the cache"}
    monkeypatch.setattr(compiler, "_FLAGS", (*compiler._FLAGS, "-Wl,--no-as-needed"))
    assert compiled(tmp_path)[STUB] != b"from the cache"
    assert len(list(tmp_path.iterdir())) == 2
    assert all(path.name.startswith("simulated-") for path in tmp_path.iterdir()), "no half-made folder is left"


@rows
def test_broken_compiler_is_named(
    variables: dict[str, str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\n[ $1 = --version ] || { echo no such target >&2; exit 1; }\n")
    broken.chmod(0o755)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.replace("FOLDER", str(tmp_path)))
    with pytest.raises(InfrastructureError, match=why):
        compiled(tmp_path / "cache")
    assert not any((tmp_path / "cache").glob("*"))


def parse(text: str) -> Profile:
    return profiles.parse(text, load())


def test_driver_brings_its_branchs_cuda_and_the_gpu_its_capability() -> None:
    host = parse("driver=470.57.02,gpu=A100,gpus=8")
    assert (host.driver, host.libcuda, host.cuda) == ("470.57.02", "470.57.02", "11.4")
    assert len(host.gpus) == len(host.visible) == 8
    assert host.gpus[0].compute_capability == "8.0"
    assert host.gpus[0].name.startswith("NVIDIA A100")
    assert parse("driver=535.104.05,gpu=NVIDIA A100-SXM4-80GB").gpus[0].name == "NVIDIA A100-SXM4-80GB"
    assert host.forced == ()
    assert parse("driver=470.57.02,libcuda=555.42.02,gpu=A100").cuda == "12.5"


@rows
def test_answers_follow_from_the_failure_or_the_combination(text: str, forced: list[list[Any]]) -> None:
    """A library newer than the kernel module works only as forward compatibility allows."""
    assert parse(text).forced == tuple(map(tuple, forced))


@rows
def test_gpu_that_the_driver_does_not_serve_is_not_visible(text: str) -> None:
    host = parse(text)
    assert len(host.gpus) == 1
    assert host.visible == ()
    assert "gpu " not in profiles.statements(host)


@rows
def test_profile_that_does_not_fit_the_grammar_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as refused:
        parse(text)
    assert profiles.EXAMPLE in refused.value.hint


@pytest.mark.parametrize("text", ["driver=999.1.1,gpu=A100", "driver=470.57.02,gpu=Voodoo 3"])
def test_host_that_the_catalogue_lacks_gives_no_claim(text: str) -> None:
    with pytest.raises(NoClaimError):
        parse(text)
