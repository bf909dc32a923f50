"""A reference to an image in a registry: host, repository, and a tag or a digest."""

import ipaddress
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from envbuilder.errors import UsageError

_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::([0-9]{1,5}))?\Z")
_ADDRESS = re.compile(
    r"https?://(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::([0-9]{1,5}))?(?:[/?][!-\[\]-~]*)?\Z"
)
_LAST_PORT, _LONGEST = 65_535, 255  # the second: characters of a host and its repository
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*\Z")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")


@dataclass(frozen=True)
class Reference:
    """Where an image is; ``tag`` and ``digest`` are '' if they are not given."""

    host: str
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def name(self) -> str:
        return f"{self.host}/{self.repository}"

    @property
    def loopback(self) -> bool:
        return is_loopback(f"//{self.host}")

    def at(self, target: str) -> "Reference":
        """Return the same repository at a tag or a digest. Raises UsageError for other text."""
        if DIGEST.match(target):
            return replace(self, tag="", digest=target)
        if not _TAG.match(target):
            raise UsageError(f"{target!r} is not a tag", hint="letters, digits, '_', '.' and '-', at most 128")
        return replace(self, tag=target, digest="")

    def __str__(self) -> str:
        return f"{self.name}@{self.digest}" if self.digest else f"{self.name}:{self.tag}" if self.tag else self.name


def is_address(text: str) -> bool:
    """Return True for an address whose host every reader reads alike: without a login, a backslash or a blank."""
    return (found := _ADDRESS.match(text)) is not None and 0 < int(found[1] or 1) <= _LAST_PORT


def is_loopback(address: str) -> bool:
    with suppress(ValueError):
        host = urlsplit(address).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    return False


def parse(text: str) -> Reference:
    """Read ``host/repository[:tag][@sha256:…]``. Raises UsageError; a host is never assumed."""
    rest, _, digest = text.partition("@")
    host, slash, path = rest.partition("/")
    repository, _, tag = path.partition(":")
    shown = re.sub("(?s)[?#].*", "?…", re.sub("(?s).*@(?!sha256:)", "****@", text))  # as logins in an address
    found = _HOST.match(host) if "." in host or ":" in host or host == "localhost" else None
    if not slash or found is None or not 0 < int(found[1] or 1) <= _LAST_PORT or {"?", "#"} & {*text}:
        hint = "as in registry.example.org/team/image:tag, without https:// and a query; ports end at 65535"
        raise UsageError(f"{shown!r} names no registry", hint=hint)
    if not _REPOSITORY.match(repository) or len(f"{host}/{repository}") > _LONGEST:
        raise UsageError(f"{repository!r} is not a repository's name", hint="as team/image; at most 255 letters")
    if ("@" in text and not DIGEST.match(digest)) or (":" in path and not _TAG.match(tag)):
        raise UsageError(f"{shown!r} has no valid tag or digest", hint="as in image:tag or image@sha256:…")
    return Reference(host, repository, tag, digest)
