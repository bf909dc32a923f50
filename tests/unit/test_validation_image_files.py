"""Layers: the record of each, what a container sees of all, and what a binary's own tables say."""

import hashlib
import json
import mmap
import struct
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import bombs
import pytest
from fake_engine import FakeEngine
from made_images import SITE, Layer, context_of, entry, image_of, package, record
from made_objects import shared_object

from envbuilder.engine.port import LayerFile, LayerStream, RefusedLayerError
from envbuilder.errors import InfrastructureError
from envbuilder.finding import Code, Severity
from envbuilder.probes.suite.elf import Elf
from envbuilder.pypi.answer_cache import Cache
from envbuilder.validation import layer_scan
from envbuilder.validation.image_files import ImageFiles, read_image
from envbuilder.validation.installed_files import binaries
from envbuilder.validation.layer_scan import MAX_KEPT, Binary, own_version, scan
from envbuilder.validation.suite_plan import CHECKS
from envbuilder.validation.validate import run_host_checks


def test_later_layer_replaces_deletes_and_empties() -> None:
    files = image_of(
        {"a/b": b"1", "a/c": b"1", "d/e": b"1", "lib": "usr/lib", "usr/lib/x": b"1"},
        {"a/b": b"2", "a/c": None, "d": LayerFile("d", "emptied"), "d/f": b"2"},
    )
    assert {path for path, seen in files.paths.items() if seen.row.kind == "file"} == {"a/b", "d/f", "usr/lib/x"}
    assert (files.paths["a/b"].layer, [one.layer for one in files.hidden["a/c"]]) == (1, [0])
    assert files.resolve("/lib/../lib/x") == "usr/lib/x"
    assert files.file("lib/x") is not None


def test_circular_links_end() -> None:
    assert image_of({"a": "b", "b": "a"}).file("a/c") is None


def test_known_layer_comes_from_the_cache_unless_it_is_damaged(tmp_path: Path) -> None:
    engine = FakeEngine()
    image = engine.add("ours:1")
    for spoil in (False, False, True):
        for path in tmp_path.rglob("*") if spoil else ():
            if path.is_file():
                path.write_bytes(b"spoilt")
        engine.files[image.layers[0].diff_id] = (LayerFile("a", "file", size=1, pieces=lambda: iter([b"1"])),)
        assert set(read_image(engine, image, Cache(tmp_path)).paths) == {"a"}
    engine.files.clear()
    assert set(read_image(engine, image, Cache(tmp_path)).paths) == {"a"}


def elf(*, machine: int = 62, section_at: int = 64, size: int = 4096) -> bytes:
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    return (head + struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 0, section_at, 0, 64, 56, 0, 64, 1, 0)).ljust(
        size, b"\0"
    )


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (elf(), None),
        (elf(machine=183), Code.IMAGE_CLAIM),
        (elf(section_at=1 << 20), Code.FILES_DIFFER),
        (b"\x7fELF\x02\x01", Code.FILES_DIFFER),
    ],
)
def test_damaged_binaries_and_those_of_other_architectures_are_found(content: bytes, code: Code | None) -> None:
    found = binaries(context_of(image_of({"opt/venv/lib/python3.11/site-packages/x.so": content}))).findings
    assert [one.code for one in found] == ([code] if code else [])


@pytest.mark.parametrize(
    ("layer", "code", "subject"),
    [
        ({"usr/local/cuda/nvvm/libdevice/libdevice.10.bc": b"x"}, Code.XLA_TOOLS_MISSING, "libdevice.10.bc"),
        ({"usr/local/cuda/bin/ptxas": b"#!/bin/sh"}, Code.XLA_TOOLS_MISSING, "ptxas"),
        (
            package("tensorflow", "2.20.0", {"tensorflow/python/platform/build_info.py": b"is_cuda_build = True"}),
            Code.IMAGE_CLAIM,
            "build_info.py",
        ),
    ],
)
def test_incomplete_cuda_and_a_contradictory_build_are_errors(layer: Layer, code: Code, subject: str) -> None:
    (one,) = binaries(context_of(image_of(layer), facts={"environment": ""})).findings
    assert (one.code, one.severity, one.subject) == (code, Severity.ERROR, subject)


