"""One process that runs the checks of a group in turn and answers on a descriptor of its own.

Frameworks print where they like; nothing that they print can be taken for an answer, because answers travel on a
descriptor that only this module knows. The log's markers tell the runner which check printed what.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Mapping
from typing import Any, NoReturn

from . import answer
from .answer import Answer, Facts, Order


def main(descriptor: int, token: str, started: float) -> NoReturn:
    """Read the group from standard input, run it, answer on ``descriptor``; exits without tearing anything down."""
    os.set_inheritable(descriptor, False)
    order = json.loads(sys.stdin.read())
    outcomes = dict(order["outcomes"])
    facts = order["facts"]
    facts["worker"] = {"started": started, "spawned": order["spawned"], "group": order["group"]}
    for check in order["checks"]:
        _mark(token, "begin", check["name"])
        _send(descriptor, {"event": "begin", "name": check["name"]})
        begun = time.monotonic()
        result = _run(check, facts, outcomes)
        result["name"] = check["name"]
        result["duration_s"] = time.monotonic() - begun
        outcomes[check["name"]] = result["outcome"]
        _mark(token, "end", check["name"])
        _send(descriptor, {"event": "result", "result": result})
    os._exit(0)


def blocked_by(check: Order, outcomes: Mapping[str, str]) -> str | None:
    """Name the first check that this one needs and that did not pass; None where it can run."""
    return next((name for name in check.get("needs", ()) if outcomes.get(name, "passed") != "passed"), None)


def _run(check: Order, facts: Facts, outcomes: Mapping[str, str]) -> Answer:
    blocker = blocked_by(check, outcomes)
    if blocker is not None:
        return answer.skipped("needs {0}, which did not pass".format(blocker))
    module, _, function = check["probe"].partition(":")
    try:
        probe = importlib.import_module("." + module, __package__)
        told: Answer = getattr(probe, function)(facts, **check.get("arguments", {}))
        return told
    except BaseException as error:  # SystemExit and KeyboardInterrupt from a framework are answers too
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        sys.stderr.write(text[-6000:])
        result = answer.failed(observed="{0}: {1}".format(type(error).__name__, error))
        result["outcome"] = "error"
        return result


def _send(descriptor: int, document: Mapping[str, Any]) -> None:
    line = json.dumps(document, default=str).encode() + b"\n"
    while line:
        line = line[os.write(descriptor, line) :]


def _mark(token: str, kind: str, name: str) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(2, "\x1e{0}:{1}:{2}\x1e".format(token, kind, name).encode())
