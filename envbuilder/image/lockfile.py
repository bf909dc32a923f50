"""Read a lock: that of a build context, the pinned packages in it, and the part of it that is the CUDA set."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from envbuilder.versions import distribution
from envbuilder.workspace import users_text

LOCK = "requirements.lock"
"""The lock's name in a build context."""

_PACKAGE = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;\\]+)\s*(?:;\s*(?P<marker>[^\\]*))?")
_HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")


@dataclass(frozen=True)
class Locked:
    """One package of a lock: normalised name, exact version, sha256 of every file that may be installed."""

    name: str
    version: str
    hashes: tuple[str, ...]
    text: str


def of_context(context: Path) -> str | None:
    """Read the lock of a build context; None where there is none.

    Raises UsageError where it cannot be read, InputError where it is no text.
    """
    path = context / LOCK
    return users_text(path) if path.is_file() else None


@lru_cache(maxsize=16)
def parse(text: str) -> tuple[Locked, ...]:
    """List a lock's packages in its order. Raises ValueError for a line that pins nothing.

    The last ones are remembered: each part of an image asks for its own of the same lock.
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


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def names(requirements: Iterable[str]) -> tuple[str, ...]:
    """Name the distributions of requirements (``numpy>=2,<3``), normalised, in their order."""
    return tuple(distribution(found[0]) for text in requirements if (found := _NAME.match(text)))


def subset(text: str, names: Container[str]) -> str:
    """Return the part of a lock that pins the named packages, sorted by name, as a lock of its own."""
    chosen = sorted((package for package in parse(text) if package.name in names), key=lambda package: package.name)
    return "".join(f"{package.text}\n" for package in chosen)


def without(text: str, names: Container[str]) -> str:
    """Return a lock without some packages."""
    gone = [package.text for package in parse(text) if package.name in names]
    return "".join(line for line in text.splitlines(keepends=True) if line.strip() not in gone) if gone else text


_ADDED = "# added by the matrix: "


def with_added(text: str, names: Iterable[str]) -> str:
    """Note in a lock which packages are there for what the matrix adds, and not for TensorFlow."""
    return f"{_ADDED}{' '.join(sorted(names))}\n{text}"


def added(text: str) -> frozenset[str]:
    """Return the packages that `with_added` noted; none if it noted none."""
    line = next((line for line in text.splitlines() if line.startswith(_ADDED)), _ADDED)
    return frozenset(line.removeprefix(_ADDED).split())


def digest(text: str) -> str:
    """Return a lock's own digest (``sha256:…``)."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
