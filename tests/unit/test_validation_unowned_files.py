"""Code on Python's or the loader's path that belongs to no package, and the Python that an image starts."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from made_images import SITE, SYSTEM, Layer, cache_of, context_of, errors, folder, image_of, package, row

from envbuilder.engine.port import LayerFile
from envbuilder.finding import Code, Finding, Severity
from envbuilder.validation.installed_files import files, hiding_modules
from envbuilder.validation.layer_scan import Binary
from envbuilder.validation.static_checks import secrets

EVIL = Path("/proc/self/exe").read_bytes()[:64] + bytes(4096) + b"evil"
GOOD: Layer = {**SYSTEM, **package("numpy", "2.4.6", {"numpy/__init__.py": b"version = 2\n"})}
ARCH = "usr/lib/x86_64-linux-gnu"
PYC = b"byte code"


@pytest.mark.parametrize(
    ("layer", "named"),
    [
        ({f"{ARCH}/libz.so.1": "/opt/libz.so.1", "opt/libz.so.1": EVIL}, "libz.so.1"),
        ({f"{ARCH}/gconv/GBK.so": EVIL}, "gconv/GBK.so"),
        ({f"{ARCH}/gconv/gconv-modules.d/mine.conf": b"module A// B// /opt/x 1\n"}, "mine.conf"),
        ({f"{ARCH}/ossl-modules/mine.so": EVIL}, "ossl-modules/mine.so"),
        ({"usr/lib/ssl/openssl.cnf": b"[engine]\n"}, "usr/lib/ssl/openssl.cnf"),
        ({"usr/lib/ssl/openssl.cnf": "/opt/openssl.cnf"}, "usr/lib/ssl/openssl.cnf"),
        ({f"{ARCH}/glibc-hwcaps/x86-64-v3/libz.so.1": EVIL}, "glibc-hwcaps"),
        ({"etc/ld.so.preload": "/opt/nothing"}, "ld.so.preload"),
        ({"usr/lib64/python311.zip": b"PK"}, "python311.zip"),
        ({"usr/lib64/python3.11/sitecustomize.py": b"x"}, "sitecustomize.py"),
        ({"usr/local/lib/python3.11/sitecustomize/__init__.pyc": PYC}, "sitecustomize/__init__.pyc"),
        ({f"{SITE}/sitecustomize.so": EVIL}, "sitecustomize.so"),
    ],
)
def test_file_that_is_loaded_automatically_is_reported(layer: Layer, named: str) -> None:
    (one,) = errors(GOOD, layer)
    assert one.code is Code.FILES_DIFFER
    assert named in one.message


@pytest.mark.parametrize(
    ("place", "unlocked_libraries"),
    [
        ("srv/x-site-packages", {"usr/local/lib/libz.so.1": EVIL}),
        ("opt/venv/lib/python3.11/dist-packages", {"opt/venv/bin/dirname": b"#!/bin/sh\n"}),
        ("usr/local/lib/python3.11/site-packages", {"usr/local/lib/libz.so.1": EVIL}),
        ("usr/lib/python3/dist-packages", {f"{ARCH}/libmine.so.1": EVIL}),
    ],
)
def test_record_covers_only_its_own_folder(place: str, unlocked_libraries: dict[str, bytes]) -> None:
    rows = "".join(row(f"/{path}", content) for path, content in unlocked_libraries.items())
    vouching: Layer = {
        f"{place}/mine-1.dist-info/RECORD": rows.encode(),
        f"{place}/mine-1.dist-info/METADATA": b"Name: mine\nVersion: 1\n\n",
    }
    (one,) = errors(GOOD, {**vouching, **unlocked_libraries}, env={"PATH": "/opt/venv/bin:/usr/bin"})
    assert one.code is Code.FILES_DIFFER
    assert next(iter(unlocked_libraries)) in one.message


def test_record_makes_no_secret_outside_its_folder_public() -> None:
    secret = b"machine a.example login b password hunter2\n"
    rows = row("/root/.netrc", secret).encode()
    info = {f"{SITE}/mine-1.dist-info/RECORD": rows, f"{SITE}/mine-1.dist-info/METADATA": b"Name: mine\nVersion: 1\n\n"}
    found = secrets(context_of(image_of(GOOD, {"root/.netrc": secret, **info}))).findings
    assert [one.code for one in found if one.severity is Severity.ERROR] == [Code.SECRET_IN_IMAGE]


@pytest.mark.parametrize("soname", ["libz.so.1", ""])
@pytest.mark.parametrize(
    "found_by",
    [{"etc/ld.so.conf.d/x.conf": b"/opt\n"}, {"etc/ld.so.cache": cache_of({"libz.so.1": "/opt/libcudamine2.so"})}],
)
def test_cuda_library_that_the_loader_finds_needs_a_cuda_soname(found_by: Layer, soname: str) -> None:
    bad, good = "opt/libcudamine2.so", "opt/libcudart2.so"
    there = image_of({**GOOD, **found_by, bad: EVIL, good: EVIL})
    for path, name in ((bad, soname), (good, "libcudart2.so.1")):
        named = msgspec.structs.replace(there.paths[path].row, binary=Binary(soname=name))
        there.paths[path] = msgspec.structs.replace(there.paths[path], row=named)
    (one,) = (one for one in files(context_of(there)).findings if one.severity is Severity.ERROR)
    assert (bad in one.message, good in one.message) == (True, False)


ELF = Path("/proc/self/exe").read_bytes()[:64] + bytes(4096)
SIX = b"version = 1\n"
WITH_PYTHON: Layer = {
    **SYSTEM,
    **package("six", "1.17.0", {"six.py": SIX}),
    **package("tensorflow", "2.20.0", {"tensorflow/__init__.py": b"1"}),
    **folder(SITE),
    **folder(f"{SITE}/tensorflow"),
}
ENV = {"PATH": "/opt/venv/bin:/usr/bin"}
OTHERS = {"environment": ""}


def told(*layers: Layer, base: Layer = WITH_PYTHON, **more: Any) -> list[Finding]:
    return list(files(context_of(image_of(base, *layers), **{"env": ENV, **more})).findings)


def library_errors(*layers: Layer, base: Layer = WITH_PYTHON, **more: Any) -> list[Finding]:
    return errors(base, *layers, **{"env": ENV, **more})


def of(*kept: str) -> Layer:
    return {"var/lib/dpkg/info/more.list": "".join(f"/{path}\n" for path in kept).encode()}


def test_package_lists_do_not_cover_virtual_environments() -> None:
    path = f"{SITE}/zz.pth"
    (one,) = library_errors({**of(path), path: b"import os\n"})
    assert (one.code, path in one.message) == (Code.FILES_DIFFER, True)


@pytest.mark.parametrize("root", ["usr/lib/python3.11", "usr/local/lib/python3.11", "opt/conda/lib/python3.11"])
@pytest.mark.parametrize("name", ["numpy/__init__.py", "numpy.py", "lib-dynload/numpy.so", "numpy/core.pyc"])
def test_code_added_to_python_s_library_is_reported(root: str, name: str) -> None:
    base: Layer = (
        {**WITH_PYTHON, f"{root}/os.py": b"name = 'posix'\n", f"{root}/{name}": b"1"}
        if "usr/lib" not in root
        else WITH_PYTHON
    )
    if base is not WITH_PYTHON:
        assert library_errors(base=base) == []
    (one,) = library_errors({f"{root}/{name.replace('numpy', 'six')}": b"1"}, base=base)
    assert one.message.startswith("code of no package on Python's path")


@pytest.mark.parametrize(
    "root", ["usr/local/lib/python3.11", "root/.local/share/uv/python/cpython-3.11.9/lib/python3.11"]
)
def test_code_deleted_from_python_s_library_is_reported(root: str) -> None:
    own = {
        f"{root}/{path}": b"1" for path in ("os.py", "sqlite3/__init__.py", "ssl.py", "__pycache__/ssl.cpython-311.pyc")
    }
    base: Layer = {**WITH_PYTHON, **own}
    (one,) = library_errors({f"{root}/sqlite3": None}, base=base)
    assert f"a later layer deleted: /{root}/sqlite3/__init__.py" in one.message
    (one,) = library_errors({f"{root}/ssl.py": None}, base=base)
    assert f"/{root}/ssl.py" in one.message
    assert library_errors({f"{root}/__pycache__": None}, base=base) == []
    (one,) = (one for one in told({f"{root}/ssl.py": None}, base=base, facts=OTHERS) if "deleted" in one.message)
    assert one.severity is Severity.WARNING


def test_layer_with_rpm_or_apk_may_change_the_system_s_python() -> None:
    root = "usr/lib64/python3.9"
    base: Layer = {**WITH_PYTHON, f"{root}/os.py": b"1", f"{root}/hmac.py": b"1"}
    changed: Layer = {f"{root}/hmac.py": None, f"{root}/tkinter/__init__.py": b"1"}
    assert [one.subject for one in library_errors(changed, base=base)] == [
        "code of no package on Python's path",
        "files of Python's own library that a later layer deleted",
    ]
    assert library_errors({**changed, "var/lib/rpm/rpmdb.sqlite": b"1"}, base=base) == []


def test_library_that_every_process_loads_is_a_warning_in_a_foreign_image() -> None:
    found = told({"etc/ld.so.preload": b"/opt/libx.so"}, facts=OTHERS)
    assert [one.severity for one in found if "ld.so.preload" in one.message] == [Severity.WARNING]


ZLIB = f"{ARCH}/libz.so.1.2"
NEWER: Layer = {ZLIB: b"newer", "var/lib/dpkg/info/zlib.list": f"/{ZLIB}\n".encode()}
ETC = {f"opt/{path}": content for path, content in SYSTEM.items() if path.startswith("etc/")}
MOVED_ETC: Layer = {**ETC, "etc": "/opt/etc"}
PLACE = "usr/lib/python3.11"
LIBRARY = {path.replace(PLACE, "opt/p"): content for path, content in SYSTEM.items() if path.startswith(PLACE)}
MOVED_LIBRARY: Layer = {**LIBRARY, PLACE: "/opt/p"}
LOCAL = "usr/local/lib/python3.11"
OWN_PYTHON: Layer = {f"{LOCAL}/os.py": b"own", f"{LOCAL}/os.pyc": PYC}
CONDA = "opt/conda/lib/python3.11"
CONDA_PYTHON: Layer = {f"{CONDA}/os.py": b"1", f"{CONDA}/hmac.py": b"1"}
CONDA_LIBRARY: Layer = {"opt/conda/lib/libz.so.1": ELF}
TOOLS: Layer = {
    "usr/lib/python3/dist-packages/apt/__init__.py": b"1",
    "usr/local/cuda-12.5/bin/ptxas": ELF,
    "usr/local/cuda-12.5/nvvm/libdevice/libdevice.10.bc": b"BC\xc0\xde",
    "usr/lib/nvidia-cuda-toolkit/bin/nvlink": ELF,
}
WITH_TOOLS: Layer = {**TOOLS, **of(*TOOLS)}
CACHED = f"{SITE}/__pycache__/six.cpython-311.pyc"
COMPILED: Layer = {**WITH_PYTHON, CACHED: b"code"}
REWRITTEN: Layer = {f"{SITE}/six.py": SIX, CACHED: b"evil"}


@pytest.mark.parametrize(
    ("layers", "env", "named"),
    [
        (({ZLIB: EVIL}, {ZLIB: EVIL}), {}, "libz.so.1.2"),
        (({ZLIB: None},), {}, "libz.so.1.2"),
        ((NEWER, {ZLIB: b"newer"}), {}, ""),
        ((NEWER, {ZLIB: b"other"}), {}, "libz.so.1.2"),
        ((MOVED_ETC,), {}, ""),
        (({**MOVED_ETC, "opt/etc/ld.so.preload": b"/opt/x.so\n"},), {}, "ld.so.preload"),
        ((MOVED_LIBRARY,), {}, ""),
        (({**MOVED_LIBRARY, "opt/p/os.py": b"other"},), {}, "a later layer replaced: /opt/p/os.py"),
        ((OWN_PYTHON, {f"{LOCAL}/os.pyc": b"other"}), {}, ""),
        ((OWN_PYTHON, {f"{LOCAL}/os.py": b"other"}), {}, f"{LOCAL}/os.py"),
        ((CONDA_PYTHON, {f"{CONDA}/hmac.py": b"2"}), {}, f"{CONDA}/hmac.py"),
        ((CONDA_LIBRARY,), {}, ""),
        ((CONDA_LIBRARY,), {"LD_LIBRARY_PATH": "/opt/conda/lib"}, "/opt/conda/lib/libz.so.1"),
        ((WITH_TOOLS,), {}, ""),
        *(((WITH_TOOLS, {path: b"BC\xc0\xdeother"}), {}, f"a later layer replaced: /{path}") for path in TOOLS),
        (({CACHED: b"evil"},), {}, CACHED),
        ((REWRITTEN,), {}, CACHED),
        ((COMPILED, {f"{SITE}/six.py": SIX, CACHED: b"code"}), {}, ""),
        ((COMPILED, {CACHED: b"code"}), {}, ""),
        ((COMPILED, {**package("six", "1.17.0", {"six.py": SIX}), **REWRITTEN}), {}, ""),
    ],
)
def test_file_that_a_later_layer_changes_is_compared_with_its_origin(
    layers: tuple[Layer, ...], env: dict[str, str], named: str
) -> None:
    found = library_errors(*layers, env={**ENV, **env})
    assert [one.code for one in found] == [Code.FILES_DIFFER] * bool(named)
    assert all(named in one.message for one in found)


def test_packages_in_pythonpath_that_hide_locked_ones_are_reported() -> None:
    other = {
        path.replace(SITE, "opt/extra/site-packages"): content
        for path, content in package("six", "1.0", {"six.py": b"0"}).items()
    }
    layer: Layer = {**other, "opt/extra/site-packages": LayerFile("opt/extra/site-packages", "folder")}
    env = {**ENV, "PYTHONPATH": "/opt/extra/site-packages"}
    found = [one for one in library_errors(layer, env=env) if one.subject == "PYTHONPATH"]
    assert ["six.py" in one.message for one in found] == [True]
    assert library_errors(env={**ENV, "PYTHONPATH": f"/{SITE}"}) == []
    (one,) = (one for one in told(layer, env=env, facts=OTHERS) if one.subject == "PYTHONPATH")
    assert one.severity is Severity.WARNING


NOTE = "opt/venv/pyvenv.cfg"
TOUCHED: Layer = {NOTE: SYSTEM[NOTE]}


def found(*layers: Layer, base: Layer = GOOD) -> list[str]:
    return [one.message for one in errors(base, *layers) if one.subject == "python"]


def test_package_that_is_deleted_with_its_byte_code_is_reported() -> None:
    root: Layer = {"": LayerFile("", "folder"), CACHED: b"code"}
    (one,) = library_errors({f"{SITE}/six.py": None, f"{SITE}/__pycache__": None}, base={**WITH_PYTHON, **root})
    assert f"1 file of six 1.17.0 is missing: /{SITE}/six.py" in one.message


def test_unmodified_system_and_python_have_no_finding() -> None:
    assert errors(GOOD) == []
    assert found(TOUCHED, {"opt/venv/bin/python3": SYSTEM["opt/venv/bin/python3"]}) == []


PYTHON_3 = "opt/venv/bin/python3"


@pytest.mark.parametrize(
    "layer",
    [
        {PYTHON_3: EVIL},
        {PYTHON_3: "/usr/bin/dirname"},
        {PYTHON_3: "/opt/other/bin/python3", "opt/other/bin/python3": EVIL},
        {"opt/venv/bin/python3.11": b"#!/bin/sh\n"},
        {"opt/venv/bin/python3.11": b"#!/bin/sh\n", NOTE: SYSTEM[NOTE]},
    ],
)
def test_other_interpreter_is_reported_even_if_pyvenv_cfg_is_rewritten(layer: Layer) -> None:
    for layers in ((layer,), ({**layer, **TOUCHED},), (layer, TOUCHED), (layer, layer)):
        texts = ("is not the Python that", "a later layer replaced the interpreter")
        assert any(text in message for message in found(*layers) for text in texts), layers


def test_interpreter_deleted_in_between_is_still_compared() -> None:
    assert found({PYTHON_3: None}, {PYTHON_3: EVIL, **TOUCHED})


@pytest.mark.parametrize(("content", "is_whole"), [(SYSTEM["usr/bin/python3.11"], True), (EVIL, False)])
def test_copy_of_the_home_s_interpreter_is_allowed(content: bytes, is_whole: bool) -> None:  # noqa: FBT001 - a parameter
    copied = {path: row for path, row in SYSTEM.items() if not path.startswith("opt/venv/bin/")}
    assert (found(base={**copied, PYTHON_3: content}) == []) is is_whole


def test_environment_cannot_be_its_own_home() -> None:
    assert found(base={**SYSTEM, PYTHON_3: EVIL, NOTE: b"home = /opt/venv/bin\n"})


@pytest.mark.parametrize(
    ("note", "named"),
    [
        (b"  home = /opt/other\nhome = /usr/bin\n", "to /opt/other, /usr/bin for"),
        (b"\xc2\xa0home=/opt/other\r\nhome = /usr/bin\n", "to /opt/other, /usr/bin for"),
        (b"home = /opt/other\n", "/opt/other"),
        (b"home = /usr/bin\ninclude-system-site-packages = true\n", "was changed after the environment was made"),
        (b"home =\n", "to no folder"),
    ],
)
def test_changed_pyvenv_cfg_is_reported_once(note: bytes, named: str) -> None:
    (message,) = found({NOTE: note})
    assert named in message


@pytest.mark.parametrize(
    ("layer", "env", "workdir", "named"),
    [
        ({"opt/v/numpy.py": b"x"}, "/opt/v", "", "/opt/v/numpy.py"),
        ({"opt/v/numpy/__init__.cpython-311-x86_64-linux-gnu.so": b"x"}, "/opt/v", "", "/opt/v/numpy"),
        ({"opt/real/numpy.py": b"x", "opt/v": "/opt/real"}, "/opt/v", "", "/opt/v/numpy.py"),
        ({"opt/v/numpy.py": "/opt/elsewhere.py"}, "/opt/v", "", "/opt/v/numpy.py"),
        ({"opt/v/usercustomize.py": b"x"}, "/opt/v", "", "/opt/v/usercustomize.py"),
        ({"srv/real/os.py": b"x", "srv/app": "/srv/real"}, "", "/srv/app", "/srv/app/os.py"),
        ({"srv/v/os.py": b"x"}, "v", "/srv", "/srv/v/os.py"),
        ({"opt/v/google/p.py": b"x", f"{SITE}/google/p.py": b"x"}, "/opt/v", "", "/opt/v/google/p.py"),
        ({"srv/src/os.py": b"x"}, "", "/srv", "the folder of the script hides installed modules: /srv/src/os.py"),
    ],
)
def test_module_that_hides_an_installed_one_is_reported(layer: Layer, env: str, workdir: str, named: str) -> None:
    words: dict[str, Any] = {"workdir": workdir, "command": ("python", "-u", "src/a.py", "os.py")}
    subject = context_of(image_of(GOOD, layer), env={"PYTHONPATH": env} if env else {}, **words)
    (one,) = hiding_modules(subject, {SITE})
    assert (one.code, one.severity) == (Code.FILES_DIFFER, Severity.ERROR if env else Severity.WARNING)
    assert named in one.message


@pytest.mark.parametrize(
    ("layer", "env", "workdir"),
    [
        ({"opt/v/mine.py": b"x"}, "/opt/v", ""),
        ({"opt/v/numpy/data.txt": b"x", "opt/v/numpy/sub/__init__.py": b"x"}, "/opt/v", ""),
        ({"srv/app/usercustomize.py": b"x"}, "", "/srv/app"),
        ({}, f"/{SITE}", f"/{SITE}"),
    ],
)
def test_module_that_hides_nothing_is_not_reported(layer: Layer, env: str, workdir: str) -> None:
    subject = context_of(image_of(GOOD, layer), env={"PYTHONPATH": env}, workdir=workdir)
    assert list(hiding_modules(subject, {SITE})) == []
