"""A Python's own library, and what seems to vouch for other code: later layers change neither without being named."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from made_images import SITE, SYSTEM, Layer, image_of, outside, package

from envbuilder.engine.port import LayerFile
from envbuilder.finding import Code, Finding, Severity
from envbuilder.validation.installed_files import files

ELF = Path("/proc/self/exe").read_bytes()[:64] + bytes(4096)
SIX = b"version = 1\n"
GOOD: Layer = {
    **SYSTEM,
    **package("six", "1.17.0", {"six.py": SIX}),
    **package("tensorflow", "2.20.0", {"tensorflow/__init__.py": b"1"}),
    f"{SITE}": LayerFile(SITE, "folder"),
    f"{SITE}/tensorflow": LayerFile(f"{SITE}/tensorflow", "folder"),
}
ARCH = "usr/lib/x86_64-linux-gnu"
ENV = {"PATH": "/opt/venv/bin:/usr/bin"}
OTHERS = {"environment": ""}


def told(*layers: Layer, base: Layer = GOOD, **more: Any) -> list[Finding]:
    """Judge a small whole image with these layers above it."""
    return list(files(outside(image_of(base, *layers), **{"env": ENV, **more})).findings)


def errors(*layers: Layer, base: Layer = GOOD, **more: Any) -> list[Finding]:
    """Judge it as one of ours, and keep what makes it fail."""
    return [one for one in told(*layers, base=base, **more) if one.severity is Severity.ERROR]


def of(*kept: str) -> Layer:
    """Make the list of one of the system's packages."""
    return {"var/lib/dpkg/info/more.list": "".join(f"/{path}\n" for path in kept).encode()}


def conda(prefix: str, *kept: str) -> Layer:
    """Make one of conda's lists."""
    names = ", ".join(f'"{path}"' for path in kept)
    return {f"{prefix}/conda-meta/mine-1.json".lstrip("/"): f'{{"files": [{names}]}}'.encode()}


def byte_code(flags: int, modified: int = 0, size: int = len(SIX)) -> bytes:
    """Make cached byte code by its header (PEP 552)."""
    return b"\xa7\r\r\n" + struct.pack("<III", flags, modified, size) + b"evil"


def written(path: str, content: bytes, modified: int) -> LayerFile:
    """Make a file of some time."""
    return LayerFile(path, "file", 0o644, size=len(content), modified=modified, pieces=lambda: iter([content]))


@pytest.mark.parametrize(
    "layer",
    [
        {**conda("", f"{SITE}/zz.pth"), f"{SITE}/zz.pth": b"import os\n"},
        {**conda("opt", f"{SITE.removeprefix('opt/')}/zz.pth"), f"{SITE}/zz.pth": b"import os\n"},
        {**conda("opt/venv", f"{SITE.removeprefix('opt/venv/')}/zz.pth"), f"{SITE}/zz.pth": b"import os\n"},
        {**of(f"{SITE}/zz.pth"), f"{SITE}/zz.pth": b"import os\n"},
        {**conda("usr", "local/lib/libz.so.1"), "usr/local/lib/libz.so.1": ELF},
        {**conda("usr", "lib/python3.11/sitecustomize.py"), "usr/lib/python3.11/sitecustomize.py": b"x"},
    ],
)
def test_a_list_of_packages_vouches_for_nothing_in_an_environment(layer: Layer) -> None:
    """What conda's lists, or the system's, say of an environment's folder is no witness; in ours, conda is none."""
    (one,) = errors(layer)
    assert (one.code, next(path for path in layer if "conda" not in path and "dpkg" not in path) in one.message) == (
        Code.FILES_DIFFER,
        True,
    )


def test_libraries_of_conda_in_front_are_named() -> None:
    """What a conda that was left behind puts before the system's libraries is of no package of ours."""
    left = {**conda("opt/conda", "lib/libz.so.1"), "opt/conda/lib/libz.so.1": ELF}
    assert errors(left) == []
    (one,) = errors(left, env={**ENV, "LD_LIBRARY_PATH": "/opt/conda/lib"})
    assert "/opt/conda/lib/libz.so.1" in one.message


@pytest.mark.parametrize("root", ["usr/lib/python3.11", "usr/local/lib/python3.11", "opt/conda/lib/python3.11"])
@pytest.mark.parametrize("name", ["numpy/__init__.py", "numpy.py", "lib-dynload/numpy.so", "numpy/core.pyc"])
def test_what_is_added_to_a_python_s_own_library_is_named(root: str, name: str) -> None:
    """It stands in front of every package, in a folder of its own too, and wherever that Python lies."""
    base: Layer = (
        {**GOOD, f"{root}/os.py": b"name = 'posix'\n", f"{root}/{name}": b"1"} if "usr/lib" not in root else GOOD
    )
    if base is not GOOD:
        assert errors(base=base) == []
    (one,) = errors({f"{root}/{name.replace('numpy', 'six')}": b"1"}, base=base)
    assert one.message.startswith("code of no package on Python's path")


@pytest.mark.parametrize(
    "root", ["usr/local/lib/python3.11", "root/.local/share/uv/python/cpython-3.11.9/lib/python3.11"]
)
def test_what_goes_from_a_python_s_own_library_is_named(root: str) -> None:
    """Modules that a slimmer image leaves out of a Python that no package brought: deleted alone, or with a folder."""
    own = {
        f"{root}/{path}": b"1" for path in ("os.py", "sqlite3/__init__.py", "ssl.py", "__pycache__/ssl.cpython-311.pyc")
    }
    base: Layer = {**GOOD, **own}
    (one,) = errors({f"{root}/sqlite3": None}, base=base)
    assert f"a later layer deleted: /{root}/sqlite3/__init__.py" in one.message
    (one,) = errors({f"{root}/ssl.py": None}, base=base)
    assert f"/{root}/ssl.py" in one.message
    assert errors({f"{root}/__pycache__": None}, base=base) == []
    (one,) = (one for one in told({f"{root}/ssl.py": None}, base=base, facts=OTHERS) if "deleted" in one.message)
    assert one.severity is Severity.WARNING