def test_endless_name_in_a_binary_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    content = bytearray(elf() + b"A" * (1 << 20))
    content[64 + 24 : 64 + 32] = struct.pack("<Q", 4096)  # where its only section, the names, begins
    path.write_bytes(content)
    assert list(Elf(str(path)).sections) == ["A" * 4096]


def test_large_layer_of_a_known_size_is_skipped_unless_it_is_another(tmp_path: Path) -> None:
    engine, read = FakeEngine(), list[str]()

    def files(name: str) -> Iterator[bytes]:
        read.append(name)
        yield b"1"

    sizes = {"known": 1 << 20, "of-that-size": 1 << 20, "small": 7, "as-small": 7}
    images = {name: engine.add(name, name.encode().ljust(size)[:size]) for name, size in sizes.items()}
    layers = {name: image.layers[0] for name, image in images.items()}
    for name in sizes:
        engine.files[layers[name].diff_id] = (LayerFile(name, "file", pieces=partial(files, name)),)
    for expected, *names in (
        (["known", "small"], "known", "small"),
        (["small", "as-small"], "known", "small", "as-small"),
        (["small", "known", "small", "of-that-size"], "known", "small", "of-that-size"),
        ([], "known", "of-that-size"),
    ):
        read.clear()
        engine._store["all"] = replace(engine.add("all"), layers=tuple(layers[name] for name in names))
        assert set(read_image(engine, engine._store["all"], Cache(tmp_path)).paths) == set(names)
        assert read == expected


class Withholding(FakeEngine):
    @contextmanager
    def layer_files(self, *_: str, without: Collection[int] = ()) -> Iterator[Iterator[LayerStream]]:  # noqa: ARG002
        yield iter(())


def test_missing_layer_is_an_error_not_an_empty_layer(tmp_path: Path) -> None:
    engine = Withholding()
    with pytest.raises(InfrastructureError, match="did not provide 1 of its layers"):
        read_image(engine, engine.add("a:b", b"content"), Cache(tmp_path))


def test_file_may_have_another_name_if_its_soname_links_to_it() -> None:
    """CUPTI's file is named by its year."""
    folder = "usr/lib/x86_64-linux-gnu"
    cupti = shared_object("libcupti.so.11.2")
    whole: Layer = {f"{folder}/libcupti.so.2020.3.1": cupti, f"{folder}/libcupti.so.11.2": "libcupti.so.2020.3.1"}
    assert binaries(context_of(image_of(whole))).findings == ()
    wrongs: tuple[Layer, ...] = (
        {f"{folder}/libcupti.so.2020.3.1": cupti},
        {**whole, f"{folder}/libcupti.so.11.2": shared_object("libcupti.so.11.2")},
        {**whole, f"{folder}/libcupti.so.12": "libcupti.so.2020.3.1"},
    )
    for wrong in wrongs:
        assert [one.code.value for one in binaries(context_of(image_of(wrong))).findings] == ["CUDA_MISMATCH"], wrong


def test_libcurl_may_have_two_names_and_a_cuda_library_may_not() -> None:
    for stem, found in (("libcurl-gnutls", []), ("libcufft", ["CUDA_MISMATCH"])):
        folder = "usr/lib/x86_64-linux-gnu"
        there: Layer = {f"{folder}/{stem}.so.4": shared_object(f"{stem}.so.4"), f"{folder}/{stem}.so.3": f"{stem}.so.4"}
        assert [one.code.value for one in binaries(context_of(image_of(there))).findings] == found


def test_entry_below_a_link_is_unpacked_to_its_target() -> None:
    files = image_of({"lib": "usr/lib", "lib/x.so": b"1"}, {"lib/y.so": b"2", "usr/lib/x.so": None, "lib/.x": b"3"})
    assert {path for path, seen in files.paths.items() if seen.row.kind == "file"} == {"usr/lib/y.so", "usr/lib/.x"}
    assert files.paths["usr/lib/y.so"].row.path == "usr/lib/y.so"


def test_link_over_a_folder_hides_its_files() -> None:
    files = image_of({"opt/p/os.py": b"1", "srv/q/os.py": b"2"}, {"opt/p": "/srv/q", "opt/p/more.py": b"3"})
    assert set(files.paths) == {"opt/p", "srv/q/os.py", "srv/q/more.py"}
    assert [one.layer for one in files.hidden["opt/p/os.py"]] == [0]


