"""The loader's search, CUDA libraries and their versions, and what an ELF file needs."""

import ctypes.util
import dataclasses
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from made_images import context_of, image_of
from table_rows import rows

from envbuilder.finding import Code, Severity
from envbuilder.probes.suite import elf, installed, loader, runtime_libraries, tensorflow_install, xlatools
from envbuilder.validation.image_context import ImageContext
from envbuilder.validation.image_loader import InstalledFramework, LocalPython, LocalSearch, unmet
from envbuilder.validation.static_checks import complete, consistent, no_stub, only_one, tools, versions


def real_object() -> Path:
    return next(Path(msgspec.__file__).parent.glob("*.so"))


def put(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(real_object(), folder / name))


def caller(folder: Path, *, rpath: list[str] | None = None, runpath: list[str] | None = None) -> Any:
    machine = elf.Elf(str(real_object())).machine
    return SimpleNamespace(path=str(folder / "libcaller.so"), rpath=rpath or [], runpath=runpath or [], machine=machine)


def test_needs_and_versions_of_a_real_object() -> None:
    path = real_object()
    read = elf.Elf(str(path))
    assert read.dynamic
    assert any(name.startswith("libc.so") for name in read.needed)
    assert "GLIBC_2.2.5" in read.versions["libc.so.6"]
    tool = shutil.which("readelf")
    if tool:
        told = subprocess.run([tool, "-d", str(path)], capture_output=True, text=True, check=True).stdout
        assert read.needed == [line.split("[")[1].rstrip("]") for line in told.splitlines() if "(NEEDED)" in line]


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 300, b"#!/bin/sh\n" * 20])
def test_other_files_are_not_objects(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "libx.so"
    path.write_bytes(content)
    with pytest.raises(elf.NotElfError):
        elf.Elf(str(path))


def test_order_of_the_loader_search(tmp_path: Path) -> None:
    """RPATH (without RUNPATH) comes before LD_LIBRARY_PATH, that before RUNPATH, that before the cache and defaults."""
    paths = {name: put(tmp_path / name, "libx.so.1") for name in ("r", "env", "run", "cached", "default")}
    search = loader.Search(str(tmp_path / "env"), {"libx.so.1": [str(paths["cached"])]}, [str(tmp_path / "default")])
    by_rpath = caller(tmp_path, rpath=[str(tmp_path / "r")])
    by_runpath = caller(tmp_path, rpath=[str(tmp_path / "r")], runpath=["$ORIGIN/run"])
    assert search.find("libx.so.1", by_rpath)[0] == str(paths["r"])
    assert search.find("libx.so.1", by_runpath)[0] == str(paths["env"])
    for gone, following in (("env", "run"), ("run", "cached"), ("cached", "default")):
        paths[gone].unlink()
        search = loader.Search(str(tmp_path / "env"), search.cache, search.defaults)
        assert search.find("libx.so.1", by_runpath)[0] == str(paths[following])
    paths["default"].unlink()
    found, tried = loader.Search(str(tmp_path / "env"), search.cache, search.defaults).find("libx.so.1", by_runpath)
    assert found is None
    assert [path.rpartition("/")[0].rpartition("/")[2] for path in tried] == ["env", "run", "cached", "default"]


def test_text_file_of_a_library_name_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "libx.so.1").write_text("INPUT(libx.so.2)")
    good = put(tmp_path / "run", "libx.so.1")
    search = loader.Search(str(tmp_path / "env"), {}, [])
    assert search.find("libx.so.1", caller(tmp_path, runpath=["$ORIGIN/run"]))[0] == str(good)


def test_cache_of_this_system_has_the_c_library() -> None:
    found, _ = loader.Search("").find("libc.so.6")
    assert found is not None
    ctypes.CDLL(found)


