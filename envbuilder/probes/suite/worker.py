"""Run the checks of a group in this process and send the results on a private descriptor.

Frameworks print to any stream. Their output is never taken for a result: results have a descriptor of their own and the
token of the order. The order is read before code of the image runs (``site``, ``.pth`` files, ``sitecustomize``).
Markers in the log show which check printed what.
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

from . import tensorflow1_compat
from .channel import Writer
from .result import Answer, Facts, Order, failed, skipped


def main(descriptor: int) -> NoReturn:
    """Run the group on standard input and exit without any clean-up: frameworks may hang or crash in it."""
    os.set_inheritable(descriptor, False)
    order = json.loads(sys.stdin.buffer.read().decode())
    token = order.pop("token")
    writer = Writer(descriptor, token)
    if sys.flags.no_site:
        site.main()  # from here on, code of the image runs
    outcomes = dict(order["outcomes"])
    facts = order["facts"]
    facts["worker"] = {"started": time.monotonic(), "spawned": order["spawned"], "group": order["group"]}
    for check in order["checks"]:
        _mark(token, "begin", check["name"])
        writer.send({"event": "begin", "name": check["name"], "at": time.monotonic()})
        result = _run(check, facts, outcomes)
        result["name"] = check["name"]
        outcomes[check["name"]] = result["outcome"]
        _mark(token, "end", check["name"])
        writer.send({"event": "result", "result": result})
    os._exit(0)


def blocked(check: Order, outcomes: Mapping[str, str]) -> Answer | None:
    """Return the result of a check that needs one that did not pass; None if it can run."""
    missing = [name for name in check.get("needs", ()) if outcomes.get(name, "passed") != "passed"]
    return skipped(f"needs {missing[0]}, which did not pass") if missing else None


def _run(check: Order, facts: Facts, outcomes: Mapping[str, str]) -> Answer:
    not_possible = blocked(check, outcomes)
    if not_possible:
        return not_possible
    module, _, function = check["probe"].partition(":")
    try:
        tensorflow1_compat.prepare(str(facts.get("tensorflow") or ""), facts["worker"]["group"], check["probe"])
        probe = importlib.import_module("." + module, __package__)
        result: Answer = getattr(probe, function)(facts, **check.get("arguments", {}))
        return result
    except BaseException as error:  # a framework's SystemExit or KeyboardInterrupt is a result
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        sys.stderr.write(text[-6000:])
        result = failed(observed=f"{type(error).__name__}: {error}")
        result["outcome"] = "error"
        return result


def _mark(token: str, kind: str, name: str) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(2, f"\x1e{token}:{kind}:{name}\x1e".encode())
