"""The Python of an environment is the one that it was made with: whatever is put in its place is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_images import SITE, SYSTEM, Layer, image_of, outside

from envbuilder.validation.python_environment import homes, interpreters, wrong_homes

EVIL = Path("/proc/self/exe").read_bytes()[:64] + bytes(4096) + b"evil"
NOTE = "opt/venv/pyvenv.cfg"
TOUCHED: Layer = {NOTE: SYSTEM[NOTE]}


def found(*layers: Layer) -> list[str]:
    """Look at the Python of a small whole image of ours with these layers above it."""
    subject = outside(image_of(SYSTEM, *layers))
    return [one.message for look in (interpreters, wrong_homes) for one in look(subject, {SITE})]


def test_the_python_that_an_environment_was_made_with_is_no_finding() -> None:
    """Nor is a note that a later layer writes once more as it was, nor a link that it makes again."""
    assert found() == []
    assert found(TOUCHED, {"opt/venv/bin/python3": SYSTEM["opt/venv/bin/python3"]}) == []


@pytest.mark.parametrize(
    ("layer", "named"),
    [
        ({"opt/venv/bin/python3": EVIL}, "python3 was put in the place"),
        ({"opt/venv/bin/python3.11": EVIL}, "python3.11 was put in the place"),
        ({"opt/venv/bin/python3": "/usr/bin/dirname"}, "leads to /usr/bin/dirname, which is no Python"),
        ({"opt/venv/bin/python3": "/opt/other/bin/python3", "opt/other/bin/python3": EVIL}, "was put in the place"),
        ({"opt/venv/bin/python3.11": b"#!/bin/sh\n"}, "is no interpreter"),
        ({"opt/venv/bin/python3.11": b"#!/bin/sh\n", NOTE: SYSTEM[NOTE]}, "is no interpreter"),
    ],
)
def test_another_interpreter_is_named_though_the_note_is_touched(layer: Layer, named: str) -> None:
    """By whichever name it is called: the note in the same layer, or a later one, makes no difference."""
    for layers in ((layer,), ({**layer, **TOUCHED},), (layer, TOUCHED), (layer, layer)):
        assert any(named in message for message in found(*layers)), layers


def test_an_interpreter_that_was_deleted_before_is_still_known() -> None:
    """What stood there first is what the environment was made with, whatever a layer in between did."""
    (message, *_) = found({"opt/venv/bin/python3": None}, {"opt/venv/bin/python3": EVIL, **TOUCHED})
    assert "was put in the place" in message


@pytest.mark.parametrize(("content", "is_whole"), [(SYSTEM["usr/bin/python3.11"], True), (EVIL, False)])
def test_a_copy_is_the_home_s_own_python(content: bytes, is_whole: bool) -> None:  # noqa: FBT001 - a parameter
    """An environment may hold a copy of its home's interpreter, and no other program."""
    copied = {path: row for path, row in SYSTEM.items() if not path.startswith("opt/venv/bin/")}
    subject = outside(image_of({**copied, "opt/venv/bin/python3": content}))
    assert (list(interpreters(subject, {SITE})) == []) is is_whole


def test_a_python_that_calls_itself_its_home_is_no_copy() -> None:
    """A note that names the environment's own folder makes no witness of what lies there."""
    own: Layer = {**SYSTEM, "opt/venv/bin/python3": EVIL, NOTE: b"home = /opt/venv/bin\n"}
    assert list(interpreters(outside(image_of(own)), {SITE}))


@pytest.mark.parametrize(
    ("note", "named"),
    [
        (b"HOME = /opt/other\nhome = /usr/bin\n", "names 2 homes"),
        (b"  home = /opt/other\nhome = /usr/bin\n", "names 2 homes"),
        (b"\xc2\xa0home=/opt/other\r\nhome = /usr/bin\n", "names 2 homes"),
        (b"x = 1\rhome = /opt/other\nhome = /usr/bin\n", "names 2 homes"),
        (b"home = /opt/other\n", "/opt/other"),
        (b"home = /usr/bin\ninclude-system-site-packages = true\n", "is not what the environment was made with"),
        (b"home =\n", "names no home"),
    ],
)
def test_an_edited_note_is_named_once(note: bytes, named: str) -> None:
    """A home in capitals, behind blanks or another line's end; another home; none; packages of the system let in."""
    (message,) = found({NOTE: note})
    assert named in message


def test_homes_are_read_as_python_reads_them() -> None:
    """Names have no case and no blanks around them; the same home twice is one."""
    assert homes(b"Home=/a\n home = /a \nversion = 3\nhomely = /b\nHOME\t=\t/c") == ["/a", "/c"]
