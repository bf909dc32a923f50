"""Describing a host: what NVML answers, what it refuses to answer, and what is there without it."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from envbuilder import host


class FakeNvmlError(Exception):
    """What the binding raises."""


TOTAL = {0: 80 << 30, 1: 16 << 30, "slice": 10 << 30}
NAMES = {0: "NVIDIA H100 80GB HBM3", 1: b"Tesla T4", "slice": "NVIDIA H100 80GB HBM3 MIG 1g.10gb"}
ANSWERS: dict[str, Callable[..., Any]] = {
    "nvmlInit": lambda: None,
    "nvmlShutdown": lambda: None,
    "nvmlSystemGetDriverVersion": lambda: b"535.104.05",
    "nvmlDeviceGetCount": lambda: 2,
    "nvmlDeviceGetHandleByIndex": lambda index: index,
    "nvmlDeviceGetName": lambda handle: NAMES[handle],
    "nvmlDeviceGetCudaComputeCapability": lambda handle: ((9, 0), (7, 5))[handle],
    "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=TOTAL[handle]),
    "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
    "nvmlDeviceGetPersistenceMode": lambda _: 1,
}


def refuse(*_: object) -> None:
    raise FakeNvmlError


def nvml(**answers: Callable[..., Any]) -> SimpleNamespace:
    """Make a driver with two GPUs, standing in for hardware."""
    return SimpleNamespace(NVMLError=FakeNvmlError, **{**ANSWERS, **answers})


def test_gpu_with_mig_is_its_slices() -> None:
    """The first GPU is cut into two slices of seven that there may be."""
    cut = nvml(
        nvmlDeviceGetMigMode=lambda handle: (1, 1) if handle == 0 else (0, 0),
        nvmlDeviceGetMaxMigDeviceCount=lambda _: 7,
        nvmlDeviceGetMigDeviceHandleByIndex=lambda _, index: "slice" if index <= 1 else refuse(),
    )
    assert [(gpu.name, gpu.memory >> 30, gpu.compute_capability) for gpu in host.describe(nvml=cut).gpus] == [
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 10, "9.0"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 10, "9.0"),
        ("Tesla T4", 16, "7.5"),
    ]


def test_host_with_gpus() -> None:
    closed: list[bool] = []
    seen = host.describe(nvml=nvml(nvmlShutdown=lambda: closed.append(True)))
    assert (seen.driver, seen.persistence, closed) == ("535.104.05", True, [True])
    assert [(gpu.name, gpu.compute_capability, gpu.memory >> 30, gpu.uuid) for gpu in seen.gpus] == [
        ("NVIDIA H100 80GB HBM3", "9.0", 80, "GPU-0"),
        ("Tesla T4", "7.5", 16, "GPU-1"),
    ]


@pytest.mark.parametrize("question", ANSWERS)
def test_one_refused_question_costs_its_answer_alone(question: str) -> None:
    seen = host.describe(nvml=nvml(**{question: refuse}))
    whole = host.describe(nvml=nvml())
    same = [name for name in ("kernel", "cpus", "cpu_model", "memory") if getattr(seen, name) == getattr(whole, name)]
    assert len(same) == 4
    unlisted = {"nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"}
    assert len(seen.gpus) == (0 if question in unlisted else 2)
    assert (seen == whole) == (question == "nvmlShutdown")


def test_persistence_is_that_of_every_gpu() -> None:
    assert host.describe(nvml=nvml(nvmlDeviceGetPersistenceMode=lambda handle: 1 - handle)).persistence is False


def test_driver_without_nvml_is_still_seen(tmp_path: Path) -> None:
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/version").write_text("450.80.02\n")
    assert host.describe(tmp_path, nvml(nvmlInit=refuse)).driver == "450.80.02"


def test_unknown_host_has_empty_fields(tmp_path: Path) -> None:
    seen = host.describe(tmp_path, nvml(nvmlInit=refuse))
    assert (seen.driver, seen.gpus, seen.memory, seen.persistence) == (None, (), 0, None)
    assert msgspec.json.decode(msgspec.json.encode(seen), type=type(seen)) == seen


def test_this_host() -> None:
    seen = host.describe()
    assert seen.cpus >= 1
    assert seen.memory > 1 << 28
    assert seen.kernel
    assert seen.cpu_model


@pytest.mark.parametrize(("flags", "answer"), [("fpu avx avx2", True), ("fpu sse4_2", False), (None, None)])
def test_avx_is_read_from_the_processors_flags(tmp_path: Path, flags, answer) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(f"flags\t\t: {flags}\n" if flags else "processor: 0\n")
    assert host.has_avx(tmp_path) is answer
