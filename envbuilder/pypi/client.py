"""The client of package indexes, over HTTP or the file system: by ranges, with limits, and no request twice."""

from __future__ import annotations

import hashlib
import io
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit
from zipfile import BadZipFile, ZipExtFile, ZipFile, ZipInfo

import msgspec
import requests
from packaging.metadata import parse_email
from packaging.utils import canonicalize_name
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError
from urllib3.util import Retry

from envbuilder import __version__
from envbuilder.errors import InfrastructureError
from envbuilder.pypi import index_config, pages
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.index_config import IndexConfig, origin
from envbuilder.pypi.pages import DistFile
from envbuilder.support import decoding
from envbuilder.support.certificates import check_key_log
from envbuilder.workspace import cache_dir, read_stored

PAGE_LIFE_S = 3600
"""Life of a project's page in the cache; the content of a file never changes."""

MAX_PAGE, MAX_DIRECTORY, MAX_MEMBER = 40 << 20, 64 << 20, 64 << 20
"""Bytes of a page, of a wheel's directory, and of a file of a wheel that is read at once.

The largest page of the public index has 20 MB, a directory of TensorFlow 2 MB. Larger files are streamed.
"""

CONNECTIONS = 8
"""Connections to one host at a time."""

TRIES, BACK_OFF_S, MAX_WAIT_S = 4, 0.5, 10.0
"""Retries, seconds before the first, and the longest wait if an index asks for one."""

TIME_LIMITS_S, PAGE_S = (10.0, 60.0), 600.0
"""To connect, between two pieces of an answer, and for a complete page."""

MAX_REDIRECTS = 8
_DIRECTORIES = 16
"""Directories of wheels in memory."""

_TAIL, _LOCAL_HEADER = 128 << 10, 30
_RETRY_ON = (429, 500, 502, 503, 504)
_PIECE, _LARGE_PIECE = 1 << 16, 1 << 20
_HINT = "check the network, the index that pip or uv is configured for, and SSL_CERT_FILE"


def open_index(*, fresh: bool = False) -> PackageIndex:
    """Return a client for the user's indexes with the user's cache; ``fresh`` reads projects' pages again."""
    return PackageIndex(index_config.read(), Cache(cache_dir() / "index"), page_life_s=0.0 if fresh else PAGE_LIFE_S)


class IndexUnavailableError(InfrastructureError):
    """The index did not answer, or its answer cannot be used."""


class _Page(msgspec.Struct, frozen=True):
    """A project's page in the cache; ``read_at`` in seconds since the epoch."""

    read_at: float
    files: tuple[DistFile, ...]


