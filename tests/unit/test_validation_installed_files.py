"""Every installed file against its RECORD and its locked wheel's; code that nothing brings is named."""

import hashlib
import io
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from made_images import SITE, SYSTEM, Layer, cache_of, context_of, errors, image_of, package, row
from table_rows import rows

from envbuilder.engine.port import LayerFile
from envbuilder.finding import Code, Finding, Severity
from envbuilder.image import lockfile, removed_files
from envbuilder.image.wheel_records import WheelRecords
from envbuilder.probes.slimming.remove_files import Row, digest_of_rows
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.client import IndexUnavailableError, PackageIndex
from envbuilder.pypi.pages import DistFile
from envbuilder.validation.image_context import ImageContext
from envbuilder.validation.installed_files import files
from envbuilder.validation.suite_plan import CHECKS
from envbuilder.validation.validate import run_host_checks

CACHED = f"{SITE}/numpy/__pycache__/__init__.cpython-311.pyc"
NUMPY = {"numpy/__init__.py": b"version = 2\n", "numpy/core.so": b"code"}
INSTALLED = package("numpy", "2.4.6", NUMPY)
DIGEST = "a" * 64
ELF = Path("/proc/self/exe").read_bytes()[:64] + bytes(4096)
LOCK = f"numpy==2.4.6 \\\n    --hash=sha256:{DIGEST}\n"


def test_installed_image_has_no_finding() -> None:
    notes = {
        f"{SITE}/numpy-2.4.6.dist-info/INSTALLER": b"uv",
        f"{SITE}/numpy/__pycache__/__init__.cpython-311.pyc": b"x",
    }
    assert errors({**INSTALLED, **notes}) == []


@pytest.mark.parametrize(
    ("layer", "path"),
    [
        ({f"{SITE}/numpy/__init__.py": b"version = 1\n"}, "numpy/__init__.py"),
        ({f"{SITE}/numpy/core.so": b"cod"}, "numpy/core.so"),
        ({f"{SITE}/numpy/core.so": None}, "numpy/core.so"),
        ({f"{SITE}/numpy/core.so": "/elsewhere/core.so"}, "numpy/core.so"),
        ({f"{SITE}/numpy": None}, "numpy/"),
        ({f"{SITE}/extra.pth": b"import extra"}, "extra.pth"),
        ({f"{SITE}/numpy/more.py": b"x"}, "numpy/more.py"),
        ({f"{SITE}/sitecustomize.py": b"x"}, "sitecustomize.py"),
        ({"usr/local/lib/libextra.so": b"x"}, "libextra.so"),
        ({"etc/ld.so.conf.d/x.conf": b"/opt/x\n", "opt/x/libm.so.6": b"x"}, "libm.so.6"),
        ({"root/.local/lib/python3.11/site-packages/usercustomize.py": b"x"}, "usercustomize.py"),
    ],
)
def test_differing_file_is_reported_with_its_path(layer: Layer, path: str) -> None:
    (one,) = errors(INSTALLED, layer)
    assert (one.code, path in one.message) == (Code.FILES_DIFFER, True)


def test_cached_byte_code_in_a_wheel_may_be_compiled_again() -> None:
    """NumPy 1.26's wheel lists one with its digest."""
    cached = "numpy/__pycache__/conv.cpython-311.pyc"
    packed = package("numpy", "1.26.4", {**NUMPY, cached: b"code"})
    assert not errors({**packed, f"{SITE}/{cached}": b"other"})


@rows
def test_missing_library_or_tool_has_its_own_code(gone: str, code: Code) -> None:
    (one,) = errors(package("nvidia_x", "1", {gone: b"x", "nvidia/other.py": b"y"}), {f"{SITE}/{gone}": None})
    assert (one.code, gone in one.message) == (code, True)