@pytest.fixture
def searching(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return what sets where TensorFlow's libraries are searched, by whom, and the folders of wheels."""

    def searching(path: str, callers: list[Any], folders: list[Path]) -> None:
        monkeypatch.setattr(tensorflow_install, "new_search", lambda: loader.Search(path, {}, []))
        monkeypatch.setattr(tensorflow_install, "callers", lambda _: callers)
        monkeypatch.setattr(tensorflow_install, "wheel_folders", lambda: [str(folder) for folder in folders])

    return searching


def test_missing_library_is_reported_with_the_paths(tmp_path: Path, searching: Callable[..., None]) -> None:
    searching(str(tmp_path), [caller(tmp_path, runpath=["$ORIGIN/cuda"])], [])
    answer = runtime_libraries.opened({"flavor": "gpu", "libraries": ["libcufft.so.11"]})
    assert answer["outcome"] == "failed"
    (found,) = answer["findings"]
    assert (found["code"], found["subject"]) == ("MISSING_LIBRARY", "libcufft.so.11")
    assert f"{tmp_path}/libcufft.so.11" in found["found"]
    assert f"{tmp_path}/cuda/libcufft.so.11" in found["found"]


def test_library_in_a_folder_that_is_not_searched_has_a_code(tmp_path: Path, searching: Callable[..., None]) -> None:
    """As in 2.16.1: the wheel is installed, and this build does not look there."""
    put(tmp_path / "nvidia" / "cufft" / "lib", "libcufft.so.11")
    searching("", [caller(tmp_path)], [tmp_path / "nvidia" / "cufft" / "lib"])
    (found,) = runtime_libraries.opened({"flavor": "gpu", "libraries": ["libcufft.so.11"]})["findings"]
    assert found["code"] == "LIBRARY_PATH"


@rows
def test_library_that_tensorflow_cannot_open_has_the_code_of_the_loader_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, said: str, installed: bool, code: str, subject: str
) -> None:
    def refuse(_: str) -> None:
        raise OSError(said)

    errors = SimpleNamespace(NotFoundError=KeyError)
    fake = SimpleNamespace(load_op_library=refuse, errors=errors)
    monkeypatch.setitem(sys.modules, "tensorflow", fake)
    if installed:
        put(tmp_path, "libcufft.so.11")
        put(tmp_path, "libnvJitLink.so.12")
    monkeypatch.setattr(tensorflow_install, "wheel_folders", lambda: [str(tmp_path)])
    (found,) = runtime_libraries.by_tensorflow({"flavor": "gpu", "libraries": ["libcufft.so.11"]})["findings"]
    assert (found["code"], found["subject"]) == (code, subject)


Besides = Callable[..., dict[str, Any]]


@pytest.fixture
def besides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, searching: Callable[..., None]) -> Besides:
    """Return what asks the check, with an opener of these bytes and libraries of these names in a wheel's folder."""

    def besides(
        content: bytes, *names: str, refused: str = "-", locked: str = "", left_out: str = ""
    ) -> dict[str, Any]:
        one = put(tmp_path, "libtensorflow_framework.so.2")
        one.write_bytes(content)

        def load(name: str) -> None:
            asked.append(name)
            if name.startswith(refused):
                raise OSError(f"{name}: cannot open shared object file: No such file or directory")

        asked: list[str] = []
        fake = SimpleNamespace(load_op_library=load, errors=SimpleNamespace(NotFoundError=KeyError))
        monkeypatch.setitem(sys.modules, "tensorflow", fake)
        folder = tmp_path / "nvidia" / "cuda_cupti" / "lib"
        folder.mkdir(parents=True)
        for name in names:
            put(folder, name)
        searching("", [SimpleNamespace(path=str(one), runpath=[], rpath=[])], [folder])
        monkeypatch.setattr(tensorflow_install, "search_path", lambda *_: [])
        facts = {"locked": [(locked, "1")] if locked else [], "left_out": [(locked, left_out)] if left_out else []}
        return {**runtime_libraries.besides({"flavor": "gpu", **facts}), "asked": asked}

    return besides


_CUPTI = b"..GetCuptiDsoHandle.."
_ALL = _CUPTI + b"GetNvrtcDsoHandle nvrtc_stub GetNcclDsoHandle nccl_stub GetNvshmemDsoHandle nvshmem_stub"


@pytest.mark.parametrize(
    ("content", "asked"),
    [
        (_CUPTI + b"GetNcclDsoHandle GetNvrtcDsoHandle nvrtc_stub GetNvshmemDsoHandle", ["libcupti", "libnvrtc"]),
        (b"GetCudnnDsoHandle", []),
    ],
)
def test_libraries_of_the_opener_s_functions_are_opened(besides: Besides, content: bytes, asked: list[str]) -> None:
    names = ("libcupti.so.12", "libcupti.txt", "libnvrtc.so.12", "libnvrtc-builtins.so.12.5", "libnccl.so.2")
    answer = besides(content, *names)
    assert answer["asked"] == [f"{name}.so.12" for name in asked]
    assert (answer["outcome"], answer["findings"]) == ("passed", [])


@rows
def test_locked_library_has_to_open(
    besides: Besides, names: tuple[str, ...], locked: str, code: str, severity: str
) -> None:
    answer = besides(_CUPTI, *names, refused="libcupti", locked=locked)
    (found,) = answer["findings"]
    assert (found["code"], found["severity"]) == (code, severity)
    assert answer["outcome"] == ("failed" if severity == "error" else "passed")


