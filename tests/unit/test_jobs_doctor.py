"""What `doctor` concludes from what the ports say, on hosts that are not this one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_engine import FakeEngine

from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.engine.port import Engine
from envbuilder.errors import InfrastructureError
from envbuilder.jobs.doctor import Diagnosis, Tool, as_text, diagnose
from envbuilder.verdict import GpuSeen, HostRef
from envbuilder.workspace import Workspace

CATALOG = load()
H100 = GpuSeen(name="NVIDIA H100 80GB HBM3", compute_capability="9.0", memory=80 << 30)
GPU_HOST = HostRef(driver="570.124.06", gpus=(H100,), cpus=8, persistence=True)
TOOLS = (Tool(name="uv", path="/usr/bin/uv", purpose=""), Tool(name="mmdebstrap", path=None, purpose=""))


def no_engine() -> Engine:
    raise InfrastructureError("no container engine answers", hint="start it")


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


UNKNOWN = GpuSeen(name="NVIDIA Z9999", compute_capability="")


@pytest.mark.parametrize(
    ("changes", "more", "expected", "words"),
    [
        ({}, {"arch": "aarch64"}, (False, False), ("x86_64", "aarch64")),
        ({"driver": "450.80.02"}, {}, (True, False), ("450.80.02",)),
        ({"gpus": (UNKNOWN,)}, {}, (True, None), ("Z9999",)),
        ({}, {"avx": False}, (False, False), ("AVX",)),
    ],
    ids=["another machine", "an old driver", "an unknown GPU", "no AVX"],
)
def test_environments_that_do_not_run_have_their_reason(
    changes: dict[str, Any], more: dict[str, Any], expected: tuple[bool, bool | None], words: tuple[str, ...]
) -> None:
    found = doctor(msgspec.structs.replace(GPU_HOST, **changes), **more)
    assert tuple(runs(found).values()) == expected
    reasons = [cell.why for cell in found.environments if cell.compatible is not True]
    assert all(word in why for why in reasons for word in words), reasons
    assert ("AVX" in said(found)) is ("AVX" in words)


@pytest.mark.parametrize(
    ("host", "words"),
    [
        (msgspec.structs.replace(GPU_HOST, gpus=()), "reports no GPU"),
        (msgspec.structs.replace(GPU_HOST, persistence=False), "persistence mode is off"),
        (GPU_HOST, "cannot pass GPUs"),
        (HostRef(), "no source of base images"),
    ],
    ids=["no GPU answers", "no persistence", "no GPU runtime", "no base"],
)
def test_troubles_are_named(host: HostRef, words: str) -> None:
    assert said(doctor(host, FakeEngine)).count(words) == 1
