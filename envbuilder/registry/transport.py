"""Requests to one registry: its scheme, its two ways to log in, and errors with a next step."""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlencode, urljoin, urlsplit

import msgspec
from requests.utils import DEFAULT_CA_BUNDLE_PATH, get_environ_proxies, select_proxy

from envbuilder.errors import InfrastructureError
from envbuilder.registry import credentials
from envbuilder.registry.bounded_json import MalformedError, parsed
from envbuilder.registry.deadline import Deadline
from envbuilder.registry.exchange import Answer, Exchange
from envbuilder.registry.faults import Fault, RegistryFailedError, RegistryRefusedError
from envbuilder.registry.reference import Reference

SMALL = 1 << 20
"""Bytes of an answer that holds no document of ours."""

_AUTHORITIES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_PARAMETER = re.compile(r'([a-zA-Z]+)="([^"]*)"')
_UNAUTHORIZED, _FORBIDDEN, _MISSING, _BUSY = 401, 403, 404, 429


class _Token(msgspec.Struct, frozen=True):
    token: str = ""
    access_token: str = ""


class Transport:
    """Requests to one host. Credentials go to that host, and to the token service that it names, and nowhere else."""

    def __init__(self, reference: Reference, environment: Mapping[str, str], deadline: Deadline | None = None) -> None:
        self._reference = reference
        self._environment = environment
        # None of .netrc: proxies and authorities are chosen here.
        self._exchange = Exchange(reference.host, _authority(environment), self._proxy, deadline or Deadline())
        self._authorization: dict[str, str] = {}
        self._base = ""
        self._excuse = ""

    @property
    def deadline(self) -> Deadline:
        """The moment by which every request is answered."""
        return self._exchange.deadline

    def send(
        self,
        method: str,
        path: str,
        *,
        expect: tuple[int, ...],
        headers: Mapping[str, str] | None = None,
        body: bytes | BinaryIO | None = None,
        scope: str = "pull",
        limit: int = SMALL,
        again: bool = True,
    ) -> Answer:
        """Send a request below ``/v2/`` (or to a full address) and return an answer whose status was expected.

        Raises PublishError where the registry refuses, InfrastructureError where it fails or cannot be reached.
        """
        try:
            address = urljoin(f"{self._find_base()}/v2/", path)
        except ValueError as error:
            raise RegistryRefusedError(Fault.BAD_ANSWER, f"{self._reference.host} names {path[:200]!r}") from error

        def once() -> Answer:
            return self._exchange.send(
                method,
                address,
                self._with_login(address, headers, scope),
                body=body,
                limit=limit,
                again=again,
            )

        before = self._authorization.get(scope)  # another thread may log in while this request is on its way
        answer = once()
        if answer.status == _UNAUTHORIZED and self._log_in(answer, scope, before):
            answer = once()
        if answer.status not in expect:
            raise _refused(self._reference, method, path, answer, scope, excuse=self._excuse)
        return answer

    def close(self) -> None:
        """Close every connection."""
        self._exchange.close()

    def _with_login(self, address: str, headers: Mapping[str, str] | None, scope: str) -> dict[str, str]:
        sent = dict(headers or {})
        if urlsplit(address)[:2] == urlsplit(self._base)[:2] and scope in self._authorization:
            sent["Authorization"] = self._authorization[scope]
        return sent

    def _proxy(self, address: str) -> str:
        """Name the proxy for an address, ``no_proxy`` counted; none stands between us and this machine."""
        if self._reference.loopback:
            return ""
        return str(select_proxy(address, get_environ_proxies(address, None)) or "")

    def _find_base(self) -> str:
        """Choose the scheme: TLS always, except that a registry on this machine may speak plain HTTP, as in Docker."""
        if not self._base:
            base = f"https://{self._reference.host}"
            if self._reference.loopback and not self._speaks_tls(base):
                base = f"http://{self._reference.host}"
            self._base = base
        return self._base

    def _speaks_tls(self, base: str) -> bool:
        try:
            self._exchange.send("HEAD", f"{base}/v2/", {}, limit=SMALL, again=False)
        except RegistryFailedError as error:
            return error.fault is Fault.BAD_CERTIFICATE
        except RegistryRefusedError:
            return True
        return True

    def _log_in(self, answer: Answer, scope: str, before: str | None) -> bool:
        """Log in as a 401 asks for; return False if that is impossible, or gives the refused ``before`` again."""
        challenge = answer.headers.get("WWW-Authenticate", "")
        login = credentials.find(self._reference.host, self._environment)
        if login and login.excuse:  # it may be readable by everybody: only a refusal makes the helper's failure matter
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
        if not realm.startswith("https://") and not (self._reference.loopback and realm.startswith("http://")):
            text = f"{self._reference.host} wants the login sent to {realm[:200]!r}, which is not TLS"
            raise RegistryRefusedError(Fault.BAD_ANSWER, text)
        query = {
            "service": challenge.get("service", ""),
            "scope": challenge.get("scope") or f"repository:{self._reference.repository}:{scope}",
        }
        headers: dict[str, str] = {}
        if login and login.identity_token:
            form = {**query, "grant_type": "refresh_token", "refresh_token": login.identity_token}
            body = urlencode({**form, "client_id": "envbuilder"}).encode()
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            answer = self._exchange.send("POST", realm, headers, body=body, limit=SMALL)
        else:
            if login:
                headers["Authorization"] = _basic(login)
            joint = "&" if "?" in realm else "?"
            answer = self._exchange.send("GET", f"{realm}{joint}{urlencode(query)}", headers, limit=SMALL)
        if not 200 <= answer.status < 300:  # noqa: PLR2004 - HTTP's class of success
            raise _refused(self._reference, "login at", realm, answer, scope, excuse=self._excuse)
        try:
            token: _Token = parsed(answer.content, _Token, "a token")
        except MalformedError as error:
            raise RegistryFailedError(
                Fault.BAD_ANSWER, f"{realm}: the answer holds no token: {error.message}"
            ) from error
        return token.token or token.access_token