@pytest.mark.parametrize(
    ("layer", "env", "workdir", "named"),
    [
        ({"opt/m.zip": b"PK"}, {"PYTHONPATH": "/opt/m.zip:/opt/nothing"}, "", "/opt/m.zip"),
        ({"etc/ld.so.preload": b"/opt/x.so\n"}, {}, "", "ld.so.preload"),
        *(
            ({f"opt/lib/{folder}/libz.so.1": b"z"}, {"LD_LIBRARY_PATH": "/opt/lib"}, "", "libz.so.1")
            for folder in ("glibc-hwcaps/x86-64-v3", "haswell", "tls", "haswell/avx512_1")
        ),
    ],
)
def test_code_loaded_before_installed_code_is_named(
    layer: Layer, env: dict[str, str], workdir: str, named: str
) -> None:
    (one,) = errors({**INSTALLED, **layer}, env=env, workdir=workdir)
    assert one.code is Code.FILES_DIFFER
    assert named in one.message


@pytest.mark.parametrize("value", [":", "/usr/lib:", "lib/..", "/opt;."])
def test_relative_loader_path_means_the_working_folder(value: str) -> None:
    there = {**INSTALLED, "srv/libz.so.1": b"z"}
    (one,) = errors(there, env={"LD_LIBRARY_PATH": value}, workdir="/srv")
    assert "/srv/libz.so.1" in one.message
    assert errors(there, env={"LD_LIBRARY_PATH": "/usr/lib"}, workdir="/srv") == []


def test_foreign_image_without_tests_of_a_package_is_a_warning() -> None:
    there = package("numpy", "2.4.6", {**NUMPY, "numpy/tests/test_a.py": b"x"})
    foreign: dict[str, Any] = {"facts": {"environment": ""}}
    assert errors(there, {f"{SITE}/numpy/tests/test_a.py": None}, **foreign) == []
    assert len(errors(there, {f"{SITE}/numpy/core.so": None}, **foreign)) == 1
    assert errors({**there, f"{SITE}/mine.py": b"x"}, **foreign) == []


class Index(PackageIndex):
    """Publishes version 2.4.6 of these projects; None for an index that does not answer."""

    def __init__(self, records: dict[str, str] | None, wheel: bytes = b"", size: int = 1 << 30) -> None:
        self.records, self.bytes, self.content = records, size, wheel
        self.asked: list[str] = []

    def files(self, project: str) -> tuple[DistFile, ...]:
        if self.records is None:
            raise IndexUnavailableError("no route")
        name, digest = f"{project}-2.4.6-py3-none-any.whl", self.digest if project == "numpy" else "b" * 64
        one = DistFile(project=project, filename=name, url="u", sha256=digest)
        return (one,) if project in self.records else ()

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest() if self.content else DIGEST

    def whole(self, file: DistFile) -> Iterator[bytes]:  # noqa: ARG002 - the port's signature
        self.asked.append("whole")
        yield from (self.content[:10], self.content[10:])

    def member(self, file: DistFile, name: str) -> bytes | None:
        self.asked.append("range")
        return (self.records or {})[file.project].encode() if name.endswith("/RECORD") else None

    def size(self, file: DistFile) -> int:  # noqa: ARG002 - the port's signature
        return self.bytes


def on_host(index: Index | None, cache: Path, *layers: Layer, lock: str = LOCK, **given: Any) -> ImageContext:
    return replace(context_of(image_of(*layers), lock=lock, **given), wheels=WheelRecords(index, Cache(cache)))


def held_against(records: dict[str, str] | None, cache: Path, *layers: Layer) -> list[Finding]:
    return list(files(on_host(Index(records), cache, *layers)).findings)


def wheel(files: dict[str, bytes] = NUMPY, name: str = "numpy") -> dict[str, str]:
    return {name: package(name, "2.4.6", files)[f"{SITE}/{name}-2.4.6.dist-info/RECORD"].decode()}


FRAMEWORK = {"tensorflow/__init__.py": b"version = 2\n", "tensorflow/core.so": b"code"}


