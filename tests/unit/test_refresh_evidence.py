"""Reading the shared objects of a wheel from an index of small wheels."""

import shutil
import subprocess
from pathlib import Path

import pytest
from device_code import fat_binary
from hypothesis import given
from hypothesis import strategies as st
from index_server import wheel

from envbuilder.probes.suite.elf import Elf
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.client import IndexUnavailableError, PackageIndex
from envbuilder.pypi.index_config import IndexConfig
from envbuilder.pypi.pages import DistFile
from envbuilder.refresh import evidence
from envbuilder.refresh.device_code import groups, kernels
from envbuilder.refresh.evidence import ObjectTexts

DATA = Path(__file__).parents[1] / "data"
LIBRARY = (DATA / "device_code" / "libkernels.so").read_bytes()
OTHER = (DATA / "fatbin" / "libtwice.so").read_bytes()
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
    assert b"".join(found.over(content[at : at + size] for at in range(0, len(content), size))) == content
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
