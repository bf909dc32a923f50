"""Read dpkg's own list of what is installed: the one place where a Debian system says which packages it has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

PATH = "var/lib/dpkg/status"
"""Where the list is."""

STATUS = re.compile(re.escape(PATH) + r"(?:\.d/[^/]+)?\Z")
"""The same, and where an image without a package manager of its own has one file a package."""

_WHOLE = ("installed", "triggers-awaited", "triggers-pending")
"""The states of dpkg(1) in which a package is there and set up: a trigger that is still due takes nothing away."""

_OWN = frozenset({"", "all", "amd64"})


def installed(text: str) -> Iterator[Mapping[str, str]]:
    """Yield the fields of every package that is installed whole; of a field that comes twice, the first counts."""
    for paragraph in re.split(r"\n\s*\n", text):
        told = fields(paragraph)
        if told.get("Status", "installed").rpartition(" ")[2] in _WHOLE and "Package" in told:
            yield told


def versions(text: str) -> dict[str, str]:
    """Return the version of every installed package; one of another machine is called ``name:machine``."""
    return {_named(told): told.get("Version", "") for told in installed(text)}


def _named(told: Mapping[str, str]) -> str:
    machine = told.get("Architecture", "")
    return told["Package"] if machine in _OWN else f"{told['Package']}:{machine}"


def fields(paragraph: str) -> dict[str, str]:
    """Read lines of the form ``Key: value``, as Debian's and Python's package managers write them; the first counts."""
    found: dict[str, str] = {}
    for line in paragraph.splitlines():
        key, colon, value = line.partition(":")
        if colon and key and not key[0].isspace():
            found.setdefault(key, value.strip())
    return found