def test_hard_link_keeps_the_content_of_its_time() -> None:
    rows = (
        entry("a", b"evil"),
        LayerFile("b", "same", target="a"),
        entry("a", b"good"),
        LayerFile("c", "same", target="b"),
    )
    files = ImageFiles((scan(LayerStream(iter(rows), "x")),))
    digests = {path: seen.row.digest for path, seen in files.paths.items()}
    assert digests["b"] == digests["c"] == hashlib.sha256(b"evil").digest()
    assert digests["a"] == hashlib.sha256(b"good").digest()


def test_last_of_two_entries_of_a_path_counts() -> None:
    path = f"{SITE}/x-1.dist-info/RECORD"
    large = LayerFile(path, "file", size=MAX_KEPT + 1, pieces=lambda: iter([b"x" * (MAX_KEPT + 1)]))
    for second, kept in ((entry(path, b"second"), b"second"), (large, None), (LayerFile(path, "folder"), None)):
        files = ImageFiles((scan(LayerStream(iter((entry(path, b"first"), second)), "x")),))
        assert files.content(path) == kept
        assert files.contents == ({path: kept} if kept else {})


def test_whiteout_after_a_file_of_its_layer_deletes_it() -> None:
    for order, left in ((("x", "gone"), set()), (("gone", "x"), {"d/x"})):
        made = {"x": entry("d/x", b"2"), "gone": LayerFile("d/x", "deleted")}
        layer = scan(LayerStream(iter([made[name] for name in order]), "x"))
        assert set(ImageFiles((record({"d/x": b"1"}), layer)).paths) == left


def test_hidden_entries_are_known_by_layer() -> None:
    files = image_of({"x": b"1", "y": b"1"}, {"x": b"2", "y": b"2"}, {"x": b"3", "y": b"1"})
    assert [one.layer for one in files.hidden["x"]] == [0, 1]
    assert files.was("x", 1).row.digest == hashlib.sha256(b"2").digest()
    assert (files.is_changed("x"), files.is_changed("y"), files.is_changed("z")) == (True, False, False)


PIECE = 1 << 12


def _large(dynamic_at: int, size: int) -> bytes:
    texts = b"\0libmiddle.so.1\0"
    dynamic = struct.pack("<QQQQQQ", 5, dynamic_at + 48, 14, 1, 0, 0)
    header = (
        b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    )
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 4096)
    segment = struct.pack("<IIQQQQQQ", 2, 6, dynamic_at, dynamic_at, dynamic_at, 48 + len(texts), 48, 8)
    start = header + load + segment
    return (start.ljust(dynamic_at, b"\0") + dynamic + texts).ljust(size, b"\0")


def binary_of(content: bytes, size: int | None = None) -> Binary | None:
    pieces = [content[at : at + PIECE] for at in range(0, len(content), PIECE)]
    file = LayerFile("usr/lib/x.so.1", "file", size=size or len(content), pieces=lambda: iter(pieces))
    return scan(LayerStream(iter((file,)), "sha256:0")).rows[0].binary


@pytest.mark.parametrize("at", [PIECE * 20, PIECE * 20 - 8, PIECE * 20 + 17])
def test_dynamic_section_is_read_wherever_it_is(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_scan, "_HEAD", PIECE * 2)
    monkeypatch.setattr(layer_scan, "_ENDS", PIECE * 2)
    assert binary_of(_large(at, PIECE * 40)).soname == "libmiddle.so.1"


