"""Requests to one registry: scheme, login, redirects, retries and pages. Every answer has a limit in bytes and time."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import urlencode, urljoin, urlsplit

import msgspec
import requests
from requests.adapters import HTTPAdapter
from requests.utils import get_environ_proxies, parse_dict_header
from urllib3.exceptions import HTTPError, ReadTimeoutError
from urllib3.util import Retry

from envbuilder.errors import InfrastructureError, Reason
from envbuilder.registry import credentials
from envbuilder.registry.errors import WORKERS, MalformedError, RegistryFailedError, RegistryRefusedError, parsed
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
_WORD = r"[\w!#$%&'*+.^`|~-]++"
_VALUE = rf'\s*+=\s*+({_WORD}|"(?:[^"\\]|\\.)*+")'
_LINK = re.compile(rf"\s*+<([^<>]*+)>((?:\s*+;(?:\s*+{_WORD}(?:{_VALUE})?+)?+)*+)\s*+(?:,[\s,]*+|\Z)")
_LINK_PARAMETER = re.compile(rf";\s*+({_WORD}){_VALUE}")
_RELATIONS = re.compile(r"[a-z][a-z0-9.-]*+(?: ++[a-z][a-z0-9.-]*+)*+")
"""A link with its parameters (RFC 8288, section 3), and its relations: registered names, not somebody's address."""

Headers = Mapping[str, str]
Body = bytes | BinaryIO | None
"""A file is sent from its beginning."""


class Response(NamedTuple):
    """A complete answer: status, headers (names in any case) and content; ``address`` is where it came from."""

    status: int
    headers: Headers
    content: bytes
    address: str


class _Retry(Retry):
    """Sends a request again while the registry is busy, after the pause that it asks for: a short one, not a date."""

    def increment(self, *args: Any, **kwargs: Any) -> Retry:  # type: ignore[override]  # noqa: ANN401 - urllib3's own
        response, error = kwargs.get("response"), kwargs.get("error")
        if isinstance(error, ReadTimeoutError):
            raise error
        if response is not None and self.total:
            response.close()  # urllib3 would read all of it, to use the connection again
            wanted = response.headers.get("Retry-After", "").strip()
            if wanted and not _SHORT_PAUSE.fullmatch(wanted):
                text = f"the registry answered {response.status} and asks to come back after {wanted[:40]!r}"
                raise RegistryFailedError(Reason.THROTTLED, text, hint="try again later")
        return super().increment(*args, **kwargs)


def _adapter(tries: int) -> HTTPAdapter:
    often = _Retry(
        total=tries - 1,
        connect=1,
        read=1,
        other=0,
        allowed_methods=_REPEATABLE,
        status_forcelist=_BUSY_STATUS,
        backoff_factor=PAUSE_S,
        raise_on_status=False,
    )
    return HTTPAdapter(pool_maxsize=WORKERS, max_retries=often)


class _Token(msgspec.Struct, frozen=True):
    token: str = ""
    access_token: str = ""


