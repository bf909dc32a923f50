"""Removing listed files and symbol tables from an installation; lists for other wheels change nothing."""

import ctypes
import hashlib
import mmap
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from envbuilder.probes.slimming import remove_files
from envbuilder.probes.slimming.remove_files import Row, symbols_cut
from envbuilder.probes.suite.elf import Elf


def installed(site: Path, name: str, files: Mapping[str, bytes]) -> None:
    """Install a distribution of version 1.0 as an installer does before byte code is compiled, with its RECORD."""
    rows = []
    for path, content in files.items():
        place = site / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        rows.append(f"{path},{remove_files.written(hashlib.sha256(content).digest())},{len(content)}")
    folder = site / f"{name}-1.0.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    own = f"{name}-1.0.dist-info"
    (folder / "RECORD").write_text("\n".join([*rows, f"{own}/METADATA,,", f"{own}/RECORD,,"]) + "\n")


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
    installed(site, "kept", {**FILES, "kept/libanswer.so": library.read_bytes()})
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
    installed(site, "kept", FILES)
    listed = [row(site, "kept/tests/test_kept.py"), row(site, "kept/include/")._replace(**change)]
    before = sorted(site.rglob("*"))
    with pytest.raises(remove_files.NotAsListedError):
        remove_files.apply(listed[1:] if "version" in change else listed, str(site))
    assert sorted(site.rglob("*")) == before


def test_object_that_is_not_as_listed_is_not_cut(site: Path, library: Path) -> None:
    installed(site, "kept", {"kept/__init__.py": b"", "kept/libanswer.so": library.read_bytes()})
    wrong = Row("kept", "1.0", "symbols", "kept/libanswer.so", 1, 9, "sha256=a", "5", "sha256=b")
    with pytest.raises(remove_files.NotAsListedError):
        remove_files.apply([wrong], str(site))
    assert (site / "kept/libanswer.so").read_bytes() == library.read_bytes()


def test_nothing_outside_of_the_environment_is_removed(site: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    installed(site, "kept", {"kept/__init__.py": b""})
    record = site / "kept-1.0.dist-info" / "RECORD"
    path = "../../../../precious"
    record.write_text(record.read_text() + f"{path},sha256=x,1\n")
    with pytest.raises(remove_files.NotAsListedError, match="leads out"):
        remove_files.apply([row(site, path)], str(site))
    assert (tmp_path / "precious").exists()


def test_program_reports_why_it_removed_nothing(site: Path, tmp_path: Path) -> None:
    installed(site, "kept", FILES)
    (tmp_path / "list.tsv").write_text("kept==2.0\ttests\tkept/\t1\t1\tsha256=x\n")
    command = [sys.executable, "-E", "-s", "-S", str(remove_files.__file__), "list.tsv", str(site)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "not removed: kept 2.0 is not installed\n")


@pytest.mark.parametrize("line", ["", "a", "a==1\ttests", "a==1\ttests\tp\tx\t1\td", "a==1\ttests\tp\t1\t1\td\t5"])
def test_line_that_is_not_a_row_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"row of removed|invalid literal|unpack"):
        remove_files.parse_row(line)