def test_damaged_file_has_its_reason_and_an_empty_one_is_no_binary(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = bytearray(_large(4096, PIECE * 4))
    lost[32:40] = struct.pack("<Q", 1 << 62)
    for content in (bytes(lost), b"\x7fELF"):
        assert binary_of(content).damaged
    assert binary_of(b"") is None
    monkeypatch.setattr(layer_scan, "_LARGEST", PIECE)
    assert binary_of(b"\x7fELF" + bytes(PIECE), 2 * PIECE).damaged == "it is larger than any"
    endless = bytearray(_large(PIECE, PIECE * 2))
    endless[64 + 56 + 32 : 64 + 56 + 40] = struct.pack("<Q", 1 << 40)
    assert len(layer_scan._dynamic(bytes(endless))) == layer_scan._ENDS


@pytest.mark.parametrize("name", bombs.BOMBS)
def test_layer_without_end_takes_bounded_time_and_memory_and_has_a_result(name: str) -> None:
    program = str(Path(bombs.__file__))
    took = json.loads(subprocess.run([sys.executable, program, name], stdout=subprocess.PIPE, check=True).stdout)
    assert took["seconds"] < 60
    assert took["megabytes"] < 300
    (error,) = took["errors"]
    assert "too large to be read" in error or ("cannot be checked" in error and not took["passed"])


def test_contents_of_all_layers_have_one_bound(tmp_path: Path) -> None:
    engine, content = FakeEngine(), b"x" * MAX_KEPT
    images = [engine.add(name, name.encode()) for name in "abc"]
    engine._store["all"] = replace(engine.add("all"), layers=tuple(image.layers[0] for image in images))
    for image in (*images, engine._store["all"]):
        for one in images:
            engine.files[one.layers[0].diff_id] = (bombs.file(f"{one.tags[0]}.pth", content),)
        files = read_image(engine, image, Cache(tmp_path))
        assert len(files.contents) == min(2, len(files.paths))
    assert len(files.paths) == 3


class Refusing(FakeEngine):
    @contextmanager
    def layer_files(self, *_: str, without: Collection[int] = ()) -> Iterator[Iterator[LayerStream]]:  # noqa: ARG002
        raise RefusedLayerError("a header is too long")
        yield iter(())


@pytest.mark.parametrize(("environment", "outcome"), [("tf2.20.0-py311-cpu-bookworm", "failed"), ("", "skipped")])
def test_image_that_cannot_be_read_has_a_result(tmp_path: Path, environment: str, outcome: str) -> None:
    engine = Refusing()
    files = read_image(engine, engine.add("a:b", b"content"), Cache(tmp_path))
    checks = [check for check in CHECKS if check.group == "host"]
    results, _ = run_host_checks(context_of(files, facts={"environment": environment}), checks)
    assert {one.name: one.outcome for one in results} == {check.name: "skipped" for check in checks} | {
        "files": outcome
    }
    (found,) = (finding for one in results for finding in one.findings)
    assert (found.code, found.message) == (Code.FILES_DIFFER, "the image cannot be checked: a header is too long")


NVRTC = b"Cuda compilation tools, release %d.%d, \0Cuda compilation tools, release 12.5, V12.5.82\0"


def stored(*numbers: int) -> bytes:
    return b"\x85\xff\x74\x0b".join(b"\xc7\x07" + number.to_bytes(4, "little") for number in numbers)


@pytest.mark.parametrize(
    ("symbol", "content", "version"),
    [
        ("cudnn_graph_version", bytes.fromhex("00030900"), "9.3.0"),
        ("cudnn_ops_infer_version", bytes.fromhex("07090800"), "8.9.7"),
        ("cufftGetVersion", bytes.fromhex("4885ff7406c707c32b000031c0c3"), "11.2.3"),
        ("curandGetVersion", bytes.fromhex("c7074228000031c0c3"), "10.3.6"),
        ("cusolverGetVersion", bytes.fromhex("4885ffb8030000007408c707532d000031c0f3c3"), "11.6.3"),
        ("cufftGetVersion", bytes.fromhex("554889e5e8000000005dc3"), ""),
        ("other", bytes.fromhex("c7074228000031c0c3"), ""),
        ("nvrtcVersion", NVRTC, "12.5.82"),
        ("cudaRuntimeGetVersion", stored(11020, 11020), "11.2"),
        ("cudaRuntimeGetVersion", stored(11020, 12050), ""),
        ("cudaRuntimeGetVersion", stored(999990), ""),
    ],
)
def test_version_of_a_library_comes_from_its_bytes(symbol: str, content: bytes, version: str) -> None:
    """The bytes of cuDNN 9.3 and CUDA 12.5; code that stores more than one number says nothing."""
    whole = shared_object("lib.so", symbol, content, b".rodata" if content is NVRTC else b".text")
    with mmap.mmap(-1, len(whole)) as window:
        window[:] = whole
        assert own_version(Elf("lib.so", window), window) == version
