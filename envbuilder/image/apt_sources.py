"""Where apt finds packages by the user's configuration: mirrors of Debian, and further repositories with keys."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from envbuilder.errors import UsageError
from envbuilder.image.user_config import config_file, section
from envbuilder.workspace import read_users

_HINT = 'write [apt], and below it debian = "https://mirror.example.org/debian"; see docs/how-to/custom-bases.md'
_URL = re.compile(
    r"https?://[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?(?:/[A-Za-z0-9][A-Za-z0-9._~+-]*)*/?\Z"
)
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}\Z")
_WORDS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*(?: [A-Za-z0-9][A-Za-z0-9._-]*)*\Z")
_FIELDS = frozenset({"url", "key", "suite"})
_MIRRORS = frozenset({"debian", "debian-security", "repositories"})
_ARMOUR = b"-----BEGIN PGP PUBLIC KEY BLOCK-----"
_LARGEST_KEY = 1 << 20


@dataclass(frozen=True)
class Repository:
    """One signed repository; ``suite`` is what stands behind its address in apt's own lists (``/`` for a flat one)."""

    name: str
    url: str
    suite: str
    key: bytes

    @property
    def key_file(self) -> str:
        """Name the file of its key: apt tells the two forms of one by how the name ends."""
        return f"{self.name}.{'asc' if self.key.lstrip().startswith(_ARMOUR) else 'gpg'}"

    def line(self, folder: str) -> str:
        return f"deb [arch=amd64 signed-by={folder}/{self.key_file}] {self.url} {self.suite}\n"


def debian_lines(suite: str, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return apt's lines for a suite by the mirrors that the user configured; none where there are none.

    Raises UsageError for what is no address.
    """
    table = _table(environ)
    main, security = (_address(table[name], name) if name in table else "" for name in ("debian", "debian-security"))
    if not main:
        return ()
    lines = (f"deb {main} {suite} main", f"deb {main} {suite}-updates main")
    return (*lines, f"deb {security} {suite}-security main") if security else lines


def repository(name: str, environ: Mapping[str, str] = os.environ) -> Repository:
    """Return a repository by its name. Raises UsageError where none of that name is configured, or that is none."""
    table = _table(environ).get("repositories", {})
    found = table.get(name) if isinstance(table, dict) else None
    where = f"{config_file(environ)}: apt.repositories.{name}"
    if found is None:
        raise UsageError(f"{where} is not there: the packages come from it", hint=_of_repository(name))
    if (
        not isinstance(found, dict)
        or not _NAME.match(name)
        or found.keys() - _FIELDS
        or not {"url", "key"} <= found.keys()
    ):
        raise UsageError(f"{where} needs url and key, and may have suite", hint=_of_repository(name))
    suite = found.get("suite", "/")
    if suite != "/" and not (isinstance(suite, str) and _WORDS.match(suite)):
        raise UsageError(f"{where}: {suite!r} is no suite with its components", hint=_of_repository(name))
    return Repository(name, _address(found["url"], f"repositories.{name}.url"), suite, _key(found["key"], where))


def _table(environ: Mapping[str, str]) -> Mapping[str, object]:
    table = section("apt", _HINT, environ)
    if strange := sorted(table.keys() - _MIRRORS):
        raise UsageError(f"{config_file(environ)}: apt has no {strange[0]!r}", hint=_HINT)
    return table


def _address(value: object, name: str) -> str:
    if not isinstance(value, str) or not _URL.match(value):
        text = f"apt.{name}: {value!r} is no address of a repository"
        raise UsageError(text, hint="http or https, without credentials, as in https://mirror.example.org/debian")
    return value.rstrip("/")


def _key(value: object, where: str) -> bytes:
    if not isinstance(value, str) or not Path(value).is_absolute():
        raise UsageError(
            f"{where}: {value!r} is no absolute path of a key", hint="the file that signed-by names for apt"
        )
    content = read_users(Path(value))
    if not content or len(content) > _LARGEST_KEY or not (content.lstrip().startswith(_ARMOUR) or content[0] & 0x80):
        raise UsageError(f"{value} is no public key of OpenPGP", hint="gpg --export KEY > FILE writes one")
    return content


def _of_repository(name: str) -> str:
    return f'[apt.repositories.{name}] with url = "https://packages.example.org/…" and key = "/etc/apt/keyrings/….gpg"'
