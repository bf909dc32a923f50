"""The finished steps of a publication, written to disk so that the next run continues a killed one."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec

from envbuilder.errors import PublishError
from envbuilder.support import decoding
from envbuilder.workspace import read_stored, writing

JournalStep = Literal["staged", "validated", "stated"]


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One finished step; ``terms`` is the digest of the conditions of a validation ('' in older journals)."""

    step: JournalStep
    digest: str = ""
    terms: str = ""


class Journal:
    """A file with one JSON object in each line. An incomplete last line (killed while writing) is ignored."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries = _read(path)

    def last(self, step: JournalStep) -> JournalEntry | None:
        return next((entry for entry in reversed(self.entries) if entry.step == step), None)

    def note(self, entry: JournalEntry) -> None:
        """Record a finished step; return when it is on disk."""
        with writing(self.path), self.path.open("ab") as file:
            cut = not (read_stored(self.path) or b"\n").endswith(b"\n")  # a writer was killed
            file.write(b"\n" * cut + msgspec.json.encode(entry) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.entries = (*self.entries, entry)


@contextmanager
def exclusively(folder: Path) -> Iterator[None]:
    """Hold a folder's lock. Raises PublishError if another process publishes the same environment."""
    with writing(folder / ".lock"):
        file = (folder / ".lock").open("w")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            hint = f"run this command again when it has ended; `fuser -v {folder / '.lock'}` names its process"
            raise PublishError(f"another envbuilder command is using {folder}", hint=hint) from error
        yield


def _read(path: Path) -> tuple[JournalEntry, ...]:
    entries = []
    for line in (read_stored(path) or b"").splitlines():
        with suppress(decoding.DamagedError):  # an incomplete line: its step was not finished
            entries.append(decoding.from_json(line, JournalEntry))
    return tuple(entries)
