"""Removed files: what the catalogue's rows say of a wheel, and the list that is stored."""

import re
import subprocess
from pathlib import Path

import pytest
from factories import environment, lock
from package_folders import COMMITTED, MemoryIndex

from envbuilder.catalog.store import load
from envbuilder.image import lockfile, removed_files
from envbuilder.image.layers import PackageLayer, make_folder
from envbuilder.image.removed_files import Omitted, Wheel, parse, removed, sums
from envbuilder.pypi.pages import DistFile
from envbuilder.support import decoding

LISTS = sorted(COMMITTED.glob("shared/packages/*/removed.tsv"))
LIST = (
    "tensorflow==2.20.0\tcompilers\ttensorflow/include/\t9\t1000\tsha256=d\n"
    "tensorflow==2.20.0\tsymbols\ttensorflow/libtensorflow_cc.so.2\t1\t900\tsha256=a\t700\tsha256=b\n"
    "numpy==2.1.3\ttests\tnumpy/tests/a.py\t1\t10\tsha256=d\n"
)


def test_list_is_read_and_added_up() -> None:
    found = parse(LIST)
    assert {pin: [row.left for row in rows] for pin, rows in found.items()} == {
        ("tensorflow", "2.20.0"): [None, 700],
        ("numpy", "2.1.3"): [None],
    }
    assert sums(found.values()) == (Omitted("compilers", 9, 1000), Omitted("symbols", 1, 200), Omitted("tests", 1, 10))
    assert parse("") == {}


@pytest.mark.parametrize(
    "line",
    [
        "x",
        "a==1\tnone\tp\t1\t1\td",
        "a==1\ttests\tp\t-1\t1\td",
        "a==1\ttests\tp\t1\tx\td",
        *(f"a==1\ttests\tp\t1\t{size}\td" for size in (-1, 1 << 60, 10**400)),
        "a==1\tsymbols\tp\t1\t1\td\tx\te",
    ],
)
def test_damaged_list_is_refused(line: str) -> None:
    with pytest.raises(decoding.DamagedError):
        parse(f"{LIST}{line}\n")


def test_list_counts_if_its_label_and_lock_do() -> None:
    text, pins = LIST, lock(tensorflow="2.20.0", numpy="2.1.3")
    label = lockfile.digest(text)
    assert removed_files.named(label, pins, text) == text
    assert removed_files.named("", pins, text) == ""
    assert removed_files.named(lockfile.digest("other"), pins, text) == ""
    assert removed_files.named(label, lock(tensorflow="2.20.0"), text) == "", "it is about a package of no pin"
    assert removed_files.named(lockfile.digest("x\n"), pins, "x\n") == ""


def wheel(name: str, *paths: str, version: str = "1.0") -> Wheel:
    record = "".join(f"{path},sha256=x,5\n" for path in paths)
    (package,) = lockfile.parse(f"{name}=={version} --hash=sha256:{'0' * 64}\n")
    file = DistFile(project=name, filename=f"{name}-1.0-py3-none-any.whl", url="")
    return Wheel(package, file, record.encode(), index=None)  # type: ignore[arg-type] # no object is read


def gone(name: str, *paths: str, asked_for: tuple[str, ...] = (), version: str = "1.0") -> dict[str, str]:
    made = wheel(name, *paths, version=version)
    return {row.path: row.reason for row in removed(made, load().leave_out, asked_for=asked_for)}


def test_files_for_compilers_are_removed_and_files_for_python_stay() -> None:
    kept = (
        "a/__init__.py",
        "a/data.json",
        "a/stub.pyi",
        "a/include/__init__.py",
        "a-1.0.dist-info/x.h",
        "../../include/x.h",
    )
    assert gone("a", "a/inc/x.h", "a/inc/deep/y.hpp", "a/lib/libx.a", "a/lib/libx.so", "a/_speed.pyx", *kept) == {
        "a/inc/": "compilers",
        "a/lib/libx.a": "compilers",
        "a/_speed.pyx": "compilers",
    }


def test_tests_are_removed_and_the_package_that_holds_them_stays() -> None:
    assert gone("a", "a/tests/__init__.py", "a/tests/test_a.py", "a/x_test.py", "a/testing.py") == {
        "a/tests/test_a.py": "tests",
        "a/x_test.py": "tests",
    }
    assert gone("tensorflow", "tensorflow/dtensor/python/tests/test_util.py") == {}


