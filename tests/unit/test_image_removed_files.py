"""Removed files: what the catalogue's rows say of a wheel, the list that is stored, and its removal in an image."""

import ctypes
import hashlib
import mmap
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from factories import environment, lock
from made_images import SITE, package
from package_folders import COMMITTED, MemoryIndex
from table_rows import rows

from envbuilder.catalog.store import load
from envbuilder.image import lockfile, removed_files
from envbuilder.image.layers import PackageLayer, make_folder
from envbuilder.image.removed_files import Omitted, Wheel, parse, removed, sums
from envbuilder.probes.slimming import remove_files
from envbuilder.probes.slimming.remove_files import Row, symbols_cut
from envbuilder.probes.suite.elf import Elf
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


@rows
def test_damaged_list_is_refused(line: str) -> None:
    with pytest.raises(decoding.DamagedError):
        parse(f"{LIST}{line.replace('HUGE', str(10**400))}\n")


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
    kept = "a/__init__.py a/data.json a/stub.pyi a/include/__init__.py a-1.0.dist-info/x.h ../../include/x.h"
    assert gone(
        "a", "a/inc/x.h", "a/inc/deep/y.hpp", "a/lib/libx.a", "a/lib/libx.so", "a/_speed.pyx", *kept.split()
    ) == {"a/inc/": "compilers", "a/lib/libx.a": "compilers", "a/_speed.pyx": "compilers"}


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


def test_package_s_folder_is_made_from_its_wheels(library: Path) -> None:
    content, framework = library.read_bytes(), environment(package="tensorflow-cpu")
    files = {"tensorflow/a.so": content, "tensorflow/include/a.h": b"12345", "tensorflow/__init__.py": b"1"}
    index = MemoryIndex(("tensorflow_cpu-2.20.0-py3-none-any.whl", files))
    (file,) = index.files("tensorflow-cpu")
    layer = PackageLayer("x", f"tensorflow-cpu==2.20.0 --hash=sha256:{file.sha256}\n", "TensorFlow", "2.20.0")
    made = make_folder(layer, framework, load(), index)
    ((headers, cut),) = parse(made.removed).values()
    assert (headers.path, headers.reason, headers.size) == ("tensorflow/include/", "compilers", 5)
    assert (cut.path, cut.reason, cut.size) == ("tensorflow/a.so", "symbols", len(content))
    assert cut.left is not None
    assert cut.left < len(content)
    assert made.lock == layer.text(len(content) + 6, sum(row.size for row in sums([(headers, cut)])))
    assert make_folder(layer, framework, load(), MemoryIndex()).removed == ""


def installed(site: Path, files: Mapping[str, bytes]) -> None:
    """Install the distribution ``kept`` 1.0 as an installer does before byte code is compiled, with its RECORD."""
    for path, content in package("kept", "1.0", files).items():
        place = site / path.removeprefix(f"{SITE}/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


SOURCE = """
int counted = 41;
int answer(void) { return ++counted; }
""" + "".join(f"static int hidden_{number}(int x) {{ return x + {number}; }}\n" for number in range(6000))
USED = "int all(int x) {" + "".join(f"x = hidden_{number}(x);" for number in range(0, 6000, 2)) + "return x; }"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a shared library with symbol tables, and texts for a debugger, behind what is loaded."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "a.c").write_text(SOURCE + USED)
    subprocess.run(["cc", "-shared", "-fPIC", "-g", "-O0", "-o", "libanswer.so", "a.c"], cwd=folder, check=True)
    return folder / "libanswer.so"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    folder.mkdir(parents=True)
    return folder


def mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as stream:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)


def cut_copy(library: Path, to: Path) -> bytes:
    image = mapped(library)
    cut = symbols_cut(image)
    to.write_bytes(library.read_bytes())
    cut.write(str(to))
    content = to.read_bytes()
    assert (len(content), remove_files.written(hashlib.sha256(content).digest())) == (cut.size, cut.digest(image))
    return content


def test_loaded_segments_stay_byte_for_byte(library: Path, tmp_path: Path) -> None:
    left = cut_copy(library, tmp_path / "libcut.so")
    before, after = Elf(str(library)), Elf(str(tmp_path / "libcut.so"))
    kind, start, size = 0, 2, 5
    for segment in [row for row in before._segments if row[kind] == 1]:
        begin, end = max(64, segment[start]), segment[start] + segment[size]
        assert left[begin:end] == mapped(library)[begin:end]
    assert after._segments == before._segments
    assert len(left) < library.stat().st_size // 2
    assert ctypes.CDLL(str(tmp_path / "libcut.so")).answer() == 42
    assert list(after.exported(mapped(tmp_path / "libcut.so"))) == list(before.exported(mapped(library)))
    assert after.extent <= len(left), "the file is as long as its headers say"


def test_sections_that_stay_have_their_names_and_places(library: Path, tmp_path: Path) -> None:
    cut_copy(library, tmp_path / "libcut.so")
    before, after = Elf(str(library)).sections, Elf(str(tmp_path / "libcut.so")).sections
    assert {".symtab", ".strtab", ".debug_info"} <= before.keys()
    assert not after.keys() & {".symtab", ".strtab", ".debug_info", ".comment"}
    assert {name: place for name, place in after.items() if name != ".shstrtab"} == {
        name: place for name, place in before.items() if name in after and name != ".shstrtab"
    }


