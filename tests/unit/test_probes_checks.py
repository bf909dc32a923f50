"""Checks of the suite: operations, ptxas, GPU code in binaries, causes of stalls and of slow starts, TensorFlow 1."""

import math
import struct
import sys
import types
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from device_code import container, entry, pieces
from hypothesis import given
from hypothesis import strategies as st
from table_rows import beside, rows

from envbuilder.probes.suite import (
    cuda_timeline,
    gpu,
    gpu_code,
    installed,
    operations,
    stall_rules,
    startup,
    startup_diagnosis,
    tensorflow1_compat,
    tensorflow_install,
    xlatools,
)
from envbuilder.probes.suite.build_info import same
from envbuilder.probes.suite.cuda_timeline import Timeline
from envbuilder.probes.suite.elf import Elf
from envbuilder.probes.suite.fatbin import CUBIN, MAGIC, PTX, Architectures, architectures, fat_binaries
from envbuilder.probes.suite.startup import same_release


@pytest.mark.parametrize(
    ("result", "reference", "error"),
    [
        ([1.0, 2.0], [1.0, 1.0], 1 / math.sqrt(2)),
        ([0.5], [0], 0.5),
        ([3j], [3j + 3], 3 / math.hypot(3, 3)),
        ([1.0], [1.0, 2.0], math.inf),
        ([math.nan], [1.0], math.inf),
        ([b"a", 1], [b"a", 1], 0.0),
        ([b"a", 1], [b"a", 2], math.inf),
        ([1], [b"a"], math.inf),
    ],
)
def test_distance_of_a_result(result: list[Any], reference: list[Any], error: float) -> None:
    assert operations.distance(result, reference) == pytest.approx(error)


def test_operation_that_is_wrong_or_raises_has_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    table = "raises | tf.missing | long\nwrong | [long, 2]\n  | [long, 1]\nright | long | [long]\n"
    monkeypatch.setattr(operations, "ROWS", operations.parsed(table))
    monkeypatch.setattr(operations, "inputs", lambda _: {})
    monkeypatch.setattr(operations, "operands", lambda *_: ({"long": 0}, {"long": 0}))
    for name in ("numpy", "tensorflow"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    answer = operations.compared({})
    assert [(one["subject"], one["found"]) for one in answer["findings"]] == [("raises", "inf"), ("wrong", "1")]
    assert "AttributeError" in answer["findings"][0]["message"]


def test_every_row_has_two_expressions() -> None:
    for row in [*operations.ROWS, *gpu.ELEMENT_WISE, *gpu.MATH_LIBRARIES]:
        for expression in (row.tensorflow, row.numpy):
            compile(expression, row.name, "eval")
    assert len({row.name for row in operations.ROWS}) == len(operations.ROWS) > 40


def cubin(*, machine: int = 190, gpu: int = 75, abi: int = 7, constant: int = xlatools.CONSTANT) -> bytes:
    """Make a small file like those of ptxas: an ELF file with the kernel's section and its constant in the code."""
    names = b"\0.text.kernel\0.shstrtab\0"
    code = bytes(20) + struct.pack("<I", constant) + bytes(40)
    flags = gpu << (8 if abi >= 8 else 0) | 0x500000
    at = 64 + len(code) + len(names)
    header = b"\x7fELF\x02\x01\x01\x33" + bytes([abi]) + bytes(7)
    header += struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0, 0, at, flags, 64, 56, 0, 64, 3, 2)
    rows = bytes(64)
    for name, kind, place, size in ((1, 1, 64, len(code)), (names.index(b".shstrtab"), 3, 64 + len(code), len(names))):
        rows += struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, place, size, 0, 0, 1, 0)
    return header + code + names + rows


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (cubin(), ""),
        (cubin(abi=8), ""),
        (b"", "not an ELF file"),
        (cubin()[:-100], "not an ELF file"),
        (cubin(constant=1), "no code of the kernel"),
        (cubin(machine=62), "not for a GPU"),
        (cubin(gpu=60), "for another GPU"),
    ],
)
def test_only_machine_code_of_the_kernel_is_accepted(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "k.cubin").write_bytes(content)
    found = xlatools.problem(str(tmp_path / "k.cubin"), 75)
    assert found.endswith(why)
    assert bool(found) is bool(why)


