"""The private descriptor of a probe's output: frameworks and users' tests print to any stream."""

from __future__ import annotations

import json
import os


class Channel:
    """The process's original standard output; other output goes to standard error from now on.

    ``started`` is when the process's first instruction ran, by ``time.perf_counter``.
    """

    def __init__(self, started: float) -> None:
        self.started = started
        self.descriptor = os.dup(1)
        os.set_inheritable(self.descriptor, False)
        os.dup2(2, 1)

    def say(self, document: object) -> None:
        """Write one JSON document as a line; a lone surrogate, which UTF-8 cannot hold, becomes a question mark."""
        text = json.dumps(document, sort_keys=True, default=str, ensure_ascii=False)
        line = text.encode("utf-8", "replace") + b"\n"
        while line:
            line = line[os.write(self.descriptor, line) :]
