"""Reading wheels: what they say of themselves, their shared objects, GPU code of any origin, and PTX in any packing."""

import shutil
import struct
import subprocess
import tracemalloc
from pathlib import Path

import pytest
from device_code import elf, fat_binary, pieces
from hypothesis import given
from hypothesis import strategies as st
from index_server import wheel
from table_rows import beside, rows

from envbuilder.catalog.rows import KernelOrigin, Kernels, Ptx
from envbuilder.probes.suite.elf import Elf
from envbuilder.probes.suite.fatbin import PTX, Entry, fat_binaries
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.client import IndexUnavailableError, PackageIndex
from envbuilder.pypi.index_config import IndexConfig
from envbuilder.pypi.pages import DistFile
from envbuilder.refresh import artefact, evidence, ptx_text
from envbuilder.refresh.artefact import BuildInfo, capability, wheel_name, wheel_sets
from envbuilder.refresh.device_code import Group, Origin, groups, kernels
from envbuilder.refresh.evidence import ObjectTexts
from envbuilder.refresh.ptx_text import LZ4, lz4_head, zstd_head
from envbuilder.refresh.section_table import Section, SectionWatch

TEXTS = beside(__file__)

DATA = Path(__file__).parents[1] / "data" / "device_code"
LIBRARY = (DATA / "libkernels.so").read_bytes()
SM90, SM90A = Ptx("sm_90", "8.3"), Ptx("sm_90a", "8.5")
GENERATED: KernelOrigin = "generated"
HAND: KernelOrigin = "hand-written"
RELOCATABLE: Origin = "relocatable"


@pytest.mark.parametrize("size", [13, 4096, 1 << 20])
def test_kernels_of_a_real_library_have_their_origin(size: int) -> None:
    """The size of the pieces does not matter."""
    nvcc = ("7.5", "9.0")
    assert groups(pieces(LIBRARY, size)) == (
        Group(GENERATED, ("7.5",), (Ptx("sm_90a", "9.0"),), 2),
        Group(HAND, nvcc, (), 1),
        Group(HAND, nvcc, (Ptx("sm_90", "9.0"),), 1),
        Group(RELOCATABLE, nvcc, (Ptx("sm_90", "9.0"),), 2),
    )


def test_fat_binary_without_sections_has_an_unknown_origin() -> None:
    """A bare fat binary is read, and is neither hand-written nor generated."""
    assert groups([fat_binary(80, SM90A)]) == (Group("unknown", ("8.0",), (SM90A,), 1),)
    assert groups([b"no GPU code"]) == ()


@rows
def test_section_decides(section: str, origin: Origin) -> None:
    assert groups([elf({section: fat_binary(80, SM90)})]) == (Group(origin, ("8.0",), (SM90,), 1),)


def test_groups_are_counted_and_hide_nothing() -> None:
    content = [fat_binary(80, 90, SM90), fat_binary(90, SM90, 80), fat_binary(80, SM90), fat_binary(80, SM90A)]
    assert [(one.cubins, one.ptx, one.fat_binaries) for one in groups(content)] == [
        (("8.0",), (SM90,), 1),
        (("8.0",), (SM90A,), 1),
        (("8.0", "9.0"), (SM90,), 2),
    ]


@rows
def test_kernels_have_the_content_of_every_fat_binary(
    libraries: list[tuple[Group, ...]], hand: Kernels | None, generated: Kernels | None
) -> None:
    assert kernels(libraries) == tuple(one for one in (hand, generated) if one is not None)


def test_union_of_a_real_library_hides_that_generated_kernels_have_ptx_for_one_gpu_only() -> None:
    hand = Kernels(origin=HAND, fat_binaries=2, without_ptx=1, cubins=("7.5", "9.0"), ptx=(Ptx("sm_90", "9.0"),))
    generated = Kernels(origin=GENERATED, fat_binaries=2, cubins=("7.5",), ptx=(Ptx("sm_90a", "9.0"),))
    assert kernels([groups([LIBRARY])]) == (hand, generated)


def test_memory_stays_at_a_few_pieces() -> None:
    """Reading 256 MiB in pieces of 64 KiB, with a fat binary in each fourth, holds less than 4 MiB at any time."""
    piece = bytes(1 << 16)
    code = fat_binary(60, 70, SM90A)
    tracemalloc.start()
    try:
        found = groups(code + piece[len(code) :] if number % 4 == 0 else piece for number in range(4096))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [group.fat_binaries for group in found] == [1024]
    assert peak < 4 << 20


