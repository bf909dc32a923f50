"""The certificate authorities that the environment names."""

import ssl
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from envbuilder.errors import UsageError

_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def authorities(environment: Mapping[str, str]) -> str | None:
    """Return the bundle, or folder, of certificates. Raises UsageError if it is neither."""
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
        problem = problem if isinstance(error, ssl.SSLError) else str(error)  # which may be about SSLKEYLOGFILE
    raise UsageError(f"{name} is {bundle}: {problem}", hint=f"export {name}=BUNDLE.pem, or unset {name}")
