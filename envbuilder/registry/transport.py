"""Requests to one registry: scheme, login, redirects, retries and pages. Every answer has a limit in bytes and time."""

from __future__ import annotations

import base64
import os
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlencode, urljoin, urlsplit

import msgspec
import urllib3
from requests.utils import DEFAULT_CA_BUNDLE_PATH, get_environ_proxies, select_proxy
from urllib3.exceptions import HTTPError, NewConnectionError, SSLError, TimeoutError  # noqa: A004 - urllib3's own
from urllib3.util import Retry

from envbuilder.errors import InfrastructureError, Reason
from envbuilder.registry import credentials
from envbuilder.registry.errors import MalformedError, RegistryFailedError, RegistryRefusedError, parsed
from envbuilder.registry.reference import Reference, is_loopback

CONNECT_S, SILENCE_S = 10.0, 60.0
"""Seconds to connect, and seconds without a byte."""

ATTEMPTS, PAUSE_S = 5, 0.2
"""How often a repeatable request is sent, and half of the second pause; each is twice as long as the one before."""

_SHORT_PAUSE = re.compile("[0-5]")
"""The seconds that a registry may ask for."""

MAX_REDIRECTS = 5
MAX_PAGES = 1_000
SMALL = 1 << 20
"""Bytes of an answer that holds no document."""

_MAX_ERROR = 64 << 10
_BUSY_STATUS = (429, 500, 502, 503, 504)
_REPEATABLE = ("GET", "HEAD", "PUT")
_REDIRECTS = (301, 302, 303, 307, 308)
_FIRST_ERROR, _UNAUTHORIZED, _FORBIDDEN, _MISSING, _THROTTLED, _SERVER_ERROR = 300, 401, 403, 404, 429, 500
_AUTHORITIES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_PARAMETER = re.compile(r'(?<![a-zA-Z])([a-zA-Z]+)="([^"]*)"')
_WORD = r"[\w!#$%&'*+.^`|~-]++"
_VALUE = rf'\s*+=\s*+({_WORD}|"(?:[^"\\]|\\.)*+")'
_LINK = re.compile(rf"\s*+<([^<>]*+)>((?:\s*+;(?:\s*+{_WORD}(?:{_VALUE})?+)?+)*+)\s*+(?:,[\s,]*+|\Z)")
_LINK_PARAMETER = re.compile(rf";\s*+({_WORD}){_VALUE}")
_RELATIONS = re.compile(r"[a-z][a-z0-9.-]*+(?: ++[a-z][a-z0-9.-]*+)*+")
"""A link with its parameters (RFC 8288, section 3), and its relations: registered names, not somebody's address."""


Headers = Mapping[str, str]
Body = bytes | BinaryIO | None
"""A file is sent from its beginning."""


@dataclass(frozen=True)
class Response:
    """A complete answer: status, headers (names in any case) and content; ``address`` is where it came from."""

    status: int
    headers: Headers
    content: bytes
    address: str


class _Retry(Retry):
    """Sends a request again while the registry is busy, after the pause that it asks for: a short one, not a date."""

    def increment(self, *args: Any, **kwargs: Any) -> Retry:  # type: ignore[override]  # noqa: ANN401 - urllib3's own
        response, error = kwargs.get("response"), kwargs.get("error")
        if error is not None and _is_slow(error):
            raise error
        if response is not None and self.total:
            response.close()  # urllib3 would read all of it, to use the connection again
            wanted = response.headers.get("Retry-After", "").strip()
            if wanted and not _SHORT_PAUSE.fullmatch(wanted):
                text = f"the registry answered {response.status} and asks to come back after {wanted[:40]!r}"
                raise RegistryFailedError(Reason.THROTTLED, text, hint="try again later")
        return super().increment(*args, **kwargs)


_RETRY = _Retry(
    connect=1, read=1, other=0, allowed_methods=_REPEATABLE, status_forcelist=_BUSY_STATUS, raise_on_status=False
)


class _Token(msgspec.Struct, frozen=True):
    token: str = ""
    access_token: str = ""


