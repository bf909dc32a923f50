"""The Python of an image: interpreter, home, and modules that hide installed ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_images import SITE, SYSTEM, Layer, context_of, image_of, package

from envbuilder.finding import Code
from envbuilder.validation.python_environment import entries, hiding_modules, homes, interpreters, wrong_homes

EVIL = Path("/proc/self/exe").read_bytes()[:64] + bytes(4096) + b"evil"
NOTE = "opt/venv/pyvenv.cfg"
TOUCHED: Layer = {NOTE: SYSTEM[NOTE]}


def found(*layers: Layer) -> list[str]:
    subject = context_of(image_of(SYSTEM, *layers))
    return [one.message for look in (interpreters, wrong_homes) for one in look(subject, {SITE})]


def test_original_python_has_no_finding() -> None:
    assert found() == []
    assert found(TOUCHED, {"opt/venv/bin/python3": SYSTEM["opt/venv/bin/python3"]}) == []


@pytest.mark.parametrize(
    ("layer", "named"),
    [
        ({"opt/venv/bin/python3": EVIL}, "python3 replaced the file"),
        ({"opt/venv/bin/python3.11": EVIL}, "python3.11 replaced the file"),
        ({"opt/venv/bin/python3": "/usr/bin/dirname"}, "leads to /usr/bin/dirname, which is not a Python"),
        ({"opt/venv/bin/python3": "/opt/other/bin/python3", "opt/other/bin/python3": EVIL}, "replaced the"),
        ({"opt/venv/bin/python3.11": b"#!/bin/sh\n"}, "is not an interpreter"),
        ({"opt/venv/bin/python3.11": b"#!/bin/sh\n", NOTE: SYSTEM[NOTE]}, "is not an interpreter"),
    ],
)
def test_replaced_interpreter_is_reported_even_if_pyvenv_cfg_is_rewritten(layer: Layer, named: str) -> None:
    for layers in ((layer,), ({**layer, **TOUCHED},), (layer, TOUCHED), (layer, layer)):
        assert any(named in message for message in found(*layers)), layers


def test_interpreter_deleted_in_between_is_still_compared() -> None:
    (message, *_) = found({"opt/venv/bin/python3": None}, {"opt/venv/bin/python3": EVIL, **TOUCHED})
    assert "replaced the" in message


@pytest.mark.parametrize(("content", "is_whole"), [(SYSTEM["usr/bin/python3.11"], True), (EVIL, False)])
def test_copy_of_the_home_s_interpreter_is_allowed(content: bytes, is_whole: bool) -> None:  # noqa: FBT001 - a parameter
    copied = {path: row for path, row in SYSTEM.items() if not path.startswith("opt/venv/bin/")}
    subject = context_of(image_of({**copied, "opt/venv/bin/python3": content}))
    assert (list(interpreters(subject, {SITE})) == []) is is_whole


def test_environment_cannot_be_its_own_home() -> None:
    own: Layer = {**SYSTEM, "opt/venv/bin/python3": EVIL, NOTE: b"home = /opt/venv/bin\n"}
    assert list(interpreters(context_of(image_of(own)), {SITE}))


@pytest.mark.parametrize(
    ("note", "named"),
    [
        (b"HOME = /opt/other\nhome = /usr/bin\n", "names 2 homes"),
        (b"  home = /opt/other\nhome = /usr/bin\n", "names 2 homes"),
        (b"\xc2\xa0home=/opt/other\r\nhome = /usr/bin\n", "names 2 homes"),
        (b"x = 1\rhome = /opt/other\nhome = /usr/bin\n", "names 2 homes"),
        (b"home = /opt/other\n", "/opt/other"),
        (b"home = /usr/bin\ninclude-system-site-packages = true\n", "was changed after the environment was made"),
        (b"home =\n", "names no home"),
    ],
)
def test_changed_pyvenv_cfg_is_reported_once(note: bytes, named: str) -> None:
    (message,) = found({NOTE: note})
    assert named in message


def test_homes_in_pyvenv_cfg_are_read_as_python_reads_them() -> None:
    assert homes(b"Home=/a\n home = /a \nversion = 3\nhomely = /b\nHOME\t=\t/c") == ["/a", "/c"]


GOOD: Layer = {**SYSTEM, **package("numpy", "2.4.6", {"numpy/__init__.py": b"version = 2\n"})}


@pytest.mark.parametrize(
    ("layer", "env", "workdir", "named"),
    [
        ({"opt/v/numpy.py": b"x"}, "/opt/v", "", "/opt/v/numpy.py"),
        ({"opt/v/numpy/__init__.pyc": b"x"}, "/opt/v", "", "/opt/v/numpy"),
        ({"opt/v/numpy/__init__.so": b"x"}, "/opt/v", "", "/opt/v/numpy"),
        ({"opt/v/numpy/__init__.cpython-311-x86_64-linux-gnu.so": b"x"}, "/opt/v", "", "/opt/v/numpy"),
        ({"opt/real/numpy.py": b"x", "opt/v": "/opt/real"}, "/opt/v", "", "/opt/v/numpy.py"),
        ({"opt/v/numpy.py": "/opt/elsewhere.py"}, "/opt/v", "", "/opt/v/numpy.py"),
        ({"opt/v/usercustomize.py": b"x"}, "/opt/v", "", "/opt/v/usercustomize.py"),
        ({"opt/v/sitecustomize.abi3.so": b"x"}, "/opt/v", "", "/opt/v/sitecustomize.abi3.so"),
        ({"opt/v/_ssl.so": b"x"}, "/opt/v", "", "/opt/v/_ssl.so"),
        ({"srv/real/os.py": b"x", "srv/app": "/srv/real"}, "", "/srv/app", "/srv/app/os.py"),
        ({"srv/v/os.py": b"x"}, "v", "/srv", "/srv/v/os.py"),
    ],
)
def test_module_that_hides_an_installed_one_is_reported(layer: Layer, env: str, workdir: str, named: str) -> None:
    subject = context_of(image_of(GOOD, layer), env={"PYTHONPATH": env} if env else {}, workdir=workdir)
    (one,) = hiding_modules(subject, {SITE})
    assert one.code is Code.FILES_DIFFER
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


def test_relative_path_entry_starts_at_the_working_folder() -> None:
    subject = context_of(image_of(GOOD), env={"PYTHONPATH": "a::/b/../c"}, workdir="/srv")
    assert entries(subject, "PYTHONPATH") == ["srv/a", "srv", "c"]