def test_what_rpm_may_have_brought_is_not_told_apart() -> None:
    """A layer in which rpm or apk installed something may bring modules of the system's Python, and take them."""
    root = "usr/lib64/python3.9"
    base: Layer = {**GOOD, f"{root}/os.py": b"1", f"{root}/hmac.py": b"1"}
    changed: Layer = {f"{root}/hmac.py": None, f"{root}/tkinter/__init__.py": b"1"}
    assert [one.subject for one in errors(changed, base=base)] == [
        "code of no package on Python's path",
        "files of a Python's own library that a later layer deleted",
    ]
    assert errors({**changed, "var/lib/rpm/rpmdb.sqlite": b"1"}, base=base) == []


def test_a_python_that_lies_elsewhere_is_held_to_its_first_layer() -> None:
    """A conda's, or one that uv fetched: its own library is changed by no later layer either."""
    root = "opt/conda/lib/python3.11"
    base: Layer = {
        **GOOD,
        f"{root}/os.py": b"1",
        f"{root}/hmac.py": b"1",
        **conda("opt/conda", "lib/python3.11/hmac.py"),
    }
    (one,) = errors({f"{root}/hmac.py": b"2"}, base=base)
    assert f"{root}/hmac.py" in one.message


def test_modules_and_tools_that_the_system_brings_are_as_brought() -> None:
    """Python's modules of the system's packages, and what CUDA makes machine code with, wherever that lies."""
    there: dict[str, bytes | str] = {
        "usr/lib/python3/dist-packages/apt/__init__.py": b"1",
        "usr/local/cuda-12.5/bin/ptxas": ELF,
        "usr/local/cuda-12.5/nvvm/libdevice/libdevice.10.bc": b"BC\xc0\xde",
        "usr/lib/nvidia-cuda-toolkit/bin/nvlink": ELF,
    }
    base: Layer = {**GOOD, **there, **of(*there)}
    assert errors(base=base) == []
    for path in there:
        (one,) = errors({path: b"BC\xc0\xdeother"}, base=base)
        assert f"a later layer replaced: /{path}" in one.message


CACHED = f"{SITE}/__pycache__/six.cpython-311.pyc"


def test_byte_code_with_a_hash_of_its_source_is_no_better() -> None:
    """The hash in its header is the source's, which anybody can write before any code."""
    (one,) = errors({CACHED: byte_code(3)})
    assert (one.code, CACHED in one.message) == (Code.FILES_DIFFER, True)


def test_a_source_that_is_written_once_more_brings_no_other_byte_code() -> None:
    """A layer that touches a source and forges what Python runs in its place did not install the source."""
    forged: Layer = {f"{SITE}/six.py": written(f"{SITE}/six.py", SIX, 7), CACHED: byte_code(0, 7)}
    (one,) = errors(forged)
    assert CACHED in one.message


def test_copies_of_sources_and_their_byte_code_are_as_they_were() -> None:
    """Another owner or mode copies both into a later layer; a package that is installed anew brings both."""
    base: Layer = {**GOOD, CACHED: byte_code(0)}
    copied = {f"{SITE}/six.py": SIX, CACHED: byte_code(0)}
    assert errors(copied, base=base) == []
    assert errors({CACHED: byte_code(0)}, base=base) == []
    anew = package("six", "1.17.0", {"six.py": SIX})
    touched: Layer = {f"{SITE}/six.py": written(f"{SITE}/six.py", SIX, 7), CACHED: byte_code(0, 7)}
    assert errors({**anew, **touched}, base=base) == []


def test_packages_of_another_folder_are_in_front_by_a_variable() -> None:
    """PYTHONPATH to where pip put packages besides: they are installed, and in front of those of the lock."""
    other = {
        path.replace(SITE, "opt/extra/site-packages"): content
        for path, content in package("six", "1.0", {"six.py": b"0"}).items()
    }
    layer: Layer = {**other, "opt/extra/site-packages": LayerFile("opt/extra/site-packages", "folder")}
    env = {**ENV, "PYTHONPATH": "/opt/extra/site-packages"}
    found = [one for one in errors(layer, env=env) if one.subject == "PYTHONPATH"]
    assert ["six.py" in one.message for one in found] == [True]
    assert errors(env={**ENV, "PYTHONPATH": f"/{SITE}"}) == []
    (one,) = (one for one in told(layer, env=env, facts=OTHERS) if one.subject == "PYTHONPATH")
    assert one.severity is Severity.WARNING


@pytest.mark.parametrize("name", ["pip", "setuptools", "wheel", "distribute"])
def test_what_no_lock_has_to_name_accounts_for_itself_alone(name: str) -> None:
    """A RECORD of pip's, or of setuptools', vouches for no code but its own."""
    for path in ("zz.pth", "sitecustomize.py", "helper.py"):
        (one,) = errors(package(name, "99.0", {path: b"x=1\n"}))
        assert f"{SITE}/{path}" in one.message
    own = {"setuptools": "distutils-precedence.pth", "distribute": "pkg_resources/__init__.py"}
    assert errors(package(name, "99.0", {own.get(name, f"{name}/__init__.py"): b"x=1\n"})) == []
