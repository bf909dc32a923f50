"""What a rebuilt image says is read from its capture, whole, odd or none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from verdicts import IDENTITY

from envbuilder.catalog.store import load
from envbuilder.engine.fake import FakeEngine, Script
from envbuilder.engine.port import ContainerSpec
from envbuilder.errors import InfrastructureError
from envbuilder.reproduce import trial
from envbuilder.reproduce.report.captured import SCHEMA
from envbuilder.reproduce.trial import Place, Seen, Tools
from envbuilder.workspace import Workspace


def observe(printed: str, tmp_path: Path) -> Seen:
    """Observe an image whose capture script prints this, and whose probes answer with their identity alone."""
    suite = "".join(json.dumps(line) + "\n" for line in ({"event": "identity", "identity": IDENTITY}, {"event": "end"}))

    def script(spec: ContainerSpec) -> Script:
        return Script(
            stdout=(printed if "capture.py" in spec.command[-1] else suite).encode(), stderr=b"its last words"
        )

    engine = FakeEngine(script=script)
    engine.add("ours:1")
    return trial.observe("ours:1", None, Place(""), Tools(load(), Workspace(tmp_path), engine, lambda _: None))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"devices": ["CPU"], "log": ["one", "two"]}, "one\ntwo\n[]"),
        ({"devices": ["CPU", "GPU"], "log": ["one"]}, "one"),
        ({"devices": [], "log": None}, ""),
        ({"devices": 7, "log": ["one", 2, None]}, "one"),
        ({"devices": {"GPU": 1}, "log": {"a": "b"}, "later": [1]}, ""),
    ],
)
def test_what_tensorflow_printed_is_read(fields: dict[str, object], text: str, tmp_path: Path) -> None:
    """The loader's lines, and the empty list where no GPU was found; a field of an odd type is no error."""
    assert observe(json.dumps({"schema": SCHEMA, **fields}), tmp_path).text == text


@pytest.mark.parametrize("printed", ["", "[]", "7", "null", '{"devices": []}', "{", "Traceback: no module"])
def test_a_capture_that_is_none_is_told(printed: str, tmp_path: Path) -> None:
    """Where the script printed no document, the container's own words are given, and never a traceback."""
    with pytest.raises(InfrastructureError, match="its last words"):
        observe(printed, tmp_path)
