"""One repository in a registry. Every answer has a limit in bytes and time; every digest is computed and compared."""

import os
import re
import time
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from functools import partial
from http.client import HTTPException, HTTPResponse
from ssl import SSLCertVerificationError
from threading import local
from typing import Any, BinaryIO, NamedTuple, TypeVar
from urllib.parse import urlencode, urljoin, urlsplit

import msgspec
import requests
from requests.adapters import HTTPAdapter
from requests.utils import select_proxy
from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError, ReadTimeoutError

from envbuilder.errors import Reason, first_cause, first_message
from envbuilder.registry.errors import MalformedError, RegistryFailedError, RegistryRefusedError, parsed
from envbuilder.registry.manifests import MAX_DOCUMENT, MEDIA_TYPES, Descriptor, Manifest, digest_of, shape_of
from envbuilder.registry.reference import Reference, is_address, is_loopback
from envbuilder.support.certificates import authorities, proxies_for
from envbuilder.support.docker_config import Login, find_login
from envbuilder.support.http_headers import known_scheme, next_links
from envbuilder.support.terminal_text import hide
from envbuilder.support.threads import WORKERS, within

CONNECT_S, SILENCE_S, ANSWER_S, UPLOAD_S = 10.0, 60.0, 120.0, 6 * 3600.0  # to connect, without a byte, in all
ATTEMPTS, PAUSE_S = 5, 0.2  # of a repeatable request, and the first pause; each is twice as long as the one before
MAX_REDIRECTS, MAX_PAGES, MAX_TAGS, MAX_LIST = 5, 1_000, 100_000, 32 << 20  # the last: bytes of one page of a list
_BUSY_STATUS, _SHORT_PAUSES = (408, 429, 500, 502, 503, 504), ("", "0", "1", "2", "3", "4", "5")
_REPEATABLE, _REDIRECTS = ("GET", "HEAD", "PUT"), (301, 302, 303, 307, 308)
_CONTINUE, _SWITCHING, _OK, _CREATED, _ACCEPTED, _EMPTY, _PART, _FIRST_ERROR = 100, 101, 200, 201, 202, 204, 206, 300
_UNAUTHORIZED, _FORBIDDEN, _MISSING, _LATE, _THROTTLED, _SERVER_ERROR = 401, 403, 404, 408, 429, 500
_CODES = re.compile(
    rb'"code"\s*+:\s*+"(BLOB_UNKNOWN|BLOB_UPLOAD_(?:INVALID|UNKNOWN)|DENIED|DIGEST_INVALID|MANIFEST_(?:BLOB_)?UNKNOWN|'
    rb'MANIFEST_INVALID|NAME_(?:INVALID|UNKNOWN)|SIZE_INVALID|TOOMANYREQUESTS|UNAUTHORIZED|UNSUPPORTED)"'
)
"""The error codes of OCI distribution 1.1. Other text of an answer may repeat parts of a login: it is not shown."""
_Result = TypeVar("_Result")
_answer = local()  # to this thread's request to a repository: other users of the library, such as the engine, stream


class _FinalResponse(HTTPResponse):
    """Reads within ANSWER_S, and over interim answers (103 Early Hints: RFC 9110, section 15.2), not over 100 only."""

    def __init__(self, connection: Any, *rest: Any, **more: Any) -> None:  # noqa: ANN401 - the library's
        super().__init__(connection, *rest, **more)
        raw, ends = self.fp.raw, time.monotonic() + ANSWER_S
        read = raw.readinto

        def readinto(buffer: memoryview) -> int | None:
            if (left := ends - time.monotonic()) <= 0:
                raise TimeoutError(f"it took more than {ANSWER_S:g} s")
            connection.settimeout(min(SILENCE_S, left))
            return read(buffer)

        if getattr(_answer, "is_limited", False):
            raw.readinto = readinto  # type: ignore[method-assign]

    def _read_status(self) -> tuple[str, int, str]:
        version, status, reason = super()._read_status()  # type: ignore[misc]
        return version, _CONTINUE if _SWITCHING < status < _OK else status, reason


HTTPConnection.response_class = _FinalResponse


class Response(NamedTuple):
    status: int
    headers: Mapping[str, str]  # names in any case
    content: bytes
    address: str  # where it came from, after redirects


class _TagList(msgspec.Struct, frozen=True):
    tags: tuple[str, ...] | None