@rows
def test_ptxas_writes_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, outcome: str) -> None:
    (tmp_path / "cubin").write_bytes(cubin())
    ptxas = tmp_path / "ptxas"
    ptxas.write_text("#!/bin/sh\n" + script.replace("{cubin}", str(tmp_path / "cubin")) + "\n")
    ptxas.chmod(0o755)
    monkeypatch.setattr(xlatools, "_places", lambda _: [])
    monkeypatch.setattr(xlatools, "_path", lambda: [str(tmp_path)])
    result = xlatools.assembled({"built_cuda": "12.5"})
    assert result["outcome"] == outcome
    assert {one["code"] for one in result["findings"]} == (set() if outcome == "passed" else {"XLA_TOOLS_MISSING"})


def test_old_ptxas_gets_a_kernel_that_it_knows() -> None:
    assert [xlatools.target(cuda)[1] for cuda in ("9.0", "10.0", None)] == [70, 75, 75]


def metadata(folder: Path, name: str, version: str, *requires: str) -> None:
    place = folder / f"{name}-{version}.dist-info"
    place.mkdir()
    lines = [
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {text}" for text in requires),
        "",
        "Requires-Dist: no",
    ]
    (place / "METADATA").write_text("\n".join(lines))


def test_distributions_are_read_from_their_metadata(tmp_path: Path) -> None:
    metadata(tmp_path, "Opt_Einsum", "3.4.0", "numpy>=1.7")
    found = installed.distributions([str(tmp_path), str(tmp_path)])
    assert [(one.name, one.version, one.requires) for one in found] == [("opt-einsum", "3.4.0", ["numpy>=1.7"])]


def namespace(**names: Any) -> Any:
    return types.SimpleNamespace(**names)


def first_line(asked: list[str]) -> Any:
    """Make what TensorFlow 1.15 looks like: sessions at the top, the later interface below ``compat.v2``."""
    later = types.ModuleType("tensorflow._api.v1.compat.v2")
    later.__version__ = "1.15.5"  # type: ignore[attr-defined]
    later.config = namespace(experimental=namespace(list_physical_devices="listed"))  # type: ignore[attr-defined]
    later.random = namespace(experimental=namespace(Generator="drawn"))  # type: ignore[attr-defined]
    later.compat = namespace(v1=namespace(enable_v2_behavior=lambda: asked.append("again")), v2="another")  # type: ignore[attr-defined]
    plain = types.ModuleType("tensorflow")
    plain.__version__ = "1.15.5"  # type: ignore[attr-defined]
    plain.compat = namespace(v1=namespace(enable_v2_behavior=lambda: asked.append("eager")), v2=later)  # type: ignore[attr-defined]
    plain.__spec__ = "where it lies"  # type: ignore[assignment]
    return plain


def test_tensorflow_1_gets_the_later_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    plain = first_line(asked)
    monkeypatch.setitem(sys.modules, "tensorflow", plain)
    for _ in range(2):
        tensorflow1_compat.prepare("1.15.5", "framework", "cpu_checks:matmul")
    tf = sys.modules["tensorflow"]
    assert tf is plain.compat.v2
    assert asked == ["eager"]
    assert tf.__spec__ == "where it lies"
    assert (tf.config.list_physical_devices, tf.random.Generator) == ("listed", "drawn")
    assert tf.config.experimental.enable_tensor_float_32_execution(False) is None