def sections(content: bytes, size: int) -> tuple[Section, ...]:
    """Read a file's sections in pieces of one size; the pieces pass unchanged."""
    watch = SectionWatch()
    assert b"".join(watch.over(pieces(content, size))) == content
    return watch.sections()


def with_one_section(*, names_first: bool, decoys: int = 0, filling: int = 0) -> bytes:
    """Make a file with one section ``.code`` of 32 bytes; the names stand before or behind the other contents."""
    names = b"\0.shstrtab\0.code\0"
    body = b"".join(b"\0.shstrtab\0" + b"x" * filling for _ in range(decoys)) + b"c" * 32
    content = names + b"\0" * 7 + body if names_first else body + names
    names_at = 64 + content.rfind(names) if not names_first else 64
    code_at = 64 + content.find(b"c" * 32)
    rows = [(0, 0, 0, 0, 0, 0), (1, 3, 0, 0, names_at, len(names)), (11, 1, 2, 0, code_at, 32), (11, 8, 2, 0, 64, 999)]
    table = b"".join(struct.pack("<IIQQQQIIQQ", *row, 0, 0, 1, 0) for row in rows)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 0, 64 + len(content), 0, 64, 0, 0, 64, 4, 1
    )
    return header + content + table


@given(names_first=st.booleans(), size=st.integers(1, 700))
def test_names_of_sections_may_stand_before_or_behind_the_contents(*, names_first: bool, size: int) -> None:
    found = sections(with_one_section(names_first=names_first), size)
    assert [section.name for section in found if section.size == 32] == [".code"]
    assert 999 not in {section.size for section in found}


def test_names_of_other_files_within_are_not_taken() -> None:
    content = with_one_section(names_first=False, decoys=40, filling=70_000)
    assert ".code" in {section.name for section in sections(content, 50_000)}


OTHER = (DATA.parent / "fatbin" / "libtwice.so").read_bytes()
NAME = "tensorflow-9.0-cp311-cp311-manylinux2014_x86_64.whl"


def client(tmp_path: Path) -> PackageIndex:
    return PackageIndex(IndexConfig(url="file:///nowhere"), Cache(tmp_path / "cache"))


def test_every_library_of_a_wheel_is_read(tmp_path: Path) -> None:
    members = {
        "tensorflow/libtensorflow_cc.so.2": LIBRARY,
        "tensorflow/python/_small.so": OTHER,
        "tensorflow/python/_cpu.so": b"\x7fELF\x02\x01" + b"\0" * 200,
        "tensorflow/include/kernels.sorted": LIBRARY,
    }
    (tmp_path / NAME).write_bytes(wheel("tensorflow", "9.0", members=members))
    said: list[str] = []
    file = DistFile(project="tensorflow", filename=NAME, url=(tmp_path / NAME).as_uri())
    found, _ = evidence.read(client(tmp_path), file, progress=said.append)
    assert (found.libraries, found.kernels) == (2, kernels([groups([LIBRARY]), groups([OTHER])]))
    assert {group.origin for group in groups([OTHER])} == {"hand-written"}
    assert [line.split()[1] for line in said] == [name for name in members if not name.endswith("sorted")]


def test_library_that_no_compiler_makes_is_an_error_of_the_index(tmp_path: Path) -> None:
    members = {"tensorflow/x.so": b"".join(fat_binary(number) for number in range(2000))}
    (tmp_path / NAME).write_bytes(wheel("tensorflow", "9.0", members))
    file = DistFile(project="tensorflow", filename=NAME, url=(tmp_path / NAME).as_uri())
    with pytest.raises(IndexUnavailableError, match=r"\.whl: tensorflow/x\.so: more than 1024 kinds"):
        evidence.read(client(tmp_path), file)


FOLDERS = ("cublas", "cuda_runtime", "cudnn", "cusolver")
RUNPATH = b"\0$ORIGIN/:" + b":".join(b"$ORIGIN/../nvidia/%s/lib" % name.encode() for name in FOLDERS) + b"\0"
_MANGLED = b"\0_ZN3tsl8internal16CachedDsoLoader%dGet%sDsoHandleEv\0"


def symbols(*names: bytes) -> bytes:
    return b"".join(_MANGLED % (len(name) + 12, name) for name in names)


def texts(content: bytes, size: int = 1 << 20) -> ObjectTexts:
    found = ObjectTexts()
    assert b"".join(found.over(pieces(content, size))) == content
    return found


