"""Reading the GPU code of a whole wheel, from an index of small wheels made for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from index_server import wheel

from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.client import Client
from envbuilder.pypi.index_config import IndexConfig
from envbuilder.pypi.package_index import DistFile, IndexUnavailableError, Member
from envbuilder.refresh import evidence
from envbuilder.refresh.device_code import Origin, groups

DATA = Path(__file__).parents[1] / "data"
LIBRARY = (DATA / "device_code" / "libkernels.so").read_bytes()
OTHER = (DATA / "fatbin" / "libtwice.so").read_bytes()
NAME = "tensorflow-9.0-cp311-cp311-manylinux2014_x86_64.whl"


def client(tmp_path: Path) -> Client:
    return Client(IndexConfig(url="file:///nowhere"), Cache(tmp_path / "cache"))


def test_every_library_of_a_wheel_is_read(tmp_path: Path) -> None:
    """Small libraries with GPU code count like the largest; those without, and other files, are left out."""
    members = {
        "tensorflow/libtensorflow_cc.so.2": LIBRARY,
        "tensorflow/python/_small.so": OTHER,
        "tensorflow/python/_cpu.so": b"\x7fELF\x02\x01" + b"\0" * 200,
        "tensorflow/include/kernels.sorted": LIBRARY,
    }
    (tmp_path / NAME).write_bytes(wheel("tensorflow", "9.0", members=members))
    said: list[str] = []
    file = DistFile(project="tensorflow", filename=NAME, url=(tmp_path / NAME).as_uri())
    found = evidence.gpu_code(file, client(tmp_path), said.append)
    assert {one.library: one.groups for one in found} == {
        "tensorflow/libtensorflow_cc.so.2": groups([LIBRARY]),
        "tensorflow/python/_small.so": groups([OTHER]),
    }
    assert {group.origin for group in groups([OTHER])} == {Origin.HAND_WRITTEN}
    assert [line.split()[1] for line in said] == [name for name in members if not name.endswith("sorted")]


class Hostile(Client):
    """An index with one library that is nothing but fat binaries of different kinds."""

    def members(self, file: DistFile) -> tuple[Member, ...]:
        """List the one library."""
        return (Member(name=f"{file.project}.so", packed=1, size=1),)

    def stream(self, file: DistFile, member: Member) -> Iterator[bytes]:
        """Yield its fat binaries."""
        del file, member
        for number in range(2000):
            entry = bytes.fromhex("0200010140000000") + bytes(20) + number.to_bytes(4, "little") + bytes(32)
            yield bytes.fromhex("50ed55ba01001000") + len(entry).to_bytes(8, "little") + entry


def test_a_library_that_no_compiler_makes_is_the_wheel_s_fault(tmp_path: Path) -> None:
    """What the reader refuses becomes an error of ours that names the wheel and the library."""
    index = Hostile(IndexConfig(url="file:///nowhere"), Cache(tmp_path / "cache"))
    with pytest.raises(IndexUnavailableError, match=r"x\.whl: tensorflow\.so: more than 1024 kinds"):
        evidence.gpu_code(DistFile(project="tensorflow", filename="x.whl", url="file:///x.whl"), index)
