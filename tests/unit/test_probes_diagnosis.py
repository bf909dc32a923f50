"""Causes of stalls and of a slow start, from samples only; each has its own evidence."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuilder.probes.suite import cuda_timeline, stall_rules, startup, startup_diagnosis

STEPS = 160


def recorded(**changes: Any) -> list[dict[str, Any]]:
    """Record a healthy loop of 2 ms steps; ``changes`` are functions of the step's index, by key."""
    steps = []
    for index in range(STEPS):
        step: dict[str, Any] = {
            "data": 0.0003,
            "step": 0.001,
            "sync": 0.0005,
            "other": 0.0002,
            "traces": 1,
            "nodes": 9,
            "sessions": 1,
        }
        step |= {"copied": 128 * index, "faults": 5 * index, "rss": 10**9, "transient": 0, "cpu": 0.002 * index}
        step |= {"waited": 0.001 * index, "shape": "(32, 64)"}
        steps.append(step | {key: change(index) for key, change in changes.items()})
    return steps


def names(steps: list[dict[str, Any]], constant: tuple[float, ...] = ()) -> list[str]:
    return [cause.name for cause in stall_rules.causes(steps, constant)]


PAUSES = {40, 71, 133}
WAITED = [sum(2.0 for pause in PAUSES if pause <= index) for index in range(STEPS)]
PAUSING = {"step": lambda index: 2.0 if index in PAUSES else 0.001}
WARMING_UP = {
    "traces": lambda index: min(index, stall_rules.WARM_UP),
    "sessions": lambda index: min(index, stall_rules.WARM_UP),
    "step": lambda index: 3.0 if index < stall_rules.WARM_UP else 0.001,
}
GROWING = {"cpu": lambda index: 0.002 * index + 0.0001 * index**2, "rss": lambda index: 10**9 + index * 2**20}


@pytest.mark.parametrize(
    ("changes", "constant", "cause"),
    [
        ({}, (), ""),
        ({"sessions": lambda index: index}, (), "session re-creation"),
        ({"nodes": lambda index: 7 * index}, (), "growing graph"),
        ({"traces": lambda index: index, "shape": lambda index: f"({index % 3},)"}, (), "retracing"),
        ({"traces": lambda index: index, "shape": lambda index: f"({index},)"}, (), "shape churn"),
        ({"data": lambda _: 0.03}, (0.002,) * 30, "input pipeline"),
        ({"data": lambda _: 0.03}, (0.025,) * 30, ""),
        ({"other": lambda index: 0.2 if index % 25 == 7 else 0.0}, (), "periodic hook"),
        ({"faults": lambda index: 3000 * index}, (), "allocator churn"),
        ({"transient": lambda _: 40 << 20}, (), "allocator churn"),
        ({"copied": lambda index: index << 22}, (), "host-device copies"),
        (GROWING, (), "slow growth"),
        (WARMING_UP, (), ""),
        (PAUSING, (), "unexplained"),
        ({**PAUSING, "waited": lambda index: WAITED[index]}, (), ""),
    ],
)
def test_each_stall_has_its_own_evidence(changes: dict[str, Any], constant: tuple[float, ...], cause: str) -> None:
    assert names(recorded(**changes), constant) == [cause] * bool(cause)


@given(st.lists(st.tuples(st.integers(0, STEPS - 1), st.floats(0.0001, 0.4)), max_size=12))
def test_random_noise_has_no_cause(noise: list[tuple[int, float]]) -> None:
    extra = dict(noise)
    steps = recorded(step=lambda index: 0.001 + extra.get(index, 0.0), waited=lambda index: 10.0 * index)
    gaps = {later - earlier for earlier, later in zip(sorted(extra), sorted(extra)[1:], strict=False)}
    assert names(steps) == [] or len(gaps) <= 4


def test_distribution() -> None:
    told = stall_rules.distribution(recorded(step=lambda index: 1.0 if index == STEPS - 1 else 0.001))
    assert 0.0019 < told["p50"] < 0.0021
    assert told["p95"] == told["p50"]
    assert told["max"] > 1


def document(*, grew: int = 0, gpus: int = 1, imported: float = 2.5, **changes: float) -> dict[str, Any]:
    phases = {"process start": 0.02, "import": imported, "device listing": 0.3, "contexts and allocator": 0.4}
    phases |= {"GPU first op": 0.02, "GPU first matmul": 0.1, "GPU first convolution": 0.2, "GPU first function": 0.05}
    phases |= {name.replace("_", " ").replace("GPU", "GPU "): value for name, value in changes.items()}
    rows = [{"phase": name, "seconds": seconds} for name, seconds in phases.items()]
    return {"phases": rows, "gpus": gpus, "cache_grew": grew, "peak_memory": 10**9}