class RegistryTransport:
    """Requests about one repository. Logins go to its host and to the token service that it names, nowhere else."""

    def __init__(self, reference: Reference, environment: Mapping[str, str] | None = None) -> None:
        self.reference, self._environment = reference, os.environ if environment is None else environment
        self._authorities = _authorities(self._environment)
        self._adapters = {tries: _adapter(tries) for tries in (1, ATTEMPTS)}
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
    ) -> Response:
        """Send a request below the repository (or to a full address) and return an answer whose status was expected.

        ``limit`` bounds the answer (bytes). Raises RegistryRefusedError if the registry refuses, RegistryFailedError if
        it fails or cannot be reached.
        """
        base = self._base = self._base or self._find_base()
        address = _resolved(f"{base}/v2/{self.reference.repository}/", path)
        if not address:
            raise self._broken(Reason.BAD_ANSWER, f"names {path[:200]!r}")
        for last in (False, True):
            before = self._authorization.get(scope) if _site(address) == _site(base) else None
            sent = {**(headers or {}), **({"Authorization": before} if before else {})}
            answer = self._fetch(requests.Request(method, address, sent, data=body), limit)
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
        for _ in range(MAX_PAGES):
            answer = self.send("GET", path, expect=expect, limit=limit)
            yield answer
            path = _next_page(answer)
            if not path:
                return
        raise RegistryRefusedError(Reason.TOO_MANY, f"the registry answers in more than {MAX_PAGES} pages")

    def _find_base(self) -> str:
        """Choose the scheme: TLS, except that a registry on this machine may speak plain HTTP, as for Docker."""
        base = f"https://{self.reference.host}"
        try:
            if self.reference.loopback:
                self._fetch(requests.Request("HEAD", f"{base}/v2/"), tries=1)
        except RegistryFailedError as error:
            return base if error.fault is Reason.BAD_CERTIFICATE else f"http://{self.reference.host}"
        except RegistryRefusedError:
            pass
        return base

    def _fetch(self, request: requests.Request, limit: int = SMALL, tries: int = ATTEMPTS) -> Response:
        """Send, and follow redirects within limits. Credentials stay with the host that they are for."""
        for _ in range(MAX_REDIRECTS + 1):
            answer = self._once(request, limit, tries)
            location = answer.headers.get("Location")
            if answer.status not in _REDIRECTS or location is None:
                return answer
            following, text = _resolved(answer.address, location), f"redirects to {location[:200]!r}"
            if not following or (answer.address.startswith("https:") and not following.startswith("https:")):
                raise self._broken(Reason.BAD_REDIRECT, f"{text}, which is not an address with TLS")
            if _site(following) != _site(answer.address):
                if request.method == "POST" and request.data:
                    raise self._broken(Reason.BAD_REDIRECT, f"{text}, another host, which does not get the login")
                request.headers.pop("Authorization", None)
            request.url, request.params = following, {}
        raise self._broken(Reason.BAD_REDIRECT, f"redirects {request.method} {answer.address[:200]!r} again and again")

    def _once(self, request: requests.Request, limit: int, tries: int) -> Response:
        # Compressed answers are neither requested nor decompressed: a small answer must not become a large one here.
        request.headers |= {"Accept-Encoding": "identity", "User-Agent": "envbuilder"}
        address, body = str(request.url), request.data
        if hasattr(body, "seek"):
            body.seek(0)
            tries = 1  # the registry may keep a part of an interrupted upload
        try:
            answer = self._adapters[tries].send(
                request.prepare(),
                stream=True,
                timeout=(CONNECT_S, SILENCE_S),
                verify=self._authorities or True,
                proxies={} if self.reference.loopback else get_environ_proxies(address),
            )
            try:
                content = b"" if request.method == "HEAD" else self._read(answer, limit)
            except BaseException:
                answer.close()  # the unread rest would be taken for the next answer
                raise
            answer.raw.release_conn()
        except ValueError as error:  # an address that the registry named, or a header made of its answer
            raise self._broken(Reason.BAD_ANSWER, f"breaks the protocol: {error}") from error
        except (HTTPError, OSError) as error:
            raise self._failed(error) from error
        return Response(answer.status_code, answer.headers, content, address)

    def _read(self, answer: requests.Response, limit: int) -> bytes:
        bound = limit if answer.status_code < _FIRST_ERROR else max(limit, _MAX_ERROR)
        encoding = answer.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            raise self._broken(Reason.BAD_ANSWER, f"answers in {encoding[:40]!r}, which was not requested")
        declared, content = answer.headers.get("Content-Length", ""), bytearray()
        announced = int(declared) if declared.isdigit() else 0
        while max(announced, len(content)) <= bound and (piece := answer.raw.read(bound + 1 - len(content))):
            content += piece
        if max(announced, len(content)) > bound:
            raise self._broken(Reason.TOO_LARGE, f"sends more than {bound} bytes where no more were expected")
        return bytes(content)

    def _broken(self, reason: Reason, text: str) -> RegistryRefusedError:
        return RegistryRefusedError(reason, f"{self.reference.host} {text}")

    def _failed(self, error: Exception) -> RegistryFailedError:
        host, cause = self.reference.host, error.args[0] if error.args else error
        last = getattr(cause, "reason", cause)  # the last error of several attempts
        if isinstance(error, requests.exceptions.SSLError):
            untrusted = "CERTIFICATE_VERIFY_FAILED" in str(last)
            fault = Reason.BAD_CERTIFICATE if untrusted else Reason.TLS_FAILED
            hint = "for a private authority set SSL_CERT_FILE to its bundle"
            return RegistryFailedError(fault, f"{host}: TLS failed: {last}", hint=hint)
        slow = isinstance(error, (requests.exceptions.Timeout, ReadTimeoutError))
        fault = Reason.TOO_SLOW if slow else Reason.UNREACHABLE
        return RegistryFailedError(fault, f"{host}: no answer: {last}", hint="is the registry running and reachable?")

    def _log_in(self, answer: Response, scope: str, before: str | None) -> bool:
        """Log in as a 401 asks for; return False if that is impossible, or gives the refused ``before`` again."""
        challenge = answer.headers.get("WWW-Authenticate", "")
        login = credentials.find(self.reference.host, self._environment)
        if login and login.excuse:  # the image may be public: the helper's failure matters only after a refusal
            self._excuse, login = login.excuse, None
        kind = challenge.split(" ")[0].lower()
        if kind == "basic" and login and login.user:
            header = _basic(login)
        elif kind == "bearer":
            stated = parse_dict_header(challenge[7:])  # type: ignore[no-untyped-call]
            header = f"Bearer {self._token(stated, login, scope)}"
        else:
            return False
        if header == before:
            return False
        self._authorization[scope] = header
        return True

    def _token(self, challenge: Mapping[str, str], login: credentials.Login | None, scope: str) -> str:
        realm = challenge.get("realm") or ""
        local = self.reference.loopback and realm.startswith("http://") and is_loopback(realm)
        if not realm.startswith("https://") and not local:
            raise self._broken(Reason.BAD_ANSWER, f"wants the login sent to {realm[:200]!r}, which is not TLS")
        query = {
            "service": challenge.get("service") or "",
            "scope": challenge.get("scope") or f"repository:{self.reference.repository}:{scope}",
        }
        if login and login.identity_token:
            form = {"grant_type": "refresh_token", "refresh_token": login.identity_token, "client_id": "envbuilder"}
            request = requests.Request("POST", realm, data=urlencode(query | form).encode())
            request.headers["Content-Type"] = "application/x-www-form-urlencoded"
        else:
            request = requests.Request("GET", realm, {"Authorization": _basic(login)} if login else {}, params=query)
        answer = self._fetch(request)
        if not 200 <= answer.status < _FIRST_ERROR:  # noqa: PLR2004 - HTTP's class of success
            raise self._refused("login at", realm, answer, scope)
        try:
            token: _Token = parsed(answer.content, _Token, "a token")
        except MalformedError as error:
            text = f"{realm}: the answer holds no token: {error.message}"
            raise RegistryFailedError(Reason.BAD_ANSWER, text) from error
        return token.token or token.access_token

    def _refused(self, method: str, path: str, answer: Response, scope: str) -> Exception:
        host = self.reference.host
        body = answer.content[:300].decode("utf-8", "replace").strip()
        text = f"{self.reference.name} answered {answer.status} to {method} {path}: {body}"
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


def _basic(login: credentials.Login) -> str:
    return "Basic " + b64encode(f"{login.user}:{login.password}".encode()).decode()


def _authorities(environment: Mapping[str, str]) -> str:
    """Return the bundle of certificate authorities that Python, pip and curl read; '' for the default."""
    name = next((name for name in _AUTHORITIES if environment.get(name)), "")
    if name and not (Path(environment[name]).is_file() or Path(environment[name]).is_dir()):
        text = f"{name}={environment[name]}: not a bundle of certificates"
        raise InfrastructureError(text, hint="it should be a file in PEM form")
    return environment.get(name, "")


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