@rows
def test_other_releases_import_nothing(release: str, group: str, probe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # an import would raise
    tensorflow1_compat.prepare(release, group, probe)


def test_traces_are_counted_in_every_release() -> None:
    cache = namespace(primary={"one": 1, "two": 2})
    assert tensorflow1_compat.traces(namespace(experimental_get_tracing_count=lambda: 3)) == 3
    assert tensorflow1_compat.traces(namespace(_get_tracing_count=lambda: 2)) == 2
    assert tensorflow1_compat.traces(namespace(_stateful_fn=None, _stateless_fn=namespace(_function_cache=cache))) == 2
    assert tensorflow1_compat.traces(namespace()) == 0


@pytest.mark.parametrize("product", [64.0, 63.0])
def test_session_is_timed_and_its_product_compared(product: float) -> None:
    tf, line = MagicMock(), Timeline("GPU ")
    tf.compat.v1.Session.return_value.__enter__.return_value.run.return_value = {(0, 0): product}
    with nullcontext() if product == 64.0 else pytest.raises(ArithmeticError, match="63 where 64"):
        startup._session(tf, "/CPU:0", line)
    assert [row["phase"] for row in line.phases] == ["GPU first session", "GPU first run", "GPU second run"]
    assert all(row["seconds"] >= 0 for row in line.phases)


DATA = Path(__file__).parents[1] / "data" / "fatbin"


@rows
@pytest.mark.parametrize("size", [7, 4096, 1 << 20])
def test_architectures_of_nvcc_output(name: str, cubins: tuple[str, ...], ptx: tuple[str, ...], size: int) -> None:
    found = architectures(pieces((DATA / name).read_bytes(), size))
    assert found == Architectures(cubins=cubins, ptx=ptx, fat_binaries=1)


@given(
    wanted=st.lists(st.tuples(st.sampled_from([1, 2]), st.integers(30, 130)), min_size=1, max_size=8),
    before=st.binary(max_size=200),
    size=st.integers(1, 300),
)
def test_entries_are_found_at_any_offset(wanted: list[tuple[int, int]], before: bytes, size: int) -> None:
    content = before.replace(MAGIC, b"") + container(*(entry(kind, number) for kind, number in wanted)) + b"tail"
    found = architectures(pieces(content, size))
    assert set(found.cubins) == {f"{number // 10}.{number % 10}" for kind, number in wanted if kind == 2}
    assert set(found.ptx) == {f"{number // 10}.{number % 10}" for kind, number in wanted if kind == 1}


def test_two_fat_binaries_are_combined() -> None:
    found = architectures([container(entry(2, 90)), b"\0" * 40, container(entry(2, 80), entry(1, 90), entry(2, 90))])
    assert found == Architectures(cubins=("8.0", "9.0"), ptx=("9.0",), fat_binaries=2)


@given(st.binary(max_size=400))
def test_noise_has_no_gpu_code(noise: bytes) -> None:
    assert architectures([noise.replace(MAGIC, b""), MAGIC + b"\xff" * 60]).fat_binaries == 0


def test_truncated_file_gives_the_entries_before_its_end() -> None:
    content = container(entry(2, 80), entry(2, 90))
    assert architectures([content[: 16 + 64 + 24 + 10]]).cubins == ("8.0",)


@given(before=st.binary(max_size=200), payload=st.binary(min_size=1, max_size=300), size=st.integers(1, 300))
def test_fat_binary_has_offset_and_ptx(before: bytes, payload: bytes, size: int) -> None:
    before = before.replace(MAGIC, b"")
    content = before + container(entry(CUBIN, 80), entry(PTX, 90, payload)) + container(entry(CUBIN, 90))
    first, second = fat_binaries(pieces(content, size))
    assert (first.offset, second.offset) == (len(before), len(before) + 16 + 64 + 24 + 64 + len(payload))
    assert [one.payload for one in first.entries] == [b"", payload]
    assert [one.header for one in first.entries] == [entry(CUBIN, 80)[:64], entry(PTX, 90, payload)[:64]]


def test_long_ptx_payload_is_cut() -> None:
    content = container(entry(PTX, 90, b"p" * (1 << 20)), entry(CUBIN, 90))
    (found,) = fat_binaries(pieces(content, 1 << 16))
    assert [(one.kind, len(one.payload)) for one in found.entries] == [(PTX, 132 * 1024), (CUBIN, 0)]


def test_number_of_entries_is_bounded() -> None:
    (found,) = fat_binaries([container(*(entry(CUBIN, number, b"") for number in range(5000)))])
    assert len(found.entries) == 256


def test_missing_architecture_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Elf(str(DATA.parent / "device_code" / "libkernels.so"))
    monkeypatch.setattr(tensorflow_install, "callers", lambda _: [library])
    answer = gpu_code.in_binaries({"ptx": ("9.0",), "cubins": ("7.5", "8.0", "9.0")})
    assert (answer["outcome"], [one["found"] for one in answer["findings"]]) == ("failed", ["7.5 9.0"])


@rows
def test_versions_agree_in_common_parts(wanted: str, found: str, *, agree: bool) -> None:
    assert same(wanted, found) is agree


@rows
def test_module_version_matches_its_wheel(wheel: str, module: str, *, agree: bool) -> None:
    assert same_release(wheel, module) is agree


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
JIT = document(GPUfirst_op=140.0)
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
        (JIT, JIT, {}, [True], {}),
        (JIT, JIT, {LARGE: {"error": "no answer"}}, [True], {}),
        (JIT, JIT, {LARGE: document()}, [True], {"code": "PTX_JIT", "message": "at every start: 140.3 s, 0.4 s with"}),
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
    events = [(at, line.encode()) for at, line in beside(__file__)["events of an import"]]
    split = startup.analyse(events)
    found = {name: round(seconds, 6) for name, seconds in split["seconds"].items()}
    assert found == {"Python modules": 7.0, "mapping and relocation": 0.6, "initialisers (registration)": 2.0}
    assert (split["objects"], split["slowest"]) == (1, 2.0)