class PackageIndex:
    """Every configured index, the main one first, for several threads; pages are read again after ``page_life_s``.

    Every method raises IndexUnavailableError if the index fails.
    """

    def __init__(self, config: IndexConfig, cache: Cache, *, page_life_s: float = PAGE_LIFE_S) -> None:
        self._config, self._cache, self._page_life_s = config, cache, page_life_s
        self._transport = Transport(config)
        self._without_metadata: set[str] = set()
        self._directories: dict[str, dict[str, ZipInfo]] = {}
        self._locks: dict[str, Lock] = {}
        self._guard = Lock()

    def with_indexes(self, addresses: tuple[str, ...]) -> PackageIndex:
        """Return a package index that asks these indexes first: a file that several have is taken from them.

        The files of a project are those of all indexes; a lock names them by hash, so that any index may serve them.
        """
        if not addresses:
            return self
        first, *rest = dict.fromkeys((*addresses, *self._config.urls))
        config = replace(self._config, url=first, extra=tuple(rest))
        return PackageIndex(config, self._cache, page_life_s=self._page_life_s)

    def files(self, project: str) -> tuple[DistFile, ...]:
        """List a project's files; none if the index does not know it."""
        found: dict[str, DistFile] = {}
        for url in self._config.addresses:
            for file in self._page(project, f"{url}/{project}/"):
                found.setdefault(file.filename, file)
        return tuple(found.values())

    def metadata(self, file: DistFile) -> str:
        """Return a wheel's METADATA, from the index's own copy or from the wheel."""
        return decoding.lossy(self._cached(file, "METADATA", lambda: self._metadata(file)))

    def members(self, file: DistFile) -> tuple[ZipInfo, ...]:
        """List the files in a wheel; only its directory is read."""
        return tuple(self._directory(file).values())

    def member(self, file: DistFile, name: str) -> bytes | None:
        """Return one file of a wheel; None if the wheel has no such file."""
        content = self._cached(file, f"member/{name}", lambda: self._member(file, name))
        return content[1:] if content[:1] == b"+" else None

    def stream(self, file: DistFile, member: ZipInfo) -> Iterator[bytes]:
        """Yield one file of a wheel, unpacked, piece by piece; only its own bytes are read."""
        with _unpacking(file):
            at = member.header_offset + _LOCAL_HEADER
            header = self._transport.read(file.url, member.header_offset, at)
            if header[:4] != b"PK\x03\x04":
                raise ValueError(f"{member.filename}: no file header where the directory says")
            at += int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
            pieces = self._transport.stream(file.url, at, at + member.compress_size)
            size = 0
            with ZipExtFile(
                decoding.ByteStream(pieces), "r", member
            ) as content:  # it checks the CRC, and stops at the size
                while piece := content.read(_LARGE_PIECE):
                    size += len(piece)
                    yield piece
            if size < member.file_size:
                raise ValueError(f"{member.filename} ends after {size} of {member.file_size} bytes")

    def whole(self, file: DistFile) -> Iterator[bytes]:
        """Yield a file as it is, piece by piece; its hash is not checked."""
        yield from self._transport.stream(file.url, 0, self.size(file))

    def size(self, file: DistFile) -> int:
        if file.size is not None:
            return file.size
        with _unpacking(file):
            return int(self._cached(file, f"size at {file.url}", lambda: str(self._transport.size(file.url)).encode()))

    def _page(self, project: str, address: str) -> tuple[DistFile, ...]:
        with self._alone(address):
            with suppress(decoding.DamagedError):  # written by another version: the page is read again
                page: _Page = decoding.from_msgpack(self._cache.get(address, "page") or b"", _Page)
                if 0 <= time.time() - page.read_at < self._page_life_s:  # a clock that was set back: a negative age
                    return page.files
            files: tuple[DistFile, ...] = ()
            if (answer := self._transport.page(address, pages.ACCEPT)) is not None:
                with reading(address, "check which index pip or uv uses"), decoding.damaged("its page is damaged"):
                    files = pages.parse(project, *answer)
            self._cache.put(address, "page", msgspec.msgpack.encode(_Page(time.time(), files)))
            return files

    def _metadata(self, file: DistFile) -> bytes:
        host = urlsplit(file.url).netloc
        if file.has_metadata or (file.has_metadata is None and host not in self._without_metadata):
            answer = self._transport.page(f"{file.url}.metadata", "*/*")
            if answer is None:
                self._without_metadata.add(host)
            elif _is_of(file, answer[0]):
                return answer[0]
        stem = "-".join(file.filename.split("-")[:2])
        content = self._member(file, f"{stem}.dist-info/METADATA")
        if content[:1] != b"+":
            raise IndexUnavailableError(f"{file.filename} has no METADATA")
        return content[1:]

    def _directory(self, file: DistFile) -> dict[str, ZipInfo]:
        with self._alone(f"{file.url}/members"), _unpacking(file):
            if file.url not in self._directories:
                while len(self._directories) >= _DIRECTORIES:
                    self._directories.pop(next(iter(self._directories)), None)
                ranges = _RangeFile(lambda start, stop: self._transport.read(file.url, start, stop), self.size(file))
                with ZipFile(ranges) as archive:
                    self._directories[file.url] = {row.filename: row for row in archive.infolist()}
            return self._directories[file.url]

    def _member(self, file: DistFile, name: str) -> bytes:
        """Return ``-`` for a member that does not exist, otherwise ``+`` and its content."""
        info = self._directory(file).get(name)
        if info is None:
            return b"-"
        if info.file_size > MAX_MEMBER:
            raise IndexUnavailableError(f"{file.filename}: {name} has {info.file_size} bytes, more than {MAX_MEMBER}")
        return b"+" + b"".join(self.stream(file, info))

    def _cached(self, file: DistFile, kind: str, make: Callable[[], bytes]) -> bytes:
        """Answer from the cache; threads with the same question share one answer."""
        key = file.sha256 or file.url
        with self._alone(f"{key}/{kind}"):
            content = self._cache.get(key, kind)
            if content is None:
                content = make()
                self._cache.put(key, kind, content)
            return content

    @contextmanager
    def _alone(self, key: str) -> Iterator[None]:
        with self._guard:
            lock = self._locks.setdefault(key, Lock())
        with lock:
            yield


