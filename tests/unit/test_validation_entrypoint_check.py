"""The start of an image as its users start it."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable

import pytest
from fake_engine import FakeEngine, Script

from envbuilder.engine.port import ContainerSpec
from envbuilder.finding import Code
from envbuilder.validation.checks import CHECKS, Check
from envbuilder.validation.entrypoint_check import check_entrypoint
from envbuilder.verdict import CheckResult

OWN, FRESH = (next(check for check in CHECKS if check.name == name) for name in ("user-start", "fresh-user"))


def product(spec: ContainerSpec) -> list[float]:
    left, right = (json.loads(text) for text in re.search(r"left, right = (.*), (\[\[.*)\n", spec.command[-1]).groups())  # type: ignore[union-attr]
    return [
        float(sum(x * y for x, y in zip(row, column, strict=True)))
        for row in left
        for column in zip(*right, strict=True)
    ]


def printed(spec: ContainerSpec, **more: object) -> bytes:
    said = {"product": product(spec), "absent": [], "unreadable": []} | more
    return b"Welcome!\nenvbuilder-user-start " + json.dumps(said).encode() + b"\n"


def started(script: Callable[[ContainerSpec], Script], check: Check = OWN) -> tuple[CheckResult, list[ContainerSpec]]:
    engine = FakeEngine(script=script)
    image = engine.add("some:image")
    return check_entrypoint(engine, image, check, threading.Event()), engine.runs


def test_healthy_image_passes_with_its_own_entrypoint_and_user() -> None:
    result, (spec,) = started(lambda spec: Script(stdout=printed(spec)))
    assert result.outcome == "passed", result.observed
    assert spec.entrypoint
    assert (spec.user, spec.network, dict(spec.files), spec.read_only) == ("", "none", {}, False)


def test_unknown_user_starts_on_a_read_only_root() -> None:
    result, (spec,) = started(lambda spec: Script(stdout=printed(spec)), FRESH)
    assert result.outcome == "passed"
    assert spec.read_only
    assert spec.user.partition(":")[0].isdigit()


@pytest.mark.parametrize(
    ("script", "text"),
    [
        (lambda _: Script(), "computed nothing"),
        (lambda _: Script(stdout=b"envbuilder-user-start [1]\n"), "computed nothing"),
        (lambda _: Script(stdout=b"envbuilder-user-start {\n"), "computed nothing"),
        (lambda spec: Script(stdout=printed(spec, product=[0.0] * 49)), "that it printed is wrong"),
        (lambda spec: Script(stdout=printed(spec, absent=["/opt/gone.so"])), "/opt/gone.so"),
        (lambda spec: Script(stdout=printed(spec, unreadable=["/opt/venv/x.so"])), "/opt/venv/x.so"),
        (lambda _: Script(exit_code=127, refusal="no such file"), "cannot start: no such file"),
        (lambda _: Script(seconds=1e6), "did not answer in time"),
        (lambda _: Script(exit_code=137, out_of_memory=True), "out of memory"),
        (lambda _: Script(stdout=b"x" * (33 << 20)), "printed more than"),
    ],
    ids=["swallows", "odd", "broken", "wrong", "preload", "unreadable", "refuses", "hangs", "memory", "floods"],
)
def test_start_that_fails_for_users_is_user_start(script: Callable[[ContainerSpec], Script], text: str) -> None:
    result, _ = started(script)
    assert result.outcome == "failed"
    assert [found.code for found in result.findings] == [Code.USER_START]
    assert text in result.observed


def test_image_without_python_is_started_with_python3() -> None:
    result, runs = started(
        lambda spec: (
            Script(exit_code=127, refusal="no python") if spec.command[0] == "python" else Script(stdout=printed(spec))
        )
    )
    assert result.outcome == "passed"
    assert [spec.command[0] for spec in runs] == ["python", "python3"]
