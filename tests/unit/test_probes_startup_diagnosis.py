"""Causes of a slow start, from samples only; an ordinary start has no finding."""

from __future__ import annotations

from typing import Any

import pytest

from envbuilder.probes.suite import cuda_timeline, startup_diagnosis, startup_timing


def document(*, grew: int = 0, gpus: int = 1, imported: float = 2.5, **changes: float) -> dict[str, Any]:
    phases = {"process start": 0.02, "import": imported, "device listing": 0.3, "contexts and allocator": 0.4}
    phases |= {"GPU first op": 0.02, "GPU first matmul": 0.1, "GPU first convolution": 0.2, "GPU first function": 0.05}
    phases |= {name.replace("_", " ").replace("GPU", "GPU "): value for name, value in changes.items()}
    return {"phases": list(phases.items()), "gpus": gpus, "cache_grew": grew, "peak_memory": 10**9}


def test_ordinary_start_has_no_finding() -> None:
    assert startup_diagnosis.causes([document()], [document()], {}, [False]) == []


def test_compilation_from_ptx_is_reported() -> None:
    cold = [document(grew=80 << 20, GPUfirst_op=140.0)] * 3
    (found,) = startup_diagnosis.causes(
        cold, [document()] * 3, {"no JIT from PTX": {"error": "PTX JIT is disabled"}}, [True]
    )
    assert found["code"] == "PTX_JIT"
    assert "CUDA_DISABLE_PTX_JIT=1" in found["message"]
    assert (
        startup_diagnosis.causes([document(GPUfirst_op=140.0)] * 3, [document(GPUfirst_op=140.0)] * 3, {}, [True]) == []
    )


def test_slow_disk_is_reported() -> None:
    (found,) = startup_diagnosis.causes([document(imported=40.0)], [document()], {}, [])
    assert (found["code"], found["subject"]) == ("SLOW_PHASE", "import")


def test_contexts_on_many_gpus_are_reported() -> None:
    warm = [document(gpus=8, contexts_and_allocator=6.0)]
    (found,) = startup_diagnosis.causes(warm, warm, {"one visible GPU": document(gpus=1)}, [True] * 8)
    assert found["subject"] == "contexts"


def test_missing_persistence_mode_is_reported() -> None:
    warm = [document(device_listing=5.0)]
    (found,) = startup_diagnosis.causes(warm, warm, {}, [False])
    assert "nvidia-persistenced" in found["fix"]
    assert startup_diagnosis.causes(warm, warm, {}, [True]) == []


def test_phases_keep_every_sample() -> None:
    phases = startup_timing.phases([document(), document(imported=3.0)], [document(imported=2.0)])
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
    found = cuda_timeline.run(paths=("/nonexistent/libcuda.so.1",))
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
    split = startup_diagnosis.analyse(events)
    found = {name: round(seconds, 6) for name, seconds in split["seconds"].items()}
    assert found == {"Python modules": 7.0, "mapping and relocation": 0.6, "initialisers (registration)": 2.0}
    assert split["slowest"] == ("/x/libtensorflow_cc.so.2", 2.0)