@rows
def test_locked_library_has_to_exist(besides: Besides, locked: str, left_out: str, outcome: str) -> None:
    answer = besides(_ALL, locked=locked, left_out=left_out)
    missing = [one["code"] for one in answer["findings"] if one["severity"] == "error"]
    assert (answer["outcome"], missing) == (outcome, ["MISSING_LIBRARY"] if outcome == "failed" else [])


def test_check_without_an_opener_is_skipped(searching: Callable[..., None]) -> None:
    searching("", [], [])
    assert runtime_libraries.besides({"flavor": "gpu", "locked": [("nvidia-nccl-cu12", "1")]})["outcome"] == "skipped"


def test_stub_is_recognised_by_its_folder(tmp_path: Path) -> None:
    stub = put(tmp_path / "cuda" / "stubs", "libcuda.so")
    (tmp_path / "libcuda.so.1").symlink_to(stub)
    assert LocalSearch("", {}).is_stub(str(tmp_path / "libcuda.so.1"))


@pytest.mark.parametrize(("number", "text"), [(7605, "7.6.5"), (8907, "8.9.7"), (90300, "9.3.0"), (91002, "9.10.2")])
def test_cudnn_number_as_text(number: int, text: str) -> None:
    assert runtime_libraries.cudnn_text(number) == text


@pytest.mark.parametrize(
    ("loaded", "fits"), [("9.3.0", True), ("9.4.1", True), ("9.1.0", False), ("8.9.7", False), ("10.0.0", False)]
)
def test_cudnn_fits_with_same_major_and_no_older_minor(loaded: str, fits: bool) -> None:  # noqa: FBT001
    conflict = runtime_libraries.cudnn_conflict("/x/libcudnn.so.9", loaded, {"built_cudnn": "9.3"})
    assert (conflict is None) is fits
    assert conflict is None or conflict["code"] == "CUDNN_MISMATCH"


def known(search: loader.Search, path: Path, *, needed: list[str], rpath: str = "", runpath: str = "") -> None:
    """Let a search know an object that needs others, in place of a real file's contents."""
    path.parent.mkdir(exist_ok=True)
    path.touch()
    paths = {"rpath": [rpath] if rpath else [], "runpath": [runpath] if runpath else []}
    one: Any = SimpleNamespace(path=str(path), soname=path.name, dynamic=True, machine="x86_64", needed=needed, **paths)
    search._known[str(path)] = one


def test_unmet_need_is_reported_with_its_user(tmp_path: Path) -> None:
    search = loader.Search("", loader.read_cache())
    known(search, tmp_path / "a.so", needed=["libgone.so.3", "libcuda.so.1", "libc.so.6"])
    assert [(name, user) for name, user, _ in unmet(search, str(tmp_path / "a.so"))] == [
        ("libgone.so.3", str(tmp_path / "a.so"))
    ]


@rows
def test_rpath_and_loaded_libraries_count_for_needs_of_needs_and_runpath_does_not(
    tmp_path: Path, kind: str, needed: list[str], lacks: list[str]
) -> None:
    search = loader.Search("", {}, [])
    known(search, tmp_path / "module.so", needed=needed, **{kind: "$ORIGIN/libs"})
    known(search, tmp_path / "libs" / "libsecond.so", needed=["libthird.so"])
    known(search, tmp_path / "libs" / "libthird.so", needed=[])
    assert [name for name, _, _ in unmet(search, str(tmp_path / "module.so"))] == lacks


def test_plug_in_finds_the_libraries_that_tensorflow_loaded(tmp_path: Path) -> None:
    search = loader.Search("", {}, [])
    own = tmp_path / "tensorflow" / "libtensorflow_framework.so.2"
    plugin = tmp_path / "tensorflow_io" / "libplugin.so"
    module = tmp_path / "tensorflow" / "python" / "module.so"
    known(search, own, needed=[])
    known(search, plugin, needed=[own.name, "libtensorflow_framework.so.1"])
    (tmp_path / "tensorflow").mkdir(exist_ok=True)
    known(search, module, needed=[own.name])
    objects = [one for one in [search.read(str(own))] if one is not None]
    lacks = {
        path.name: [
            name
            for name, _, _ in unmet(search, str(path), tensorflow_install.loaded_before(search, str(path), objects))
        ]
        for path in (plugin, module)
    }
    assert lacks == {"libplugin.so": ["libtensorflow_framework.so.1"], "module.so": [own.name]}


