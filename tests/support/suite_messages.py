"""The messages between runner and host in tests: write what a runner would send, and read what one sent."""

import json
from typing import Any

from envbuilder.probes.suite.channel import Reader, message
from envbuilder.validation.suite_plan import Check
from envbuilder.verdict import CheckLevel

TOKEN = "token-of-a-test"  # noqa: S105 - it is not a secret
HOST = {"kernel": "6.1.0", "cpus": 2, "cpu_model": "a processor", "memory": 8 << 30}
START = {"event": "start", "python": "/opt/venv/bin/python", "host": HOST}
END = {"event": "end"}


def row(name: str, level: CheckLevel, probe: str = "m:f", **given: Any) -> Check:
    return Check(name=name, level=level, probe=probe, proves="x", codes=(), **{"group": "framework", **given})


def answer_to(stdin: bytes, *events: dict[str, Any]) -> bytes:
    """Write what the runner that read ``stdin`` would: these events between its start and its end."""
    return lines(START, *events, END, token=json.loads(stdin)["token"])


def lines(*events: dict[str, Any], token: str = TOKEN) -> bytes:
    return b"".join(message(token, event) for event in events)


def order(plan: object, **more: object) -> bytes:
    return json.dumps({"token": TOKEN, "plan": plan, **more}).encode()


def events_of(printed: bytes) -> list[dict[str, Any]]:
    reader = Reader(TOKEN)
    events = [json.loads(document) for document in reader.feed(printed)]
    assert not reader.strange
    return events
