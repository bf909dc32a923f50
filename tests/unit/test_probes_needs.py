"""What of an installation nothing can load: derived from imports, needs and names; in doubt, it is kept."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from installed_site import installed

from envbuilder.probes import needs


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a site folder, deep enough in an environment of its own."""
    folder = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    folder.mkdir(parents=True)
    return folder


def library(folder: Path, name: str, source: str, *needed: str) -> bytes:
    """Compile a shared library that needs others of the folder, which lie there."""
    (folder / "a.c").write_text(source)
    words = ["cc", "-shared", "-fPIC", "-s", "-o", name, "a.c", *needed, f"-Wl,-soname,{name}"]
    subprocess.run(words, cwd=folder, check=True)
    return (folder / name).read_bytes()


def gone(site: Path, *wished: str, libraries: tuple[str, ...] = ()) -> dict[str, str]:
    """Derive the list; return each row's path and reason."""
    listed = needs.derive(str(site), wished, libraries, "framework")
    return {row["path"]: row["reason"] for one in listed["distributions"] for row in one["left_out"]}


def test_what_compilers_read_goes_and_what_python_reads_stays(site: Path) -> None:
    """Headers, static archives and sources of extensions go, whole folders as one row; modules and data stay."""
    installed(
        site,
        "framework",
        {
            "framework/__init__.py": b"",
            "framework/data.json": b"{}",
            "framework/include/a.h": b"",
            "framework/include/tool": b"",
            "framework/lib/libx.a": b"",
            "framework/_speed.pyx": b"",
            "framework/stub.pyi": b"",
        },
    )
    assert gone(site, "framework") == {
        "framework/include/": "compilers",
        "framework/lib/": "compilers",
        "framework/_speed.pyx": "compilers",
    }


def test_tests_go_unless_a_module_imports_them(site: Path) -> None:
    """A package's own tests go; a module of them that another imports is kept, with what it imports and reads."""
    text = b"from helper.tests.deep._shared import thing\nimport array_like, whole_test\n"
    installed(site, "framework", {"framework/__init__.py": text})
    installed(
        site,
        "helper",
        {
            "helper/__init__.py": b"",
            "helper/tests/__init__.py": b"",
            "helper/tests/deep/__init__.py": b"",
            "helper/tests/deep/_shared.py": b"from ._more import x\nimport far\nopen('table.csv')\n",
            "helper/tests/deep/_more.py": b"",
            "helper/tests/data/table.csv": b"",
            "helper/tests/data/other.csv": b"",
            "helper/tests/data/array_like.py": b"",
            "helper/tests/test_a.py": b"",
            "helper/whole_test.py": b"",
        },
    )
    installed(site, "far", {"far.py": b""})
    installed(site, "plain", {"framework_plain.py": b"", "plain/tests/test_a.py": b""})
    assert gone(site, "framework", "plain") == {
        "helper/tests/data/array_like.py": "tests",
        "helper/tests/data/other.csv": "tests",
        "helper/tests/test_a.py": "tests",
        "plain/": "tests",
    }


def test_a_distribution_that_nobody_imports_goes_whole(site: Path) -> None:
    """What is installed as a requirement alone goes but for its metadata; asked for by name, it stays."""
    installed(site, "framework", {"framework/__init__.py": b"import used\n"})
    installed(site, "used", {"used/__init__.py": b"def f():\n    import deep.inner\n"})
    installed(site, "deep", {"deep/inner.py": b""})
    installed(site, "unused", {"unused/__init__.py": b"import unused.more\n", "unused/more.py": b""})
    assert gone(site, "framework") == {"unused/": "unimported"}
    assert gone(site, "framework", "unused") == {}


@pytest.mark.parametrize(
    "text",
    [
        b"try:\n    import unused\nexcept ImportError:\n    pass\n",
        b"from unused import thing\n",
        b"from unused.more import (\n    a,\n    b,\n)\n",
        b"import os, unused as u\n",
        b"x = LazyLoader('u', globals(), 'unused.more')\n",
        b"import importlib\nimportlib.import_module('unused')\n",
        b"NAMES = ['unused.more']\n",
    ],
)
def test_every_way_to_import_keeps_a_distribution(site: Path, text: bytes) -> None:
    """An import in a try, of several names, by a lazy loader, by a function, or a dotted name in a text keeps it."""
    installed(site, "framework", {"framework/__init__.py": text})
    installed(site, "unused", {"unused/__init__.py": b"", "unused/more.py": b""})
    assert gone(site, "framework") == {}


def test_distributions_that_start_by_themselves_stay(site: Path) -> None:
    """One with programs, or with a .pth that Python reads at its start, stays though nobody imports it."""
    installed(site, "framework", {"framework/__init__.py": b""})
    installed(site, "tool", {"tool/__init__.py": b"", "tool-1.0.dist-info/entry_points.txt": b"[console_scripts]\n"})
    installed(site, "hook", {"hook.py": b"", "hook.pth": b"import hook\n"})
    assert gone(site, "framework") == {}


