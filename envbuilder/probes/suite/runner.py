"""Run a plan of checks so that a crash, a hang or a flood of output in one of them does not affect the others.

Standard input has the order: a token and a plan (``groups`` with name, lane, env and checks; ``facts`` for the probes).
The messages are ``start`` with the host, ``begin`` and ``result`` for every check, ``spoiled`` if something else wrote
to the results of a check, and ``end``.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from . import host, known_errors, watchdog
from .channel import Writer, private_output
from .result import Answer, Facts, Order, failed, finding
from .worker import blocked
from .worker_process import End, WorkerProcess

IMPORT = "import"
LOG_KEPT = 6000
MOST_RESTARTS = 2
"""How often a group goes on in a fresh process after a crash or a timeout: each costs an import."""

SPOILED = "something in this environment writes to the channel of the results"
SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}


def main() -> int:
    order = json.loads(sys.stdin.buffer.read().decode())
    if order.get("limit_s"):
        watchdog.end_after(order["limit_s"])
    _adopt_orphans()
    plan = order["plan"]
    run = SuiteRun(Writer(private_output(), order["token"]), plan)
    run.send({"event": "start", "python": sys.executable, "host": host.describe()})
    lanes: dict[str, list[Order]] = {}
    for group in plan["groups"]:
        lanes.setdefault(group.get("lane", "main"), []).append(group)
    threads = [threading.Thread(target=_run_lane, args=(run, *lane), daemon=True) for lane in lanes.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.send({"event": "end"})
    watchdog.kill_descendants()
    return 0


def _adopt_orphans() -> None:
    """Become the parent of what a killed check leaves behind, so that it ends with the run."""
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


class SuiteRun:
    """What the lanes of a run share: the results so far, sent as they come, and when the run has to end."""

    def __init__(self, writer: Writer, plan: Mapping[str, Any]) -> None:
        self.send = writer.send
        self.facts: Facts = plan["facts"]
        self.clock = watchdog.Clock(watchdog.Limits(**plan.get("limits", {})))
        self.outcomes: dict[str, str] = {}
        self.quiet_over = threading.Event()
        if not any(check.get("quiet") for group in plan["groups"] for check in group["checks"]):
            self.quiet_over.set()

    def answer(self, check: Order, result: Answer) -> None:
        log = result.get("log", "")
        is_quiet = result["outcome"] in ("passed", "skipped")
        result = dict({"duration_s": 0.0}, **dict(result, name=check["name"], log="" if is_quiet else log[-LOG_KEPT:]))
        self.outcomes[check["name"]] = result["outcome"]
        if check["name"] == IMPORT and result["outcome"] == "passed":
            self.clock.import_s = result["duration_s"]
        self.send({"event": "result", "result": result})

    def timed_out(self, end: End) -> None:
        """Shorten the run after a timeout: one wait, not one for each check that hangs.

        If a worker did not come to its first check, no other worker will.
        """
        if not end.is_cut:
            self.clock.stop_after(self.clock.scaled(self.clock.limits.rest_s) if end.name else 0.0)


def _run_lane(run: SuiteRun, lane: str, groups: list[Order]) -> None:
    """Run the groups of a lane in order. Lanes other than ``main`` wait for the checks that are timed."""
    try:
        if lane != "main":
            run.quiet_over.wait()
        for group in groups:
            run_group(run, group)
    except Exception as error:
        for check in [check for group in groups for check in group["checks"] if check["name"] not in run.outcomes]:
            run.answer(check, crashed(check, End("crash", log=f"the runner: {error!r}")))
    finally:
        if lane == "main":
            run.quiet_over.set()


def run_group(run: SuiteRun, group: Order) -> None:
    """Run a group in one process. After a crash or a timeout the rest goes on in a fresh process."""
    env = _environment(group.get("env", {}))
    left, end = group["checks"], End("crash")
    for _ in range(1 + MOST_RESTARTS):
        if run.clock.is_over:
            break
        end, left = _run_once(run, group["name"], left, env)
        if not left:
            return
        if end.kind == "spoiled":
            run.send({"event": "spoiled", "group": group["name"], "text": end.log[:300]})
            for check in left:  # no result of that process counts
                run.answer(check, _without_result("PROTOCOL_VIOLATION", check, end, SPOILED))
            return
        at_work = next((check for check in left if check["name"] == end.name), left[0])
        run.answer(at_work, timed_out(at_work, end) if end.kind == "timeout" else crashed(at_work, end))
        if end.kind == "timeout":
            run.timed_out(end)
        left = [check for check in left if check is not at_work]
    for check in left:
        run.answer(check, blocked(check, run.outcomes) or not_run(check, end, run))


def _run_once(run: SuiteRun, name: str, checks: list[Order], env: Mapping[str, str]) -> tuple[End, list[Order]]:
    order = {"group": name, "checks": checks, "facts": run.facts, "outcomes": dict(run.outcomes)}
    worker = WorkerProcess(order, env, run.clock)
    named = {check["name"]: check for check in checks}
    for event, value in worker.run():
        if event == "begin":
            timed = [check["name"] for check in checks if check.get("quiet")]
            if value not in timed and run.outcomes.keys() >= set(timed):
                run.quiet_over.set()
            run.send({"event": "begin", "name": value})
        elif event == "result":
            run.answer(named.pop(value["name"]), known_errors.classify(value))
    return worker.end, list(named.values())


def not_run(check: Order, end: End, run: SuiteRun) -> Answer:
    """Describe a check that was not tried: too many before it crashed, or no time was left."""
    is_late = run.clock.stop_at < float("inf")
    why = "a check before it timed out" if is_late else "the processes of checks before it died"
    return _without_result("PROBE_TIMEOUT" if is_late else "PROBE_CRASHED", check, end, f"it was not run: {why}")


def crashed(check: Order, end: End) -> Answer:
    number = -end.exit_code if end.exit_code is not None and end.exit_code < 0 else 0
    how = SIGNALS.get(number, f"signal {number}") if number else f"exit {end.exit_code}"
    code = "CPU_FEATURE_MISSING" if number == 4 else "PROBE_CRASHED"
    text = f"the process of {check['name']} died: {how}"
    return known_errors.classify(_without_result(code, check, end, text, how + "\n"))


def timed_out(check: Order, end: End) -> Answer:
    """Describe a check that was killed: at its limit, at the end of the run, or before it began."""
    if end.is_cut:
        text = f"stopped after {end.limit_s:.3g} s: another check timed out before"
    elif end.name is None:
        text = "Python did not come to this check in time; killed"
    else:
        text = f"no result within {end.limit_s:.3g} s; killed"
    return dict(_without_result("PROBE_TIMEOUT", check, end, text), duration_s=end.limit_s)


def _without_result(code: str, check: Order, end: End, text: str, found: str = "") -> Answer:
    problem = finding(code, check["name"], text, requires="a result", found=found + end.log[-1500:])
    outcome = "timeout" if code == "PROBE_TIMEOUT" else "error"
    return dict(failed("a result", text, findings=[problem]), outcome=outcome, log=end.log)


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Give a worker the environment of the image, with writable folders for what frameworks write."""
    env = dict(os.environ)
    home = env.get("HOME", "")
    if not home or not os.access(home, os.W_OK):
        env["HOME"] = "/tmp"
    env.setdefault("XDG_CACHE_HOME", "/tmp/cache")
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    env.update(extra)
    return env
