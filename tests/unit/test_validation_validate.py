"""The stage of validation: what the probes saw of the host is what the verdict says of it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from factories import IDENTITY
from fake_engine import FakeEngine, Script
from suite_messages import answer_to

from envbuilder.catalog.store import load
from envbuilder.engine.port import ContainerSpec
from envbuilder.validation.validate import ValidationRequest, validate
from envbuilder.verdict import HostRef, Verdict


def gpu(*, persistence: bool | None, **more: object) -> dict[str, Any]:
    named = {"name": "Tesla T4", "uuid": "GPU-1", "compute_capability": "7.5", "memory": 16 << 30}
    return {**named, "persistence": persistence, **more}


def verdict(*gpus: dict[str, Any]) -> Verdict:
    data = {"driver": "535.104.05", "cuda": "12.2", "gpus": gpus, "nodes": [], "count": len(gpus)}
    result = {"name": "driver", "tier": "gpu", "outcome": "passed", "data": data}

    def script(spec: ContainerSpec) -> Script:
        if not spec.stdin:  # a start as users do it
            return Script()
        begin = {"event": "begin", "name": "driver"}
        cuda = IDENTITY | {"build": {"is_cuda_build": True}, "cuda": ["libcudart.so.12"]}
        told = ({"event": "identity", "identity": cuda}, begin, {"event": "result", "result": result})
        return Script(stdout=answer_to(spec.stdin, *told))

    engine = FakeEngine(script=script, gpu_runtime=True)
    engine.add("ours:1")
    return validate(engine, ValidationRequest(image="ours:1", catalog=load()))


@pytest.mark.parametrize(
    ("modes", "recorded"),
    [
        ((True,), True),
        ((True, False), False),
        ((False, False), False),
        ((True, None), None),
        ((None,), None),
        ((), None),
    ],
)
def test_persistence_mode_is_recorded(modes: tuple[bool | None, ...], *, recorded: bool | None) -> None:
    found = verdict(*(gpu(persistence=mode) for mode in modes))
    assert found.host.persistence is recorded
    assert msgspec.json.decode(msgspec.json.encode(found.host), type=HostRef) == found.host


def test_gpus_of_the_host_are_recorded() -> None:
    (seen,) = json.loads(msgspec.json.encode(verdict(gpu(persistence=True, later="unknown")).host))["gpus"]
    assert seen == {"name": "Tesla T4", "compute_capability": "7.5", "memory": 16 << 30, "uuid": "GPU-1"}


@pytest.mark.parametrize(("uuid", "expected"), [("GPU-73696d75-6c61-7465-6420-475055202000", True), ("GPU-1", False)])
def test_simulated_driver_on_the_host_is_recognised(uuid: str, *, expected: bool) -> None:
    found = verdict(gpu(persistence=None, uuid=uuid))
    assert found.simulated is expected
    assert any("simulated" in reason for reason in found.reasons) is expected
    assert found.verdict != "PASSED"


def told(*events: dict[str, Any]) -> tuple[Verdict, int]:
    starts = []

    def script(spec: ContainerSpec) -> Script:
        starts.append(spec)
        return Script(stdout=answer_to(spec.stdin, *events)) if spec.stdin else Script()

    engine = FakeEngine(script=script)
    engine.add("ours:1")
    return validate(engine, ValidationRequest(image="ours:1", catalog=load())), len(starts)


def ended(name: str, outcome: str) -> tuple[dict[str, Any], dict[str, Any]]:
    result = {"name": name, "outcome": outcome, "duration_s": 1.0}
    return {"event": "begin", "name": name}, {"event": "result", "result": result}


def test_image_that_hung_skips_the_start_of_users() -> None:
    who = {"event": "identity", "identity": IDENTITY}
    verdict, starts = told(who, *ended("import", "passed"), *ended("first-op", "timeout"))
    (start,) = (check for check in verdict.checks if check.name == "user-start")
    assert (start.outcome, "timed out" in start.observed, start.findings) == ("skipped", True, ())
    healthy, more = told(who, *ended("import", "passed"), *ended("first-op", "passed"))
    (start,) = (check for check in healthy.checks if check.name == "user-start")
    assert start.outcome == "failed", "it was made, and this engine computes nothing"
    assert more == starts + 1


def test_python_that_hung_is_not_queried_again() -> None:
    starts = []

    def script(spec: ContainerSpec) -> Script:
        starts.append(spec)
        return Script(seconds=1e6)

    engine = FakeEngine(script=script)
    engine.add("ours:1")
    verdict = validate(engine, ValidationRequest(image="ours:1", catalog=load()))
    assert len(starts) == 1
    assert verdict.verdict == "FAILED"
    (imported,) = (check for check in verdict.checks if check.name == "import")
    assert imported.outcome == "timeout"
