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
from envbuilder.upgrade.model_exchange import exchange
from envbuilder.upgrade.observe import ProbeTarget, probe_files


def packed(content: bytes) -> str:
    return base64.b64encode(content).decode()


SAVED: dict[str, Any] = {"SavedModel": {"variables/v.index": packed(b"1")}, "Keras .h5": {"m.h5": packed(b"2")}}


@dataclass
class ComparedImages:
    """Two images: what each saves, what each answers to loading (by who saved it), and what they were given."""

    saves: dict[str, Any] = field(default_factory=lambda: {"old": SAVED, "new": SAVED})
    loads: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    given: list[tuple[str, str, dict[str, bytes]]] = field(default_factory=list)
    raw: dict[str, Script] = field(default_factory=dict)
    writer: str = ""

    def __post_init__(self) -> None:
        self.engine = FakeEngine(script=self.answer)
        for name in ("old", "new"):
            self.engine.add(name, name.encode())

    def answer(self, spec: ContainerSpec) -> Script:
        """Answer as the probe does in one of the images."""
        order = json.loads(spec.command[3])
        if spec.image in self.raw:
            return self.raw[spec.image]
        if "folder" not in order:
            self.writer = spec.image
            return Script(stdout=json.dumps({"saved": self.saves[spec.image]}).encode())
        models = {path: data for path, data in spec.files.items() if path.startswith("models/")}
        self.given.append((self.writer, spec.image, models))
        every = dict.fromkeys(order["formats"], "")
        return Script(
            stdout=json.dumps({"loaded": {**every, **self.loads.get((self.writer, spec.image), {})}}).encode()
        )

    def exchange(self) -> tuple[tuple[ModelExchange, ...] | None, tuple[str, ...]]:
        """Exchange models between both."""
        return exchange(ProbeTarget(self.engine, "old"), ProbeTarget(self.engine, "new"))


def test_every_format_of_either_side_is_read_by_the_other() -> None:
    """Both directions have a row each a format, and what one image wrote is, byte for byte, what the other is given."""
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


def test_what_the_other_side_cannot_read_is_named_with_its_reason() -> None:
    """A format that the new image does not load is wrong for models of the old image alone."""
    sides = ComparedImages(loads={("old", "new"): {"Keras .h5": "ValueError: unknown layer"}})
    rows, _ = sides.exchange()
    assert rows is not None
    assert [(row.name, row.saved_by, row.wrong) for row in rows if row.wrong] == [
        ("Keras .h5", "old", "ValueError: unknown layer")
    ]


def test_a_format_that_its_own_side_cannot_read_says_nothing() -> None:
    """Where the writer itself fails, the other image's failure is no news."""
    broken = {"Keras .h5": "OSError: no"}
    sides = ComparedImages(loads={("old", "old"): broken, ("old", "new"): broken})
    rows, _ = sides.exchange()
    assert rows is not None
    assert [row.name for row in rows if row.saved_by == "old"] == ["SavedModel"]


def test_a_format_without_an_answer_is_wrong() -> None:
    """Silence about one format is not that it was read."""
    sides = ComparedImages()

    def without_h5(spec: ContainerSpec) -> Script:
        done = sides.answer(spec)
        if spec.image == "new" and sides.writer == "old" and "folder" in json.loads(spec.command[3]):
            return Script(stdout=b'{"loaded": {"SavedModel": ""}}')
        return done

    sides.engine.script = without_h5
    rows, _ = sides.exchange()
    assert rows is not None
    assert [(row.name, row.saved_by, row.wrong) for row in rows if row.wrong] == [("Keras .h5", "old", "no answer")]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (Script(exit_code=1, stderr=b"ImportError: no tensorflow"), "ImportError: no tensorflow"),
        (Script(stdout=b"7"), "its output is not an answer"),
        (Script(), "no answer"),
    ],
)
def test_a_side_that_does_not_answer_is_a_gap_that_names_it(script: Script, why: str) -> None:
    """Nothing is known then: no rows, not even of the direction that went well."""
    rows, (gap,) = ComparedImages(raw={"new": script}).exchange()
    assert rows is None
    assert why in gap
    assert gap.startswith("models saved by the old image")


@pytest.mark.parametrize(
    "path",
    ["../../probes/upgrade/models.py", "/etc/passwd", "a/../../x", "..", "", "a//b", "./x"],
)
def test_what_leads_out_of_its_folder_is_never_brought_to_the_other_side(path: str) -> None:
    """An image must not be able to put its own probe in the place of ours, where the other image is asked."""
    sides = ComparedImages(saves={"old": {"SavedModel": {path: packed(b"print('{}')")}}, "new": SAVED})
    rows, (gap,) = sides.exchange()
    assert rows is None
    assert "leads out of its folder" in gap
    assert sides.given == []


def test_the_probes_that_answer_are_ours_whatever_was_saved() -> None:
    """The files of the probes are brought as they are, beside every model."""
    sides = ComparedImages()
    sides.exchange()
    for spec in sides.engine.runs:
        assert {path: spec.files[path] for path in probe_files()} == dict(probe_files())


def test_what_is_no_base64_is_a_gap() -> None:
    """Files that cannot be decoded are no files."""
    rows, (gap,) = ComparedImages(saves={"old": {"SavedModel": {"x": "%%%"}}, "new": SAVED}).exchange()
    assert rows is None
    assert "not base64" in gap