@pytest.mark.parametrize(
    ("content", "is_published", "errors", "is_decided"),
    [(b"code", True, 0, True), (b"swapped", True, 1, True), (b"code", False, 0, False)],
)
def test_foreign_framework_is_compared_with_its_wheel_on_the_index(
    content: bytes, errors: int, tmp_path: Path, *, is_published: bool, is_decided: bool
) -> None:
    index = Index({**wheel(FRAMEWORK, "tensorflow"), **wheel()} if is_published else {})
    there = package("tensorflow", "2.4.6", {**FRAMEWORK, "tensorflow/core.so": content})
    foreign = {"environment": ""}
    found = files(on_host(index, tmp_path, {**there, **INSTALLED}, lock="", facts=foreign))
    assert [one.code for one in found.findings if one.severity is Severity.ERROR] == [Code.FILES_DIFFER] * errors
    assert ("tensorflow 2.4.6" not in found.undecided, found.undecided == "") == (is_decided, is_decided)
    other = {**INSTALLED, **package("numpy", "2.4.6", {**NUMPY, "numpy/core.so": b"other code"})}
    found = files(on_host(index, tmp_path, {**there, **other}, lock="", facts=foreign))
    subjects = [one.subject for one in found.findings if one.severity is Severity.ERROR]
    assert ("numpy" in subjects) is is_published, "NumPy is loaded by TensorFlow"


FOREIGN = {"facts": {"environment": ""}, "env": {"PATH": "/opt/venv/bin:/usr/bin"}}
CUDART = "usr/local/cuda-12.5/lib64/libcudart.so.12"
FOUND_CUDA: Layer = {"etc/ld.so.conf.d/x.conf": b"/x\n", "etc/ld.so.cache": cache_of({"libcudart.so.12": f"/{CUDART}"})}
CUDART_BY_DPKG: Layer = {"var/lib/dpkg/info/cuda.list": f"/{CUDART}\n".encode()}


def digest(content: bytes) -> Layer:
    md5 = hashlib.md5(content).hexdigest()  # noqa: S324 - dpkg's
    return {**CUDART_BY_DPKG, "var/lib/dpkg/info/cuda.md5sums": f"{md5}  {CUDART}\n".encode()}


@pytest.mark.parametrize(
    ("layer", "named", "error"),
    [
        ({}, CUDART, False),
        (CUDART_BY_DPKG, CUDART, False),
        (digest(ELF), "", False),
        (digest(b"another"), CUDART, True),
        ({"opt/venv/bin/python": b"#!/bin/sh\nexec /usr/bin/python3 $@\n"}, "/opt/venv/bin/python", False),
        ({f"{SITE}/tensorflow/more.so": ELF}, "tensorflow/more.so", False),
        ({f"{SITE}/tensorflow-plugins/more.so": ELF}, "tensorflow-plugins/more.so", False),
    ],
)
def test_file_that_a_foreign_tensorflow_loads_and_no_record_lists_leaves_it_undecided(
    layer: Layer, named: str, *, error: bool, tmp_path: Path
) -> None:
    folders = {path: LayerFile(path, "folder") for path in (SITE, f"{SITE}/tensorflow")}
    there: Layer = {**folders, **package("tensorflow", "2.4.6", FRAMEWORK), **PYTHON}
    cuda: Layer = {**FOUND_CUDA, CUDART: ELF} if not layer or any("cuda" in path for path in layer) else {}
    found = files(
        on_host(Index(wheel(FRAMEWORK, "tensorflow")), tmp_path, {**there, **cuda, **layer}, lock="", **FOREIGN)
    )
    wrong = [one for one in found.findings if one.severity is Severity.ERROR]
    assert [named in one.message for one in wrong] == [True] * error
    assert named in found.undecided if named else found.undecided == ""


