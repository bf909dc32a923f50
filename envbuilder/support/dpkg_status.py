"""Read what a Debian system says about itself: os-release, dpkg's list of packages, their licences."""

import re
from collections.abc import Iterator, Mapping

from envbuilder.support import decoding

PATH = "var/lib/dpkg/status"
STATUS = re.compile(re.escape(PATH) + r"(?:\.d/[^/]+)?\Z")
"""The list, or one file per package in an image without a package manager."""

_COMPLETE = ("installed", "triggers-awaited", "triggers-pending")
"""States of dpkg(1) in which a package is set up: a trigger that is due takes nothing away."""


def installed(text: str) -> Iterator[Mapping[str, str]]:
    """Yield the fields of every package that is installed completely."""
    for paragraph in re.split(r"\n\s*\n", text):
        found = fields(paragraph)
        if found.get("Status", "installed").rpartition(" ")[2] in _COMPLETE and "Package" in found:
            yield found


def versions(text: str) -> dict[str, str]:
    """Return the version of every installed package; one of another machine is called ``name:machine``."""
    return {_name(package): package.get("Version", "") for package in installed(text)}


def _name(package: Mapping[str, str]) -> str:
    machine = package.get("Architecture", "")
    return package["Package"] if machine in {"", "all", "amd64"} else f"{package['Package']}:{machine}"


def fields(paragraph: str) -> dict[str, str]:
    """Read lines ``Key: value`` of Debian's and Python's package managers; of a repeated key, the first counts."""
    found: dict[str, str] = {}
    for line in paragraph.splitlines():
        key, colon, value = line.partition(":")
        if colon and key and not key[0].isspace():
            found.setdefault(key, value.strip())
    return found


_MOST_LICENCES = 40


def licences(text: str) -> tuple[str, ...]:
    """Return the licences of a machine-readable copyright file (DEP 5), by Debian's short names."""
    if not text.startswith("Format:"):
        return ()
    named = re.findall(r"^License:[ \t]*(\S.*)$", text, re.MULTILINE)
    return tuple(dict.fromkeys(name.strip()[:120] for name in named))[:_MOST_LICENCES]


def requires(*relations: str) -> tuple[tuple[str, ...], ...]:
    """Return the names in fields such as Depends: for each requirement those that meet it."""
    clauses = (clause for field in relations for clause in field.split(",") if clause.strip())
    return tuple(tuple(re.split(r"[\s(:]", one.strip(), maxsplit=1)[0] for one in c.split("|")) for c in clauses)


def os_release(data: bytes) -> dict[str, str]:
    pairs = (line.partition("=") for line in decoding.lossy(data).splitlines() if "=" in line)
    return {key: value.strip().strip("\"'") for key, _, value in pairs}
