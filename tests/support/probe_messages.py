"""Speak the probes' protocol in tests: seal what a runner would say, and open what one said."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from envbuilder.probes.suite.channel import Reader, sealed

KEY = "the key of a test"
START = {"event": "start", "python": "3.11.9", "executable": "/opt/venv/bin/python", "sealed": True}
END = {"event": "end"}


def answer_to(stdin: bytes, *events: object) -> bytes:
    """Write what the runner that read ``stdin`` would: these events between its start and its end."""
    return lines(json.loads(stdin)["key"], START, *events, END)


def lines(key: str, *events: object) -> bytes:
    """Seal events in order."""
    return b"".join(sealed(key.encode(), number, msgspec.json.encode(event)) for number, event in enumerate(events))


def order(plan: object, key: str = KEY) -> bytes:
    """Write what a runner reads on its standard input."""
    return json.dumps({"key": key, "plan": plan}).encode()


def opened(printed: Iterable[bytes] | bytes, key: str = KEY) -> list[dict[str, Any]]:
    """Return the events of what a runner printed; nothing else may stand there."""
    reader = Reader(key)
    events = [
        json.loads(payload) for payload in reader.feed(printed if isinstance(printed, bytes) else b"".join(printed))
    ]
    assert not reader.strange
    assert not reader.wrong
    return events
