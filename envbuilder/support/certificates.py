"""The certificate authorities, the proxy and the log of TLS keys that the environment names."""

import os
import ssl
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from requests.adapters import HTTPAdapter
from requests.utils import get_auth_from_url, get_environ_proxies, prepend_scheme_if_needed, select_proxy
from urllib3.exceptions import HTTPError

from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.support.docker_config import Login

_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def authorities(environment: Mapping[str, str]) -> str | None:
    """Return the bundle, or folder, of certificates. Raises UsageError if it is neither, or for `check_key_log`."""
    check_key_log(environment)
    name = next(filter(environment.get, _VARIABLES), "")
    if name:
        _check(name, Path(environment[name]))
    return environment.get(name)


@cache  # 20 ms for the bundle of a system
def _check(name: str, bundle: Path) -> None:
    """Raise UsageError for what is not a bundle, or a folder, of certificates; a pipe would be waited for."""
    problem, hashed = "not a bundle of certificates", bundle.glob("[0-9a-f]" * 8 + ".[0-9]")  # by `openssl rehash`
    try:
        if not bundle.exists():
            problem = "no such file"
        elif (bundle.is_file() and ssl.create_default_context(cafile=bundle)) or any(hashed):
            return
    except OSError as error:
        problem = problem if isinstance(error, ssl.SSLError) else str(error)
    raise UsageError(f"{name} is {bundle}: {problem}", hint=f"export {name}=BUNDLE.pem, or unset {name}")


def check_key_log(environment: Mapping[str, str]) -> None:
    """Raise UsageError for a SSLKEYLOGFILE that TLS cannot write to; a pipe without a reader would be waited for."""
    path = os.path.expandvars(environment.get("SSLKEYLOGFILE", ""))
    try:
        if path:
            os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o600))
    except OSError as error:
        raise UsageError(f"SSLKEYLOGFILE is {path}: {error.strerror}", hint="unset SSLKEYLOGFILE") from error


def proxies_for(address: str) -> dict[str, str]:
    """Return the proxies for an address, whose login no output has. Raises InfrastructureError for an unusable one."""
    try:
        proxies = get_environ_proxies(address)
        if proxy := select_proxy(address, proxies):
            whole = prepend_scheme_if_needed(proxy, "http")  # type: ignore[no-untyped-call]
            if not (urlsplit(proxy) and urlsplit(whole).hostname):
                raise ValueError  # noqa: TRY301 - as the library does for others
            Login(*get_auth_from_url(whole))
            HTTPAdapter().proxy_manager_for(whole)
    except (ValueError, TypeError, HTTPError) as error:  # TypeError: requests, for a login without a host
        hint = "HTTPS_PROXY=http://HOST:PORT, or NO_PROXY=HOST"
        raise InfrastructureError("the proxy in HTTPS_PROXY or ALL_PROXY cannot be used", hint=hint) from error
    return proxies
