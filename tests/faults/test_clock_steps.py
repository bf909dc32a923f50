"""A clock on the wall that is set while something is proved: no negative duration, no verdict of the future."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from publisher import PushingEngine
from publishing_world import ENVIRONMENT, NOW, World, answering
from registries import modern_registry

from envbuilder.attest.envelope import KeyOpener
from envbuilder.attest.keys import create
from envbuilder.attest.requirements import Requirement
from envbuilder.errors import EnvbuilderError
from envbuilder.publish.publish import publish
from envbuilder.publish.verify import VerifyQuestion, verify
from envbuilder.registry.reference import Reference
from envbuilder.verdict import Verdict

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with modern_registry() as (address, _):
        engine = PushingEngine()
        engine.add("scratch:1", labels={"number": "1"})
        yield World(engine, create(tmp_path / "key"), tmp_path / "out", address, "team/image")


STEPS = {"back by minutes": -600, "back by hours": -6 * 3600, "forth by hours": 6 * 3600, "forth by days": 3 * 86400}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
@pytest.mark.parametrize("stops_at", ["attaching", "tagged"])
def test_interrupted_publication_resumes_after_clock_change(world: World, stops_at: str, step: int) -> None:
    moments = [NOW]
    judged = []

    def validate(reference: Reference) -> Verdict:
        judged.append(moments[0])
        return answering(finished=moments[0].isoformat())(reference)

    def stop(text: str) -> None:
        if text.startswith(stops_at):
            raise EnvbuilderError("stopped")

    with pytest.raises(EnvbuilderError, match="stopped"):
        publish(world.publication("scratch:1"), world.tools(validate, now=lambda: moments[0], say=stop))
    moments[0] = NOW + timedelta(seconds=step)
    assert publish(world.publication("scratch:1"), world.tools(validate, now=lambda: moments[0])).published
    assert len(judged) == (1 if 0 <= step < 86400 else 2)
    found = verify(
        world.client(ENVIRONMENT),
        (KeyOpener((world.key.public,)),),
        VerifyQuestion(Requirement(level="gpu")),
        moments[0],
    )
    assert found.accepted, found.refusals
    assert found.age_s is not None
    assert found.age_s >= 0


@pytest.mark.parametrize("seconds", [-6 * 3600, 6 * 3600])
def test_duration_is_right_if_the_clock_is_set(seconds: int, tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = tmp_path / "lie.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", library, Path(__file__).with_name("lying_libc.c"), "-ldl"], check=True
    )
    clock = tmp_path / "clock"
    clock.write_text("0")
    code = (
        "import pathlib, sys, time; from envbuilder.image.build import span; began = time.monotonic();"
        f" time.sleep(1.2); pathlib.Path(sys.argv[1]).write_text('{seconds}'); print(*span(began))"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "LD_PRELOAD": str(library), "LIE_CLOCK": str(clock)}
    done = subprocess.run(
        [sys.executable, "-c", code, clock], check=True, capture_output=True, text=True, env=environment
    )
    started, finished = map(datetime.fromisoformat, done.stdout.split())
    assert timedelta(seconds=1) <= finished - started <= timedelta(seconds=60)
    assert abs((finished - datetime.now(UTC)).total_seconds() - seconds) < 300, "the clock was not set"