class RegistryTransport:
    """Requests to one host. Credentials go to that host and to the token service that it names, nowhere else."""

    def __init__(self, reference: Reference, environment: Mapping[str, str]) -> None:
        self._reference = reference
        self._environment = environment
        self._context = _authority(environment)
        self._pools: dict[str, urllib3.PoolManager] = {}
        self._authorization: dict[str, str] = {}
        self._base = ""
        self._excuse = ""

    def send(
        self,
        method: str,
        path: str,
        *,
        expect: tuple[int, ...],
        headers: Headers | None = None,
        body: Body = None,
        scope: str = "pull",
        limit: int = SMALL,
        tries: int = ATTEMPTS,
    ) -> Response:
        """Send a request below ``/v2/`` (or to a full address) and return an answer whose status was expected.

        ``limit`` bounds the answer (bytes). A busy registry is asked so many ``tries``.
        Raises RegistryRefusedError if the registry refuses, RegistryFailedError if it fails or cannot be reached.
        """
        base = self._base = self._base or self._find_base()
        address = _resolved(f"{base}/v2/", path)
        if not address:
            raise self._broken(Reason.BAD_ANSWER, f"names {path[:200]!r}")
        for last in (False, True):
            before = self._authorization.get(scope) if _site(address) == _site(base) else None
            sent = {**(headers or {}), **({"Authorization": before} if before else {})}
            answer = self._fetch(method, address, sent, body, limit, tries)
            # Another thread may have logged in while this request was on its way.
            if last or answer.status != _UNAUTHORIZED or not self._log_in(answer, scope, before):
                break
        if answer.status not in expect:
            raise self._refused(method, path, answer, scope)
        return answer

    def pages(self, path: str, *, expect: tuple[int, ...], limit: int) -> Iterator[Response]:
        """Fetch every page from the first on, each of at most ``limit`` bytes.

        Raises RegistryRefusedError for a link that leads out of the registry, to itself, or to too many pages.
        """
        following = path
        for _ in range(MAX_PAGES):
            answer = self.send("GET", following, expect=expect, limit=limit)
            yield answer
            following = _next_page(answer)
            if not following:
                return
        raise RegistryRefusedError(Reason.TOO_MANY, f"the registry answers in more than {MAX_PAGES} pages")

    def _find_base(self) -> str:
        """Choose the scheme: TLS, except that a registry on this machine may speak plain HTTP, as for Docker."""
        base = f"https://{self._reference.host}"
        try:
            if self._reference.loopback:
                self._fetch("HEAD", f"{base}/v2/", {}, tries=1)
        except RegistryRefusedError:
            return base
        except RegistryFailedError as error:
            return base if error.fault is Reason.BAD_CERTIFICATE else f"http://{self._reference.host}"
        return base

    def _fetch(
        self, method: str, address: str, headers: Headers, body: Body = None, limit: int = SMALL, tries: int = ATTEMPTS
    ) -> Response:
        """Send, and follow redirects within limits. Credentials stay with the host that they are for."""
        for _ in range(MAX_REDIRECTS + 1):
            answer = self._once(method, address, headers, body, limit, tries)
            location = answer.headers.get("Location")
            if answer.status not in _REDIRECTS or location is None:
                return answer
            following, text = _resolved(address, location), f"redirects to {location[:200]!r}"
            if not following or (address.startswith("https:") and not following.startswith("https:")):
                raise self._broken(Reason.BAD_REDIRECT, f"{text}, which is not an address with TLS")
            if _site(following) != _site(address):
                if method == "POST" and body:
                    raise self._broken(Reason.BAD_REDIRECT, f"{text}, another host, which does not get the login")
                headers = {name: value for name, value in headers.items() if name != "Authorization"}
            address = following
        raise self._broken(Reason.BAD_REDIRECT, f"redirects {method} {address[:200]!r} again and again")

    def _once(self, method: str, address: str, headers: Headers, body: Body, limit: int, tries: int) -> Response:
        # Compressed answers are neither requested nor decompressed: a small answer must not become a large one here.
        sent = {"Accept-Encoding": "identity", "User-Agent": "envbuilder", **headers, **_length(body)}
        try:
            answer = self._pool(address).request(
                method,
                address,
                headers=sent,
                body=body,
                timeout=urllib3.Timeout(connect=CONNECT_S, read=SILENCE_S),
                retries=_RETRY.new(total=tries - 1, backoff_factor=PAUSE_S),
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            try:
                content = b"" if method == "HEAD" else self._read(answer, limit)
            except BaseException:
                answer.close()  # the unread rest would be taken for the next answer
                raise
            answer.release_conn()
        except ValueError as error:  # an address that the registry named, or a header made of its answer
            raise self._broken(Reason.BAD_ANSWER, f"breaks the protocol: {error}") from error
        except (HTTPError, OSError) as error:
            raise self._failed(error) from error
        return Response(answer.status, answer.headers, content, address)

    def _read(self, answer: urllib3.BaseHTTPResponse, limit: int) -> bytes:
        bound = limit if answer.status < _FIRST_ERROR else max(limit, _MAX_ERROR)
        encoding = answer.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            raise self._broken(Reason.BAD_ANSWER, f"answers in {encoding[:40]!r}, which was not requested")
        declared, content = answer.headers.get("Content-Length", ""), bytearray()
        announced = int(declared) if declared.isdigit() else 0
        while max(announced, len(content)) <= bound and (piece := answer.read(bound + 1 - len(content))):
            content += piece
        if max(announced, len(content)) > bound:
            raise self._broken(Reason.TOO_LARGE, f"sends more than {bound} bytes where no more were expected")
        return bytes(content)

    def _broken(self, reason: Reason, text: str) -> RegistryRefusedError:
        return RegistryRefusedError(reason, f"{self._reference.host} {text}")

    def _failed(self, error: Exception) -> RegistryFailedError:
        host, last = self._reference.host, getattr(error, "reason", None) or error  # the last error of several attempts
        if isinstance(last, SSLError):
            untrusted = "CERTIFICATE_VERIFY_FAILED" in str(last)
            fault = Reason.BAD_CERTIFICATE if untrusted else Reason.TLS_FAILED
            hint = "for a private authority set SSL_CERT_FILE to its bundle"
            return RegistryFailedError(fault, f"{host}: TLS failed: {last}", hint=hint)
        fault = Reason.TOO_SLOW if _is_slow(last) else Reason.UNREACHABLE
        return RegistryFailedError(fault, f"{host}: no answer: {last}", hint="is the registry running and reachable?")

    def _pool(self, address: str) -> urllib3.PoolManager:
        """Return the connections through the proxy for an address; a loopback registry has no proxy."""
        loopback = self._reference.loopback
        proxy = "" if loopback else str(select_proxy(address, get_environ_proxies(address, None)) or "")
        if proxy not in self._pools:
            make = partial(urllib3.ProxyManager, proxy) if proxy else urllib3.PoolManager
            self._pools[proxy] = make(ssl_context=self._context, maxsize=16, retries=False)
        return self._pools[proxy]

    def _log_in(self, answer: Response, scope: str, before: str | None) -> bool:
        """Log in as a 401 asks for; return False if that is impossible, or gives the refused ``before`` again."""
        challenge = answer.headers.get("WWW-Authenticate", "")
        login = credentials.find(self._reference.host, self._environment)
        if login and login.excuse:  # the image may be public: the helper's failure matters only after a refusal
            self._excuse, login = login.excuse, None
        kind = challenge.split(" ")[0].lower()
        if kind == "basic" and login and login.user:
            header = _basic(login)
        elif kind == "bearer":
            header = f"Bearer {self._token(dict(_PARAMETER.findall(challenge)), login, scope)}"
        else:
            return False
        if header == before:
            return False
        self._authorization[scope] = header
        return True

    def _token(self, challenge: Mapping[str, str], login: credentials.Login | None, scope: str) -> str:
        realm = challenge.get("realm", "")
        local = self._reference.loopback and realm.startswith("http://") and is_loopback(realm)
        if not realm.startswith("https://") and not local:
            raise self._broken(Reason.BAD_ANSWER, f"wants the login sent to {realm[:200]!r}, which is not TLS")
        query = {
            "service": challenge.get("service", ""),
            "scope": challenge.get("scope") or f"repository:{self._reference.repository}:{scope}",
        }
        if login and login.identity_token:
            form = {**query, "grant_type": "refresh_token", "refresh_token": login.identity_token}
            body = urlencode({**form, "client_id": "envbuilder"}).encode()
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            answer = self._fetch("POST", realm, headers, body)
        else:
            headers = {"Authorization": _basic(login)} if login else {}
            joint = "&" if "?" in realm else "?"
            answer = self._fetch("GET", f"{realm}{joint}{urlencode(query)}", headers)
        if not 200 <= answer.status < _FIRST_ERROR:  # noqa: PLR2004 - HTTP's class of success
            raise self._refused("login at", realm, answer, scope)
        try:
            token: _Token = parsed(answer.content, _Token, "a token")
        except MalformedError as error:
            text = f"{realm}: the answer holds no token: {error.message}"
            raise RegistryFailedError(Reason.BAD_ANSWER, text) from error
        return token.token or token.access_token

    def _refused(self, method: str, path: str, answer: Response, scope: str) -> Exception:
        host = self._reference.host
        body = answer.content[:300].decode("utf-8", "replace").strip()
        text = f"{host} answered {answer.status} to {method} {path}: {body}"
        if answer.status in (_UNAUTHORIZED, _FORBIDDEN):
            right = ", with the right to push" if "push" in scope else ""
            excuse = f"; no login was sent, for {self._excuse}" if self._excuse else ""
            return RegistryRefusedError(Reason.ACCESS_DENIED, text, hint=f"docker login {host}{right}{excuse}")
        if answer.status == _THROTTLED:
            return RegistryFailedError(Reason.THROTTLED, text, hint="try again later")
        if answer.status >= _SERVER_ERROR:
            return RegistryFailedError(Reason.SERVER_ERROR, text, hint="look at the registry's log, then run again")
        fault = Reason.NOT_THERE if answer.status == _MISSING and method == "GET" else Reason.REJECTED
        hint = "the registry's log says why; a new run restores what it has lost"
        return RegistryRefusedError(fault, text, hint=hint)


def _length(body: Body) -> dict[str, str]:
    """Rewind a file that is to be sent, and state its length: not every registry accepts chunks."""
    if body is None or isinstance(body, bytes):
        return {}
    length = body.seek(0, os.SEEK_END)
    body.seek(0)
    return {"Content-Length": str(length)}


def _basic(login: credentials.Login) -> str:
    return "Basic " + base64.b64encode(f"{login.user}:{login.password}".encode()).decode()


def _authority(environment: Mapping[str, str]) -> ssl.SSLContext:
    """Trust the bundle of certificate authorities that Python, pip and curl read, or the default."""
    name = next((name for name in _AUTHORITIES if environment.get(name)), "")
    path = Path(environment[name] if name else DEFAULT_CA_BUNDLE_PATH)
    try:
        return _trusting(path, path.stat().st_mtime_ns)
    except OSError as error:
        text = f"{name}={path}: not a bundle of certificates: {error.strerror or error}"
        raise InfrastructureError(text, hint="it should be a file in PEM form") from error


@lru_cache(maxsize=4)
def _trusting(path: Path, _changed: int) -> ssl.SSLContext:
    """Read a bundle once: that takes longer than a request."""
    return ssl.create_default_context(capath=str(path)) if path.is_dir() else ssl.create_default_context(cafile=path)


def _is_slow(error: Exception) -> bool:
    return isinstance(error, TimeoutError) and not isinstance(error, NewConnectionError)  # that one was refused


def _next_page(answer: Response) -> str:
    """Return the address of the next page; '' for the last one.

    Raises RegistryRefusedError for any text that is not understood: it may be the next page, which must not be missed.
    """
    header, at, following = answer.headers.get("Link", "").strip(" \t,"), 0, list[str]()
    while at < len(header) and (link := _LINK.match(header, at)):
        parameters = [(name.casefold(), text.strip('"').casefold()) for name, text in _LINK_PARAMETER.findall(link[2])]
        relations = [text for name, text in parameters if name == "rel"]
        if len(relations) != 1 or not _RELATIONS.fullmatch(relations[0]):
            break
        if "next" in relations[0].split():
            following.append("" if "anchor" in dict(parameters) else _resolved(answer.address, link[1]))
        at = link.end()
    usable = not following or (following[0] != answer.address and _site(following[0]) == _site(answer.address))
    if at < len(header) or len(following) > 1 or not usable:
        text = f"the registry's next page has an unknown form, is elsewhere or the same: {header[:200]!r}"
        raise RegistryRefusedError(Reason.BAD_LINK, text)
    return "".join(following)


def _resolved(base: str, location: str) -> str:
    """Resolve an address that a registry names; '' if it is not one of a host."""
    with suppress(ValueError):
        address = urljoin(base, location)
        parts = urlsplit(address)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return address
    return ""


def _site(address: str) -> tuple[str, str]:
    parts = urlsplit(address)
    return parts.scheme, parts.netloc
