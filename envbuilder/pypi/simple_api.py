"""Speak to a package index over HTTP or the file system: politely, by ranges, and never the same question twice."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import Lock
from urllib.parse import urlsplit

import msgspec
from packaging.utils import canonicalize_name

from envbuilder import __version__
from envbuilder.pypi import lazyzip, pages
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.fetch import Transport
from envbuilder.pypi.index_config import IndexConfig
from envbuilder.pypi.package_index import DistFile, IndexUnavailableError, Member
from envbuilder.support import decoding

PAGE_LIFE_S = 3600
"""How long a project's page is believed without asking again; what is inside a file never changes."""

MAX_MEMBER = 64 << 20
"""Bytes of a file in a wheel that is read as a whole; larger ones are streamed."""

DIRECTORIES = 16
"""How many wheels' directories are kept in memory."""


class Client:
    """A package index behind `PackageIndex`, over every index that the user configured, the main one first.

    ``now`` gives seconds; pages that are older than ``page_life_s`` are read again.
    """

    def __init__(
        self,
        config: IndexConfig,
        cache: Cache,
        *,
        page_life_s: float = PAGE_LIFE_S,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._cache = cache
        self._transport = Transport(config, agent=f"envbuilder/{__version__}")
        self._page_life_s = page_life_s
        self._now = now
        self._without_metadata: set[str] = set()
        self._directories: dict[str, tuple[Member, ...]] = {}
        self._locks: dict[str, Lock] = {}
        self._guard = Lock()

    def beside(self, addresses: tuple[str, ...]) -> Client:
        """Return a client that asks these indexes too, and first: a file that several hold is taken from them.

        Files of one project are those of all indexes together; what a lock names by hash is the same file anywhere.
        """
        if not addresses:
            return self
        first, *rest = dict.fromkeys((*addresses, *self._config.urls))
        config = replace(self._config, url=first, extra=tuple(rest))
        return Client(config, self._cache, page_life_s=self._page_life_s, now=self._now)

    def files(self, project: str) -> tuple[DistFile, ...]:
        """List a project's files over all indexes; a file that several hold is taken from the first."""
        found: dict[str, DistFile] = {}
        for url in self._config.addresses:
            for file in self._page(project, url):
                found.setdefault(file.filename, file)
        return tuple(found.values())

    def metadata(self, file: DistFile) -> str:
        """Return a wheel's METADATA: as the index serves it beside the wheel, or out of the wheel."""
        return decoding.lossy(self._kept(file, "METADATA", lambda: self._metadata(file)))

    def members(self, file: DistFile) -> tuple[Member, ...]:
        """List what is in a wheel, from its directory; kept in memory alone (a TensorFlow wheel's is 2 MB)."""
        with self._alone(f"{file.url}/members"):
            if file.url not in self._directories:
                while len(self._directories) >= DIRECTORIES:
                    self._directories.pop(next(iter(self._directories)), None)
                self._directories[file.url] = self._directory(file)
            return self._directories[file.url]

    def member(self, file: DistFile, name: str) -> bytes | None:
        """Return one file of a wheel, b"" for one that is empty, None for one that is not there."""
        kept = self._kept(file, f"member/{name}", lambda: self._member(file, name))
        return kept[1:] if kept[:1] == b"+" else None

    def stream(self, file: DistFile, member: Member) -> Iterator[bytes]:
        """Yield one file of a wheel piece by piece; nothing of it is kept."""
        with _as_ours(file):
            start = lazyzip.content_at(lambda a, b: self._transport.read(file.url, a, b), member)
            yield from lazyzip.unpack(member, self._transport.stream(file.url, start, start + member.packed))

    def whole(self, file: DistFile) -> Iterator[bytes]:
        """Yield a file as it is, piece by piece; nothing of it is kept."""
        yield from self._transport.stream(file.url, 0, self.size(file))

    def size(self, file: DistFile) -> int:
        """Return a file's size in bytes, as the index states it, or as the server does where that is None."""
        if file.size is not None:
            return file.size
        with _as_ours(file):
            return int(self._kept(file, f"size at {file.url}", lambda: str(self._transport.size(file.url)).encode()))

    def _page(self, project: str, url: str) -> tuple[DistFile, ...]:
        address = f"{url}/{project}/"
        with self._alone(address):
            kept = self._cache.get(address, "page")
            age = self._now() - self._cache.age_stamp(address, "page")
            if kept is not None and 0 <= age < self._page_life_s:  # else a clock that was put back keeps it for ever
                with suppress(decoding.DamagedError):  # of another version: the page is read again
                    found: tuple[DistFile, ...] = decoding.from_msgpack(kept, tuple[DistFile, ...])
                    return found
            answer = self._transport.page(address, pages.ACCEPT)
            if answer is None:
                files: tuple[DistFile, ...] = ()
            else:
                try:
                    with decoding.damaged(address):
                        files = pages.parse(project, answer.content, answer.content_type, answer.url)
                except ValueError as error:
                    raise IndexUnavailableError(str(error), hint="check which index pip or uv is set to") from error
            self._cache.put(address, "page", msgspec.msgpack.encode(files))
            return files

    def _metadata(self, file: DistFile) -> bytes:
        host = urlsplit(file.url).netloc
        if file.has_metadata or (file.has_metadata is None and host not in self._without_metadata):
            answer = self._transport.page(f"{file.url}.metadata", "*/*")
            if answer is None:
                self._without_metadata.add(host)
            elif _is_of(file, answer.content):
                return answer.content
        stem = "-".join(file.filename.split("-")[:2])
        content = self._member(file, f"{stem}.dist-info/METADATA")
        if content[:1] != b"+":
            raise IndexUnavailableError(f"{file.filename} holds no METADATA")
        return content[1:]

    def _directory(self, file: DistFile) -> tuple[Member, ...]:
        with _as_ours(file):
            return lazyzip.directory(lambda a, b: self._transport.read(file.url, a, b), self.size(file))

    def _member(self, file: DistFile, name: str) -> bytes:
        found = next((member for member in self.members(file) if member.name == name), None)
        if found is not None and found.size > MAX_MEMBER:
            raise IndexUnavailableError(f"{file.filename}: {name} has {found.size} bytes, more than are read at once")
        return b"-" if found is None else b"+" + b"".join(self.stream(file, found))

    def _kept(self, file: DistFile, kind: str, make: Callable[[], bytes]) -> bytes:
        """Answer from the cache, or make the answer once, however many threads ask for it."""
        key = file.sha256 or file.url
        with self._alone(f"{key}/{kind}"):
            kept = self._cache.get(key, kind)
            if kept is None:
                kept = make()
                self._cache.put(key, kind, kept)
            return kept

    @contextmanager
    def _alone(self, key: str) -> Iterator[None]:
        with self._guard:
            lock = self._locks.setdefault(key, Lock())
        with lock:
            yield


def _is_of(file: DistFile, metadata: bytes) -> bool:
    """Tell whether what is served beside a wheel is of this wheel: by its digest, or by the name and version in it.

    Where it is not, the wheel itself is read: it is what gets installed.
    """
    if file.metadata_sha256:
        return hashlib.sha256(metadata).hexdigest() == file.metadata_sha256
    lines = decoding.lossy(metadata).partition("\n\n")[0].splitlines()
    said = {key: value.strip() for key, _, value in (line.partition(":") for line in reversed(lines))}
    name, version = file.filename.split("-")[:2] if file.filename.count("-") else (file.filename, "")
    is_its = canonicalize_name(said.get("Name", "")) == canonicalize_name(name)
    return is_its and said.get("Version", "").replace("-", "_") == version


@contextmanager
def _as_ours(file: DistFile) -> Iterator[None]:
    """Turn what a broken archive raises into our error, with the file's name."""
    try:
        with decoding.damaged(f"{file.filename} is damaged"):
            yield
    except decoding.DamagedError as error:
        raise IndexUnavailableError(str(error), hint="the index serves a broken file: ask who runs it") from error