def test_record_rewritten_with_its_files_differs_from_the_wheel(tmp_path: Path) -> None:
    swapped = package("numpy", "2.4.6", {**NUMPY, "numpy/core.so": b"other code"})
    assert held_against(wheel(), tmp_path / "a", INSTALLED) == []
    (one,) = held_against(wheel(), tmp_path / "a", swapped)
    assert (one.code, one.severity, "core.so" in one.message) == (Code.FILES_DIFFER, Severity.ERROR, True)
    extra = package("numpy", "2.4.6", {**NUMPY, "numpy/more.py": b"x"})
    (more,) = held_against(wheel(), tmp_path / "a", extra)
    assert "more.py" in more.message


def test_wheel_without_an_index_is_unknown_unless_cached(tmp_path: Path) -> None:
    (unknown,) = held_against(None, tmp_path / "a", INSTALLED)
    assert (unknown.code, unknown.severity, "numpy" in unknown.message) == (Code.UNKNOWN, Severity.WARNING, True)
    assert held_against(wheel(), tmp_path / "b", INSTALLED) == []
    assert held_against(None, tmp_path / "b", INSTALLED) == []


@cache
def packed() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for path, content in NUMPY.items():
            archive.writestr(path, content)
        archive.writestr("numpy-2.4.6.dist-info/RECORD", wheel()["numpy"])
    return made.getvalue()


def proved(index: Index, cache: Path, *, built: bool = False, **changed: bytes) -> tuple[float, list[Code]]:
    lock = f"numpy==2.4.6 \\\n    --hash=sha256:{hashlib.sha256(packed()).hexdigest() if index.content else DIGEST}\n"
    there = package("numpy", "2.4.6", {**NUMPY, **{f"numpy/{name}.so": one for name, one in changed.items()}})
    looked = files(replace(on_host(index, cache, there, lock=lock), is_built_here=built))
    return looked.measurements["proved"].value, [one.code for one in looked.findings]


def test_small_wheel_is_hashed_completely(tmp_path: Path) -> None:
    index = Index(wheel(), packed(), size=len(packed()))
    assert proved(index, tmp_path / "a") == (1, [])
    assert proved(index, tmp_path / "a", core=b"swapped") == (1, [Code.FILES_DIFFER])
    assert index.asked == ["whole"]

    class Liar(Index):
        digest = hashlib.sha256(packed()).hexdigest()  # the page says the locked hash, the file is another one

    lying = Liar(wheel(), packed() + b"x", size=len(packed()) + 1)
    assert proved(lying, tmp_path / "b") == (0, [Code.UNKNOWN])
    assert proved(lying, tmp_path / "b") == (0, [Code.UNKNOWN])
    assert lying.asked == ["whole", "whole"]


def test_large_wheel_is_proved_by_a_build_on_this_host(tmp_path: Path) -> None:
    assert proved(Index(wheel()), tmp_path) == (0, [])
    assert proved(Index(wheel()), tmp_path, built=True, core=b"swapped") == (0, [Code.FILES_DIFFER])
    assert proved(Index(wheel()), tmp_path) == (0, [])
    assert proved(Index(wheel()), tmp_path, built=True) == (0, [])
    assert proved(Index(None), tmp_path) == (1, [])


def test_interpreter_replaced_by_a_later_layer_is_reported() -> None:
    venv: Layer = {
        "opt/venv/pyvenv.cfg": b"home = /usr/local/bin\n",
        "opt/venv/bin/python": "/usr/local/bin/python3.11",
    }
    there: Layer = {"usr/local/bin/python3.11": ELF, "usr/local/lib/python3.11/os.py": b"own", **INSTALLED}
    assert errors(there, venv) == []
    assert errors({**there, **venv}) == []
    for changed in ({"opt/venv/bin/python": ELF + b"x"}, {"usr/local/bin/python3.11": ELF + b"x"}):
        (one,) = errors(there, venv, changed)
        assert (one.code, one.subject) == (Code.FILES_DIFFER, "python")


