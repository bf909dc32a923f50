"""Judge the file in which Keras keeps its settings: whoever imports it computes by them, and no variable shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from envbuilder.finding import Finding
from envbuilder.support import decoding
from envbuilder.validation.outside import Outside
from envbuilder.validation.python_variables import bad, odd, shown

SUBJECT = "keras.json"
"""What such findings are about: what a start shows of it follows from them."""

_FIX = "leave keras.json out of the image"


_USUAL = {"floatx": "float32", "image_data_format": "channels_last"}


def keras_settings(subject: Outside, env: Mapping[str, str]) -> Iterator[Finding]:
    """Find a backend that is not TensorFlow, and other numbers than Keras computes with by itself."""
    path = _path(subject, env)
    if subject.files.file(path) is None:
        return
    content = subject.files.content(path)
    if content is None or len(content) > _MOST:
        yield odd(SUBJECT, f"/{shown(path)} is there, and was not read: what Keras takes from it is unknown")
        return
    try:
        told = decoding.from_loose_json(content)
    except decoding.DamagedError as error:
        yield odd(SUBJECT, f"/{shown(path)} is no JSON, and Keras passes over it: {shown(str(error))}")
        return
    if not isinstance(told, dict):
        yield bad(SUBJECT, f"/{shown(path)} holds no settings: whoever imports Keras fails", _FIX)
        return
    yield from _judged(told, f"/{shown(path)}", env)


def _judged(told: Mapping[str, object], path: str, env: Mapping[str, str]) -> Iterator[Finding]:
    backend = told.get("backend") or "tensorflow"
    if backend != "tensorflow" and not env.get("KERAS_BACKEND"):
        yield bad(SUBJECT, f"{path} has Keras use {shown(str(backend))}, not TensorFlow", _FIX)
    for name, usual in _USUAL.items():
        value = told.get(name) or usual
        if value != usual:
            yield odd(SUBJECT, f"{path} has Keras compute with {name}={shown(str(value))}, not {usual}")


_MOST = 1 << 20
"""Bytes of such a file that are read: Keras writes a hundred."""


def _path(subject: Outside, env: Mapping[str, str]) -> str:
    """Name the file, no slash in front: below KERAS_HOME, else the home of the image's user."""
    if folder := env.get("KERAS_HOME"):
        return f"{folder}/keras.json".strip("/")
    return f"{env.get('HOME') or _home(subject)}/.keras/keras.json".strip("/")


def _home(subject: Outside) -> str:
    user = subject.image.user.partition(":")[0] or "root"
    accounts = (subject.files.content("etc/passwd") or b"").decode("utf-8", "replace").splitlines()
    rows = (line.split(":") for line in accounts if line.count(":") > _HOME)
    return next((row[_HOME] for row in rows if user in (row[0], row[2])), "")


_HOME = 5
"""The number of the field in passwd(5)."""
