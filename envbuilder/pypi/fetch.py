"""Fetch pages and byte ranges, from a server or from the file system, with limits, retries and back-off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from envbuilder.pypi.index_config import IndexConfig, host
from envbuilder.pypi.package_index import IndexUnavailableError

if TYPE_CHECKING:
    import requests

CONNECTIONS = 8
"""Connections to one host at a time."""

TRIES = 4
BACK_OFF_S = 0.5
TIME_LIMITS_S = (10.0, 60.0)
"""To connect, and between two pieces of an answer."""

_RETRY_ON = (429, 500, 502, 503, 504)
_PIECE = 1 << 16
_HINT = "check the network, the index that pip or uv is configured for, and SSL_CERT_FILE"


@dataclass(frozen=True)
class Page:
    """An answer: its content, its media type, and the address that it came from after redirects."""

    content: bytes
    content_type: str
    url: str


class Transport:
    """One session for all threads; connections are reused, at most `CONNECTIONS` to a host."""

    def __init__(self, config: IndexConfig, *, agent: str) -> None:
        self._certificates: str | bool = config.certificates or True
        self._credentials = config.credentials
        self._proxies = {scheme: config.proxy for scheme in ("http", "https") if config.proxy}
        self._agent = agent
        self._session: requests.Session | None = None

    def page(self, url: str, accept: str) -> Page | None:
        """Read a whole small answer; None where there is no such page."""
        if url.startswith("file:"):
            return _local_page(url)
        with _failures(url), self._get(url, {"Accept": accept}) as answer:
            if answer.status_code in (404, 410):
                return None
            answer.raise_for_status()
            return Page(answer.content, answer.headers.get("Content-Type", ""), answer.url)

    def read(self, url: str, start: int, stop: int) -> bytes:
        """Read the bytes from ``start`` up to ``stop``."""
        return b"".join(self.stream(url, start, stop))

    def stream(self, url: str, start: int, stop: int) -> Iterator[bytes]:
        """Yield the bytes from ``start`` up to ``stop``, piece by piece; a broken answer is taken up again."""
        read = _local_range if url.startswith("file:") else self._range
        while start < stop:
            before = start
            try:
                for piece in read(url, start, stop):
                    start += len(piece)
                    yield piece
            except IndexUnavailableError:
                if start == before:
                    raise
            if start == before:
                raise IndexUnavailableError(f"{url}: ends before byte {stop}", hint=_HINT)

    def _range(self, url: str, start: int, stop: int) -> Iterator[bytes]:
        with _failures(url), self._get(url, {"Range": f"bytes={start}-{stop - 1}"}) as answer:
            if answer.status_code == 200:  # noqa: PLR2004 - HTTP
                raise IndexUnavailableError(f"{url}: the server does not answer range requests")
            answer.raise_for_status()
            yield from answer.iter_content(_PIECE)

    def size(self, url: str) -> int:
        """Return a file's size in bytes."""
        if url.startswith("file:"):
            return _local(url).stat().st_size
        with _failures(url), self._ask("HEAD", url, {}) as answer:  # closed, or its connection is never free again
            answer.raise_for_status()
            return int(answer.headers["Content-Length"])

    def _get(self, url: str, headers: dict[str, str]) -> requests.Response:
        coding = {"Accept-Encoding": "identity"} if "Range" in headers else {}
        return self._ask("GET", url, {**headers, **coding})

    def _ask(self, method: str, url: str, headers: dict[str, str]) -> requests.Response:
        # Given with each request, for variables outrank what a session holds. An index's credentials are for its host.
        return self._open().request(
            method,
            url,
            headers=headers,
            timeout=TIME_LIMITS_S,
            stream=True,
            auth=self._credentials.get(host(url)),
            verify=self._certificates,
            proxies=self._proxies,
        )

    def _open(self) -> requests.Session:
        if self._session is None:
            self._session = _session(self._agent)
        return self._session


def _session(agent: str) -> requests.Session:
    import requests  # noqa: PLC0415 - 60 ms that only a look at the index pays
    from requests.adapters import HTTPAdapter  # noqa: PLC0415
    from urllib3.util import Retry  # noqa: PLC0415

    again = Retry(total=TRIES, backoff_factor=BACK_OFF_S, status_forcelist=_RETRY_ON, respect_retry_after_header=True)
    session = requests.Session()
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(pool_maxsize=CONNECTIONS, pool_block=True, max_retries=again))
    session.headers["User-Agent"] = agent
    return session


@contextmanager
def _failures(url: str) -> Iterator[None]:
    import requests  # noqa: PLC0415 - loaded with the session

    try:
        yield
    except (requests.RequestException, KeyError) as error:
        raise IndexUnavailableError(f"{url}: {error}", hint=_HINT) from error


def _local(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def _local_page(url: str) -> Page | None:
    path = _local(url)
    try:
        content = (path / "index.html" if path.is_dir() else path).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise IndexUnavailableError(f"{url}: {error}", hint=_HINT) from error
    return Page(content, "text/html", url)


def _local_range(url: str, start: int, stop: int) -> Iterator[bytes]:
    try:
        with _local(url).open("rb") as file:
            file.seek(start)
            while start < stop and (piece := file.read(min(_PIECE, stop - start))):
                start += len(piece)
                yield piece
    except OSError as error:
        raise IndexUnavailableError(f"{url}: {error}", hint=_HINT) from error
