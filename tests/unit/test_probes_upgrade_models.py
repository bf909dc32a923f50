"""Saving and loading models: formats, reasons of failures, and complete files."""

from __future__ import annotations

import base64
import json
import types
from pathlib import Path
from typing import Any

import pytest

from envbuilder.probes.upgrade import models as probe
from envbuilder.upgrade.observed import LoadOutcomes, SavedModels

TF: Any = types.SimpleNamespace(reduce_max=lambda value: value, abs=abs)
"""Of the framework, what the comparison needs: predictions are plain numbers here."""


class Heard:
    def __init__(self) -> None:
        self.documents: list[Any] = []

    def say(self, document: object) -> None:
        self.documents.append(json.loads(json.dumps(document)))


def writes(_: Any, folder: str) -> None:
    (Path(folder) / "variables").mkdir()
    (Path(folder) / "variables" / "data").write_bytes(b"\0\xff" * 3)
    (Path(folder) / "m.json").write_text("1.0")


def reads(_: Any, folder: str) -> float:
    assert (Path(folder) / "variables" / "data").read_bytes() == b"\0\xff" * 3
    return float((Path(folder) / "m.json").read_text())


def raises(*_: Any) -> float:
    raise ValueError("no such layer: Dense\nin line 7")


@pytest.fixture(autouse=True)
def formats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put small formats in the place of TensorFlow's; every model must predict 1."""
    made = {
        "whole": (writes, reads),
        "unwritable": (raises, reads),
        "unreadable": (writes, raises),
        "silent": (writes, lambda *_: (_ for _ in ()).throw(RuntimeError())),
        "drifting": (writes, lambda *_: 1.001),
        "rounded": (writes, lambda *_: 1.00005),
    }
    monkeypatch.setattr(probe, "FORMATS", made)
    monkeypatch.setattr(probe, "expected", lambda *_: 1.0)


def test_formats_that_a_version_cannot_write_are_left_out() -> None:
    saved = probe.save(TF)
    assert list(saved) == ["whole", "unreadable", "silent", "drifting", "rounded"]
    assert {path: base64.b64decode(text) for path, text in saved["whole"].items()} == {
        "m.json": b"1.0",
        "variables/data": b"\0\xff" * 3,
    }


def laid(folder: Path) -> dict[str, str]:
    places = {}
    for number, (name, files) in enumerate(probe.save(TF).items()):
        places[name] = str(number)
        for path, text in files.items():
            file = folder / str(number) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(base64.b64decode(text))
    return places


def test_loading_returns_why_it_failed(tmp_path: Path) -> None:
    found = probe.load(TF, str(tmp_path), {**laid(tmp_path), "unwritable": "99"})
    assert found.pop("unwritable").startswith("FileNotFoundError: ")
    assert found == {
        "whole": "",
        "unreadable": "ValueError: no such layer: Dense",
        "silent": "RuntimeError: ",
        "drifting": "its predictions differ by 0.001",
        "rounded": "",
    }


def test_output_of_both_modes_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tensorflow", TF)
    heard = Heard()
    probe.main(heard, {})  # type: ignore[arg-type]
    places = laid(tmp_path)
    probe.main(heard, {"folder": str(tmp_path), "formats": places})  # type: ignore[arg-type]
    saved, loaded = heard.documents
    assert "whole" in SavedModels(**saved).saved
    assert LoadOutcomes(**loaded).loaded["whole"] == ""


def test_every_format_has_a_writer_and_a_reader() -> None:
    import importlib  # noqa: PLC0415 - the table as it is, not the fixture's

    real = importlib.reload(probe).FORMATS
    assert len(real) == 7
    assert all(callable(write) and callable(read) for write, read in real.values())
