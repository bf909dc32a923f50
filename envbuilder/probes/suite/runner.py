"""Run a plan of checks so that a crash, a hang or a flood in one costs nothing but that one.

The order comes on standard input: a key, and the plan (``groups`` in order with name, lane, env and checks; ``facts``
for the probes). What happens is told as sealed messages: ``start``, ``identity``, ``begin`` and ``result`` for every
check, ``spoiled`` where somebody else wrote on a check's answers, and ``end``.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Mapping

from . import symptoms
from .answer import Answer, Facts, Order, failed, finding, skipped
from .board import IDENTITY, Board
from .channel import Writer
from .lifetime import end_after
from .supervise import START_LIMIT_S, End, Group
from .worker import blocked_by

SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}


def main() -> int:
    """Run the plan that standard input holds."""
    order = json.loads(sys.stdin.buffer.read().decode())
    if order.get("limit_s"):
        end_after(order["limit_s"])
    sealed = seal()
    board = Board(Writer(_private_output(), order.pop("key")))
    plan = order["plan"]
    board.say({"event": "start", "python": sys.version.split()[0], "executable": sys.executable, "sealed": sealed})
    lanes: dict[str, list[Order]] = {}
    if plan.get("identify"):
        lanes["identity"] = [{"name": "identity", "checks": [IDENTITY]}]
    for group in plan["groups"]:
        lanes.setdefault(group.get("lane", "main"), []).append(group)
    if not any(check.get("quiet") for group in plan["groups"] for check in group["checks"]):
        board.quiet_over.set()
    threads = [
        threading.Thread(target=_run_lane, args=(name, groups, plan["facts"], board), daemon=True)
        for name, groups in lanes.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    board.say({"event": "end"})
    return 0


def _private_output() -> int:
    """Keep standard output for messages alone: what else prints there goes to standard error, which is only a log."""
    private = os.dup(1)
    os.dup2(2, 1)
    return private


def _run_lane(lane: str, groups: list[Order], facts: Facts, board: Board) -> None:
    """Run a lane's groups in order; lanes other than ``main`` wait until the checks that need quiet are over.

    Whatever goes wrong in it, the others are let go on, and each of its checks that has no answer gets one.
    """
    try:
        if lane != "main":
            board.quiet_over.wait()
        for group in groups:
            env = _environment(group.get("env", {}), facts)
            board.bound(group)
            run_group(group["name"], group["checks"], facts, env, board)
    except Exception as error:
        for check in [check for group in groups for check in group["checks"] if check["name"] not in board.outcomes]:
            board.answer(check, crash(check, End("crash", None, 0, None, "the runner: {0!r}".format(error))))
    finally:
        if lane == "main":
            board.quiet_over.set()


def run_group(name: str, checks: list[Order], facts: Facts, env: Mapping[str, str], board: Board) -> None:
    """Run a group in one process; after a crash the rest one by one, the one that crashed among them.

    After a hang the rest go on together in a fresh process, and after a second one they are given up; so they are where
    no time is left. A process that does not come to a check within its time is not tried again, and neither are those
    after it; one whose answers somebody else wrote to has none that count.
    """
    if board.stuck.is_set():
        _answer_all(checks, not_started, End("timeout", None, 0, None, ""), board)
        return
    if board.is_over(name):
        _give_up(checks, board)
        return
    end, left = _run_once(name, checks, facts, env, board)
    if end.kind == "spoiled":
        board.say({"event": "spoiled", "group": name, "text": end.log[:300]})
        _answer_all(left, spoiled, end, board)
        return
    if not left:
        return
    if end.kind == "timeout" and end.is_cut:
        # The end of all came, not a limit of its own: others took the time, and nobody knows of a hang here.
        if end.name is not None:
            board.answer(_named(checks, end.name), cut_off(_named(checks, end.name), end))
        _give_up([check for check in left if check["name"] != end.name], board)
        return
    if end.kind == "timeout" and end.name is None:
        if len(left) == len(checks):
            board.stuck.set()
        board.hangs(left[0])
        _answer_all(left, not_started, end, board)
        return
    if end.kind == "timeout" and end.name is not None:
        board.answer(_named(checks, end.name), timeout(_named(checks, end.name), end))
        board.hangs(_named(checks, end.name))
        left = [check for check in left if check["name"] != end.name]
        if left and board.hung[name] < MOST_HANGS:
            run_group(name, left, facts, env, board)
            return
        _give_up(left, board)
        return
    if len(checks) == 1:
        board.answer(checks[0], crash(checks[0], end))
        return
    deaths = 0
    for check in left:
        if deaths >= MOST_DEATHS:
            board.answer(check, given_up(check, end))
            continue
        deaths += _run_alone(check, facts, env, board, end)


MOST_DEATHS = 3
"""Processes of a group that may die alone before the rest of its checks is given up: each costs an import."""


MOST_HANGS = 2
"""Checks of a group that may run into their limits before the rest is given up."""


def _answer_all(checks: list[Order], describe: Callable[[Order, End], Answer], end: End, board: Board) -> None:
    for check in checks:
        board.answer(check, describe(check, end))


def _give_up(checks: list[Order], board: Board) -> None:
    for check in checks:
        board.answer(check, blocked(check, board) or hung(check))


def _run_alone(check: Order, facts: Facts, env: Mapping[str, str], board: Board, before: End) -> bool:
    """Run one check in a process of its own; tell whether that died. ``before`` is how its group's process did."""
    crashed_before = before if check["name"] == before.name else None
    not_now = blocked(check, board) or (_no_time(check, before, board) if board.is_over(check["group"]) else None)
    if not_now:
        board.answer(check, not_now)
        return False
    holder: list[Answer] = []
    end, left = _run_once(check["group"], [check], facts, env, board, holder if crashed_before else None)
    if left and end.kind == "timeout" and end.is_cut:
        board.answer(check, _no_time(check, before, board))  # cut off by the end of all: that is no hang of its own
    elif left:
        describe = {"timeout": timeout if end.name else not_started, "spoiled": spoiled}.get(end.kind, crash)
        board.answer(check, describe(check, end))
        if end.kind == "timeout":
            board.hangs(check)
    elif crashed_before:
        # It crashed among others and not alone: that is never a success, whoever is to blame.
        result = crash(check, crashed_before)
        result["observed"] += "; alone it answers: " + holder[0]["outcome"]
        board.answer(check, result)
    return bool(left) and end.kind == "crash"