def test_file_that_was_cut_is_not_cut_again(library: Path, tmp_path: Path) -> None:
    cut_copy(library, tmp_path / "libcut.so")
    assert symbols_cut(mapped(tmp_path / "libcut.so")) is None


@pytest.mark.parametrize("cut_at", [0, 40, 63, 64, 100, 5000, -1, -64, -2000])
def test_damaged_files_are_left_alone(library: Path, tmp_path: Path, cut_at: int) -> None:
    content = library.read_bytes()[: cut_at or None] if cut_at else b"x" * 4096
    (tmp_path / "bad.so").write_bytes(content)
    cut = symbols_cut(mapped(tmp_path / "bad.so"))
    assert cut is None or cut.size < len(content)


FILES = {
    "kept/__init__.py": b"import other\n",
    "kept/include/kept.h": b"#define A\n",
    "kept/include/deep/more.hpp": b"#define B\n",
    "kept/tests/test_kept.py": b"import kept\n",
}


def row(site: Path, path: str) -> Row:
    """Return the row that removes a file or a folder of what is installed as ``kept``."""
    rows = remove_files.read_record(str(site / "kept-1.0.dist-info" / "RECORD"))
    below = {name: one for name, one in rows.items() if remove_files.is_below(name, path)}
    digest = remove_files.digest_of_rows((name, one[0]) for name, one in below.items())
    size = sum(int(one[1]) for one in below.values())
    return Row("kept", "1.0", "tests", path, len(below), size, digest)


def test_files_go_and_the_record_says_what_is_there(site: Path, library: Path) -> None:
    installed(site, {**FILES, "kept/libanswer.so": library.read_bytes()})
    image = mapped(library)
    cut = symbols_cut(image)
    whole = remove_files.read_record(str(site / "kept-1.0.dist-info" / "RECORD"))["kept/libanswer.so"]
    shorter = Row(
        "kept", "1.0", "symbols", "kept/libanswer.so", 1, len(image), whole[0], str(cut.size), cut.digest(image)
    )
    listed = [row(site, "kept/include/"), row(site, "kept/tests/test_kept.py"), shorter]
    gone = remove_files.apply([remove_files.parse_row(one.line()) for one in listed], str(site))
    assert gone == listed[0].size + listed[1].size + len(image) - cut.size
    record = remove_files.read_record(str(site / "kept-1.0.dist-info" / "RECORD"))
    assert record.keys() & FILES.keys() == {"kept/__init__.py"}
    assert record["kept/libanswer.so"] == (cut.digest(image), str(cut.size))
    assert (site / "kept/libanswer.so").stat().st_size == cut.size
    assert not (site / "kept" / "include").exists()


@pytest.mark.parametrize("change", [{"files": 9}, {"digest": "sha256=AAAA"}, {"path": "kept/"}, {"version": "2.0"}])
def test_list_of_another_wheel_touches_nothing(site: Path, change: dict[str, Any]) -> None:
    installed(site, FILES)
    listed = [row(site, "kept/tests/test_kept.py"), row(site, "kept/include/")._replace(**change)]
    before = sorted(site.rglob("*"))
    with pytest.raises(remove_files.NotAsListedError):
        remove_files.apply(listed[1:] if "version" in change else listed, str(site))
    assert sorted(site.rglob("*")) == before


def test_object_that_is_not_as_listed_is_not_cut(site: Path, library: Path) -> None:
    installed(site, {"kept/__init__.py": b"", "kept/libanswer.so": library.read_bytes()})
    wrong = Row("kept", "1.0", "symbols", "kept/libanswer.so", 1, 9, "sha256=a", "5", "sha256=b")
    with pytest.raises(remove_files.NotAsListedError):
        remove_files.apply([wrong], str(site))
    assert (site / "kept/libanswer.so").read_bytes() == library.read_bytes()


def test_nothing_outside_of_the_environment_is_removed(site: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    installed(site, {"kept/__init__.py": b""})
    record = site / "kept-1.0.dist-info" / "RECORD"
    path = "../../../../precious"
    record.write_text(record.read_text() + f"{path},sha256=x,1\n")
    with pytest.raises(remove_files.NotAsListedError, match="leads out"):
        remove_files.apply([row(site, path)], str(site))
    assert (tmp_path / "precious").exists()


def test_program_reports_why_it_removed_nothing(site: Path, tmp_path: Path) -> None:
    installed(site, FILES)
    (tmp_path / "list.tsv").write_text("kept==2.0\ttests\tkept/\t1\t1\tsha256=x\n")
    command = [sys.executable, "-E", "-s", "-S", str(remove_files.__file__), "list.tsv", str(site)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "not removed: kept 2.0 is not installed\n")


@pytest.mark.parametrize("line", ["", "a", "a==1\ttests", "a==1\ttests\tp\tx\t1\td", "a==1\ttests\tp\t1\t1\td\t5"])
def test_line_that_is_not_a_row_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"row of removed|invalid literal|unpack"):
        remove_files.parse_row(line)
