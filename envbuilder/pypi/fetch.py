"""Fetch pages and byte ranges, from a server or from the file system, with limits, retries and back-off."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urljoin, urlsplit

from envbuilder.errors import InfrastructureError
from envbuilder.pypi.index_config import IndexConfig, origin
from envbuilder.pypi.package_index import IndexUnavailableError
from envbuilder.workspace import read_kept

if TYPE_CHECKING:
    import requests

CONNECTIONS = 8
"""Connections to one host at a time."""

TRIES = 4
BACK_OFF_S = 0.5
MOST_WAIT_S = 10.0
"""How long an index that asks to come back later is waited for, each time."""
TIME_LIMITS_S = (10.0, 60.0)
"""To connect, and between two pieces of an answer."""

MAX_PAGE = 40 << 20
"""Bytes of a page or a METADATA: the largest page of the public index has half of it."""

MAX_REDIRECTS = 8

TOTAL_S = 600.0
"""For a whole page, however slowly it comes."""

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
            return Page(_whole(url, answer), answer.headers.get("Content-Type", ""), answer.url)

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
            if start > stop:
                raise IndexUnavailableError(f"{url}: gives more than the range that was asked for", hint=_HINT)

    def _range(self, url: str, start: int, stop: int) -> Iterator[bytes]:
        with _failures(url), self._get(url, {"Range": f"bytes={start}-{stop - 1}"}) as answer:
            if answer.status_code == 200:  # noqa: PLR2004 - HTTP
                raise IndexUnavailableError(f"{url}: the server does not answer range requests")
            answer.raise_for_status()
            yield from answer.iter_content(_PIECE)

    def size(self, url: str) -> int:
        """Return a file's size in bytes."""
        if url.startswith("file:"):
            return _local_size(url)
        with _failures(url), self._ask("HEAD", url, {}) as answer:  # closed, or its connection is never free again
            answer.raise_for_status()
            return int(answer.headers["Content-Length"])

    def _get(self, url: str, headers: dict[str, str]) -> requests.Response:
        coding = {"Accept-Encoding": "identity"} if "Range" in headers else {}
        return self._ask("GET", url, {**headers, **coding})

    def _ask(self, method: str, url: str, headers: dict[str, str]) -> requests.Response:
        """Send a request, and follow redirects: a client of requests' own reads each one's body, however long it is."""
        for _ in range(MAX_REDIRECTS):
            answer = self._send(method, url, headers)
            if not answer.is_redirect:
                return answer
            answer.close()
            url = _next(url, answer.headers["Location"])
        raise IndexUnavailableError(f"{url}: redirected more than {MAX_REDIRECTS} times", hint=_HINT)

    def _send(self, method: str, url: str, headers: dict[str, str]) -> requests.Response:
        # Given with each request, for variables outrank what a session holds. An index's credentials are for its
        # scheme, host and port: who redirects to another place does not make us tell them there.
        return self._open().request(
            method,
            url,
            headers=headers,
            timeout=TIME_LIMITS_S,
            stream=True,
            allow_redirects=False,
            auth=self._credentials.get(origin(url)),
            verify=self._certificates,
            proxies=self._proxies,
        )

    def _open(self) -> requests.Session:
        if self._session is None:
            self._session = _session(self._agent)
        return self._session


def _next(url: str, location: str) -> str:
    """Return where a redirect leads. Raises IndexUnavailableError where it leaves TLS: anyone could answer there."""
    then = urljoin(url, location)
    if urlsplit(url).scheme == "https" != urlsplit(then).scheme:
        raise IndexUnavailableError(f"{url}: redirects from https to {origin(then)}, without TLS", hint=_HINT)
    return then


def _session(agent: str) -> requests.Session:
    import requests  # noqa: PLC0415 - 60 ms that only a look at the index pays
    from requests.adapters import HTTPAdapter  # noqa: PLC0415
    from urllib3.util import Retry  # noqa: PLC0415

    class Again(Retry):
        """Comes back when it is asked to, but waits for no index until tomorrow, and reads no complaint to its end."""

        def increment(self, *words: Any, **named: Any) -> Retry:  # type: ignore[override]  # noqa: ANN401
            if (response := named.get("response")) is not None:
                response.close()  # or urllib3 reads all of it, to use the connection again
            return super().increment(*words, **named)

        def get_retry_after(self, response: Any) -> float | None:  # noqa: ANN401 - urllib3's own
            wait = super().get_retry_after(response)
            return None if wait is None else min(wait, MOST_WAIT_S)

    class Session(requests.Session):
        """Follows no redirect, not even in thought: to name the next address it would read this one's whole body."""

        def get_redirect_target(self, _: requests.Response) -> None:
            return None

    again = Again(total=TRIES, backoff_factor=BACK_OFF_S, status_forcelist=_RETRY_ON, respect_retry_after_header=True)
    session = Session()
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(pool_maxsize=CONNECTIONS, pool_block=True, max_retries=again))
    session.headers["User-Agent"] = agent
    return session


@contextmanager
def _failures(url: str) -> Iterator[None]:
    import requests  # noqa: PLC0415 - loaded with the session
    from urllib3.exceptions import HTTPError  # noqa: PLC0415

    try:
        yield
    except (requests.RequestException, HTTPError, KeyError, ValueError) as error:
        raise IndexUnavailableError(f"{url}: {error}", hint=_HINT) from error


def _whole(url: str, answer: requests.Response) -> bytes:
    """Read an answer to its end, within bounds of size and time."""
    found, ends = bytearray(), time.monotonic() + TOTAL_S
    for piece in answer.iter_content(_PIECE):
        found += piece
        if len(found) > MAX_PAGE:
            raise IndexUnavailableError(f"{url}: larger than {MAX_PAGE} bytes", hint=_HINT)
        if time.monotonic() > ends:
            raise IndexUnavailableError(f"{url}: not whole after {TOTAL_S:.0f} s", hint=_HINT)
    return bytes(found)


def _local(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def _local_page(url: str) -> Page | None:
    path = _local(url)
    try:
        content = read_kept(path / "index.html" if path.is_dir() else path)
    except InfrastructureError as error:
        raise IndexUnavailableError(f"{url}: {error.message}", hint=_HINT) from error
    if content is None:
        return None
    return Page(content, "text/html", url)


def _local_size(url: str) -> int:
    try:
        return _local(url).stat().st_size
    except OSError as error:
        raise IndexUnavailableError(f"{url}: {error}", hint=_HINT) from error


def _local_range(url: str, start: int, stop: int) -> Iterator[bytes]:
    try:
        with _local(url).open("rb") as file:
            file.seek(start)
            while start < stop and (piece := file.read(min(_PIECE, stop - start))):
                start += len(piece)
                yield piece
    except OSError as error:
        raise IndexUnavailableError(f"{url}: {error}", hint=_HINT) from error
