"""Describing a host: what NVML answers, what it refuses to answer, and what is there without it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from envbuilder import host


class FakeNvmlError(Exception):
    """What the binding raises."""


class FakeNvml:
    """A driver with two GPUs, standing in for hardware; ``refuses`` names the questions that it does not know."""

    NVMLError = FakeNvmlError

    def __init__(self, *refuses: str, persistence: tuple[int, ...] = (1, 1)) -> None:
        self.refuses, self.persistence, self.open = refuses, persistence, False

    def __getattribute__(self, name: str):
        if name.startswith("nvml") and name in object.__getattribute__(self, "refuses"):

            def refuse(*_):
                raise FakeNvmlError(name)

            return refuse
        return object.__getattribute__(self, name)

    def nvmlInit(self):  # noqa: N802 - the binding's names
        self.open = True

    def nvmlShutdown(self):  # noqa: N802
        self.open = False

    def nvmlSystemGetDriverVersion(self):  # noqa: N802
        return b"535.104.05"

    def nvmlDeviceGetCount(self):  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle):  # noqa: N802
        return ("NVIDIA H100 80GB HBM3", b"Tesla T4")[handle]

    def nvmlDeviceGetCudaComputeCapability(self, handle):  # noqa: N802
        return ((9, 0), (7, 5))[handle]

    def nvmlDeviceGetMemoryInfo(self, handle):  # noqa: N802
        return SimpleNamespace(total=(80 << 30, 16 << 30)[handle])

    def nvmlDeviceGetUUID(self, handle):  # noqa: N802
        return f"GPU-{handle}"

    def nvmlDeviceGetPersistenceMode(self, handle):  # noqa: N802
        return self.persistence[handle]


class CutNvml(FakeNvml):
    """The first GPU is cut into two slices of seven that there may be."""

    def nvmlDeviceGetMigMode(self, handle):  # noqa: N802
        return (1, 1) if handle == 0 else (0, 0)

    def nvmlDeviceGetMaxMigDeviceCount(self, _):  # noqa: N802
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, _, index):  # noqa: N802
        if index > 1:
            raise FakeNvmlError("no such slice")
        return f"slice {index}"

    def nvmlDeviceGetName(self, handle):  # noqa: N802
        return (
            ("NVIDIA H100 80GB HBM3", "Tesla T4")[handle]
            if isinstance(handle, int)
            else "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
        )

    def nvmlDeviceGetMemoryInfo(self, handle):  # noqa: N802
        return SimpleNamespace(total=((80 if handle == 0 else 16) if isinstance(handle, int) else 10) << 30)


def test_gpu_that_is_cut_is_its_slices() -> None:
    gpus = host.describe(nvml=CutNvml()).gpus
    assert [(gpu.name, gpu.memory >> 30, gpu.compute_capability) for gpu in gpus] == [
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 10, "9.0"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 10, "9.0"),
        ("Tesla T4", 16, "7.5"),
    ]


def test_host_with_gpus() -> None:
    nvml = FakeNvml()
    seen = host.describe(nvml=nvml)
    assert seen.driver == "535.104.05"
    assert [(gpu.name, gpu.compute_capability, gpu.memory >> 30, gpu.uuid) for gpu in seen.gpus] == [
        ("NVIDIA H100 80GB HBM3", "9.0", 80, "GPU-0"),
        ("Tesla T4", "7.5", 16, "GPU-1"),
    ]
    assert seen.persistence is True
    assert not nvml.open


@pytest.mark.parametrize("question", [name for name in dir(FakeNvml) if name.startswith("nvml")])
def test_one_refused_question_costs_its_answer_alone(question: str) -> None:
    seen = host.describe(nvml=FakeNvml(question))
    whole = host.describe(nvml=FakeNvml())
    same = [name for name in ("kernel", "cpus", "cpu_model", "memory") if getattr(seen, name) == getattr(whole, name)]
    assert len(same) == 4
    unlisted = {"nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"}
    assert len(seen.gpus) == (0 if question in unlisted else 2)
    assert (seen == whole) == (question == "nvmlShutdown")


def test_persistence_is_that_of_every_gpu() -> None:
    assert host.describe(nvml=FakeNvml(persistence=(1, 0))).persistence is False


def test_driver_without_nvml_is_still_seen(tmp_path: Path) -> None:
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/version").write_text("450.80.02\n")
    assert host.describe(tmp_path, FakeNvml("nvmlInit")).driver == "450.80.02"


def test_unknown_host_is_described_by_nothing(tmp_path: Path) -> None:
    seen = host.describe(tmp_path, FakeNvml("nvmlInit"))
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
