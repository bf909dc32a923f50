"""Read a lock: its pinned packages, and parts of it."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from envbuilder import workspace
from envbuilder.versions import distribution

LOCK = "requirements.lock"
"""The lock's name in a build context."""

_ADDED = "# added by the matrix: "
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PACKAGE = re.compile(rf"^(?P<name>{_NAME.pattern})==(?P<version>[^\s;\\]+)")
_HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")


@dataclass(frozen=True)
class Locked:
    """One package of a lock: normalised name, exact version, sha256 of every file that may be installed."""

    name: str
    version: str
    hashes: tuple[str, ...]
    text: str


def of_context(context: Path) -> str | None:
    """Read the lock of a build context; None if there is none. Raises UsageError, or InputError if it is not text."""
    path = context / LOCK
    return workspace.users_text(path) if path.is_file() else None


@lru_cache(maxsize=16)
def parse(text: str) -> tuple[Locked, ...]:
    """List a lock's packages in its order. Raises ValueError for a line that pins nothing.

    The last ones are stored, because each part of an image reads the same lock.
    """
    packages: list[Locked] = []
    for block in re.split(r"(?<!\\)\n(?=\S)", text.strip()):
        if not block or block.startswith("#"):
            continue
        found = _PACKAGE.match(block)
        if found is None:
            raise ValueError(f"not a pinned package: {block.splitlines()[0]!r}")
        hashes = tuple(_HASH.findall(block))
        packages.append(Locked(distribution(found["name"]), found["version"], hashes, block.strip()))
    return tuple(packages)


def names(requirements: Iterable[str]) -> tuple[str, ...]:
    """Return the normalised names of requirements (``numpy>=2,<3``), in their order."""
    return tuple(distribution(found[0]) for text in requirements if (found := _NAME.match(text)))


def subset(text: str, names: Container[str]) -> str:
    """Return the packages of these names as a lock of its own, sorted by name."""
    chosen = sorted((package for package in parse(text) if package.name in names), key=lambda package: package.name)
    return "".join(f"{package.text}\n" for package in chosen)


def without(text: str, names: Container[str]) -> str:
    """Return a lock without the packages of these names."""
    gone = {package.text for package in parse(text) if package.name in names}
    return "".join(line for line in text.splitlines(keepends=True) if line.strip() not in gone)


def with_added(text: str, names: Iterable[str]) -> str:
    """Note in a lock which packages only the matrix's additions require."""
    return f"{_ADDED}{' '.join(sorted(names))}\n{text}"


def added(text: str) -> frozenset[str]:
    """Return the packages of `with_added`; none without such a note."""
    line = next((line for line in text.splitlines() if line.startswith(_ADDED)), _ADDED)
    return frozenset(line.removeprefix(_ADDED).split())


def digest(text: str) -> str:
    return workspace.digest(text.encode())
