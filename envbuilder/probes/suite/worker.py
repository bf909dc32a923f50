"""One process that runs the checks of a group in turn and answers on a descriptor of its own.

Frameworks print where they like; nothing that they print can be taken for an answer, because answers travel on a
descriptor that only this module knows, under a key that came with the order. The order is read before anything of the
image's own (``site``, ``.pth`` files, ``sitecustomize``) runs. The log's markers tell the runner which
check printed what.
"""

from __future__ import annotations

import importlib
import json
import os
import site
import sys
import time
import traceback
from collections.abc import Mapping
from typing import NoReturn

from . import answer, older
from .answer import Answer, Facts, Order
from .channel import Writer


def main(descriptor: int) -> NoReturn:
    """Read the group from standard input, run it, answer on ``descriptor``; exits without tearing anything down."""
    os.set_inheritable(descriptor, False)
    order = json.loads(sys.stdin.buffer.read().decode())
    writer = Writer(descriptor, order.pop("key"))
    token = order.pop("token")
    if sys.flags.no_site:
        site.main()  # from here on this Python is the image's own
    outcomes = dict(order["outcomes"])
    facts = order["facts"]
    facts["worker"] = {"started": time.monotonic(), "spawned": order["spawned"], "group": order["group"]}
    for check in order["checks"]:
        _mark(token, "begin", check["name"])
        writer.send({"event": "begin", "name": check["name"]})
        result = _run(check, facts, outcomes)
        result["name"] = check["name"]
        outcomes[check["name"]] = result["outcome"]
        _mark(token, "end", check["name"])
        writer.send({"event": "result", "result": result})
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
        older.prepare(str(facts.get("tensorflow") or ""), facts["worker"]["group"], check["probe"])
        probe = importlib.import_module("." + module, __package__)
        told: Answer = getattr(probe, function)(facts, **check.get("arguments", {}))
        return told
    except BaseException as error:  # SystemExit and KeyboardInterrupt from a framework are answers too
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        sys.stderr.write(text[-6000:])
        result = answer.failed(observed="{0}: {1}".format(type(error).__name__, error))
        result["outcome"] = "error"
        return result


def _mark(token: str, kind: str, name: str) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(2, "\x1e{0}:{1}:{2}\x1e".format(token, kind, name).encode())