def _is_of(file: DistFile, metadata: bytes) -> bool:
    """Return True if the index's copy of METADATA belongs to a wheel: by its digest, or by its name and version.

    Otherwise the wheel itself is read, because it is what gets installed.
    """
    if file.metadata_sha256:
        return hashlib.sha256(metadata).hexdigest() == file.metadata_sha256
    fields, _ = parse_email(metadata.partition(b"\n\n")[0])
    name, _, rest = file.filename.partition("-")
    has_name = canonicalize_name(fields.get("name", "")) == canonicalize_name(name)
    return has_name and fields.get("version", "").replace("-", "_") == rest.partition("-")[0]


@contextmanager
def _unpacking(file: DistFile) -> Iterator[None]:
    hint = "the index serves a broken file"
    with reading(file.filename, hint), decoding.damaged(f"{file.filename} is damaged"):
        yield


@contextmanager
def reading(what: str, hint: str = _HINT) -> Iterator[None]:
    """Turn every failure into IndexUnavailableError with the name of the page or file."""
    try:
        yield
    except IndexUnavailableError:
        raise
    # The exceptions of requests are OSErrors; zipfile raises RuntimeError for a packing that it lacks.
    except (HTTPError, InfrastructureError, KeyError, ValueError, OSError, BadZipFile, RuntimeError) as error:
        raise IndexUnavailableError(f"{what}: {error}", hint=hint) from error


class _RangeFile(io.RawIOBase):
    """A remote file for `ZipFile`, which reads its directory. The file's end is read at once."""

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read, self._size, self._at = read, size, 0
        self._start = max(0, size - _TAIL)
        self._tail = read(self._start, size) if size else b""

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if self._at < 0:
            raise OSError("seek before the start of the file")  # as a real file: zipfile expects it
        return self._at

    def read(self, size: int = -1) -> bytes:
        stop = self._size if size < 0 else min(self._at + size, self._size)
        if stop - self._at > MAX_DIRECTORY:
            raise ValueError(f"a directory of {stop - self._at} bytes")
        at, self._at = self._at, max(self._at, stop)
        return self._tail[at - self._start : stop - self._start] if at >= self._start else self._read(at, stop)


class _BoundedRetry(Retry):
    """Waits as long as a server asks, up to a limit, and does not read an error's body."""

    def increment(self, *args: Any, **kwargs: Any) -> Retry:  # type: ignore[override]  # noqa: ANN401
        if (response := kwargs.get("response")) is not None:
            response.close()  # urllib3 would read all of it, to use the connection again
        return super().increment(*args, **kwargs)

    def get_retry_after(self, response: Any) -> float | None:  # noqa: ANN401 - urllib3's own
        wait = super().get_retry_after(response)
        return None if wait is None else min(wait, MAX_WAIT_S)


class _Session(requests.Session):
    """Never computes the next address of a redirect: requests would read the body of this one for it."""

    def get_redirect_target(self, _: requests.Response) -> None:
        return None


