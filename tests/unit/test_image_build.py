"""Building: what an engine says on the way is kept in a log, and no credential with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from envbuilder.engine.fake import FakeEngine
from envbuilder.engine.port import BuildRequest, Image, Step
from envbuilder.image.build import build_logged

SAID = "Looking in indexes: https://user:s3cret@index.example/simple"


class Talkative(FakeEngine):
    """An engine whose steps print an index's address, as an installer of old would."""

    def build(self, request: BuildRequest, on_step: Callable[[Step], None]) -> Image:
        """Say it in every part of a step, then give an image."""
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
