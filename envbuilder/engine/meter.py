"""Measure what a container prints, and stop at the bound: the host's memory is not the image's to fill."""

from __future__ import annotations

from envbuilder.engine.port import ContainerSpec


class Meter:
    """Counts bytes and lines over both streams; ``full`` from the piece on that went over a bound."""

    def __init__(self, spec: ContainerSpec) -> None:
        self._bytes, self._lines = spec.output, spec.lines
        self.full = False

    def take(self, data: bytes) -> bytes:
        """Return what of a piece is within the bounds: all of it, but for the piece that goes over one."""
        if self.full:
            return b""
        kept = data[: self._bytes]
        lines = kept.count(b"\n")
        if lines > self._lines:
            kept = b"".join(line + b"\n" for line in kept.split(b"\n", self._lines)[: self._lines])
            lines = self._lines
        self.full = len(kept) < len(data)
        self._bytes -= len(kept)
        self._lines -= lines
        return kept