class Transport:
    """HTTP and ``file:`` requests of all threads; at most `CONNECTIONS` to a host, which are reused."""

    def __init__(self, config: IndexConfig) -> None:
        check_key_log(os.environ)
        self._config, self._credentials = config, config.credentials
        self._session = _Session()
        self._session.headers["User-Agent"] = f"envbuilder/{__version__}"
        retry = _BoundedRetry(
            total=TRIES, backoff_factor=BACK_OFF_S, status_forcelist=_RETRY_ON, respect_retry_after_header=True
        )
        for scheme in ("https://", "http://"):
            adapter = HTTPAdapter(pool_maxsize=CONNECTIONS, pool_block=True, max_retries=retry)
            self._session.mount(scheme, adapter)

    def page(self, url: str, accept: str) -> tuple[bytes, str, str] | None:
        """Read a small answer: content, media type, and address after redirects. None if there is no such page."""
        with reading(url):
            if url.startswith("file:"):
                path = _local(url)
                content = read_stored(path / "index.html" if path.is_dir() else path)
                return None if content is None else (content, "text/html", url)
            with self._request("GET", url, {"Accept": accept}) as answer:
                if answer.status_code in (404, 410):
                    return None
                answer.raise_for_status()
                content = decoding.joined(answer.iter_content(_PIECE), MAX_PAGE, PAGE_S)
                return content, answer.headers.get("Content-Type", ""), answer.url

    def read(self, url: str, start: int, stop: int) -> bytes:
        return b"".join(self.stream(url, start, stop))

    def stream(self, url: str, start: int, stop: int) -> Iterator[bytes]:
        """Yield the bytes from ``start`` up to ``stop``; an answer that breaks off is continued by a new request."""
        while start < stop:
            before = start
            try:
                for piece in self._range(url, start, stop):
                    start += len(piece)
                    yield piece
            except IndexUnavailableError:
                if start == before:
                    raise
            if not before < start <= stop:
                raise IndexUnavailableError(f"{url}: serves {start - before} of {stop - before} bytes", hint=_HINT)

    def size(self, url: str) -> int:
        with reading(url):
            if url.startswith("file:"):
                return _local(url).stat().st_size
            with self._request("HEAD", url, {}) as answer:  # closed, or its connection is never free again
                answer.raise_for_status()
                return int(answer.headers["Content-Length"])

    def _range(self, url: str, start: int, stop: int) -> Iterator[bytes]:
        with reading(url):
            if url.startswith("file:"):
                with _local(url).open("rb") as file:
                    file.seek(start)
                    while start < stop and (piece := file.read(min(_PIECE, stop - start))):
                        start += len(piece)
                        yield piece
                return
            headers = {"Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"}
            with self._request("GET", url, headers) as answer:
                if answer.status_code == 200:  # noqa: PLR2004 - HTTP
                    raise IndexUnavailableError(f"{url}: the server does not support range requests")
                answer.raise_for_status()
                yield from answer.iter_content(_PIECE)

    def _request(self, method: str, url: str, headers: dict[str, str]) -> requests.Response:
        """Send a request and follow redirects, which never leave TLS.

        Credentials are sent to their own scheme, host and port only. Settings are given with each request, because
        variables precede those of a session.
        """
        proxies = {scheme: self._config.proxy for scheme in ("http", "https") if self._config.proxy}
        for _ in range(MAX_REDIRECTS):
            answer = self._session.request(
                method,
                url,
                headers=headers,
                timeout=TIME_LIMITS_S,
                stream=True,
                allow_redirects=False,
                auth=self._credentials.get(origin(url)),
                verify=self._config.certificates or True,
                proxies=proxies,
            )
            if not answer.is_redirect:
                return answer
            answer.close()
            target = urljoin(url, answer.headers["Location"])
            if urlsplit(url).scheme == "https" != urlsplit(target).scheme:
                raise IndexUnavailableError(f"{url}: redirects from https to {origin(target)}, without TLS", hint=_HINT)
            url = target
        raise IndexUnavailableError(f"{url}: redirected more than {MAX_REDIRECTS} times", hint=_HINT)


def _local(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))