def _no_time(check: Order, before: End, board: Board) -> Answer:
    """Describe a check for which no time was left: by the death that cost it, unless something hung."""
    if board.has_hung():
        return hung(check)
    return crash(check, before) if check["name"] == before.name else given_up(check, before)


def _run_once(
    name: str,
    checks: list[Order],
    facts: Facts,
    env: Mapping[str, str],
    board: Board,
    holder: list[Answer] | None = None,
) -> tuple[End, list[Order]]:
    """Run checks in one process; return how it ended and the checks that have no answer."""
    group = Group(
        name,
        checks,
        facts,
        dict(board.outcomes),
        env,
        limit_of=board.limit_of,
        until=lambda: board.until(name),
        beside_reading=board.beside_reading,
    )
    answered: set[str] = set()
    for event, value in group.run():
        if event == "begin":
            check = _named(checks, value)
            if not check.get("quiet") and _quiet_done(checks, answered):
                board.quiet_over.set()
            if check is not IDENTITY:
                board.begins(check)
                board.say({"event": "begin", "name": value})
            continue
        answered.add(value["name"])
        value = symptoms.classify(value)
        if holder is None:
            board.answer(_named(checks, value["name"]), value)
        else:
            holder.append(value)
    return group.end, [check for check in checks if check["name"] not in answered]


def _quiet_done(checks: list[Order], answered: set[str]) -> bool:
    return all(check["name"] in answered for check in checks if check.get("quiet"))


def blocked(check: Order, board: Board) -> Answer | None:
    """Describe a check that needs another one's success; None for one that may run."""
    blocker = blocked_by(check, board.outcomes)
    return skipped("needs {0}, which did not pass".format(blocker)) if blocker else None