LIST_AT = f"{removed_files.CARRIED}numpy-2.4.6.tsv"
LEAN = {"numpy/__init__.py": NUMPY["numpy/__init__.py"], "numpy/core.so": b"co"}
WHOLE = {**NUMPY, "numpy/include/a.h": b"header", "numpy/include/deep/b.h": b"header too"}


def sha(content: bytes) -> str:
    return row("x", content).split(",")[1]


def omitted(**change: Any) -> str:
    pairs = [(path, sha(WHOLE[path])) for path in WHOLE if "/include/" in path]
    gone = Row("numpy", "2.4.6", "compilers", "numpy/include/", 2, 16, digest_of_rows(pairs))._replace(**change)
    cut = Row("numpy", "2.4.6", "symbols", "numpy/core.so", 1, 4, sha(b"code"), "2", sha(b"co"))
    return f"{gone.line()}\n{cut.line()}\n"


def test_package_that_a_later_layer_installs_again_is_compared_with_its_whole_wheel(tmp_path: Path) -> None:
    layers = package("numpy", "2.4.6", LEAN), package("numpy", "2.4.6", WHOLE)
    subject = on_host(Index(wheel(WHOLE)), tmp_path, *layers, removed=omitted())
    assert [one.severity for one in files(replace(subject, own_layers=1)).findings] == [Severity.WARNING]
    assert any(one.severity is Severity.ERROR for one in files(subject).findings)


def lean_against(listed: str, cache: Path, there: dict[str, bytes]) -> list[Finding]:
    subject = on_host(Index(wheel(WHOLE)), cache, package("numpy", "2.4.6", there), removed=listed)
    return [one for one in files(subject).findings if one.severity is Severity.ERROR]


def test_listed_removed_files_are_not_missing(tmp_path: Path) -> None:
    assert lean_against(omitted(), tmp_path, LEAN) == []
    assert len(lean_against("", tmp_path, LEAN)) == 2
    assert lean_against("", tmp_path, WHOLE) == []


@pytest.mark.parametrize(
    ("there", "named"),
    [
        ({**LEAN, "numpy/core.so": b"cx"}, "core.so"),
        ({**LEAN, "numpy/core.so": b"code"}, "core.so"),
        ({**LEAN, "numpy/include/a.h": b"header"}, "a.h"),
        ({"numpy/core.so": b"co"}, "__init__.py"),
    ],
)
def test_files_that_contradict_the_list_are_reported(there: dict[str, bytes], named: str, tmp_path: Path) -> None:
    found = lean_against(omitted(), tmp_path, there)
    assert found
    assert {one.code for one in found} == {Code.FILES_DIFFER}
    assert any(named in one.message for one in found)


@pytest.mark.parametrize("change", [{"files": 3}, {"digest": "sha256=x"}, {"path": "numpy/"}, {"path": "nump"}])
def test_list_of_removed_files_of_another_wheel_excuses_nothing(change: dict[str, Any], tmp_path: Path) -> None:
    found = lean_against(omitted(**change), tmp_path, LEAN)
    assert any("include" in one.message or "numpy/" in one.message for one in found)


def carrying(there: dict[str, bytes], listed: str, label: str, cache: Path) -> ImageContext:
    """Put an image that carries a list and has a label before the checks, on a host that has no list."""
    named = {LIST_AT: listed.encode(), **package("numpy", "2.4.6", there)}
    return on_host(Index(wheel(WHOLE)), cache, named, labels={removed_files.LABEL: label})


def test_list_that_only_the_image_has_decides_nothing(tmp_path: Path) -> None:
    subject = carrying(LEAN, omitted(), lockfile.digest(omitted()), tmp_path)
    (result,), _ = run_host_checks(subject, [check for check in CHECKS if check.name == "files"])
    (one,) = [one for one in result.findings if one.subject == removed_files.REMOVED]
    assert (result.outcome, one.code, one.severity) == ("skipped", Code.UNKNOWN, Severity.WARNING)
    assert "its own list only" in result.observed
    assert not [one for one in result.findings if one.severity is Severity.ERROR]
    known = replace(subject, removed=omitted())
    (result,), _ = run_host_checks(known, [check for check in CHECKS if check.name == "files"])
    assert (result.outcome, [one for one in result.findings if one.subject == removed_files.REMOVED]) == ("passed", [])


