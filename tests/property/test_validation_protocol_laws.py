"""Laws of the run's messages: whatever is done to an honest run's, the verdict is never better than the honest one."""
# ruff: noqa: S311 - what is drawn here is no secret

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import examples, no_better
from suite_messages import END, START, TOKEN, lines, row

from envbuilder.finding import Code, Finding, Severity
from envbuilder.probes.suite.watchdog import Limits
from envbuilder.validation.image_context import CheckOutput
from envbuilder.validation.judge import Judgement, judge, mark_consequences
from envbuilder.validation.suite_plan import Check
from envbuilder.validation.suite_session import Session, Unfinished, check_protocol
from envbuilder.verdict import CheckLevel, CheckResult

PLAN: dict[str, CheckLevel] = {"files": "static", "import": "load", "product": "cpu", "keras": "cpu"}
PROTOCOL = row("protocol", "static", group="protocol")
CHECKS = tuple(row(name, level) for name, level in PLAN.items())
ERROR = {"code": "WRONG_NUMBERS", "severity": "error", "subject": "it", "message": "so"}


def events(outcomes: tuple[str, ...]) -> list[dict[str, Any]]:
    """Write an honest run in which the checks end so."""
    messages: list[dict[str, Any]] = [START]
    for name, outcome in zip(PLAN, outcomes, strict=True):
        messages.append({"event": "begin", "name": name})
        found = [ERROR] if outcome in ("failed", "error", "timeout") else []
        result = {"name": name, "outcome": outcome, "duration_s": 0.5, "findings": found}
        messages.append({"event": "result", "result": result})
    return [*messages, END]


def session_of(plan: tuple[Check, ...] = CHECKS) -> Session:
    clock = iter(range(1_000_000))
    return Session((*plan, PROTOCOL), lambda _: None, token=TOKEN, clock=lambda: float(next(clock)))


def judgement_of(session: Session, why: Unfinished | None = None) -> Judgement:
    return judge((*session.results(why), check_protocol(session, why, PROTOCOL)), flavor="cpu")


def judged(printed: bytes, *, why: Unfinished | None = None, plan: tuple[Check, ...] = CHECKS) -> Judgement:
    session = session_of(plan)
    session.feed(printed)
    return judgement_of(session, why)


OUTCOMES = st.tuples(*[st.sampled_from(["passed", "passed", "passed", "failed", "skipped", "error", "timeout"])] * 4)
INVENTED: tuple[dict[str, Any], ...] = (
    START,
    END,
    {"event": "begin", "name": "nobody's"},
    {"event": "result", "result": {"name": "nobody's", "outcome": "passed"}},
    {"event": "result", "result": {"name": "keras", "outcome": "passed", "tier": "multi-gpu"}},
    {"event": "result", "result": {"name": "files", "outcome": "passed"}},
    {"event": "result", "result": {"name": "import", "outcome": "passed", "duration_s": -1.0}},
    {"event": "verdict", "text": "PASSED"},
    {"event": "start", "host": {"cpus": 1}},
)


def reordered(messages: list[Any], random: Random) -> list[Any]:
    one, other = random.randrange(len(messages)), random.randrange(len(messages))
    messages[one], messages[other] = messages[other], messages[one]
    return messages


def duplicated(messages: list[Any], random: Random) -> list[Any]:
    return [*messages[: (at := random.randrange(len(messages) + 1))], random.choice(messages), *messages[at:]]


def dropped(messages: list[Any], random: Random) -> list[Any]:
    del messages[random.randrange(len(messages))]
    return messages


def shortened(messages: list[Any], random: Random) -> list[Any]:
    return messages[: random.randrange(len(messages))]


MUTATIONS: tuple[Callable[[list[Any], Random], list[Any]], ...] = (reordered, duplicated, dropped, shortened)


@given(OUTCOMES)
def test_honest_run_is_judged_by_its_results(outcomes: tuple[str, ...]) -> None:
    found = judged(lines(*events(outcomes)))
    assert Code.PROTOCOL_VIOLATION not in [finding.code for finding in found.findings]
    assert (found.verdict == "PASSED") is (set(outcomes) == {"passed"})
    assert (found.verdict == "FAILED") is bool({"failed", "error", "timeout"} & set(outcomes))


