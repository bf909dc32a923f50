"""A target of the fuzzer: a parser, its seeds, and the folder that its files lie in."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from envbuilder.errors import EnvbuilderError
from envbuilder.support import decoding

HERE = Path(__file__).parent
TESTS = HERE.parent
CORPUS = HERE / "corpus"
"""Inputs that once ended wrong, a folder a target: tried in every run of the tests."""


@dataclass(frozen=True)
class Target:
    """A parser: seeds, the call, and what it may raise beside errors of ours and DamagedError."""

    name: str
    seeds: Callable[[], list[bytes]]
    run: Callable[[bytes], object]
    raises: tuple[type[Exception], ...] = ()

    def ends(self, data: bytes) -> None:
        """Run a case; anything that is raised here is a defect."""
        with contextlib.suppress(EnvbuilderError, decoding.DamagedError, *self.raises):
            self.run(data)


@cache
def place() -> Path:
    """Return a folder for what is fuzzed as a file; it goes with the process."""
    folder = Path(tempfile.mkdtemp(prefix="envbuilder-fuzz-"))
    import atexit  # noqa: PLC0415
    import shutil  # noqa: PLC0415

    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def file(name: str, data: bytes) -> Path:
    """Write a case as a file."""
    path = place() / name
    path.write_bytes(data)
    return path


def read_all(*patterns: str) -> Callable[[], list[bytes]]:
    """Take files of the repository as seeds."""
    return lambda: [path.read_bytes() for pattern in patterns for path in sorted(TESTS.parent.glob(pattern))]
