"""HTTP to one registry: TLS, its two ways to log in, retries where they are harmless, and errors with a next step."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urljoin, urlsplit

import msgspec
import requests
from requests.adapters import HTTPAdapter, Retry
from requests.utils import get_environ_proxies

from envbuilder.errors import InfrastructureError, PublishError
from envbuilder.registry import credentials
from envbuilder.registry.reference import Reference

TIMEOUT = (10.0, 120.0)
"""Seconds to connect, and seconds without a byte."""

_RETRIES = Retry(
    total=4,
    connect=1,
    other=0,
    backoff_factor=0.3,
    status_forcelist=(429, 502, 503, 504),
    allowed_methods=("GET", "HEAD", "PUT"),
)
_PARAMETER = re.compile(r'([a-zA-Z]+)="([^"]*)"')
_UNAUTHORIZED, _FORBIDDEN = 401, 403


class _Token(msgspec.Struct, frozen=True):
    token: str = ""
    access_token: str = ""


class Transport:
    """Requests to one host. Credentials go to that host, and to the token service that it names, and nowhere else."""

    def __init__(self, reference: Reference, environment: Mapping[str, str]) -> None:
        self._reference = reference
        self._environment = environment
        self._session = requests.Session()
        self._session.mount("http://", HTTPAdapter(max_retries=_RETRIES))
        self._session.mount("https://", HTTPAdapter(max_retries=_RETRIES))
        self._session.trust_env = False  # no .netrc; proxies and authorities are chosen below
        self._session.verify = _authority(environment)
        self._authorization: dict[str, str] = {}
        self._base = ""

    def send(  # noqa: PLR0913 - the parts of an HTTP request
        self,
        method: str,
        path: str,
        *,
        expect: tuple[int, ...],
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        scope: str = "pull",
    ) -> requests.Response:
        """Send a request below ``/v2/`` (or to a full address) and return an answer whose status was expected.

        Raises PublishError where the registry refuses, InfrastructureError where it fails or cannot be reached.
        """
        address = urljoin(f"{self._find_base()}/v2/", path)
        answer = self._once(method, address, headers, body, scope)
        if answer.status_code == _UNAUTHORIZED and self._log_in(answer, scope):
            answer = self._once(method, address, headers, body, scope)
        if answer.status_code not in expect:
            raise _refused(self._reference, method, path, answer)
        return answer

    def _once(
        self, method: str, address: str, headers: Mapping[str, str] | None, body: bytes | None, scope: str
    ) -> requests.Response:
        sent = dict(headers or {})
        if urlsplit(address).netloc == urlsplit(self._base).netloc and scope in self._authorization:
            sent["Authorization"] = self._authorization[scope]
        try:
            return self._session.request(
                method, address, headers=sent, data=body, timeout=TIMEOUT, proxies=self._proxies(address)
            )
        except requests.exceptions.SSLError as error:
            raise InfrastructureError(
                f"{self._reference.host}: TLS failed: {error}",
                hint="for a private authority set SSL_CERT_FILE to its bundle",
            ) from error
        except requests.RequestException as error:
            raise InfrastructureError(
                f"{self._reference.host}: no answer: {error}", hint="is the registry running and reachable?"
            ) from error

    def _proxies(self, address: str) -> dict[str, str]:
        """Return the proxies for an address, ``no_proxy`` counted; none stands between us and this machine."""
        return {} if self._reference.loopback else dict(get_environ_proxies(address, None))

    def _find_base(self) -> str:
        """Choose the scheme: TLS always, except that a registry on this machine may speak plain HTTP, as in Docker."""
        if not self._base:
            self._base = f"https://{self._reference.host}"
            if self._reference.loopback and not self._speaks_tls():
                self._base = f"http://{self._reference.host}"
        return self._base

    def _speaks_tls(self) -> bool:
        try:
            self._session.get(f"{self._base}/v2/", timeout=TIMEOUT)
        except requests.exceptions.SSLError as error:
            return "CERTIFICATE_VERIFY_FAILED" in str(error)
        except requests.RequestException:
            return False
        return True

    def _log_in(self, answer: requests.Response, scope: str) -> bool:
        """Do what a 401 asks for; False where that is impossible or was done already."""
        challenge = answer.headers.get("WWW-Authenticate", "")
        login = credentials.find(self._reference.host, self._environment)
        kind = challenge.split(" ")[0].lower()
        if kind == "basic" and login and login.user:
            header = _basic(login)
        elif kind == "bearer":
            header = f"Bearer {self._token(dict(_PARAMETER.findall(challenge)), login, scope)}"
        else:
            return False
        if self._authorization.get(scope) == header:
            return False
        self._authorization[scope] = header
        return True

    def _token(self, challenge: Mapping[str, str], login: credentials.Login | None, scope: str) -> str:
        realm = challenge.get("realm", "")
        if not realm.startswith("https://") and not self._reference.loopback:
            raise PublishError(f"{self._reference.host} wants the login sent to {realm!r}, which is not TLS")
        query = {
            "service": challenge.get("service", ""),
            "scope": challenge.get("scope") or f"repository:{self._reference.repository}:{scope}",
        }
        try:
            if login and login.identity_token:
                form = {**query, "grant_type": "refresh_token", "refresh_token": login.identity_token}
                form["client_id"] = "envbuilder"
                answer = self._session.post(realm, data=form, timeout=TIMEOUT, proxies=self._proxies(realm))
            else:
                user = (login.user, login.password) if login else None
                answer = self._session.get(
                    realm, params=query, auth=user, timeout=TIMEOUT, proxies=self._proxies(realm)
                )
        except requests.RequestException as error:
            raise InfrastructureError(f"{realm}: no answer: {error}") from error
        if not answer.ok:
            raise _refused(self._reference, "login at", realm, answer)
        try:
            token = msgspec.json.decode(answer.content, type=_Token)
        except msgspec.MsgspecError as error:
            raise InfrastructureError(f"{realm}: the answer holds no token: {error}") from error
        return token.token or token.access_token


def _basic(login: credentials.Login) -> str:
    request = requests.Request("GET", "https://localhost", auth=(login.user, login.password)).prepare()
    return str(request.headers["Authorization"])


def _authority(environment: Mapping[str, str]) -> str | bool:
    """Return the bundle of certificate authorities: the variables that Python, pip and curl read, or the default."""
    names = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
    return next((environment[name] for name in names if environment.get(name)), True)


def _refused(reference: Reference, method: str, path: str, answer: requests.Response) -> Exception:
    text = f"{reference.host} answered {answer.status_code} to {method} {path}: {answer.text[:300].strip()}"
    if answer.status_code in (_UNAUTHORIZED, _FORBIDDEN):
        return PublishError(text, hint=f"docker login {reference.host}, with the right to push")
    if answer.status_code >= 500:  # noqa: PLR2004 - HTTP's class of server errors
        return InfrastructureError(text, hint="the registry failed: look at its log, then run again")
    return PublishError(text)