MOVES = st.lists(st.sampled_from(MUTATIONS), min_size=1, max_size=4)


def moved(messages: list[Any], mutations: list[Callable[[list[Any], Random], list[Any]]], seed: int) -> list[Any]:
    for mutate in mutations:
        messages = (mutate(messages, Random(seed)) if len(messages) > 1 else messages) or messages
    return messages


@examples(100)
@given(OUTCOMES, MOVES, st.integers(0, 1 << 30))
def test_moved_messages_never_help(
    outcomes: tuple[str, ...], mutations: list[Callable[[list[Any], Random], list[Any]]], seed: int
) -> None:
    printed = lines(*moved(events(outcomes), mutations, seed))
    assert no_better(judged(printed), judged(lines(*events(outcomes))))
    assert judged(printed, why=Unfinished("killed", Code.PROBE_TIMEOUT)).verdict == "FAILED"


@examples(100)
@given(OUTCOMES, st.sampled_from(INVENTED), st.integers(0, 1 << 30))
def test_invented_messages_never_help(outcomes: tuple[str, ...], invented: dict[str, Any], seed: int) -> None:
    messages: list[Any] = events(outcomes)
    honest = judged(lines(*messages))
    messages.insert(Random(seed).randrange(1, len(messages)), invented)
    assert no_better(judged(lines(*messages)), honest)


# A forged "passed" is believed: the token protects against accidents only.
DAMAGE = st.binary(min_size=1, max_size=40).filter(lambda patch: b"pass" not in patch)


@examples(100)
@given(OUTCOMES, st.integers(0, 1 << 30), DAMAGE)
def test_damaged_bytes_never_help(outcomes: tuple[str, ...], seed: int, patch: bytes) -> None:
    printed = bytearray(lines(*events(outcomes)))
    honest = judged(bytes(printed))
    at = Random(seed).randrange(len(printed))
    printed[at : at + len(patch)] = patch
    assert no_better(judged(bytes(printed)), honest)


@given(OUTCOMES, st.integers(0, 1 << 30))
def test_lines_with_another_token_change_nothing(outcomes: tuple[str, ...], seed: int) -> None:
    messages = lines(*events(outcomes)).splitlines(keepends=True)
    honest = judged(b"".join(messages))
    other = lines(*events(("passed",) * 4), token="another token")
    messages.insert(Random(seed).randrange(len(messages) + 1), other)
    assert judged(b"".join(messages)) == honest


@given(OUTCOMES, st.sampled_from([Unfinished("killed", Code.PROBE_TIMEOUT), Unfinished("died")]), st.integers(0, 10))
def test_stopped_run_is_never_passed(outcomes: tuple[str, ...], why: Unfinished, kept: int) -> None:
    assert judged(lines(*events(outcomes)[:kept]), why=why).verdict == "FAILED"


@given(st.sampled_from([-0.05, float(1 << 40), 0.0]))
def test_impossible_time_fails_the_run(seconds: float) -> None:
    plan = (*CHECKS[:1], row("import", "load", at_least={"import": 0.1}), *CHECKS[2:])
    messages = events(("passed",) * 4)
    messages[4]["result"]["measurements"] = {"import": {"value": 0.5, "unit": "s"}}
    assert judged(lines(*messages), plan=plan).verdict == "PASSED"
    messages[4]["result"]["measurements"] = {"import": {"value": seconds, "unit": "s"}}
    assert judged(lines(*messages), plan=plan).verdict == "FAILED"


def test_flood_after_the_last_message_fails_the_run() -> None:
    session = session_of()
    session.feed(lines(*events(("passed",) * 4)))
    for _ in range(65):
        session.feed(bytes(1 << 20))
    assert session.stopped is not None
    assert session.overdue()
    assert len(session.violations()) < 10
    assert judgement_of(session, session.stopped).verdict == "FAILED"