@pytest.mark.parametrize(
    ("there", "listed", "label"),
    [
        ({**LEAN, "numpy/core.so": b"cx"}, omitted(), ""),
        (LEAN, omitted(files=3), ""),
        (LEAN, omitted(), "sha256:" + "0" * 64),
        (LEAN, "{", ""),
    ],
)
def test_differences_beyond_the_list_are_errors(
    there: dict[str, bytes], listed: str, label: str, tmp_path: Path
) -> None:
    subject = carrying(there, listed, label or lockfile.digest(listed), tmp_path)
    assert {one.code for one in files(subject).findings if one.severity is Severity.ERROR} == {Code.FILES_DIFFER}


PYTHON: Layer = {
    "usr/bin/python3.11": ELF,
    "opt/venv/bin/python": "/usr/bin/python3.11",
    "opt/venv/pyvenv.cfg": b"home = /usr/bin\ninclude-system-site-packages = false\n",
    "var/lib/dpkg/info/python3.11.list": b"/usr/bin/python3.11\n/usr/bin/dirname\n/bin/sh\n",
    "usr/bin/dirname": b"#!/bin/sh\n",
    "bin/sh": b"#!/bin/bash\n",
}


@pytest.mark.parametrize(
    ("layer", "named"),
    [
        ({"opt/venv/pyvenv.cfg": None}, "pyvenv.cfg is missing"),
        ({"opt/venv/bin/pyvenv.cfg": b"home = /usr/bin\n"}, "next to the interpreter"),
        ({"usr/bin/pybuilddir.txt": b"/opt/build"}, "pybuilddir.txt"),
        ({"opt/venv/bin/dirname": b"#!/bin/sh\n"}, "before the system's in PATH: /opt/venv/bin/dirname"),
        ({"usr/bin/dirname": "/opt/mine"}, "a later layer replaced: /usr/bin/dirname"),
    ],
)
def test_file_that_starts_another_python_or_program_is_reported(layer: Layer, named: str) -> None:
    path = {"PATH": "/opt/venv/bin:/usr/bin:/bin"}
    assert errors(GOOD, env=path) == []
    found = errors(GOOD, layer, env=path)
    assert {one.code for one in found} == {Code.FILES_DIFFER}
    assert len({one.subject for one in found}) == 1
    assert any(named in one.message for one in found)


@pytest.mark.parametrize("folder", ["dist-packages", "site-packages"])
def test_system_python_below_usr_local_needs_no_pyvenv_cfg(folder: str) -> None:
    numpy = {
        path.replace("opt/venv/", "usr/local/").replace("site-packages", folder): content
        for path, content in INSTALLED.items()
    }
    linked: Layer = {"usr/bin/python3.11": ELF, "usr/local/bin/python": "/usr/bin/python3.11"}
    assert any(path.startswith("usr/local/lib/") for path in numpy)
    assert not any("pyvenv.cfg" in one.message for one in errors({**linked, **numpy}))
    noted = errors({**linked, **numpy, "usr/local/pyvenv.cfg": b"home = /opt\n"})
    assert any("pyvenv.cfg sends Python" in one.message for one in noted)


GOOD: Layer = {**PYTHON, **INSTALLED}
NOTE = "opt/venv/pyvenv.cfg"
BARE: Layer = {path: content for path, content in GOOD.items() if path != NOTE}
ABOVE: Layer = {"opt/x": b""}
STRAY: Layer = {"usr/local/lib/libours.so.1": b"\x7fELF"}
STRAY_CODE: Layer = {"usr/lib/python3.9/site-packages/dnf/__init__.py": b"", "etc/python3.9/sitecustomize.py": b""}
COMPILED: Layer = {CACHED: b"code"}
SHELL: Layer = {"bin/sh": b"#!/bin/dash\n"}