def test_objects_stay_by_need_by_name_and_by_function(site: Path, tmp_path: Path) -> None:
    """A library stays where an object that stays needs it, or names it or a function of it; so does one by soname."""
    other = library(tmp_path, "libneeded.so", "int needed_by_all(void) { return 1; }")
    first = 'int needed_by_all(void); const char *a[] = {"libnamed.so.%d", "dlsym_of_it", "functions", "built"};\n'
    first += "int run(void) { return needed_by_all() + (a[0] != 0); }"
    installed(site, "framework", {"framework/__init__.py": b"import framework._first\n"})
    installed(
        site,
        "native",
        {
            "native/_first.so": library(tmp_path, "_first.so", first, "-L.", "-l:libneeded.so"),
            "native/libneeded.so": other,
            "native/libnamed.so.12": library(tmp_path, "libnamed.so.12", "int n(void) { return 1; }"),
            "native/libfunctions.so": library(tmp_path, "libfunctions.so", "int dlsym_of_it(void) { return 1; }"),
            "native/libbuilt.so.2": library(tmp_path, "libbuilt.so.2", "int b(void) { return 1; }"),
            "native/libopened.so.3": library(tmp_path, "libopened.so.3", "int o(void) { return 1; }"),
            "native/libsilent.so": library(tmp_path, "libsilent.so", "int dlsym_of_it(void) { return 1; }"),
            "native/libdead.so": library(tmp_path, "libdead.so", "int nobody_calls_it(void) { return 1; }"),
            "native/libnamed-plugin.so": library(tmp_path, "libnamed-plugin.so", "int p(void) { return 1; }"),
        },
    )
    assert gone(site, "framework", "native", libraries=("libopened.so.3",)) == {
        "native/libdead.so": "unnamed",
        "native/libnamed-plugin.so": "unnamed",
        "native/libsilent.so": "unnamed",
    }


@pytest.mark.parametrize(
    ("words", "stays"),
    [
        ('"libdrv_far.so.4"', True),
        ('"libdrv_", "far", "drv_compile_it"', True),
        ('"drv_far", "drv_compile_it"', True),
        ('"drv", "_far", "drv_compile_it"', True),
        ('"far", "drv_compile_it"', False),
        ('"libdrv_", "far"', False),
        ('"drv_compile_it"', False),
    ],
)
def test_a_name_may_be_put_together(site: Path, tmp_path: Path, words: str, *, stays: bool) -> None:
    """A name in full is enough; one in parts, or without ``lib``, takes the name of a function beside it."""
    opener = library(tmp_path, "_first.so", f"const char *a[] = {{{words}}}; int run(void) {{ return a[0] != 0; }}")
    installed(site, "framework", {"framework/__init__.py": b"import framework._first\n", "framework/_first.so": opener})
    far = library(tmp_path, "libdrv_far.so.4", "int drv_compile_it(void) { return 1; }")
    installed(site, "framework_more", {"framework/libdrv_far.so.4": far})
    assert bool(gone(site, "framework", "framework-more")) != stays


@pytest.mark.parametrize(
    ("folder", "flags", "words", "stays"),
    [
        ("vendor/nvvm/lib64", (), '"libfar.so"', False),
        ("vendor/nvvm/lib64", ("-Wl,-rpath,$ORIGIN/../vendor/nvvm/lib64",), '"libfar.so"', True),
        ("vendor/nvvm/lib64", (), '"libfar.so", "/nvvm/lib64/"', True),
        ("framework", (), '"libfar.so"', True),
    ],
    ids=["out of sight", "searched", "by its folder", "beside it"],
)
def test_a_library_that_is_named_must_be_found(
    site: Path, tmp_path: Path, folder: str, flags: tuple[str, ...], words: str, *, stays: bool
) -> None:
    """A bare name opens what a loader finds: in the opener's folder, where some object searches, or by a path."""
    opener = library(tmp_path, "_first.so", f"const char *a[] = {{{words}}}; int run(void) {{ return !a[0]; }}", *flags)
    framework = {"framework/__init__.py": b"import framework._first\n", "framework/_first.so": opener}
    installed(site, "framework", framework)
    far = library(tmp_path, "libfar.so", "int far_away(void) { return 1; }")
    installed(site, "far", {f"{folder}/libfar.so": far})
    assert bool(gone(site, "framework")) != stays


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", '"libtfkernel*.so"'),
        (b"d = join('core', 'kernels')\nload_library(d)\n", ""),
        (b"for one in os.listdir(root + '/core/kernels/'):\n    pass\n", ""),
        (b"for name in ('tfkernel_sobol', 'other'):\n    CDLL('lib' + name + '.so')\n", ""),
        (b"CDLL('libtfkernel_sobol.so')\n", ""),
    ],
    ids=["pattern", "folder's parts", "folder's path", "put together", "in full"],
)
def test_what_is_found_without_its_name_stays(site: Path, tmp_path: Path, text: bytes, words: str) -> None:
    """An object stays that lies in a folder which a module lists, or that a pattern or a name in parts stands for."""
    opener = library(tmp_path, "_first.so", f"const char *a[] = {{{words}}}; int run(void) {{ return !a[0]; }}")
    kernel = library(tmp_path, "libtfkernel_sobol.so", "int sobol_is_here(void) { return 1; }")
    framework = {
        "framework/__init__.py": b"import framework._first\n" + text,
        "framework/_first.so": opener,
        "framework/core/kernels/libtfkernel_sobol.so": kernel,
        "framework/core/others/libdead.so": kernel,
    }
    installed(site, "framework", framework)
    assert gone(site, "framework") == {"framework/core/others/": "unnamed"}


