"""Keep what an index answered, on disk, by the digest of what was asked about."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from envbuilder.workspace import cache, cached

_FORMAT = "2"


class Cache:
    """A folder of answers. A folder that cannot be written to is no error: then nothing is kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, key: str, kind: str) -> bytes | None:
        """Return what was kept about ``key``; None where nothing was, or where it is damaged."""
        return cached(self._path(key, kind))

    def put(self, key: str, kind: str, content: bytes) -> None:
        """Keep an answer, so that another process reads all of it or nothing."""
        cache(self._path(key, kind), content)

    def age_stamp(self, key: str, kind: str) -> float:
        """Return when an answer was kept, in seconds since the epoch; 0 where none was."""
        try:
            return self._path(key, kind).stat().st_mtime
        except OSError:
            return 0.0

    def used(self, key: str, kind: str) -> None:
        """Say that an answer was of use just now: `trim` takes it last."""
        with suppress(OSError):
            os.utime(self._path(key, kind))

    def trim(self, room: int) -> None:
        """Remove what was kept or used longest ago until the folder holds ``room`` bytes at most."""
        with suppress(OSError):
            files = [(path.stat().st_mtime, path.stat().st_size, path) for path in self._folder.glob("??/*")]
            total = sum(size for _, size, _ in files)
            for _, size, path in sorted(files):
                if total <= room:
                    return
                path.unlink(missing_ok=True)
                total -= size

    def _path(self, key: str, kind: str) -> Path:
        name = hashlib.blake2b(f"{_FORMAT}\0{key}\0{kind}".encode(), digest_size=20).hexdigest()
        return self._folder / name[:2] / name
