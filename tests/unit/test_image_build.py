"""Building: what an engine says on the way is kept in a log, and no credential with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fake_engine import FakeEngine

from envbuilder.engine.port import BuildRequest, Image, Step
from envbuilder.image.build import build_logged

SAID = "Looking in indexes: https://user:s3cret@index.example/simple"


class Talkative(FakeEngine):
    """An engine whose steps print an index's address, as an installer of old would."""

    def build(self, request: BuildRequest, on_step: Callable[[Step], None]) -> Image:
        on_step(Step("log", "RUN pip install x", SAID))
        on_step(Step("failed", f"RUN pip install --index-url {SAID.rpartition(' ')[2]} x", error=SAID))
        return self.add(request.tag)


def test_a_build_s_log_holds_no_credentials(tmp_path: Path) -> None:
    """User and password of an address are in neither the log nor what is shown; the address stays."""
    heard: list[Step] = []
    log = tmp_path / "build.log"
    build_logged(BuildRequest(context=tmp_path, tag="a:b"), Talkative(), log, heard.append)
    told = log.read_text() + "".join(f"{step.name} {step.text} {step.error}\n" for step in heard)
    assert "s3cret" not in told
    assert told.count("https://****@index.example/simple") == 6


class Remembering(FakeEngine):
    """An engine that remembers what it was asked to build, in which order, and what it holds at each time."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str, bool]] = []

    def build(self, request: BuildRequest, on_step: Callable[[Step], None]) -> Image:
        on_step(Step("log", request.target, request.tag))
        self.asked.append((request.tag, request.target, self.image("a:b-tools") is not None))
        return self.add(request.tag)


@pytest.mark.parametrize(
    ("text", "no_cache", "stages"),
    [
        ("FROM base AS system\nFROM system AS tools\nFROM system\n", False, ["tools", ""]),
        ("FROM base AS system\nFROM system AS tools\nFROM system\n", True, [""]),
        ("FROM base\nRUN echo FROM x AS tools\n", False, [""]),
        ("FROM base AS toolset\nFROM base\n", False, [""]),
    ],
)
def test_the_installer_s_stage_is_built_first(tmp_path: Path, text: str, no_cache: bool, stages: list[str]) -> None:  # noqa: FBT001 - a row
    """Where a context has that stage, it is there before anything that follows it is begun; nothing of it is left."""
    (tmp_path / "context").mkdir()
    (tmp_path / "context" / "Dockerfile").write_text(text)
    engine = Remembering()
    request = BuildRequest(context=tmp_path / "context", tag="a:b", no_cache=no_cache)
    build_logged(request, engine, tmp_path / "log", lambda _: None)
    assert [stage for _, stage, _ in engine.asked] == stages
    assert engine.asked[-1] == ("a:b", "", False)
    assert engine.image("a:b-tools") is None
