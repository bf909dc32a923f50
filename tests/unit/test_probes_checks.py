"""Checks of the suite: operations and ptxas, installed packages, and TensorFlow before 2.4."""

import math
import struct
import sys
import types
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from envbuilder.probes.suite import gpu, installed, operations, startup, tensorflow1_compat, xlatools
from envbuilder.probes.suite.cuda_timeline import Timeline


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


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ('[ "$1" = --version ] && echo "release 12.5, V12.5.82" || cp {cubin} "$4"', "passed"),
        ('[ "$1" = --version ] && echo hello || cp {cubin} "$4"', "failed"),
        ('[ "$1" = --version ] && echo "release 12.5, V12.5.82" || : > "$4"', "failed"),
        ("exit 1", "failed"),
    ],
)
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


@pytest.mark.parametrize(
    ("release", "group", "probe"),
    [
        ("2.4.4", "framework", "cpu_checks:matmul"),
        ("1.15.5", "framework", tensorflow1_compat.IMPORTS),
        ("1.15.5", "static", "packages:as_locked"),
        ("", "framework", "cpu_checks:matmul"),
    ],
)
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
