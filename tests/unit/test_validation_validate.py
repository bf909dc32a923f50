"""A validation: the host and the runs in its verdict, the drawn product, and the start as users start it."""

import json
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from fake_engine import FakeEngine, Script
from made_images import SITE, entry
from suite_messages import HOST, answer_to

from envbuilder.catalog.store import load
from envbuilder.engine.port import ContainerSpec
from envbuilder.finding import Code, Severity
from envbuilder.probes.suite.drawn_product import SHAPE, drawn
from envbuilder.validation.entrypoint_check import check_entrypoint
from envbuilder.validation.suite_plan import CHECKS, Check
from envbuilder.validation.suite_session import check_product, product
from envbuilder.validation.validate import ValidationRequest, validate
from envbuilder.verdict import CheckResult, HostRef, Outcome, Verdict


def gpu(*, persistence: bool | None, **more: object) -> dict[str, Any]:
    named = {"name": "Tesla T4", "uuid": "GPU-1", "compute_capability": "7.5", "memory": 16 << 30}
    return {**named, "persistence": persistence, **more}


def verdict(*gpus: dict[str, Any]) -> Verdict:
    data = {"driver": "535.104.05", "cuda": "12.2", "gpus": gpus, "nodes": [], "count": len(gpus)}
    result = {"name": "driver", "tier": "gpu", "outcome": "passed", "data": data}

    def script(spec: ContainerSpec) -> Script:
        if not spec.stdin:  # a start as users do it
            return Script()
        begin = {"event": "begin", "name": "driver"}
        return Script(stdout=answer_to(spec.stdin, begin, {"event": "result", "result": result}))

    engine = FakeEngine(script=script, gpu_runtime=True)
    layer = engine.add("ours:1", b"a CUDA build").layers[0].diff_id
    engine.files[layer] = (entry(f"{SITE}/tensorflow/python/platform/build_info.py", b"is_cuda_build = True\n"),)
    return validate(engine, ValidationRequest(image="ours:1", catalog=load()))


@pytest.mark.parametrize(
    ("modes", "recorded"), [((True,), True), ((True, False), False), ((True, None), None), ((), None)]
)
def test_persistence_mode_is_recorded(modes: tuple[bool | None, ...], *, recorded: bool | None) -> None:
    found = verdict(*(gpu(persistence=mode) for mode in modes))
    assert found.host.persistence is recorded
    assert msgspec.json.decode(msgspec.json.encode(found.host), type=HostRef) == found.host
    assert msgspec.to_builtins(found.host).items() >= HOST.items()


def test_gpus_of_the_host_are_recorded() -> None:
    (seen,) = json.loads(msgspec.json.encode(verdict(gpu(persistence=True, later="unknown")).host))["gpus"]
    assert seen == {"name": "Tesla T4", "compute_capability": "7.5", "memory": 16 << 30, "uuid": "GPU-1"}


@pytest.mark.parametrize(("uuid", "expected"), [("GPU-73696d75-6c61-7465-6420-475055202000", True), ("GPU-1", False)])
def test_simulated_driver_on_the_host_is_recognised(uuid: str, *, expected: bool) -> None:
    found = verdict(gpu(persistence=None, uuid=uuid))
    assert found.simulated is expected
    assert any("simulated" in reason for reason in found.reasons) is expected
    assert found.verdict != "PASSED"


def told(*events: dict[str, Any]) -> tuple[Verdict, int]:
    engine = FakeEngine(script=lambda spec: Script(stdout=answer_to(spec.stdin, *events)) if spec.stdin else Script())
    engine.add("ours:1")
    return validate(engine, ValidationRequest(image="ours:1", catalog=load())), len(engine.runs)


def ended(name: str, outcome: str) -> tuple[dict[str, Any], dict[str, Any]]:
    result = {"name": name, "outcome": outcome, "duration_s": 1.0}
    return {"event": "begin", "name": name}, {"event": "result", "result": result}


def test_image_that_hung_skips_the_start_of_users() -> None:
    verdict, starts = told(*ended("import", "passed"), *ended("first-op", "timeout"))
    (start,) = (check for check in verdict.checks if check.name == "user-start")
    assert (start.outcome, "timed out" in start.observed, start.findings) == ("skipped", True, ())
    healthy, more = told(*ended("import", "passed"), *ended("first-op", "passed"))
    (start,) = (check for check in healthy.checks if check.name == "user-start")
    assert start.outcome == "failed", "it was made, and this engine computes nothing"
    assert more == starts + 1


