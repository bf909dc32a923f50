"""A cache of answers on disk, by the digest of their question."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from envbuilder.workspace import cache, cached

_FORMAT = "2"


class Cache:
    """A folder of answers. If it cannot be written, nothing is cached; that is not an error."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, key: str, kind: str) -> bytes | None:
        """Return an answer; None if there is none, or if it is damaged."""
        return cached(self._path(key, kind))

    def put(self, key: str, kind: str, content: bytes) -> None:
        cache(self._path(key, kind), content)

    def used(self, key: str, kind: str) -> None:
        """Mark an answer as recently used, so that `trim` removes it last."""
        with suppress(OSError):
            os.utime(self._path(key, kind))

    def trim(self, room: int) -> None:
        """Remove the least recently used answers until the folder has at most ``room`` bytes."""
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
