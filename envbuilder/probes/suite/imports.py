"""Split the time of ``import tensorflow`` by what the dynamic loader itself reports while it happens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any

# Printed by glibc with LD_DEBUG=files for every initialiser that it calls (elf/dl-init.c).
INITIALISER = re.compile(rb"calling init: (\S+)")
BLANK = re.compile(rb"\s*[0-9]*:?\s*\Z")
MARK = b"envbuilder-object "
LIMIT_S = 240.0

CHILD = """
import importlib.machinery, os, time
plain = importlib.machinery.ExtensionFileLoader.create_module
def marked(self, spec):
    os.write(2, b"envbuilder-object begin\\n")
    try:
        return plain(self, spec)
    finally:
        os.write(2, b"envbuilder-object end\\n")
importlib.machinery.ExtensionFileLoader.create_module = marked
os.write(2, b"envbuilder-object start\\n")
import tensorflow
os.write(2, b"envbuilder-object done\\n")
os._exit(0)
"""


def split() -> dict[str, Any]:
    """Run an import under the loader's own tracing; return seconds by part, objects, and the slowest initialiser."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=dict(os.environ, LD_DEBUG="files"),
    )
    events = []
    deadline = time.monotonic() + LIMIT_S
    assert process.stderr is not None  # asked for above
    with process:
        rest = b""
        while time.monotonic() < deadline:
            data = os.read(process.stderr.fileno(), 1 << 16)
            if not data:
                break
            now = time.perf_counter()
            *lines, rest = (rest + data).split(b"\n")
            events += [(now, line) for line in lines]
        process.kill()
    return analyse(events)


def analyse(events: Iterable[tuple[float, bytes]]) -> dict[str, Any]:
    """Add up timed lines: inside an extension's loading, an initialiser lasts until the loader's next word."""
    inside = 0
    seconds = {"Python modules": 0.0, "mapping and relocation": 0.0, "initialisers (registration)": 0.0}
    by_object: dict[str, float] = {}
    previous, running = None, None
    started = False
    for now, line in events:
        if BLANK.match(line):  # the loader puts one after each of its messages
            continue
        if started and previous is not None:
            took = now - previous
            if running is not None:
                seconds["initialisers (registration)"] += took
                by_object[running] = by_object.get(running, 0.0) + took
            elif inside:
                seconds["mapping and relocation"] += took
            else:
                seconds["Python modules"] += took
        previous, running = now, None
        if line.startswith(MARK):
            word = line[len(MARK) :]
            started = started or word == b"start"
            inside += {b"begin": 1, b"end": -1}.get(word, 0)
            if word == b"done":
                break
        elif inside:
            found = INITIALISER.search(line)
            running = found.group(1).decode("utf-8", "replace") if found else None
    slowest = max(by_object.items(), key=lambda item: item[1]) if by_object else ("", 0.0)
    return {"seconds": seconds, "objects": len(by_object), "slowest": slowest}
