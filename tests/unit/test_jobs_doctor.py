"""Describing a host by what NVML answers or refuses to; and what `doctor` concludes, on hosts that are not this one."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from fake_engine import FakeEngine, no_engine
from table_rows import beside, rows

from envbuilder import host
from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.engine.port import Engine
from envbuilder.jobs.doctor import Diagnosis, Tool, as_text, diagnose
from envbuilder.verdict import HostRef
from envbuilder.workspace import Workspace

CATALOG = load()
GPU_HOST = msgspec.convert(beside(__file__)["GPU_HOST"], HostRef)
TOOLS = (Tool(name="uv", path="/usr/bin/uv", purpose=""), Tool(name="mmdebstrap", path=None, purpose=""))


def doctor(
    host: HostRef, connect: Callable[[], Engine] = no_engine, *, avx: bool | None = True, arch: str = "x86_64"
) -> Diagnosis:
    """Diagnose a host for the vetted environments of TensorFlow 2.20.0 on Python 3.11."""
    choice = choose("tensorflow", ("tf2.20.0-py311-*",), Workspace(Path("/nonexistent")), load())
    return diagnose(
        host,
        connect,
        avx=avx,
        arch=arch,
        base=next(system for system in CATALOG.systems if system.name == "debian-bookworm"),
        tools=TOOLS,
        places=(),
        environments=choice.environments,
        catalog=CATALOG,
    )


def runs(diagnosis: Diagnosis) -> dict[str, bool | None]:
    return {"cpu" if "cpu" in cell.environment else "gpu": cell.compatible for cell in diagnosis.environments}


def said(diagnosis: Diagnosis) -> str:
    """Join the troubles; each must say what mends it."""
    assert all(trouble.fix for trouble in diagnosis.troubles)
    return "\n".join(trouble.what for trouble in diagnosis.troubles)


def test_good_host_runs_everything_without_trouble() -> None:
    engine = FakeEngine(gpu_runtime=True)
    engine.registry["debian:bookworm-slim"] = engine.add("debian:bookworm-slim")
    found = doctor(GPU_HOST, lambda: engine)
    assert runs(found) == {"cpu": True, "gpu": True}
    assert found.registry is True
    assert found.troubles == ()


def test_without_an_engine_the_rest_is_still_answered() -> None:
    found = doctor(GPU_HOST)
    assert (found.engine, found.registry) == (None, None)
    assert "no container engine" in said(found)
    assert runs(found)["gpu"] is True
    assert "environments would run here with an engine" in as_text(found)


@rows
def test_environments_that_do_not_run_have_their_reason(
    host: HostRef, more: dict[str, Any], expected: tuple[bool, bool | None], words: tuple[str, ...]
) -> None:
    found = doctor(host, **more)
    assert tuple(runs(found).values()) == expected
    reasons = [cell.why for cell in found.environments if cell.compatible is not True]
    assert all(word in why for why in reasons for word in words), reasons
    assert ("AVX" in said(found)) is ("AVX" in words)


@rows
def test_troubles_are_named(host: HostRef, words: str) -> None:
    assert said(doctor(host, FakeEngine)).count(words) == 1


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