@pytest.mark.parametrize(
    ("layers", "named", "reported"),
    [
        ((STRAY, ABOVE), "libours", (True, False, False)),
        ((ABOVE, STRAY), "libours", (True, True, False)),
        ((STRAY_CODE, ABOVE), "dnf", (True, False, False)),
        ((GOOD, COMPILED, ABOVE), "byte code", (True, True, False)),
        ((BARE, ABOVE), "pyvenv.cfg", (True, False, False)),
        ((GOOD, {NOTE: None}), "pyvenv.cfg", (True, True, True)),
        ((GOOD, {NOTE: b"home = /opt/other/bin\n"}), "pyvenv.cfg", (True, True, False)),
        ((GOOD, SHELL, ABOVE), "/bin/sh", (True, True, False)),
        ((PYTHON, GOOD, SHELL), "/bin/sh", (True, True, True)),
    ],
)
def test_files_of_a_base_layer_belong_to_it(layers: tuple[Layer, ...], named: str, reported: tuple[bool, ...]) -> None:
    subject = context_of(image_of(*layers), env={"PATH": "/opt/venv/bin:/usr/bin:/bin"})
    found = tuple(
        any(named in one.message for one in files(replace(subject, of_base=of_base)).findings) for of_base in range(3)
    )
    assert found == reported


def test_pip_of_an_environment_and_links_of_the_system_are_allowed() -> None:
    path = {"PATH": "/opt/venv/bin:/usr/bin:/bin"}
    lists: Layer = {"var/lib/dpkg/info/pip.list": b"/usr/bin/pip3\n/usr/bin/dirname\n", "usr/bin/pip3": b"#!x"}
    more: Layer = {"opt/venv/bin/pip3": b"#!/opt/venv/bin/python\n", "opt/venv/bin/dirname": "/usr/bin/dirname"}
    assert errors({**PYTHON, **lists, **more, **INSTALLED}, env=path) == []


def test_deleted_dpkg_lists_still_count() -> None:
    stdlib = {"usr/lib/python3.11/json/__init__.py": b"x", "usr/lib/x86_64-linux-gnu/libz.so.1": b"z"}
    listed = b"/usr/lib/python3.11/json/__init__.py\n/usr/lib/x86_64-linux-gnu/libz.so.1\n"
    lists = {"var/lib/dpkg/info/python.list": listed}
    there = {**PYTHON, **stdlib, **lists, **INSTALLED}
    assert errors(there, {"var/lib/dpkg": None}) == []
    (one,) = errors(there, {"var/lib/dpkg": None}, {"usr/lib/x86_64-linux-gnu/libz.so.1": b"y"})
    assert "libz.so.1" in one.message
    gone: Layer = dict.fromkeys((*lists, *stdlib))
    assert errors(there, gone) == [], "a package that was removed with its list took its files along"


def test_missing_library_of_the_interpreter_is_reported() -> None:
    real = Path("/proc/self/exe").resolve().read_bytes()
    there = {**PYTHON, "usr/bin/python3.11": real, **INSTALLED}
    found = errors(there)
    assert {one.code for one in found} == {Code.MISSING_LIBRARY}
    assert all("interpreter" in one.message for one in found)


@pytest.mark.parametrize("hashes", ["", f" \\\n    --hash=sha256:{'b' * 64}"], ids=["no hash", "another hash"])
def test_lock_inside_the_image_is_compared_with_the_index(hashes: str, tmp_path: Path) -> None:
    lock = f"numpy==2.4.6{hashes}\n"
    cached = WheelRecords(Index(wheel()), Cache(tmp_path))
    own = replace(context_of(image_of(INSTALLED), lock=lock), wheels=cached)
    carried = replace(own, lock_is_carried=True)
    (one,) = [one for one in files(carried).findings if one.severity is Severity.ERROR]
    assert (one.code, one.subject) == (Code.FILES_DIFFER, "numpy")
    assert "only the lock in the image describes the files of numpy 2.4.6" in one.message
    assert [one.code for one in files(own).findings] == [Code.UNKNOWN]
    silent = files(replace(carried, wheels=WheelRecords(None, Cache(tmp_path)))).findings
    assert [one.code for one in silent] == [Code.UNKNOWN if hashes else Code.FILES_DIFFER]