def test_objects_that_nothing_opens_are_removed_unless_the_matrix_names_their_wheel() -> None:
    paths = ("nvidia/cusolver/lib/libcusolverMg.so.11", "nvidia/cusolver/lib/libcusolver.so.11", "nvidia/cusolver/a.h")
    assert gone("nvidia-cusolver-cu12", *paths) == {paths[0]: "unnamed", paths[2]: "compilers"}
    assert gone("nvidia-cusolver-cu12", *paths, asked_for=("nvidia-cusolver-cu12",)) == {paths[2]: "compilers"}


@pytest.mark.parametrize(("version", "left_out"), [("2.15.1", False), ("2.16.2", False), ("2.17.1", True)])
def test_extensions_that_older_releases_import_stay_there(version: str, *, left_out: bool) -> None:
    paths = ("tensorflow/python/_pywrap_toco_api.so", "tensorflow/python/tpu/_pywrap_tpu_embedding.so")
    modules = ("tensorflow/python/__init__.py", "tensorflow/python/tpu/__init__.py")
    for name in ("tensorflow", "tensorflow-cpu"):
        assert set(gone(name, *paths, *modules, version=version)) == (set(paths) if left_out else set())


def test_files_of_a_wheel_s_data_folder_have_the_path_that_an_installer_gives_them() -> None:
    assert gone("libclang", "libclang-1.0.data/platlib/clang/__init__.py", "libclang-1.0.data/scripts/x") == {
        "clang/": "unimported"
    }


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.parent.name)
def test_each_row_of_a_committed_list_follows_from_the_catalogue(path: Path) -> None:
    for line in filter(None, path.read_text().split("\n")):
        pin, reason, place = line.split("\t")[:3]
        name = pin.partition("==")[0]
        if reason == "symbols":
            assert re.search(r"\.so(?:\.|$)", place)
            continue
        own = [row for row in load().leave_out if row.paths and re.fullmatch(row.package, name)]
        rows = [row for row in own if row.reason == reason]
        assert rows
        assert place.endswith("/") or any(re.search(row.paths, place) for row in rows), line


def test_every_row_of_the_catalogue_is_used() -> None:
    every = [line.split("\t") for path in LISTS for line in filter(None, path.read_text().split("\n"))]
    used = {(pin.partition("==")[0], reason) for pin, reason, *_ in every}
    for row in load().leave_out:
        if row.paths:
            assert any(re.fullmatch(row.package, name) and reason == row.reason for name, reason in used)


def test_rows_without_paths_are_about_complete_wheels_of_listed_releases() -> None:
    complete = [row for row in load().leave_out if not row.paths]
    assert complete
    assert all(row.tensorflow for row in complete)
    pins = ("nvidia-nccl-cu12==2.25.1", "nvidia-cublas-cu12==12.5.3.2")
    assert list(load().not_installed("2.20.0", pins)) == [pins[0]]
    assert load().not_installed("2.21.0", pins) == {}


def test_package_s_folder_is_made_from_its_wheels(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("".join(f"int f{number}(void) {{ return {number}; }}\n" for number in range(9000)))
    subprocess.run(["cc", "-shared", "-fPIC", "-g", "-O0", "-o", "a.so", "a.c"], cwd=tmp_path, check=True)
    library, framework = (tmp_path / "a.so").read_bytes(), environment(package="tensorflow-cpu")
    files = {"tensorflow/a.so": library, "tensorflow/include/a.h": b"12345", "tensorflow/__init__.py": b"1"}
    index = MemoryIndex(("tensorflow_cpu-2.20.0-py3-none-any.whl", files))
    (file,) = index.files("tensorflow-cpu")
    layer = PackageLayer("x", f"tensorflow-cpu==2.20.0 --hash=sha256:{file.sha256}\n", "TensorFlow", "2.20.0")
    made = make_folder(layer, framework, load(), index)
    ((headers, cut),) = parse(made.removed).values()
    assert (headers.path, headers.reason, headers.size) == ("tensorflow/include/", "compilers", 5)
    assert (cut.path, cut.reason, cut.size) == ("tensorflow/a.so", "symbols", len(library))
    assert cut.left is not None
    assert cut.left < len(library)
    assert made.lock == layer.text(len(library) + 6, sum(row.size for row in sums([(headers, cut)])))
    assert make_folder(layer, framework, load(), MemoryIndex()).removed == ""
