"""Models that one image saved are loaded by the other image."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from fake_engine import FakeEngine, Script

from envbuilder.engine.port import ContainerSpec
from envbuilder.upgrade.document import ModelExchange
from envbuilder.upgrade.observe import ProbeTarget, exchange, probe_files


def packed(content: bytes) -> str:
    return base64.b64encode(content).decode()


SAVED: dict[str, Any] = {"SavedModel": {"variables/v.index": packed(b"1")}, "Keras .h5": {"m.h5": packed(b"2")}}


@dataclass
class ComparedImages:
    """Two images: what each saves, what each answers to loading (by who saved it), and what they were given.

    None is no answer.
    """

    saves: dict[str, Any] = field(default_factory=lambda: {"old": SAVED, "new": SAVED})
    loads: dict[tuple[str, str], dict[str, str | None]] = field(default_factory=dict)
    given: list[tuple[str, str, dict[str, bytes]]] = field(default_factory=list)
    raw: dict[str, Script] = field(default_factory=dict)
    writer: str = ""

    def __post_init__(self) -> None:
        self.engine = FakeEngine(script=self.answer)
        for name in ("old", "new"):
            self.engine.add(name, name.encode())

    def answer(self, spec: ContainerSpec) -> Script:
        order = json.loads(spec.command[3])
        if spec.image in self.raw:
            return self.raw[spec.image]
        if "folder" not in order:
            self.writer = spec.image
            return Script(stdout=json.dumps({"saved": self.saves[spec.image]}).encode())
        models = {path: data for path, data in spec.files.items() if path.startswith("models/")}
        self.given.append((self.writer, spec.image, models))
        answers = {**dict.fromkeys(order["formats"], ""), **self.loads.get((self.writer, spec.image), {})}
        loaded = {name: wrong for name, wrong in answers.items() if wrong is not None}
        return Script(stdout=json.dumps({"loaded": loaded}).encode())

    def exchange(self) -> tuple[tuple[ModelExchange, ...] | None, tuple[str, ...]]:
        return exchange(ProbeTarget(self.engine, "old"), ProbeTarget(self.engine, "new"))


def test_models_of_each_image_are_loaded_by_the_other() -> None:
    sides = ComparedImages()
    rows, gaps = sides.exchange()
    assert gaps == ()
    assert rows is not None
    assert [(row.name, row.saved_by, row.wrong) for row in rows] == [
        (name, side, "") for side in ("old", "new") for name in SAVED
    ]
    wanted = {"models/0/variables/v.index": b"1", "models/1/m.h5": b"2"}
    assert [(by, to) for by, to, _ in sides.given] == [("old", "old"), ("old", "new"), ("new", "new"), ("new", "old")]
    assert all(models == wanted for *_, models in sides.given)


BROKEN = {"Keras .h5": "OSError: no"}


@pytest.mark.parametrize(
    ("loads", "rows"),
    [
        ({("old", "new"): BROKEN}, [("SavedModel", ""), ("Keras .h5", "OSError: no")]),
        ({("old", "new"): {"Keras .h5": None}}, [("SavedModel", ""), ("Keras .h5", "no answer")]),
        ({("old", "old"): BROKEN, ("old", "new"): BROKEN}, [("SavedModel", "")]),
    ],
    ids=["unreadable", "without answer", "unreadable in its own image too"],
)
def test_format_is_wrong_if_only_the_other_image_cannot_read_it(
    loads: dict[tuple[str, str], dict[str, str | None]], rows: list[tuple[str, str]]
) -> None:
    found, _ = ComparedImages(loads=loads).exchange()
    assert found is not None
    assert [(row.name, row.wrong) for row in found if row.saved_by == "old"] == rows


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (Script(exit_code=1, stderr=b"ImportError: no tensorflow"), "ImportError: no tensorflow"),
        (Script(stdout=b"7"), "its output is not an answer"),
        (Script(), "no answer"),
    ],
)
def test_image_without_answer_is_a_gap(script: Script, why: str) -> None:
    rows, (gap,) = ComparedImages(raw={"new": script}).exchange()
    assert rows is None
    assert why in gap
    assert gap.startswith("models saved by the old image")


@pytest.mark.parametrize(
    "path", ["../../probes/upgrade/models.py", "/etc/passwd", "a/../../x", "..", "", "a//b", "./x", "not base64"]
)
def test_file_outside_the_folder_or_not_base64_is_not_copied(path: str) -> None:
    content = "%%%" if path == "not base64" else packed(b"print('{}')")
    sides = ComparedImages(saves={"old": {"SavedModel": {path: content}}, "new": SAVED})
    rows, (gap,) = sides.exchange()
    assert rows is None
    assert ("not base64" if content == "%%%" else "leads out of its folder") in gap
    assert sides.given == []


def test_saved_files_do_not_replace_probes() -> None:
    sides = ComparedImages()
    sides.exchange()
    for spec in sides.engine.runs:
        assert {path: spec.files[path] for path in probe_files()} == dict(probe_files())
