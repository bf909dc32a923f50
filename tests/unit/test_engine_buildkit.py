"""The decoder of BuildKit's progress, on bytes recorded from Docker Engine 20.10.24 and on broken ones."""

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuilder.engine.buildkit import Trace, fields
from envbuilder.engine.port import Step

RECORDED = Path(__file__).parents[1] / "golden" / "buildkit"


def replay(name: str) -> tuple[Trace, list[Step]]:
    steps: list[Step] = []
    trace = Trace()
    for line in (RECORDED / name).read_text().splitlines():
        record = json.loads(line)
        if record.get("id") == "moby.buildkit.trace":
            steps += trace.feed(base64.b64decode(record["aux"]))
    return trace, [*steps, *trace.finish()]


def varint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80]) + varint(value >> 7) if value > 0x7F else bytes([value])


def block(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def log(text: str) -> bytes:
    return block(3, block(1, b"v") + block(4, text.encode()))


def vertex(*, started: int = 0, completed: int = 0, error: str = "", cached: bool = False) -> bytes:
    """Encode a message with one state of the vertex ``v``."""
    parts = block(1, b"v") + block(3, b"[1/1] RUN it") + (b"\x20\x01" if cached else b"")
    for number, seconds in ((5, started), (6, completed)):
        parts += block(number, b"\x08" + varint(seconds)) if seconds else b""
    return block(1, parts + (block(7, error.encode()) if error else b""))


def test_recorded_failure_is_read() -> None:
    trace, steps = replay("failed.jsonl")
    failure = trace.failure()
    assert failure.name.startswith("[3/3] RUN echo to stderr")
    assert failure.error.endswith("exit code: 3")
    assert list(failure.lines) == ["to stderr", "red"]
    assert [step.kind for step in steps if step.name == failure.name] == ["started", "log", "log", "failed"]
    second = [step for step in steps if step.name.startswith("[2/3]")]
    assert [step.text for step in second if step.kind == "log"] == ["one", "100%", "unfinished"]
    (done,) = [step for step in second if step.kind == "done"]
    assert 0.1 < done.seconds < 60


def test_recorded_cache_hits_differ_from_executed_steps() -> None:
    trace, steps = replay("cached.jsonl")
    assert {step.kind for step in steps if "RUN" in step.name} == {"cached"}
    assert trace.failure() is None


def test_every_recorded_step_ends_once() -> None:
    for name in ("failed.jsonl", "cached.jsonl"):
        _, steps = replay(name)
        ends = [step.name for step in steps if step.kind in {"done", "cached", "failed"}]
        assert len(ends) == len(set(ends)) > 3


@pytest.mark.parametrize(("error", "is_cause"), [("gone", True), ("context canceled", False)])
def test_error_after_the_end_counts_except_of_a_cancelled_step(error: str, *, is_cause: bool) -> None:
    trace = Trace()
    messages = (vertex(started=5, completed=6), vertex(started=7), vertex(started=7, completed=8, error=error))
    kinds = [step.kind for message in messages for step in trace.feed(message)]
    assert kinds == ["started", "done", "failed"]
    assert (trace.failure() is not None) is is_cause


@given(st.text(alphabet=st.sampled_from("ab\n"), max_size=40), st.integers(1, 7))
def test_lines_do_not_depend_on_how_they_are_cut(text: str, size: int) -> None:
    trace = Trace()
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    steps = [step for piece in pieces for step in trace.feed(log(piece))] + list(trace.finish())
    assert [step.text for step in steps] == text.split("\n")[: None if text.rpartition("\n")[2] else -1]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", []),
        (b"\x08\x96\x01", [(1, 150)]),
        (b"\x12\x07testing", [(2, b"testing")]),
        (b"\x0d\x01\x00\x00\x00", [(1, 1)]),
        (b"\x09\x01\x00\x00\x00\x00\x00\x00\x00", [(1, 1)]),
    ],
)
def test_wire_format(data: bytes, found: list[tuple[int, int | bytes]]) -> None:
    assert list(fields(data)) == found


@pytest.mark.parametrize("data", [b"\x08", b"\x12\x07test", b"\x0d\x01", b"\x0b", b"\x08" + b"\xff" * 11])
def test_broken_message_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="byte"):
        list(fields(data))
