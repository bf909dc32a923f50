"""Decode BuildKit's progress messages (``moby.buildkit.trace``) into the steps of a build, as they arrive."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from envbuilder.support import terminal_text
from envbuilder.support.console import Step

_LAST_LINES = 40
# Field numbers of moby.buildkit.v1.StatusResponse, Vertex and VertexLog, and google.protobuf.Timestamp.
# Source: https://github.com/moby/buildkit/blob/v0.12.5/api/services/control/control.proto
_VERTEXES, _LOGS = 1, 3
_LAST_SHIFT = 63
_DIGEST, _NAME, _CACHED, _STARTED, _COMPLETED, _ERROR = 1, 3, 4, 5, 6, 7
_LOG_VERTEX, _LOG_MESSAGE = 1, 4


@dataclass
class Vertex:
    """One step of a build: its name, the builder's error ('' without one), and the last lines of its output."""

    name: str
    started: float = 0.0
    ended: bool = False
    error: str = ""
    partial: str = ""
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_LAST_LINES))


class Trace:
    """Collects progress messages into steps: each step starts and ends once, its output has complete lines."""

    def __init__(self) -> None:
        self._vertices: dict[str, Vertex] = {}

    def feed(self, message: bytes) -> Iterator[Step]:
        """Yield the steps of one StatusResponse message. Raises ValueError if it is not one."""
        for number, value in fields(message):
            if number == _VERTEXES and isinstance(value, bytes):
                yield from self._vertex(dict(fields(value)))
            elif number == _LOGS and isinstance(value, bytes):
                yield from self._log(dict(fields(value)))

    def finish(self) -> Iterator[Step]:
        """Yield the unfinished last lines of all steps."""
        for vertex in self._vertices.values():
            yield from _flush(vertex)

    def failure(self) -> Vertex | None:
        """Return the step that failed first; steps that were cancelled because of it do not count."""
        failed = (one for one in self._vertices.values() if one.error and "context canceled" not in one.error)
        return next(failed, None)

    def _vertex(self, row: dict[int, int | bytes]) -> Iterator[Step]:
        vertex = self._known(_text(row.get(_DIGEST)), _text(row.get(_NAME)))
        started, completed, error = _seconds(row.get(_STARTED)), _seconds(row.get(_COMPLETED)), _text(row.get(_ERROR))
        # BuildKit may visit a vertex again after its end (its cache key, then its content): only an error is new then.
        if not started or (vertex.ended and (vertex.error or not error)):
            return
        if not vertex.started and not row.get(_CACHED):
            yield Step("started", vertex.name)
        vertex.started = vertex.started or started
        if completed:
            yield from _flush(vertex)
            vertex.ended, vertex.error = True, error
            yield _end(vertex, completed - vertex.started, cached=bool(row.get(_CACHED)))

    def _log(self, row: dict[int, int | bytes]) -> Iterator[Step]:
        vertex = self._known(_text(row.get(_LOG_VERTEX)), "")
        *lines, vertex.partial = (vertex.partial + _text(row.get(_LOG_MESSAGE))).split("\n")
        for line in lines:
            yield from _line(vertex, line)

    def _known(self, digest: str, name: str) -> Vertex:
        vertex = self._vertices.setdefault(digest, Vertex(name or digest))
        vertex.name = name or vertex.name
        return vertex


def _end(vertex: Vertex, seconds: float, *, cached: bool) -> Step:
    if vertex.error:
        return Step("failed", vertex.name, seconds=seconds, error=vertex.error)
    return Step("cached", vertex.name) if cached else Step("done", vertex.name, seconds=seconds)


def _flush(vertex: Vertex) -> Iterator[Step]:
    if vertex.partial:
        line, vertex.partial = vertex.partial, ""
        yield from _line(vertex, line)


def _line(vertex: Vertex, raw: str) -> Iterator[Step]:
    text = terminal_text.text(raw.rstrip("\r"))
    vertex.lines.append(text)
    yield Step("log", vertex.name, text=text)


def _text(value: int | bytes | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def _seconds(value: int | bytes | None) -> float:
    """Read a Timestamp as seconds since the epoch; 0.0 if it is absent."""
    if not isinstance(value, bytes):
        return 0.0
    parts = dict(fields(value))
    seconds, nanos = parts.get(1, 0), parts.get(2, 0)
    return (seconds if isinstance(seconds, int) else 0) + (nanos if isinstance(nanos, int) else 0) / 1e9


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value) of a protobuf message: integers for varints and fixed widths, otherwise bytes.

    Raises ValueError on a message that is cut short or has a wire type that is not in proto3.
    Source of the format: https://protobuf.dev/programming-guides/encoding/
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        match wire:
            case 0:
                value, at = _varint(data, at)
                yield number, value
            case 2:
                size, at = _varint(data, at)
                yield number, _slice(data, at, size)
                at += size
            case 1 | 5:
                size = 8 if wire == 1 else 4
                yield number, int.from_bytes(_slice(data, at, size), "little")
                at += size
            case _:
                raise ValueError(f"wire type {wire} at byte {at}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift <= _LAST_SHIFT:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            return value, at
        shift += 7
    raise ValueError(f"unfinished varint at byte {at}")


def _slice(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise ValueError(f"{size} bytes expected at byte {at}, found {len(data) - at}")
    return data[at : at + size]
