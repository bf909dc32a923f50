"""Go on as the Python that has TensorFlow: asked for it when the order is read, and this process is closed to others.

Asking a Python runs what the image has it run at its start (``site``, ``.pth`` files, ``sitecustomize``). A process of
the same user could open this one's standard input by ``/proc``, and who has the order can write every message of a run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from typing import IO

from . import runner
from .lifetime import descendants, end_after

HAS = 'import importlib.util, sys; sys.exit(10 + (importlib.util.find_spec("tensorflow") is None))'
FOUND, NOT_FOUND = 10, 11
DOES_NOT_START = 4
_SHOWN = 4000
HERE = os.path.dirname(os.path.abspath(__file__))


def settle(code: int, pythons: list[str]) -> None:
    """Return where the first of the Pythons, which is this one, has TensorFlow; become the next that has it otherwise.

    Ends this process where none has: with ``code``, or with 4 where one of them does not start.
    """
    runner.seal()
    _keep(sys.stdin.buffer.read())
    for number, python in enumerate(pythons):
        answer, words = _asked(python)
        if answer == FOUND:
            end_all_others()
            if number:
                os.execvp(python, [python, "-I", "-S", HERE])  # noqa: S606 - a Python of the image, without a shell
            return
        if answer != NOT_FOUND:
            code = DOES_NOT_START
            sys.stderr.write("start.sh: {0} does not start: {1}\n".format(python, words))
    if code != DOES_NOT_START:
        sys.stderr.write("start.sh: no Python here has TensorFlow\n")
    sys.stderr.flush()
    os._exit(code)


def _keep(order: bytes) -> None:
    """Put what was read back where the runner reads it, in a file without a name, which this process alone has."""
    with suppress(ValueError, KeyError, TypeError):  # whoever reads an order that is none says so
        end_after(float(json.loads(order.decode())["limit_s"]))
    with _nameless() as stream:
        stream.write(order)
        stream.flush()
        stream.seek(0)
        os.dup2(stream.fileno(), 0)


def _asked(python: str) -> tuple[int | None, str]:
    """Ask a Python whether it has TensorFlow: its exit code, None where it cannot be run, and its own words."""
    with _nameless() as stream:
        try:
            code = subprocess.call(
                [python, "-c", HAS], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stream
            )
        except OSError as error:
            return None, str(error)
        stream.seek(0)
        return code, stream.read(_SHOWN).decode("utf-8", "replace")


def _nameless() -> IO[bytes]:
    """Open a file that no other process finds by a name."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("envbuilder"), "w+b")
    return tempfile.TemporaryFile()


def end_all_others() -> None:
    """End what the image's own code left running: the next program here is open to it until it has closed itself.

    That is one that this process becomes, or the next run in the same container, whose order comes the same way.
    """
    for _ in range(100):
        left = descendants(os.getpid())
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with suppress(OSError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        if not left:
            return