def test_package_of_dpkg_is_not_compared_with_its_record() -> None:
    own = {
        path.replace(SITE, "usr/lib/python3/dist-packages"): what
        for path, what in package("y", "6", {"y.so": b"1"}).items()
    }
    listed = {"var/lib/dpkg/info/python3-y.list": "".join(f"/{path}\n" for path in own).encode()}
    source, cached = "usr/share/python3/y.py", "usr/share/python3/__pycache__/y.cpython-311.pyc"
    layers: tuple[Layer, ...] = (
        {**SYSTEM, source: b"1"},
        {**own, **listed, "usr/lib/python3/dist-packages/y.so": b"stripped", cached: b"1"},
    )
    assert [one for one in errors(*layers) if one.code is Code.FILES_DIFFER] == []


CUDA_NAMES = "cudart cublasLt cusolverMg cupti cuinj64 nvrtc nccl nvJitLink nvToolsExt nppial cufile cudnn_ops_infer"
OTHER_NAMES = "curl curl-gnutls cups cue culmus nv ncurses"


@pytest.mark.parametrize(("stems", "reported"), [(CUDA_NAMES, 0), (OTHER_NAMES, 1)])
def test_curl_without_a_package_is_reported_and_cuda_is_left_to_other_checks(stems: str, reported: int) -> None:
    for stem in stems.split():
        assert len(errors({f"usr/lib/x86_64-linux-gnu/lib{stem}.so.11": b"\x7fELF"})) == reported, stem


def test_program_of_an_installer_must_not_change_in_a_later_layer() -> None:
    made = b"#!/opt/venv/bin/python\nfrom tool import main\n"
    path, leaf = "opt/venv/bin/tool", "../../../bin/tool"
    files = {
        "tool.py": b"def main(): pass\n",
        "tool-1.0.dist-info/entry_points.txt": b"[console_scripts]\ntool = tool:main\n",
    }

    def installed(program: bytes) -> dict[str, bytes]:
        there = package("tool", "1.0", files)
        record = f"{SITE}/tool-1.0.dist-info/RECORD"
        return {**there, record: there[record] + row(leaf, program).encode(), path: program}

    good, other = installed(made), installed(made + b"import os\n")
    record = f"{SITE}/tool-1.0.dist-info/RECORD"
    assert errors(good, {path: made}) == []
    assert errors(good, other) == []
    silent = package("tool", "1.0", files)[record]
    for told in (other[record], silent):
        (one,) = errors(good, {path: other[path], record: told})
        assert (one.code, path in one.message) == (Code.FILES_DIFFER, True)


def test_rows_with_another_digest_algorithm_are_unknown() -> None:
    record = f"{SITE}/numpy-2.4.6.dist-info/RECORD"
    told = INSTALLED[record].replace(b"sha256=", b"sha512=", 2)
    (one,) = files(context_of(image_of({**INSTALLED, record: told, f"{SITE}/numpy/__init__.py": b"other"}))).findings
    assert (one.code, one.severity) == (Code.UNKNOWN, Severity.WARNING)
    assert "2 files of numpy 2.4.6" in one.message


def test_programs_of_an_addition_may_come_in_a_later_step() -> None:
    there, program = package("acme", "1", {"../../../bin/acme": b"2"}), f"{SITE}/../../../bin/acme"
    image = image_of({}, {path: data for path, data in there.items() if path != program}, {"opt/venv/bin/acme": b"2"})
    assert "acme" not in str(files(replace(context_of(image), own_layers=1)).findings)
