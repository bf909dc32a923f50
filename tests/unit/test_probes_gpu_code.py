"""GPU architectures in fat binaries and in TensorFlow's, and the build's own description."""

from pathlib import Path
from typing import Any

import pytest
from device_code import container, entry, shared_object
from hypothesis import given
from hypothesis import strategies as st

from envbuilder.probes.suite import gpu_code, tensorflow_install
from envbuilder.probes.suite.build_info import same
from envbuilder.probes.suite.elf import Elf
from envbuilder.probes.suite.fatbin import CUBIN, MAGIC, PTX, Architectures, architectures, fat_binaries
from envbuilder.probes.suite.startup import same_release

DATA = Path(__file__).parents[1] / "data" / "fatbin"


def pieces(content: bytes, size: int) -> list[bytes]:
    return [content[at : at + size] for at in range(0, len(content), size)]


@pytest.mark.parametrize(
    ("name", "cubins", "ptx"),
    [("twice.fatbin", ("7.5", "8.6"), ("8.6",)), ("libtwice.so", ("8.0", "9.0", "12.0"), ("12.0",))],
)
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


def kernels(*numbers: int) -> bytes:
    return container(*(entry(CUBIN, one) for one in numbers), entry(PTX, 90))


def judged(monkeypatch: pytest.MonkeyPatch, library: Path, **facts: Any) -> tuple[str, list[str]]:
    monkeypatch.setattr(tensorflow_install, "callers", lambda _: [Elf(str(library))])
    answer = gpu_code.in_binaries({"ptx": ("9.0",), **facts})
    return answer["outcome"], [one["found"] for one in answer["findings"]]


def test_missing_architecture_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = shared_object(tmp_path, [kernels(80)])
    outcome, found = judged(monkeypatch, library, cubins=("8.0", "9.0"))
    assert (outcome, found) == ("failed", ["8.0"])


@pytest.mark.parametrize(
    ("wanted", "found", "agree"),
    [("12.5", "12.5.1", True), ("12.5.1", "12.3", False), ("9.3", "9", True), ("9", "8", False)],
)
def test_versions_agree_in_common_parts(wanted: str, found: str, *, agree: bool) -> None:
    assert same(wanted, found) is agree


@pytest.mark.parametrize(
    ("wheel", "module", "agree"),
    [
        ("2.21.0rc1", "2.21.0-rc1", True),
        ("2.20.0", "2.20.0", True),
        ("2.15.0.post1", "2.15.0", True),
        ("2.21.0rc1", "2.21.0", False),
    ],
)
def test_module_version_matches_its_wheel(wheel: str, module: str, *, agree: bool) -> None:
    assert same_release(wheel, module) is agree