class Repository:
    """One repository. Its logins go to its host and to the token service that it names, nowhere else.

    Methods raise RegistryRefusedError if the registry refuses, RegistryFailedError if it fails.
    """

    def __init__(self, reference: Reference, environment: Mapping[str, str] | None = None) -> None:
        self.reference, self._environment = reference, os.environ if environment is None else environment
        self._authorities = authorities(self._environment)
        self._adapter = HTTPAdapter(pool_maxsize=WORKERS)
        if not reference.loopback:
            proxies_for(f"https://{reference.host}/")
        self._authorization, self._base, self._excuse = dict[str, str](), "", ""  # the first: headers by scope
        self._asked = "none"  # the newest request

    def within(self, seconds: float | None, work: Callable[[], _Result], hint: str = "") -> _Result:
        """Wait so long for work with this repository. Raises RegistryFailedError that names its newest request."""

        def late() -> RegistryFailedError:
            text = f"the registry took more than {round(seconds or 0, 1):g} s; its last request was {self._asked}"
            return RegistryFailedError(Reason.TOO_SLOW, text, hint=hint)

        return within(seconds, work, late)

    def manifest(self, target: str, *, limit: int = MAX_DOCUMENT) -> Manifest | None:
        """Fetch a manifest by tag or digest; None if it is not there."""
        accept = {"Accept": ", ".join(MEDIA_TYPES)}
        response = self.send("GET", f"manifests/{target}", expect=(_OK, _MISSING), headers=accept, limit=limit)
        if response.status == _MISSING:
            return None
        computed = digest_of(response.content)
        for stated in (response.headers.get("Docker-Content-Digest"), target if target.startswith("sha256:") else None):
            _agree(computed, stated, f"manifest {target}")
        kind = response.headers.get("Content-Type", "").split(";")[0].strip().lower()
        return Manifest(kind, response.content, computed)

    def put_manifest(self, target: str, content: bytes, media_type: str) -> bool:
        """Store a manifest under a tag or its digest; True if the registry supports referrers."""
        path, headers, expect = f"manifests/{target}", {"Content-Type": media_type}, (_CREATED, _ACCEPTED, _OK)
        response = self.send("PUT", path, expect=expect, headers=headers, body=content, scope="pull,push")
        _agree(digest_of(content), response.headers.get("Docker-Content-Digest"), f"manifest {target}")
        return "OCI-Subject" in response.headers

    def blob(self, digest: str) -> bytes:
        """Fetch a small blob. Raises RegistryRefusedError if it is absent, too large or does not have its digest."""
        response = self.send("GET", f"blobs/{digest}", expect=(_OK,))
        _agree(digest_of(response.content), digest, "blob")
        return response.content

    def lacking(self, manifest: Manifest) -> str:
        """Return a blob of an image or attached document that the registry lacks; '' if it has all of them."""
        shape = shape_of(manifest)
        blobs = dict.fromkeys(one.digest for one in (shape.config, *(shape.layers or ())) if one and not one.urls)
        return next((digest for digest in blobs if not self._has_blob(digest)), "")

    def _has_blob(self, digest: str) -> bool:
        return self.send("HEAD", f"blobs/{digest}", expect=(_OK, _MISSING)).status == _OK

    def put_blob(self, content: bytes, media_type: str) -> Descriptor:
        self.upload(digest_of(content), content)
        return Descriptor(media_type=media_type, digest=digest_of(content), size=len(content))

    def upload(self, digest: str, body: bytes | BinaryIO) -> None:
        """Store a blob, unless it is there: a small one, or a file of any size. The registry checks its digest."""
        if self._has_blob(digest):
            return
        begun = self.send("POST", "blobs/uploads/", expect=(_ACCEPTED,), scope="pull,push")
        if not (location := begun.headers.get("Location", "").partition("#")[0]):
            raise self._broken(Reason.BAD_ANSWER, "names no address for an upload")
        headers = {"Content-Type": "application/octet-stream"}
        address = f"{location}{'&' if '?' in location else '?'}{urlencode({'digest': digest})}"
        put = partial(self.send, "PUT", address, expect=(_CREATED,), headers=headers, body=body, scope="pull,push")
        self.within(UPLOAD_S, put)

    def tags(self) -> tuple[str, ...]:
        """List every tag. Raises RegistryRefusedError if the repository does not exist, and for too many."""
        names: list[str] = []
        for response in self.pages("tags/list?n=1000", expect=(_OK, _EMPTY, _PART)):
            content = response.content if response.status == _OK else b""
            names += parsed(content, _TagList, f"a list of tags of {self.reference.name}", ()).tags or ()
            if len(names) > MAX_TAGS:
                raise RegistryRefusedError(Reason.TOO_MANY, f"more than {MAX_TAGS} tags", hint="delete unused tags")
        return tuple(sorted(names))

    def pages(self, path: str, *, expect: tuple[int, ...]) -> Iterator[Response]:
        """Fetch every page of a list; refusals of a later one too. Raises RegistryRefusedError for a bad link."""
        seen: set[str] = set()
        while len(seen) < MAX_PAGES:
            yield (answer := self.send("GET", path, expect=expect, limit=MAX_LIST))
            seen, expect = {*seen, answer.address}, tuple(range(_OK, _SERVER_ERROR))
            if not (path := _next_page(answer, seen)):
                return
        raise RegistryRefusedError(Reason.TOO_MANY, f"more than {MAX_PAGES} pages", hint="ask the registry's operator")

    def send(
        self,
        method: str,
        path: str,
        *,
        expect: tuple[int, ...],
        headers: Mapping[str, str] | None = None,
        body: bytes | BinaryIO | None = None,
        scope: str = "pull",
        limit: int = MAX_DOCUMENT,
    ) -> Response:
        """Send a request below the repository, or to a full address; ``limit`` is that of the answer (bytes)."""
        if isinstance(body, bytes) and len(body) > MAX_DOCUMENT:
            raise RegistryRefusedError(Reason.TOO_LARGE, f"a document of {len(body)} bytes: readers refuse it")
        base = self._base = self._base or self._find_base()
        address = _resolved(f"{base}/v2/{self.reference.repository}/", path)
        if not self._is_safe(address):
            raise self._broken(Reason.BAD_ANSWER, f"names {_shown(path)!r}, which is not an address with TLS")
        for last in (False, True):
            known = self._authorization.get(scope, "") if _site(address) == _site(base) else ""
            sent = {**(headers or {}), **({"Authorization": known} if known else {})}
            answer = self._fetch(requests.Request(method, address, sent, data=body), limit)
            if last or answer.status != _UNAUTHORIZED or _site(answer.address) != _site(base):
                break
            header = self._authorized(answer.headers.get("WWW-Authenticate", ""), scope)
            if header in ("", known):
                break
            self._authorization[scope] = header
        if answer.status not in expect:
            raise self._refused(method, path, answer)
        return answer

    def _find_base(self) -> str:
        """Choose the scheme: TLS, except that a registry on this machine may speak plain HTTP, as for Docker."""
        base = f"https://{self.reference.host}"
        try:
            with suppress(RegistryRefusedError):
                if self.reference.loopback:
                    self._fetch(requests.Request("HEAD", f"{base}/v2/"), attempts=1)
        except RegistryFailedError as error:
            return base if error.fault is Reason.BAD_CERTIFICATE else f"http://{self.reference.host}"
        return base

    def _fetch(self, request: requests.Request, limit: int = MAX_DOCUMENT, attempts: int = ATTEMPTS) -> Response:
        """Send, and follow redirects within limits. Credentials stay with the host that they are for."""
        for _ in range(MAX_REDIRECTS + 1):
            answer = self._repeated(request, limit, attempts)
            location = answer.headers.get("Location")
            if answer.status not in _REDIRECTS or location is None:
                return answer
            following, text = _resolved(answer.address, location), f"redirects to {_shown(location)!r}"
            is_open = answer.address.startswith("https:") and not following.startswith("https:")
            if is_open or not self._is_safe(following):
                raise self._broken(Reason.BAD_REDIRECT, f"{text}, which is not an address with TLS")
            if _site(following) != _site(answer.address):
                if request.method == "POST" and request.data:
                    raise self._broken(Reason.BAD_REDIRECT, f"{text}, another host, which does not get the login")
                request.headers.pop("Authorization", None)
            request.url, request.params = following, {}
        raise self._broken(Reason.BAD_REDIRECT, f"redirects {_shown(answer.address)!r} again and again")

    def _repeated(self, request: requests.Request, limit: int, attempts: int) -> Response:
        """Send again while the registry is busy or gives no answer; not a file, of which it may have stored a part."""
        is_repeatable = request.method in _REPEATABLE and not hasattr(request.data, "seek")
        left, pause = attempts if is_repeatable else 1, PAUSE_S
        while True:
            left -= 1
            try:
                answer = self._once(request, limit)
                if not left or answer.status not in _BUSY_STATUS or _asked_pause(answer) not in _SHORT_PAUSES:
                    return answer
            except RegistryFailedError as error:
                if not left or error.fault is not Reason.UNREACHABLE:
                    raise
            time.sleep(pause)
            pause *= 2

    def _once(self, request: requests.Request, limit: int) -> Response:
        # Compressed answers are neither requested nor decompressed: a small answer must not become a large one here.
        request.headers |= {"Accept-Encoding": "identity", "User-Agent": "envbuilder"}
        address = str(request.url)
        proxies = {} if self.reference.loopback else proxies_for(address)
        proxy = select_proxy(address, proxies)
        through = f" through the proxy {proxy.rpartition('@')[2]}" if proxy else ""  # without its login
        self._asked = f"{request.method} {_shown(address)}{through}"
        if hasattr(request.data, "seek"):
            request.data.seek(0)
        _answer.is_limited = True
        try:
            answer = self._adapter.send(
                request.prepare(),
                stream=True,
                timeout=(CONNECT_S, SILENCE_S),
                verify=self._authorities or True,
                proxies=proxies,
            )
            with answer:  # closed on an error: the unread rest would be taken for the next answer
                content = b"" if request.method == "HEAD" else self._read(answer, limit)
                answer.raw.release_conn()
        except ValueError as error:  # an address that the registry named, or a header made of its answer: not shown
            raise self._broken(Reason.BAD_ANSWER, "breaks the protocol: an address or header is not one") from error
        except (HTTPError, OSError) as error:
            raise self._failed(error, address, through) from error
        finally:
            _answer.is_limited = False
        return Response(answer.status_code, answer.headers, content, address)

    def _read(self, answer: requests.Response, limit: int) -> bytes:
        """Read the content within limits; that of a failure only has codes, so that its status decides."""
        is_failure = answer.status_code >= _FIRST_ERROR
        if not is_failure and answer.headers.get("Content-Encoding", "").strip().lower() not in ("", "identity"):
            raise self._broken(Reason.BAD_ANSWER, "answers in an encoding that was not requested")
        content, announced = bytearray(), answer.raw.length_remaining or 0
        while max(announced, len(content)) <= limit:
            if not (piece := answer.raw.read(limit + 1 - len(content))):
                return bytes(content)
            content += piece
        if not is_failure:
            raise self._broken(Reason.TOO_LARGE, f"sends more than {limit} bytes; no more were expected")
        answer.close()  # the unread rest would be taken for the next answer
        return bytes(content)

    def _authorized(self, challenge: str, scope: str) -> str:
        """Log in as a challenge asks for and return the header of further requests; '' if that is impossible."""
        login, (kind, wanted) = find_login(self.reference.host, self._environment), known_scheme(challenge)
        if login and login.excuse:  # the image may be public: the helper's failure matters only after a refusal
            self._excuse, login = login.excuse, None
        if kind == "bearer":
            return f"Bearer {self._token(wanted, login, scope)}"
        return login.basic if kind == "basic" and login and login.user else ""

    def _token(self, challenge: Mapping[str, str], login: Login | None, scope: str) -> str:
        realm = challenge.get("realm") or ""
        if not self._is_safe(realm):
            raise self._broken(Reason.BAD_ANSWER, f"wants the login sent to {_shown(realm)!r}, which is not TLS")
        wanted = challenge.get("scope") or f"repository:{self.reference.repository}:{scope}"
        query = {"service": challenge.get("service") or "", "scope": wanted}
        if login and login.identity_token:
            query |= {"grant_type": "refresh_token", "refresh_token": login.identity_token, "client_id": "envbuilder"}
            request = requests.Request("POST", realm, data=query)
        else:
            request = requests.Request("GET", realm, {"Authorization": login.basic} if login else {}, params=query)
        answer = self._fetch(request)
        if not _OK <= answer.status < _FIRST_ERROR:
            raise self._refused("login at", realm, answer)
        with suppress(MalformedError):
            found: dict[str, Any] = parsed(answer.content, dict[str, Any], "a token")
            token = found.get("token") or found.get("access_token")
            if isinstance(token, str) and re.fullmatch("[!-~]+", token):  # what a header may hold
                hide(token)
                return token
        text = f"{self.reference.host} names {_shown(realm)} for a login, which gives no token"
        raise RegistryRefusedError(Reason.BAD_ANSWER, text, hint=self._at(answer.address)[1])

    def _is_safe(self, address: str) -> bool:
        """Return True for an address with TLS, or on this machine if the registry is here too."""
        local = self.reference.loopback and address.startswith("http://") and is_loopback(address)
        return is_address(address) and (address.startswith("https://") or local)

    def _broken(self, reason: Reason, text: str) -> RegistryRefusedError:
        return RegistryRefusedError(reason, f"{self.reference.host} {text}")

    def _at(self, address: str) -> tuple[str, str]:
        """Return the host of an address, without a login, and the next step if the registry only led to it."""
        host = urlsplit(address).netloc.rpartition("@")[2]
        step = f"{self.reference.host} leads to {host}: curl -I {urlsplit(address).scheme}://{host}"
        return host, "" if host == self.reference.host else step

    def _failed(self, error: Exception, address: str, through: str) -> RegistryFailedError:
        """Say why there is no answer, without any text of one: it may repeat a login."""
        cause, fault = first_cause(error), Reason.UNREACHABLE
        why = "cut, or not HTTP" if isinstance(cause, HTTPException) else first_message(error)
        if isinstance(error, requests.exceptions.SSLError):
            fault = Reason.BAD_CERTIFICATE if isinstance(cause, SSLCertVerificationError) else Reason.TLS_FAILED
        elif isinstance(error, (requests.exceptions.Timeout, ReadTimeoutError)):
            fault = Reason.TOO_SLOW
        host, step = self._at(address)
        if through:
            why = re.sub("(?s)(?<=failed: [0-9]{3}).*", "", why)
            if fault in (Reason.UNREACHABLE, Reason.TOO_SLOW):
                step = f"check HTTPS_PROXY and ALL_PROXY, or set NO_PROXY={host}: curl -I https://{host}/v2/"
        return RegistryFailedError(fault, f"{host} gave no complete answer{through}: {why}", hint=step)

    def _refused(self, method: str, path: str, answer: Response) -> Exception:
        (host, step), pause = self._at(answer.address), _asked_pause(answer)
        says = "".join(f", {one.decode()}" for one in dict.fromkeys(_CODES.findall(answer.content)))
        text = f"{host if step else self.reference.name} answered {answer.status}{says} to {method} {_shown(path)}"
        if answer.status >= _SERVER_ERROR or answer.status in (_LATE, _THROTTLED):
            is_limit = answer.status == _THROTTLED or pause not in _SHORT_PAUSES
            fault = Reason.THROTTLED if is_limit else Reason.TOO_SLOW if answer.status == _LATE else Reason.SERVER_ERROR
            text += f" (Retry-After: {pause[:9]})" * pause.isdigit()
            return RegistryFailedError(fault, text, hint=step)
        if answer.status in (_UNAUTHORIZED, _FORBIDDEN):
            text += f"; no login was sent: {self._excuse}" if self._excuse else ""
            return RegistryRefusedError(Reason.ACCESS_DENIED, text, hint=step)
        is_gone = answer.status == _MISSING and method == "GET"
        return RegistryRefusedError(Reason.NOT_THERE if is_gone else Reason.REJECTED, text, hint=step)


