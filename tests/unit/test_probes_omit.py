"""Carrying a list of omissions out: files, symbol tables and RECORDs; and no list that was made for something else."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from installed_site import installed

import envbuilder
from envbuilder.image.omissions import PROGRAMS
from envbuilder.probes import needs, omit
from envbuilder.probes.shorten import symbols_cut
from envbuilder.probes.suite.elf import Elf

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
    """Return a site folder, deep enough in an environment of its own."""
    folder = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    folder.mkdir(parents=True)
    return folder


def mapped(path: Path) -> mmap.mmap:
    """Map a file for reading."""
    with path.open("rb") as stream:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)


def cut_copy(library: Path, to: Path) -> bytes:
    """Write what a cut leaves of a library, and return it."""
    image = mapped(library)
    cut = symbols_cut(image)
    assert cut is not None
    to.write_bytes(library.read_bytes())
    cut.write_over(str(to))
    assert to.read_bytes() == b"".join(cut.over(image))
    assert omit.digest_of_file(str(to)) == cut.digest(image)
    return to.read_bytes()


def test_what_is_loaded_stays_byte_for_byte(library: Path, tmp_path: Path) -> None:
    """Every byte that is loaded is as before but for the header; the library loads, answers, exports the same."""
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
    """Tools still find .text, .dynsym and the rest; none of those for debuggers is left."""
    cut_copy(library, tmp_path / "libcut.so")
    before, after = Elf(str(library)).sections, Elf(str(tmp_path / "libcut.so")).sections
    assert {".symtab", ".strtab", ".debug_info"} <= before.keys()
    assert not after.keys() & {".symtab", ".strtab", ".debug_info", ".comment"}
    assert {name: place for name, place in after.items() if name != ".shstrtab"} == {
        name: place for name, place in before.items() if name in after and name != ".shstrtab"
    }


def test_a_file_that_was_cut_is_not_cut_again(library: Path, tmp_path: Path) -> None:
    """Where nothing is left to cut, there is no cut: a list names no file twice."""
    cut_copy(library, tmp_path / "libcut.so")
    assert symbols_cut(mapped(tmp_path / "libcut.so")) is None


@pytest.mark.parametrize("cut_at", [0, 40, 63, 64, 100, 5000, -1, -64, -2000])
def test_damaged_files_are_left_alone(library: Path, tmp_path: Path, cut_at: int) -> None:
    """A truncated file, or one that is no ELF file, is never planned to be longer than it is, and nothing is raised."""
    content = library.read_bytes()[: cut_at or None] if cut_at else b"x" * 4096
    (tmp_path / "bad.so").write_bytes(content)
    cut = symbols_cut(mapped(tmp_path / "bad.so"))
    assert cut is None or cut.size < len(content)


FILES = {
    "kept/__init__.py": b"import other\n",
    "kept/include/kept.h": b"#define A\n",
    "kept/include/deep/more.hpp": b"#define B\n",
    "kept/tests/test_kept.py": b"import kept\n",
    "kept/speed.c": b"int a;\n",
}


def derived(site: Path) -> dict[str, Any]:
    """Derive the list for what is installed, the distribution ``kept`` asked for."""
    return needs.derive(str(site), ["kept"], [], "kept")


def test_files_go_and_the_record_says_what_is_there(site: Path, library: Path) -> None:
    """What is listed goes with its byte code and empty folders; RECORD names what is left, with its digest and size."""
    installed(site, "kept", {**FILES, "kept/libanswer.so": library.read_bytes(), "kept/load.py": b"'libanswer.so'\n"})
    before = sum(path.stat().st_size for path in site.rglob("*") if path.is_file() and path.suffix != ".pyc")
    record_before = (site / "kept-1.0.dist-info" / "RECORD").stat().st_size
    gone = omit.apply(derived(site), str(site))
    record = omit.read_record(str(site / "kept-1.0.dist-info" / "RECORD"))
    there = {str(path.relative_to(site)) for path in site.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert there == record.keys()
    assert record.keys() & FILES.keys() == {"kept/__init__.py"}
    for path, (digest, size) in record.items():
        if digest:
            assert omit.digest_of_file(str(site / path)) == digest
            assert (site / path).stat().st_size == int(size)
    assert not (site / "kept" / "include").exists()
    assert not (site / "kept" / "tests").exists(), "byte code goes with its source, and the empty folder with both"
    after = sum(path.stat().st_size for path in site.rglob("*") if path.is_file() and path.suffix != ".pyc")
    shorter = record_before - (site / "kept-1.0.dist-info" / "RECORD").stat().st_size
    assert 0 < gone == before - after - shorter


@pytest.mark.parametrize(
    "change",
    [
        {"files": 9},
        {"digest": "sha256=AAAA"},
        {"path": "kept/"},
    ],
)
def test_a_list_of_another_wheel_touches_nothing(site: Path, change: dict[str, object]) -> None:
    """Where RECORD is not what the list was made from, nothing goes."""
    installed(site, "kept", FILES)
    listed = derived(site)
    listed["distributions"][0]["left_out"][-1].update(change)
    before = sorted(site.rglob("*"))
    with pytest.raises(omit.NotAsListedError):
        omit.apply(listed, str(site))
    assert sorted(site.rglob("*")) == before


def test_nothing_outside_of_the_environment_is_removed(site: Path, tmp_path: Path) -> None:
    """A RECORD whose path leads out of the environment is refused."""
    (tmp_path / "precious").write_text("x")
    installed(site, "kept", {"kept/__init__.py": b""})
    record = site / "kept-1.0.dist-info" / "RECORD"
    path = "../../../../precious"
    record.write_text(record.read_text() + f"{path},sha256=x,1\n")
    row = {"path": path, "files": 1, "size": 1, "digest": omit.digest_of_rows([(path, "sha256=x")]), "reason": "tests"}
    listed = {"distributions": [{"name": "kept", "version": "1.0", "left_out": [row], "cut": []}]}
    with pytest.raises(omit.NotAsListedError, match="leads out"):
        omit.apply(listed, str(site))
    assert (tmp_path / "precious").exists()


def test_the_program_says_why_it_did_nothing(site: Path, tmp_path: Path) -> None:
    """Run as a build runs it, with what a context brings: 1 and a sentence where another version is installed."""
    installed(site, "kept", FILES)
    (tmp_path / "list.json").write_text(
        '{"distributions": [{"name": "kept", "version": "2.0", "left_out": [], "cut": []}]}'
    )
    for name in PROGRAMS:
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(Path(envbuilder.__file__).parent.joinpath(name).read_bytes())
    command = [sys.executable, "-E", "-s", "-S", "-m", "probes.omit", "list.json", str(site)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "not left out: kept 2.0 is not installed\n")