COLLECT = "int collect_all(void) { return 1; }"
MESSAGES = "".join(f'    "message {one:03} of the collectives: peer %d of %d",\n' for one in range(120))
CODE = f"{COLLECT}\nconst char *said[] = {{\n{MESSAGES}}};"
NAMES = 'const char *option = "collect";'
ASKS = f'{NAMES} const char *asked = "collect_all";'
SEARCHED = "-Wl,-rpath,$ORIGIN/../vendor"


@pytest.mark.parametrize(
    ("linked", "source", "goes"),
    [
        (CODE, ASKS, True),
        (CODE, NAMES, True),
        (CODE, ASKS + 'const char *opened = "libcollect.so.2";', False),
        (COLLECT, ASKS, False),
        (f"const char *said[] = {{\n{MESSAGES}}};", ASKS, False),
        ("", NAMES, True),
    ],
    ids=["functions", "bare name", "opened by name", "a stub", "messages alone", "no function"],
)
def test_a_library_that_is_linked_in_is_not_opened(
    site: Path, tmp_path: Path, linked: str, source: str, *, goes: bool
) -> None:
    """What an object brings itself, functions and messages, needs no library; a stub does, and its name in full."""
    small = library(tmp_path, "libframework.so.2", linked)
    cc = library(tmp_path, "libframework_cc.so", source, SEARCHED, "-Wl,--no-as-needed", "libframework.so.2")
    framework = {"framework/libframework.so.2": small, "framework/libframework_cc.so": cc}
    installed(site, "framework", {"framework/__init__.py": b"CDLL('libframework_cc.so')\n", **framework})
    installed(site, "collect", {"vendor/libcollect.so.2": library(tmp_path, "libcollect.so.2", CODE)})
    assert gone(site, "framework") == ({"vendor/": "unimported"} if goes else {})


def test_functions_are_asked_of_what_an_object_reaches(site: Path, tmp_path: Path) -> None:
    """A function that an object names is to be had from what it needs: linked into another, it says nothing of this."""
    small = library(tmp_path, "libframework.so.2", CODE)
    alone = library(tmp_path, "libalone.so", ASKS, SEARCHED)
    names = b"CDLL('libframework.so.2')\nCDLL('libalone.so')\n"
    files = {"framework/libframework.so.2": small, "framework/libalone.so": alone}
    installed(site, "framework", {"framework/__init__.py": names, **files})
    installed(site, "collect", {"vendor/libcollect.so.2": library(tmp_path, "libcollect.so.2", CODE)})
    assert gone(site, "framework") == {}


def test_a_library_that_is_used_keeps_its_whole_distribution(site: Path, tmp_path: Path) -> None:
    """A distribution of libraries that nobody imports stays where one of its objects is used."""
    installed(site, "framework", {"framework/__init__.py": b"ctypes.CDLL('libdata.so')\n"})
    installed(site, "data", {"data/libdata.so": library(tmp_path, "libdata.so", "int d;"), "data/table.bin": b"x"})
    assert gone(site, "framework") == {}


def test_files_of_two_distributions_stay(site: Path) -> None:
    """What two distributions bring under one path is not one's to leave out."""
    installed(site, "framework", {"framework/__init__.py": b""})
    installed(site, "one", {"shared/__init__.py": b"", "shared/one/x.py": b""})
    installed(site, "two", {"shared/__init__.py": b"", "shared/two/y.py": b""})
    assert gone(site, "framework") == {"shared/one/": "unimported", "shared/two/": "unimported"}
    assert gone(site, "framework", "one", "two") == {}


def test_what_the_framework_requires_is_named(site: Path) -> None:
    """Directly or not; without what only an extra brings, what is not installed, and the framework itself."""
    for name, head in {
        "framework": 'Requires-Dist: Number_s>=1\nRequires-Dist: extra-one; extra == "more"\nRequires-Dist: gone<2',
        "number_s": "Requires-Dist: deep (>=1) ; python_version >= '3.8'\nRequires-Dist: framework",
        "deep": "Summary: nothing\n\nRequires-Dist: text",
        "extra_one": "",
        "text": "",
    }.items():
        installed(site, name, {f"{name}/__init__.py": b""})
        with (site / f"{name}-1.0.dist-info" / "METADATA").open("a") as stream:
            stream.write(head + "\n")
    assert needs.derive(str(site), ["framework"], [], "Framework")["required"] == ["deep", "number-s"]