@given(before=st.binary(max_size=200), size=st.integers(1, 90))
def test_runpath_and_functions_are_found_at_any_piece_size(before: bytes, size: int) -> None:
    content = before.replace(b"D", b"").replace(b"$", b"")
    found = texts(content + RUNPATH + symbols(b"Cupti", b"Cudnn", b"Hip", b"Rocblas", b"NvInfer", b"Cupti"), size)
    assert found.openers == ("Cudnn", "Cupti", "NvInfer"), "those for ROCm, which every build has, are left out"
    assert found.folders == FOLDERS


@pytest.mark.parametrize(
    ("content", "folders"),
    [(RUNPATH + b"..$ORIGIN/../nvidia/nccl/lib\0", FOLDERS), (RUNPATH[:-1], None), (b"\x7fELFno such text", None)],
    ids=["a later text is the program's", "incomplete", "none"],
)
def test_first_complete_runpath_is_the_objects_own(content: bytes, folders: tuple[str, ...] | None) -> None:
    assert texts(content).folders == folders


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
@pytest.mark.parametrize("tags", ["--enable-new-dtags", "--disable-new-dtags"])
def test_runpath_of_a_linked_library_equals_its_dynamic_section(tmp_path: Path, tags: str) -> None:
    made = tmp_path / "libmade.so"
    path = "$ORIGIN/:$ORIGIN/../nvidia/cudnn/lib:$ORIGIN/../nvidia/cublas/lib"
    source = 'const char *said(void) { return "$ORIGIN/../nvidia/nccl/lib"; }'
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(made), f"-Wl,-rpath,{path}", f"-Wl,{tags}"]
    subprocess.run(command, input=source.encode(), check=True)
    read = Elf(str(made))
    assert read.runpath + read.rpath == path.split(":")
    assert texts(made.read_bytes()).folders == ("cublas", "cudnn")


@pytest.mark.parametrize("name", ["Nccl", "Nvrtc", "Nvshmem"])
def test_function_that_nothing_calls_counts_for_nothing(name: str) -> None:
    held = symbols(name.encode(), b"Cupti")
    assert texts(held).openers == ("Cupti",)
    assert texts(held + b"\0xla/tsl/cuda/%s_stub.cc\0" % name.lower().encode(), 40).openers == ("Cupti", name)
    assert texts(held + b"xla/tsl/cuda/cudnn_stub.cc").openers == ("Cupti",)


TEXT = b"//\n.version 8.5\n.target sm_90a\n.address_size 64\n"


def ptx_entry(payload: bytes, flags: int = 0) -> Entry:
    """Make an entry as fatbinary does: PTX ISA 7.4 in the header, to tell it from what the text says."""
    head = struct.pack("<HHIQIIHHIIIQQQ", PTX, 0x101, 64, len(payload), 0, 0, 4, 7, 90, 0, 0, flags, 0, 0)
    return Entry(PTX, 90, head, payload)


def entry_of(name: str) -> Entry:
    (found,) = fat_binaries([(DATA / name).read_bytes()])
    return found.entries[0]


def sequence(literals: bytes, distance: int, length: int) -> bytes:
    """Write one sequence of an LZ4 block, as its format's description says."""
    token = min(len(literals), 15) << 4 | min(length - 4, 15)
    return bytes([token]) + _more(len(literals)) + literals + struct.pack("<H", distance) + _more(length - 4)