def test_only_the_runpath_of_the_opener_counts(tmp_path: Path) -> None:
    """As in 2.21.0: a folder in the RUNPATH of libtensorflow_cc alone does not count, but where there is no opener."""
    put(tmp_path / "cusolver", "libcusolver.so.11")
    machine = elf.Elf(str(tmp_path / "cusolver" / "libcusolver.so.11")).machine
    search = loader.Search("", {}, [])

    def one(name: str, folder: str) -> Any:
        return SimpleNamespace(path=str(tmp_path / name), rpath=[], runpath=[str(tmp_path / folder)], machine=machine)

    code, opener = one("libtensorflow_cc.so.2", "cusolver"), one("libtensorflow_framework.so.2", "cublas")
    found, tried = tensorflow_install.find(search, "libcusolver.so.11", [opener, code])
    assert found is None
    assert tried == [str(tmp_path / "cublas" / "libcusolver.so.11")]
    assert tensorflow_install.find(search, "libcusolver.so.11", [code])[0] is not None


def subject(python: LocalPython) -> ImageContext:
    return dataclasses.replace(context_of(image_of({}), facts={"flavor": "gpu", "environment": ""}), local=python)


@pytest.mark.parametrize("lacks", ["ptxas", "libdevice.10.bc"])
def test_xla_tools_are_found_next_to_tensorflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: str) -> None:
    ptxas = tmp_path / "nvidia" / "cuda_nvcc" / "bin" / "ptxas"
    device = tmp_path / "nvidia" / "cuda_nvcc" / xlatools.LIBDEVICE
    for path in (ptxas, device):
        path.parent.mkdir(parents=True)
        path.write_text("")
        path.chmod(0o755)
    (tmp_path / "tensorflow").mkdir()
    monkeypatch.setattr(xlatools, "USUAL", [])
    there = subject(LocalPython(InstalledFramework(sites=(str(tmp_path),), folder=str(tmp_path / "tensorflow"))))
    assert tools(there).findings == ()
    (ptxas if lacks == "ptxas" else device).unlink()
    (found,) = tools(there).findings
    assert (found.code, found.subject) == (Code.XLA_TOOLS_MISSING, lacks)


def test_packages_of_this_python_fit_and_find_their_libraries() -> None:
    found = InstalledFramework(sites=tuple(installed.site_folders()), release=platform.python_version())
    here = LocalPython(found)
    for check in (complete, versions, consistent, only_one, no_stub):
        assert [one for one in check(subject(here)).findings if one.severity is Severity.ERROR] == []
    assert {"pytest", "msgspec"} <= {one.name for one in here.distributions()}
    assert complete(subject(here)).measurements["objects"].value > 1


def shared_object(folder: Path, name: str, code: str) -> str:
    source, target = folder / f"{name}.c", folder / name
    source.write_text(code)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", target, source], check=True, capture_output=True)
    return str(target)


def test_cudnn_version_is_read_from_the_library(tmp_path: Path) -> None:
    path = shared_object(tmp_path, "libcudnn.so.8", "unsigned long cudnnGetVersion(void) { return 8907; }")
    assert runtime_libraries.ask_cudnn(path) == ("8.9.7", "")


def test_cudnn_that_aborts_names_the_missing_library(tmp_path: Path) -> None:
    """The wheels of cuDNN 8.7 abort over libnvrtc.so: that library is the finding, not cuDNN as a whole."""
    code = (
        "#include <stdio.h>\n#include <stdlib.h>\n"
        'unsigned long cudnnGetVersion(void) { fputs("Could not load library libcudnn_ops_infer.so.8. Error: '
        'libnvrtc.so: cannot open shared object file: No such file or directory\\n", stderr); abort(); }'
    )
    version, said = runtime_libraries.ask_cudnn(shared_object(tmp_path, "libcudnn.so.8", code))
    assert version is None
    assert runtime_libraries._silent("libcudnn.so.8", "/x/libcudnn.so.8", said)["subject"] == "libnvrtc.so"


@pytest.mark.parametrize(("answer", "version"), [(0, "11.8"), (35, "11 (by its soname)")])
def test_runtime_without_driver_has_the_version_of_its_soname(tmp_path: Path, answer: int, version: str) -> None:
    """CUDA 11's run time says nothing without a driver (error 35): its soname still tells the major, never 0.0."""
    code = f"int cudaRuntimeGetVersion(int *v) {{ if ({answer}) return {answer}; *v = 11080; return 0; }}"
    path = shared_object(tmp_path, "libcudart.so.11.0", code)
    assert runtime_libraries._runtime_version(path, "libcudart.so.11.0") == version