def test_pass_with_an_error_is_a_violation() -> None:
    messages = events(("passed",) * 4)
    messages[4]["result"]["findings"] = [ERROR]
    found = judged(lines(*messages))
    assert found.verdict == "FAILED"
    assert any("passed with an error" in reason for reason in found.reasons)


@pytest.mark.parametrize(("import_s", "limit_s"), [(3.0, 30.0), (20.0, 60.0)])
def test_silent_runner_is_stopped_after_the_limit_of_its_check(import_s: float, limit_s: float) -> None:
    now = 0.0
    session = Session((CHECKS[1], row("product", "cpu", limit_s=30.0)), lambda _: None, token=TOKEN, clock=lambda: now)
    result = {"name": "import", "outcome": "passed", "duration_s": import_s}
    session.overdue()
    now = 40.0
    begin, end = {"event": "begin", "name": "import"}, {"event": "result", "result": result}
    session.feed(lines(START, begin, end, {"event": "begin", "name": "product"}))
    assert Limits().scaled(30.0, import_s) == limit_s
    now += limit_s + 7.0
    assert not session.overdue()
    now += 2.0
    assert session.overdue()
    late = {"event": "result", "result": {"name": "product", "outcome": "timeout", "duration_s": limit_s}}
    session.feed(lines(late, {"event": "end"}))  # its own end came at the same time
    assert session.violations(session.stopped) == ()
    assert [one.code for one in session.results(session.stopped)[1].findings] == [Code.PROBE_TIMEOUT]


@given(OUTCOMES, st.lists(st.integers(1, 400), max_size=20))
def test_size_of_pieces_changes_nothing(outcomes: tuple[str, ...], cuts: list[int]) -> None:
    printed = lines(*events(outcomes))
    session = session_of()
    for size in cuts:
        session.feed(printed[:size])
        printed = printed[size:]
    session.feed(printed)
    assert judgement_of(session) == judged(lines(*events(outcomes)))


@given(OUTCOMES, st.randoms(use_true_random=False))
def test_interleaved_lanes_are_honest(outcomes: tuple[str, ...], random: Random) -> None:
    messages = events(outcomes)
    lanes = [messages[1:5], messages[5:-1]]
    mixed: list[Any] = []
    while any(lanes):
        mixed.append(random.choice([lane for lane in lanes if lane]).pop(0))
    assert judged(lines(START, *mixed, END)) == judged(lines(*events(outcomes)))


@given(OUTCOMES, st.sampled_from(range(4)))
def test_second_result_is_never_taken(outcomes: tuple[str, ...], which: int) -> None:
    messages = events(outcomes)
    result = messages[2 + 2 * which]["result"]
    better = {"event": "result", "result": {**result, "outcome": "passed", "findings": []}}
    assert judged(lines(*messages[:-1], better, END)).verdict == "FAILED"


ERRORS = st.builds(
    Finding,
    code=st.sampled_from(list(Code)),
    severity=st.sampled_from([Severity.ERROR, Severity.WARNING]),
    subject=st.sampled_from(["it", "PYTHONPATH", "libcudart.so.12", "build_info.py"]),
    message=st.just("so"),
)


@given(OUTCOMES, st.lists(ERRORS, max_size=4), st.lists(ERRORS, max_size=4), st.frozensets(st.just("libcudart.so.12")))
def test_marking_a_consequence_removes_no_failure(
    outcomes: tuple[str, ...], found: list[Finding], causes: list[Finding], files: frozenset[str]
) -> None:
    results = tuple(
        CheckResult(name=name, level=level, outcome=outcome, findings=tuple(found))  # type: ignore[arg-type]
        for (name, level), outcome in zip(PLAN.items(), outcomes, strict=True)
    )
    marked = mark_consequences(
        results, CheckOutput(tuple(one for one in causes if one.severity is Severity.ERROR), blamed=files)
    )
    assert [one.outcome for one in marked] == [one.outcome for one in results]
    assert no_better(judge(marked, flavor="cpu"), judge(results, flavor="cpu"))