def test_image_is_started_once_if_its_python_hangs() -> None:
    engine = FakeEngine(script=lambda _: Script(seconds=1e6))
    engine.add("ours:1")
    verdict = validate(engine, ValidationRequest(image="ours:1", catalog=load()))
    assert len(engine.runs) == 1
    assert verdict.verdict == "FAILED"
    (imported,) = (check for check in verdict.checks if check.name == "import")
    assert imported.outcome == "timeout"


EXPECTED = product("a nonce")


def checked(data: object, outcome: Any = "passed") -> CheckResult:
    return check_product(CheckResult(name="challenge", level="cpu", outcome=outcome), data, "a nonce")


def test_host_s_product_passes_also_as_floats() -> None:
    assert checked(EXPECTED).outcome == "passed"
    assert checked([float(one) for one in EXPECTED]).findings == ()


@pytest.mark.parametrize(
    "data", ["passed", {}, EXPECTED[:-1], [*EXPECTED[:-1], EXPECTED[-1] + 1], product("another nonce")]
)
def test_anything_else_is_wrong_numbers(data: object) -> None:
    result = checked(data)
    assert result.outcome == "failed"
    assert [found.code for found in result.findings] == [Code.WRONG_NUMBERS]


@pytest.mark.parametrize("outcome", ["error", "skipped"])
def test_check_that_did_not_pass_does_not_change(outcome: str) -> None:
    assert checked(EXPECTED, outcome).outcome == outcome


def test_product_is_exact_in_float32() -> None:
    numbers = drawn("n", "z", 5000)
    assert (min(numbers), max(numbers)) == (1, 16)
    assert SHAPE[1] * 16 * 16 < 1 << 24


OWN, FRESH = (next(check for check in CHECKS if check.name == name) for name in ("user-start", "fresh-user"))


def computed(spec: ContainerSpec) -> list[float]:
    left, right = (json.loads(text) for text in re.search(r"left, right = (.*), (\[\[.*)\n", spec.command[-1]).groups())
    return [
        float(sum(x * y for x, y in zip(row, column, strict=True)))
        for row in left
        for column in zip(*right, strict=True)
    ]


def printed(spec: ContainerSpec, **more: object) -> bytes:
    said = {"product": computed(spec)} | more
    return b"Welcome!\nenvbuilder-user-start " + json.dumps(said).encode() + b"\n"


def started(
    script: Callable[[ContainerSpec], Script], check: Check = OWN, *entrypoint: str
) -> tuple[CheckResult, list[ContainerSpec]]:
    engine = FakeEngine(script=script)
    image = replace(engine.add("some:image"), entrypoint=entrypoint)
    return check_entrypoint(engine, image, check, threading.Event()), engine.runs


def test_healthy_image_passes_with_its_own_entrypoint_and_user() -> None:
    result, (spec,) = started(lambda spec: Script(stdout=printed(spec)))
    assert result.outcome == "passed", result.observed
    assert spec.entrypoint
    assert (spec.user, dict(spec.files), spec.read_only) == ("", {}, False)


def test_unknown_user_starts_on_a_read_only_root() -> None:
    result, (spec,) = started(lambda spec: Script(stdout=printed(spec)), FRESH)
    assert result.outcome == "passed"
    assert spec.read_only
    assert spec.user.partition(":")[0].isdigit()


@pytest.mark.parametrize(
    ("script", "text"),
    [
        (lambda _: Script(stderr=b"Hello\nsh: python: not found\n\n", exit_code=127), "printed: sh: python: not found"),
        (lambda spec: Script(stderr=f"unknown: {spec.command[-1]}\n".encode(), exit_code=2), "printed: unknown:"),
        (lambda _: Script(stdout=b"envbuilder-user-start [1]\n"), "without a product"),
        (lambda spec: Script(stdout=printed(spec, product=[0.0] * 49)), "that it printed is wrong"),
        (lambda _: Script(exit_code=127, refusal="no such file"), "cannot start: no such file"),
        (lambda _: Script(seconds=1e6), "did not start the command"),
        (lambda spec: Script(stdout=printed(spec), seconds=1e6), "computed and did not end in time"),
        (lambda _: Script(exit_code=137, out_of_memory=True), "out of memory"),
        (lambda _: Script(stdout=b"x" * (33 << 20)), "printed more than"),
    ],
    ids=["swallows", "echoes", "odd", "wrong", "refuses", "hangs", "goes on", "memory", "floods"],
)
def test_start_that_fails_for_users_is_user_start(script: Callable[[ContainerSpec], Script], text: str) -> None:
    result, _ = started(script)
    assert result.outcome == "failed"
    assert [found.code for found in result.findings] == [Code.USER_START]
    assert text in result.observed