def hung(check: Order) -> Answer:
    """Describe a check that was not tried, because others hung: too many, or until no time was left."""
    text = "{0} was not run: others before it hung, or took the time that it had".format(check["name"])
    found = finding("PROBE_TIMEOUT", check["name"], text, requires="an answer in time")
    result = failed("an answer in time", text, findings=[found])
    result.update(outcome="timeout")
    return result


def given_up(check: Order, end: End) -> Answer:
    """Describe a check that was not tried, because too many before it died, or it took all the time to go on."""
    text = "{0} was not run: the processes of checks before it died".format(check["name"])
    found = finding("PROBE_CRASHED", check["name"], text, requires="an answer", found=end.log[-1500:])
    result = failed("an answer", text, findings=[found])
    result.update(outcome="error")
    return result


def crash(check: Order, end: End) -> Answer:
    """Describe a check whose process died."""
    how = SIGNALS.get(end.signal, "signal {0}".format(end.signal)) if end.signal else "exit {0}".format(end.exit_code)
    text = "the process of {0} died: {1}".format(check["name"], how)
    code = "CPU_FEATURE_MISSING" if end.signal == 4 else "PROBE_CRASHED"
    found = finding(code, check["name"], text, requires="an answer", found=how + "\n" + end.log[-1500:])
    result = failed("an answer", text, findings=[found])
    result.update(outcome="error", log=end.log)
    return symptoms.classify(result)


def timeout(check: Order, end: End) -> Answer:
    """Describe a check that was killed at its time limit."""
    expected = "an answer within {0:.3g} s".format(end.limit_s)
    return _late(check, end, expected, "no answer within {0:.3g} s; killed".format(end.limit_s))


def cut_off(check: Order, end: End) -> Answer:
    """Describe a check that was at work when the time of all was over, before its own limit: no hang of its own."""
    text = "stopped {0:.3g} s after it began: others before it hung, or took the time that it had".format(end.limit_s)
    return _late(check, end, "an answer in time", text)


def _late(check: Order, end: End, expected: str, text: str) -> Answer:
    found = finding("PROBE_TIMEOUT", check["name"], text, requires="an answer in time", found=end.log[-1500:])
    result = failed(expected, text, findings=[found])
    result.update(outcome="timeout", log=end.log, duration_s=end.limit_s)
    return result


def not_started(check: Order, end: End) -> Answer:
    """Describe a check that was never begun, because Python did not get that far in its time."""
    text = "Python did not come to this check within {0:g} s; killed".format(START_LIMIT_S)
    found = finding("PROBE_TIMEOUT", check["name"], text, requires="a start in time", found=end.log[-1500:])
    result = failed("a start within {0:g} s".format(START_LIMIT_S), text, findings=[found])
    result.update(outcome="timeout", log=end.log)
    return result


def spoiled(check: Order, end: End) -> Answer:
    """Describe a check on whose answers somebody else wrote: no answer of that process counts."""
    text = "something in this environment writes on the channel of the answers"
    found = finding("PROTOCOL_VIOLATION", check["name"], text, requires="the check's own answer", found=end.log[:500])
    result = failed("the check's own answer", text, findings=[found])
    result.update(outcome="error", log=end.log)
    return result


def _named(checks: list[Order], name: str) -> Order:
    return next(check for check in checks if check["name"] == name)


def _environment(extra: Mapping[str, str], facts: Facts) -> dict[str, str]:
    """Give a worker the image's environment, with writable places for what frameworks like to write."""
    env = dict(os.environ)
    scratch = facts.get("scratch", "/tmp")
    home = env.get("HOME", "")
    if not home or not os.access(home, os.W_OK):
        env["HOME"] = scratch
    env.setdefault("XDG_CACHE_HOME", os.path.join(scratch, "cache"))
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    env.update(extra)
    return env


def seal() -> bool:
    """Keep other processes of this user out of this one's memory and descriptors; False where this Python cannot.

    It also becomes the parent of what a killed check leaves behind, so that nothing outlives the runner unnoticed.
    """
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
        prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
        return bool(prctl(4, 0, 0, 0, 0) == 0)  # PR_SET_DUMPABLE
    except (ImportError, OSError, AttributeError):
        return False