LARGE = "kernel cache of 4 GiB, again"
PTX = document(GPUfirst_op=140.0)
COMPILING = document(grew=80 << 20, GPUfirst_op=140.0)
CONTEXTS = document(gpus=8, contexts_and_allocator=6.0)
LISTING = document(device_listing=5.0)


@pytest.mark.parametrize(
    ("cold", "warm", "variants", "persistence", "expected"),
    [
        (document(), document(), {}, [False], {}),
        (
            COMPILING,
            document(),
            {"no JIT from PTX": {"error": "PTX JIT is disabled"}},
            [True],
            {"code": "PTX_JIT", "message": "CUDA_DISABLE_PTX_JIT=1"},
        ),
        (PTX, PTX, {}, [True], {}),
        (PTX, PTX, {LARGE: {"error": "no answer"}}, [True], {}),
        (PTX, PTX, {LARGE: document()}, [True], {"code": "PTX_JIT", "message": "at every start: 140.3 s, 0.4 s with"}),
        (document(imported=40.0), document(), {}, [], {"code": "SLOW_PHASE", "subject": "import"}),
        (CONTEXTS, CONTEXTS, {"one visible GPU": document(gpus=1)}, [True] * 8, {"subject": "contexts"}),
        (LISTING, LISTING, {}, [False], {"fix": "nvidia-persistenced"}),
        (LISTING, LISTING, {}, [True], {}),
    ],
)
def test_slow_start_has_its_cause(
    cold: Any, warm: Any, variants: dict[str, Any], persistence: list[bool], expected: dict[str, str]
) -> None:
    found = startup_diagnosis.causes([cold] * 3, [warm] * 3, variants, persistence)
    assert len(found) == bool(expected)
    assert all(text in found[0][key] for key, text in expected.items())


def test_phases_keep_every_sample() -> None:
    phases = startup_diagnosis.phases([document(), document(imported=3.0)], [document(imported=2.0)])
    assert phases["import"] == {"cold_s": [2.5, 3.0], "warm_s": [2.0]}
    assert list(phases)[:2] == ["process start", "import"]


def cuda_run(error: str = "", *, right: bool = True) -> dict[str, Any]:
    phases = [{"phase": "cuInit", "seconds": 0.2}, {"phase": "primary context (GPU 0)", "seconds": 0.3}]
    facts = {"gpus": [{"name": "H100", "kernel_right": right}], "cache_before": 0, "cache_after": 4096}
    return {"phases": phases, "facts": facts, "error": {"text": error} if error else None}


def test_cuda_timeline_gives_the_time_to_a_context() -> None:
    answer = startup_diagnosis.cuda_answer({"cold": [cuda_run()], "warm": [cuda_run()]})
    assert answer["outcome"] == "passed"
    assert abs(answer["measurements"]["context"]["value"] - 0.5) < 1e-9
    assert (
        startup_diagnosis.cuda_answer({"cold": [cuda_run(right=False)], "warm": [cuda_run(right=False)]})["outcome"]
        == "failed"
    )
    assert startup_diagnosis.cuda_answer({"cold": [cuda_run("no device")], "warm": []})["outcome"] == "failed"


@pytest.mark.parametrize(("number", "code"), [(34, "STUB_LIBCUDA"), (803, "DRIVER_MISMATCH"), (7, "GPU_NOT_VISIBLE")])
def test_driver_error_of_the_timeline_has_the_code_of_the_driver_check(number: int, code: str) -> None:
    run = {**cuda_run(), "error": {"call": "cuInit", "code": number, "text": "cuInit answers"}}
    (found,) = startup_diagnosis.cuda_answer({"cold": [run], "warm": []})["findings"]
    assert found["code"] == code


def test_timeline_without_a_driver_has_an_error() -> None:
    found = cuda_timeline.run("/nonexistent/libcuda.so.1")
    assert found["phases"] == []
    assert found["error"]["call"] == "dlopen"
    assert "libcuda.so.1" in found["error"]["text"]


def test_import_is_divided_by_the_loader_s_messages() -> None:
    events = [
        (0.0, b"envbuilder-object start"),
        (1.0, b"envbuilder-object begin"),
        (1.5, b"  7:\tcalling init: /x/libtensorflow_cc.so.2"),
        (1.5, b"  7:\t"),
        (3.5, b"  7:\topening file=/x/libtensorflow_cc.so.2"),
        (3.6, b"envbuilder-object end"),
        (9.6, b"envbuilder-object done"),
        (99.0, b"after"),
    ]
    split = startup.analyse(events)
    found = {name: round(seconds, 6) for name, seconds in split["seconds"].items()}
    assert found == {"Python modules": 7.0, "mapping and relocation": 0.6, "initialisers (registration)": 2.0}
    assert (split["objects"], split["slowest"]) == (1, 2.0)