@pytest.mark.parametrize(
    ("text", "printed_by_it", "outcome"),
    [
        ("until nc -z database 5432; do sleep 1; done", b"", "passed"),
        ("exec /opt/start", b"database: Temporary failure in name resolution", "passed"),
        ("exit 3", b"", "failed"),
        ("", b"", "failed"),
        ("exec gosu app $@", b"chown: /tmp/cache: Operation not permitted", "passed"),
    ],
)
def test_entry_point_is_named_if_the_image_runs_without_it(text: str, printed_by_it: bytes, outcome: Outcome) -> None:
    def script(spec: ContainerSpec) -> Script:
        alone = Script(stdout=printed(spec, script=text))
        return Script(stderr=printed_by_it, exit_code=3 if text else 0) if spec.entrypoint else alone

    result, runs = started(script, OWN, "/opt/entry", "--wait")
    assert (result.outcome, [spec.entrypoint for spec in runs]) == (outcome, [True, False])
    (finding,) = result.findings
    assert finding.severity is (Severity.ERROR if outcome == "failed" else Severity.WARNING)
    assert "without its entry point /opt/entry --wait it computes" in finding.message
    assert any(word in finding.message for word in ("uses the network", "needs capabilities")) is (outcome == "passed")
    assert ("does not start the arguments" in finding.message) is (text == "")
    assert ('exec "$@"' if outcome == "failed" else "not decided here") in finding.fix


def test_entry_point_that_is_a_service_is_a_warning() -> None:
    result, _ = started(
        lambda spec: Script(seconds=1e6) if spec.entrypoint else Script(stdout=printed(spec)), OWN, "python", "serve.py"
    )
    assert (result.outcome, [one.severity for one in result.findings]) == ("passed", [Severity.WARNING])
    assert "as services do" in result.observed


@pytest.mark.parametrize(
    ("said", "outcome"),
    [(b"usage: a.py [-h]", "passed"), (b"usage: /usr/bin/python3 [option]", "failed"), (b"can't open a.py", "failed")],
)
def test_program_that_refuses_another_command_is_a_warning(said: bytes, outcome: str) -> None:
    def script(spec: ContainerSpec) -> Script:
        return Script(stderr=b"TensorFlow\n" + said, exit_code=2) if spec.entrypoint else Script(stdout=printed(spec))

    result, _ = started(script, OWN, "python", "/a.py")
    assert (result.outcome, "arguments of its own" in result.observed) == (outcome, outcome == "passed")


@pytest.mark.parametrize(
    ("options", "line", "outcome"),
    [
        (["-lc"], "python /srv/a.py", "failed"),
        (["-l", "-c"], "python /srv/a.py", "failed"),
        (["-lc"], ". /opt/venv/bin/activate && python /srv/a.py", "passed"),
        (["-c"], "python /srv/a.py", "passed"),
    ],
)
def test_command_by_a_login_shell_is_started_by_it(options: list[str], line: str, outcome: str) -> None:
    engine = FakeEngine(
        script=lambda spec: Script(exit_code=127) if spec.command[0] == "/bin/bash" else Script(stdout=printed(spec))
    )
    image = replace(engine.add("some:image"), command=("/bin/bash", *options, line))
    result = check_entrypoint(engine, image, OWN, threading.Event())
    assert (result.outcome, "without the login shell" in result.observed) == (outcome, outcome == "failed")


def test_program_that_the_entry_point_starts_and_the_image_lacks_is_an_error() -> None:
    failed, answer = (
        Script(stderr=b"chown: Operation not permitted", exit_code=1),
        {"script": "exec gosu", "missing": ["gosu"]},
    )
    result, _ = started(
        lambda spec: failed if spec.entrypoint else Script(stdout=printed(spec, **answer)), OWN, "/opt/entry"
    )
    assert (result.outcome, "starts gosu, which is not in the image" in result.observed) == ("failed", True)


def test_first_line_with_crlf_is_the_cause_of_an_entry_point_that_fails() -> None:
    result, _ = started(
        lambda spec: Script() if spec.entrypoint else Script(stdout=printed(spec, script="#!/bin/sh\r\nexec $@\r\n")),
        OWN,
        "/opt/entry",
    )
    assert "its first line ends with CRLF" in result.observed


def test_image_that_computes_neither_with_nor_without_its_entry_point_fails() -> None:
    result, _ = started(lambda _: Script(stderr=b"curl: (6) Could not resolve host"), OWN, "/opt/entry")
    assert (result.outcome, "entry point" in result.observed) == ("failed", False)


def test_image_without_python_is_started_with_python3() -> None:
    result, runs = started(
        lambda spec: (
            Script(exit_code=127, refusal="no python") if spec.command[0] == "python" else Script(stdout=printed(spec))
        )
    )
    assert result.outcome == "passed"
    assert [spec.command[0] for spec in runs] == ["python", "python3"]