def _more(length: int) -> bytes:
    return b"" if length < 15 else b"\xff" * ((length - 15) // 255) + bytes([(length - 15) % 255])


def last(literals: bytes) -> bytes:
    return bytes([min(len(literals), 15) << 4]) + _more(len(literals)) + literals


@pytest.mark.parametrize("name", ["ptx_none.fatbin", "ptx_speed.fatbin", "ptx_balance.fatbin"])
def test_target_keeps_its_a_however_nvcc_packed_it(name: str) -> None:
    """PTX that nvcc made for 9.0a is read as ``sm_90a`` and ISA 9.0, although its header says 90."""
    entry = entry_of(name)
    assert entry.architecture == 90
    assert ptx_text.read(entry) == Ptx("sm_90a", "9.0")


def test_text_is_the_same_in_both_packings() -> None:
    lz4, zstd = entry_of("ptx_speed.fatbin"), entry_of("ptx_balance.fatbin")
    packed, size = struct.unpack_from("<I", lz4.header, 16)[0], struct.unpack_from("<Q", lz4.header, 56)[0]
    text = lz4_head(lz4.payload[:packed], 1 << 16)
    assert text == zstd_head(zstd.payload, 1 << 16)
    assert len(text) == size
    assert text.endswith(b"ret;\n\n}\n\n\0")


@given(
    literals=st.lists(st.binary(min_size=1, max_size=600), min_size=1, max_size=5),
    matches=st.lists(st.tuples(st.integers(1, 700), st.integers(4, 900)), min_size=5, max_size=5),
    tail=st.binary(max_size=40),
)
def test_lz4_block_unpacks_by_its_format(literals: list[bytes], matches: list[tuple[int, int]], tail: bytes) -> None:
    block, expected = b"", bytearray()
    for text, (distance, length) in zip(literals, matches, strict=False):
        expected += text
        back = min(distance, len(expected))
        for _ in range(length):
            expected.append(expected[-back])
        block += sequence(text, back, length)
    assert lz4_head(block + last(tail), 1 << 20) == bytes(expected) + tail


@given(st.integers(0, 100))
def test_no_more_is_unpacked_than_asked_for(limit: int) -> None:
    assert lz4_head(sequence(b"ab", 2, 1 << 20), limit) == (b"ab" * 50)[:limit]
    assert len(zstd_head(entry_of("ptx_balance.fatbin").payload, limit)) <= limit


@rows
def test_directives_are_read_as_ptx_writes_them(text: str, target: str | None, isa: str) -> None:
    assert ptx_text.read(ptx_entry(text.encode())) == Ptx(target, isa)


@pytest.mark.parametrize("flags", [0, LZ4])
@pytest.mark.parametrize("length", [1, 450, 500, 511, 600, 10_000])
def test_directives_may_follow_a_comment_of_16_kilobytes(length: int, flags: int) -> None:
    text = b"/" * length + b"\n" + TEXT
    assert ptx_text.read(ptx_entry(last(text) if flags else text, flags)) == Ptx("sm_90a", "8.5")
    assert ptx_text.read(ptx_entry(b"// generated\n" * 80_000 + TEXT)) == Ptx(None, "7.4")


def test_requirements_of_both_styles() -> None:
    old, new = artefact.metadata(TEXTS["old"]), artefact.metadata(TEXTS["new"])
    assert old.requires == ("numpy>=1.20", "protobuf<3.20,>=3.9.2")
    assert (old.requires_python, new.requires_python) == (">=3.7", ">=3.9")
    assert new.requires == ('numpy<2.0.0,>=1.26.0; python_version >= "3.12"',)
    assert new.and_cuda == ("nvidia-cublas-cu12==12.3.4.1", 'tensorflow-io; python_version < "3.12"')


@rows
def test_build_info_of_every_era(source: str, expected: BuildInfo) -> None:
    assert artefact.build_info(source) == expected


@pytest.mark.parametrize(
    ("code", "text"), [("sm_35", "3.5"), ("compute_80", "8.0"), ("sm_120", "12.0"), ("sm_90a", "9.0"), ("7.5", "7.5")]
)
def test_capabilities(code: str, text: str) -> None:
    assert capability(code) == text


def test_wheel_names() -> None:
    modern = wheel_name("tensorflow-2.20.0-cp313-cp313-manylinux_2_17_x86_64.manylinux2014_x86_64.whl")
    assert (modern.python, modern.arch, modern.glibc, modern.version) == ("3.13", "x86_64", "2.17", "2.20.0")
    oldest = wheel_name("tensorflow-1.13.1-cp27-cp27mu-manylinux1_x86_64.whl")
    assert (oldest.python, oldest.glibc) == ("2.7", "2.5")
    anywhere = wheel_name("nvidia_cudnn_cu12-9.3.0.75-py3-none-manylinux2014_x86_64.whl")
    assert (anywhere.python, anywhere.glibc) == ("", "2.17")
    for other in ("tensorflow-2.20.0-cp313-cp313-win_amd64.whl", "tensorflow-gpu-2.12.0.tar.gz", "linux-notes.txt"):
        assert wheel_name(other) is None


def test_source_distributions() -> None:
    assert artefact.source_version("tensorflow-gpu-2.12.0.tar.gz") == "2.12.0"
    assert artefact.source_version("tensorflow-2.20.0-cp313-cp313-manylinux2014_x86_64.whl") is None
    assert artefact.source_version("notes.txt") is None


def test_wheels_are_grouped_by_machine() -> None:
    names = [
        wheel_name(f"tensorflow-2.21.0-cp{python}-cp{python}-manylinux_2_27_{arch}.whl")
        for arch in ("aarch64", "x86_64")
        for python in ("310", "39")
    ]
    sets = wheel_sets(name for name in names if name)
    assert [(one.arch, one.pythons, one.glibc) for one in sets] == [
        ("x86_64", ("3.9", "3.10"), "2.27"),
        ("aarch64", ("3.9", "3.10"), "2.27"),
    ]
