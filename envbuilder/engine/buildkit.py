"""Decode BuildKit's progress (``moby.buildkit.trace``) into the steps of a build, as they happen."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from envbuilder.engine.port import Step
from envbuilder.engine.protobuf import fields

_KEPT_LINES = 40
# Terminal control sequences and other control characters: a build step's output goes to a person's terminal.
_CONTROL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Field numbers of moby.buildkit.v1.StatusResponse, Vertex and VertexLog, and google.protobuf.Timestamp.
# Source: https://github.com/moby/buildkit/blob/v0.12.5/api/services/control/control.proto
_VERTEXES, _LOGS = 1, 3
_DIGEST, _NAME, _CACHED, _STARTED, _COMPLETED, _ERROR = 1, 3, 4, 5, 6, 7
_LOG_VERTEX, _LOG_MESSAGE = 1, 4


@dataclass(frozen=True)
class Failure:
    """The step that broke a build: its name, the builder's error, and the last lines that it printed."""

    name: str
    error: str
    lines: tuple[str, ...]


@dataclass
class _Vertex:
    """What has been reported of one step so far."""

    name: str
    started: float = 0.0
    ended: bool = False
    error: str = ""
    partial: str = ""
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT_LINES))


class Trace:
    """Folds trace messages into steps: each step starts and ends once, and its output comes in whole lines."""

    def __init__(self) -> None:
        self._vertices: dict[str, _Vertex] = {}

    def feed(self, message: bytes) -> Iterator[Step]:
        """Yield what one StatusResponse message adds. Raises ValueError where it is not one."""
        for number, value in fields(message):
            if number == _VERTEXES and isinstance(value, bytes):
                yield from self._vertex(dict(fields(value)))
            elif number == _LOGS and isinstance(value, bytes):
                yield from self._log(dict(fields(value)))

    def finish(self) -> Iterator[Step]:
        """Yield the lines that steps left unfinished."""
        for vertex in self._vertices.values():
            yield from _flush(vertex)

    def failure(self) -> Failure | None:
        """Name the step that failed first; steps that were only cancelled because of it do not count."""
        for vertex in self._vertices.values():
            if vertex.error and "context canceled" not in vertex.error:
                return Failure(vertex.name, vertex.error, tuple(vertex.lines))
        return None

    def _vertex(self, told: dict[int, int | bytes]) -> Iterator[Step]:
        vertex = self._known(_text(told.get(_DIGEST)), _text(told.get(_NAME)))
        started, completed, error = (
            _seconds(told.get(_STARTED)),
            _seconds(told.get(_COMPLETED)),
            _text(told.get(_ERROR)),
        )
        # A vertex may be visited again after it has ended (its cache key, then its content): only an error is news.
        if not started or (vertex.ended and (vertex.error or not error)):
            return
        if not vertex.started and not told.get(_CACHED):
            yield Step("started", vertex.name)
        vertex.started = vertex.started or started
        if completed:
            yield from _flush(vertex)
            vertex.ended, vertex.error = True, error
            yield _end(vertex, completed - vertex.started, cached=bool(told.get(_CACHED)))

    def _log(self, told: dict[int, int | bytes]) -> Iterator[Step]:
        vertex = self._known(_text(told.get(_LOG_VERTEX)), "")
        *whole, vertex.partial = (vertex.partial + _text(told.get(_LOG_MESSAGE))).split("\n")
        for line in whole:
            yield from _line(vertex, line)

    def _known(self, digest: str, name: str) -> _Vertex:
        vertex = self._vertices.setdefault(digest, _Vertex(name or digest))
        vertex.name = name or vertex.name
        return vertex


def _end(vertex: _Vertex, seconds: float, *, cached: bool) -> Step:
    if vertex.error:
        return Step("failed", vertex.name, seconds=seconds, error=vertex.error)
    return Step("cached", vertex.name) if cached else Step("done", vertex.name, seconds=seconds)


def _flush(vertex: _Vertex) -> Iterator[Step]:
    if vertex.partial:
        line, vertex.partial = vertex.partial, ""
        yield from _line(vertex, line)


def _line(vertex: _Vertex, raw: str) -> Iterator[Step]:
    # A progress bar rewrites its line with carriage returns; what a terminal shows in the end is the last of them.
    text = _CONTROL.sub("", raw.rstrip("\r").rpartition("\r")[2])
    vertex.lines.append(text)
    yield Step("log", vertex.name, text=text)


def _text(value: int | bytes | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def _seconds(value: int | bytes | None) -> float:
    """Read a Timestamp as seconds since the epoch; 0.0 where it is absent."""
    if not isinstance(value, bytes):
        return 0.0
    told = dict(fields(value))
    whole, nanos = told.get(1, 0), told.get(2, 0)
    return (whole if isinstance(whole, int) else 0) + (nanos if isinstance(nanos, int) else 0) / 1e9
