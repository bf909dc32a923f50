"""One HTTP request and its answer, with every bound kept while the bytes arrive."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO
from urllib.parse import urljoin, urlsplit

import urllib3
from urllib3.exceptions import HTTPError, LocationValueError, SSLError, TimeoutError  # noqa: A004 - urllib3's own

from envbuilder.registry.deadline import Deadline
from envbuilder.registry.faults import Fault, RegistryFailedError, RegistryRefusedError

CONNECT_S, SILENCE_S = 10.0, 60.0
"""Seconds to connect, and seconds without a byte."""

ATTEMPTS = 5
LONGEST_PAUSE_S = 5.0
"""How often a harmless request is sent, and the longest wait that a registry may ask for in between."""

MAX_REDIRECTS = 5
MAX_ERROR = 64 << 10
_CHUNK = 256 << 10
_AGAIN = (429, 500, 502, 503, 504)
_REPEATABLE = ("GET", "HEAD", "PUT")
_REDIRECTS = (301, 302, 303, 307, 308)


@dataclass(frozen=True)
class Answer:
    """A whole answer: its status, its headers (names in any case) and its bytes; ``address`` is where it came from."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    address: str


class Exchange:
    """Sends requests. ``host`` names the registry in errors; ``proxy`` names the proxy for an address, or ''."""

    def __init__(self, host: str, context: ssl.SSLContext, proxy: Callable[[str], str], deadline: Deadline) -> None:
        self._host, self._proxy, self._context, self.deadline = host, proxy, context, deadline
        self._pools: dict[str, urllib3.PoolManager] = {}

    def send(
        self,
        method: str,
        address: str,
        headers: Mapping[str, str],
        *,
        body: bytes | BinaryIO | None = None,
        limit: int,
        again: bool = True,
    ) -> Answer:
        """Send a request, ``again`` where it is busy and that is harmless; ``limit`` bounds the answer (bytes).

        A body may be a file, which is sent from its beginning.

        Raises RegistryFailedError where nobody answers in time, RegistryRefusedError for an answer beyond the bounds.
        """
        attempts = ATTEMPTS if again and method in _REPEATABLE else 1
        for attempt in range(attempts):
            last = attempt == attempts - 1
            try:
                answer = self._follow(method, address, headers, body, limit)
            except RegistryFailedError as error:
                if last or attempt or error.fault is not Fault.UNREACHABLE:
                    raise
                self._wait(0.2)
                continue
            if last or answer.status not in _AGAIN:
                return answer
            self._wait(self._pause(answer, 0.2 * 2**attempt))
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _pause(self, answer: Answer, usual: float) -> float:
        """Return how long to wait. A registry may ask for more, within reason; a date counts as unreasonable."""
        asked = answer.headers.get("Retry-After", "").strip()
        if not asked:
            return usual
        if not asked.isascii() or not asked.isdigit() or len(asked) > 6 or int(asked) > LONGEST_PAUSE_S:  # noqa: PLR2004
            raise RegistryFailedError(
                Fault.THROTTLED,
                f"{self._host} answered {answer.status} and asks to come back after {asked[:40]!r}",
                hint="try again later",
            )
        return max(usual, float(asked))

    def _wait(self, seconds: float) -> None:
        time.sleep(self.deadline.left(seconds))
        self.deadline.left(seconds)

    def _follow(
        self,
        method: str,
        address: str,
        headers: Mapping[str, str],
        body: bytes | BinaryIO | None,
        limit: int,
    ) -> Answer:
        """Send, and follow redirects within bounds. Credentials stay with the host that they are for."""
        here, sent = address, dict(headers)
        for _ in range(MAX_REDIRECTS + 1):
            answer = self._once(method, here, sent, body, limit)
            if answer.status not in _REDIRECTS or "Location" not in answer.headers:
                return answer
            following = self._redirected(here, answer.headers["Location"])
            if urlsplit(following)[:2] != urlsplit(here)[:2]:
                sent = {name: value for name, value in sent.items() if name != "Authorization"}
            here = following
        raise RegistryRefusedError(Fault.BAD_REDIRECT, f"{self._host} redirects {method} {address} again and again")

    def _redirected(self, here: str, location: str) -> str:
        """Resolve a redirect. Raises RegistryRefusedError where it leads nowhere, or out of TLS."""
        try:
            following = urljoin(here, location)
            parts = urlsplit(following)
            sound = bool(parts.hostname) and parts.port != 0
        except ValueError:
            sound = False
        if not sound or parts.scheme not in ("http", "https"):
            raise RegistryRefusedError(Fault.BAD_REDIRECT, f"{self._host} redirects to {location[:200]!r}")
        if here.startswith("https:") and parts.scheme != "https":
            raise RegistryRefusedError(
                Fault.BAD_REDIRECT, f"{self._host} redirects to {location[:200]!r}, which is not TLS"
            )
        return following

    def _once(
        self,
        method: str,
        address: str,
        headers: Mapping[str, str],
        body: bytes | BinaryIO | None,
        limit: int,
    ) -> Answer:
        timeout = urllib3.Timeout(connect=self.deadline.left(CONNECT_S), read=self.deadline.left(SILENCE_S))
        # Compression is neither asked for nor undone: a small answer must not become a large one here.
        sent = {"Accept-Encoding": "identity", "User-Agent": "envbuilder", **headers, **_length(body)}
        try:
            answer = self._pool(address).request(
                method,
                address,
                headers=sent,
                body=body,
                timeout=timeout,
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            try:
                content = b"" if method == "HEAD" else b"".join(self._pieces(answer, limit))
            except BaseException:
                answer.close()  # what has not been read would be taken for the next answer
                raise
            answer.release_conn()
        except LocationValueError as error:  # an address that the registry named
            raise RegistryRefusedError(Fault.BAD_ANSWER, f"{self._host}: {error}") from error
        except SSLError as error:
            raise self._untrusted(error) from error
        except TimeoutError as error:
            self.deadline.left(1)
            raise RegistryFailedError(Fault.TOO_SLOW, f"{self._host}: no answer: {error}", hint=_REACHABLE) from error
        except (HTTPError, OSError) as error:
            raise RegistryFailedError(
                Fault.UNREACHABLE, f"{self._host}: no answer: {error}", hint=_REACHABLE
            ) from error
        except ValueError as error:  # a header that cannot be sent: made of what the registry answered
            raise RegistryRefusedError(Fault.BAD_ANSWER, f"{self._host}: {error}") from error
        return Answer(answer.status, answer.headers, content, address)

    def _pieces(self, answer: urllib3.BaseHTTPResponse, limit: int) -> Iterator[bytes]:
        bound = limit if answer.status < 300 else max(limit, MAX_ERROR)  # noqa: PLR2004 - HTTP's class of success
        encoding = answer.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            raise RegistryRefusedError(
                Fault.BAD_ANSWER, f"{self._host} answers in {encoding[:40]!r}, which was not asked for"
            )
        declared = answer.headers.get("Content-Length", "")
        if declared.isdigit() and (len(declared) > 18 or int(declared) > bound):  # noqa: PLR2004 - digits of 2^63
            raise self._too_large(bound)
        read = 0
        while chunk := answer.read1(_CHUNK):
            read += len(chunk)
            if read > bound:
                raise self._too_large(bound)
            yield chunk
            self.deadline.left(1)

    def _too_large(self, limit: int) -> RegistryRefusedError:
        text = f"{self._host} sends more than {limit} bytes where no more were expected"
        return RegistryRefusedError(Fault.TOO_LARGE, text)

    def _untrusted(self, error: SSLError) -> RegistryFailedError:
        reason = error.args[0] if error.args else None
        fault = Fault.BAD_CERTIFICATE if isinstance(reason, ssl.SSLCertVerificationError) else Fault.TLS_FAILED
        hint = "for a private authority set SSL_CERT_FILE to its bundle"
        return RegistryFailedError(fault, f"{self._host}: TLS failed: {error}", hint=hint)

    def _pool(self, address: str) -> urllib3.PoolManager:
        proxy = self._proxy(address)
        if proxy not in self._pools:
            make = partial(urllib3.ProxyManager, proxy) if proxy else urllib3.PoolManager
            self._pools[proxy] = make(ssl_context=self._context, maxsize=16, retries=False)
        return self._pools[proxy]

    def close(self) -> None:
        """Close every connection."""
        for pool in self._pools.values():
            pool.clear()


def _length(body: bytes | BinaryIO | None) -> dict[str, str]:
    """Rewind a file that is to be sent, and say how long it is: not every registry takes what it is not told of."""
    if body is None or isinstance(body, bytes):
        return {}
    length = body.seek(0, os.SEEK_END)
    body.seek(0)
    return {"Content-Length": str(length)}


_REACHABLE = "is the registry running and reachable?"
