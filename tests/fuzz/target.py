"""A fuzz target: a parser of untrusted bytes, its honest inputs, and the limits of one case."""

import atexit
import contextlib
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType

import peak_memory

from envbuilder.errors import EnvbuilderError
from envbuilder.support import decoding

REPOSITORY = Path(__file__).parents[2]
CORPUS = Path(__file__).with_name("corpus")
"""A folder for each target: ``seed-*`` are honest inputs, the others are inputs of fixed bugs."""

LARGEST = 1 << 17
"""Bytes of a case; larger inputs are refused by their size, which has tests of its own."""
PROCESSOR_S, MEMORY, HANGS_S = 1.0, 300 << 20, 20.0
"""Limits of one case: processor seconds, bytes of additional memory, seconds on the clock."""

REFUSED = (EnvbuilderError, decoding.DamagedError)


@dataclass(frozen=True)
class Target:
    """A parser, and a function that makes honest inputs where files of the corpus would become outdated."""

    name: str
    run: Callable[[bytes], object]
    made: Callable[[], list[bytes]] = list

    def seeds(self) -> list[bytes]:
        """Return honest inputs: the parser accepts each of them."""
        return [path.read_bytes() for path in sorted((CORPUS / self.name).glob("seed-*"))] + self.made()


class _HangsError(BaseException):
    """A case ran for too long; no ``except Exception`` in a parser catches it."""


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise _HangsError


@contextlib.contextmanager
def _alarm() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, _stop)
    signal.setitimer(signal.ITIMER_REAL, HANGS_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def fault(target: Target, data: bytes, slower: float = 1.0) -> str:
    """Run one case and return its fault, or '': an unexpected exception, too much time or too much memory.

    ``slower``: how much longer a case may take, where an instrumented parser is slower.
    """
    before, began = peak_memory.from_now_on(), time.process_time()
    try:
        with _alarm(), contextlib.suppress(*REFUSED):
            target.run(data)
    except _HangsError:
        return f"hangs: stopped after {HANGS_S:.0f} s"
    except Exception as error:  # noqa: BLE001 - every other exception is a fault
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}: {str(error)[:200]}"
    took, grown = time.process_time() - began, peak_memory.most() - before
    if took > PROCESSOR_S * slower:
        return f"slow: {took:.1f} s of the processor for {len(data)} bytes"
    return f"large: {grown >> 20} MB more" if grown > MEMORY else ""


@cache
def folder() -> Path:
    made = Path(tempfile.mkdtemp(prefix="envbuilder-fuzz-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def file(name: str, data: bytes) -> Path:
    path = folder() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def each(*calls: Callable[[], object]) -> None:
    """Call one after another; each may refuse the input."""
    for call in calls:
        with contextlib.suppress(*REFUSED):
            call()