def _asked_pause(answer: Response) -> str:
    return answer.headers.get("Retry-After", "").strip()


def _agree(computed: str, stated: str | None, what: str) -> None:
    if stated is not None and stated != computed:
        raise RegistryRefusedError(Reason.ALTERED, f"{what}: the registry says {stated}, the bytes have {computed}")


def _next_page(answer: Response, seen: Container[str]) -> str:
    """Return the address of the next page; '' for the last one. Text that is not understood may be one: it refuses."""
    links = next_links(answer.headers.get("Link", ""))
    following = [_resolved(answer.address, link) for link in links or ()]
    usable = all(one not in seen and _site(one) == _site(answer.address) for one in following)
    if links is None or len(following) > 1 or not usable:
        raise RegistryRefusedError(Reason.BAD_LINK, f"no clear next page of this host after {_shown(answer.address)}")
    return "".join(following)


def _resolved(base: str, location: str) -> str:
    """Resolve an address that a registry names; '' if it is not one of a host."""
    with suppress(ValueError):
        return address if is_address(address := urljoin(base, location)) else ""
    return ""


def _shown(address: str) -> str:
    """Return an address for a message: its query may be a signature that lets everybody in."""
    return re.split("[?#]", address, maxsplit=1)[0][:200]


def _site(address: str) -> tuple[str, str]:
    return urlsplit(address)[:2]