def _basic(login: credentials.Login) -> str:
    return "Basic " + base64.b64encode(f"{login.user}:{login.password}".encode()).decode()


def _authority(environment: Mapping[str, str]) -> ssl.SSLContext:
    """Trust the bundle of certificate authorities that Python, pip and curl read, or the default."""
    name = next((name for name in _AUTHORITIES if environment.get(name)), "")
    path = Path(environment[name] if name else DEFAULT_CA_BUNDLE_PATH)
    try:
        return _trusting(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise InfrastructureError(
            f"{name}={path}: no bundle of certificates: {error.strerror or error}",
            hint="it should be a file in PEM form",
        ) from error


@lru_cache(maxsize=4)
def _trusting(path: Path, _changed: int) -> ssl.SSLContext:
    """Read a bundle once: it takes longer than a request."""
    return ssl.create_default_context(capath=str(path)) if path.is_dir() else ssl.create_default_context(cafile=path)


def _refused(reference: Reference, method: str, path: str, answer: Answer, scope: str, *, excuse: str) -> Exception:
    said = answer.content[:300].decode("utf-8", "replace").strip()
    text = f"{reference.host} answered {answer.status} to {method} {path}: {said}"
    if answer.status in (_UNAUTHORIZED, _FORBIDDEN):
        right = ", with the right to push" if "push" in scope else ""
        hint = f"docker login {reference.host}{right}" + (f"; no login was sent, for {excuse}" if excuse else "")
        return RegistryRefusedError(Fault.ACCESS_DENIED, text, hint=hint)
    if answer.status == _BUSY:
        return RegistryFailedError(Fault.THROTTLED, text, hint="try again later")
    if answer.status >= 500:  # noqa: PLR2004 - HTTP's class of server errors
        return RegistryFailedError(
            Fault.SERVER_ERROR, text, hint="the registry failed: look at its log, then run again"
        )
    fault = Fault.NOT_THERE if answer.status == _MISSING else Fault.REJECTED
    return RegistryRefusedError(
        fault, text, hint="the registry's log says why; what it has lost, a new run makes again"
    )
