"""Find the packages of an image by the files of its package managers, without running or unpacking the image."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from packaging.requirements import InvalidRequirement, Requirement

from envbuilder.support import decoding, dpkg_status
from envbuilder.versions import distribution

_METADATA = re.compile(r"(?:\.dist-info/METADATA|\.egg-info/PKG-INFO|\.egg-info)\Z")
_PYTHON = re.compile(r"/python(\d+\.\d+)/")
_MOST_LICENCES = 40


class Files(Protocol):
    """An image's files as a container would see them."""

    def kept(self) -> Iterable[tuple[str, bytes]]:
        """Yield path (without leading slash) and content of the files of package managers."""

    def content(self, path: str) -> bytes | None:
        """Return the content of a file, following links; None if it is not there."""


@dataclass(frozen=True, order=True)
class ImagePackage:
    """One installed package; ``licences`` from its own files, ``spdx`` if that is one SPDX expression.

    ``source`` is its Debian source package (``name`` or ``name version``) if that has another name or version:
    vulnerabilities are listed by it. ``requires`` has for each requirement the names that meet it.
    """

    kind: Literal["deb", "pypi"]
    name: str
    version: str
    arch: str = ""
    licences: tuple[str, ...] = ()
    spdx: bool = False
    source: str = ""
    requires: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class ImagePackages:
    """The packages, sorted, and the distribution (``debian``, ``bookworm``, ``12``)."""

    packages: tuple[ImagePackage, ...]
    distribution: str = ""
    release: str = ""
    version: str = ""


def read(files: Files) -> ImagePackages:
    """Read the lists of Debian's and Python's package managers."""
    found: set[ImagePackage] = set()
    for path, content in files.kept():
        text = decoding.lossy(content)
        if dpkg_status.STATUS.fullmatch(path):
            found |= set(_debian(text, files))
        elif _METADATA.search(path):
            found |= set(_python(text, path))
    release_file = _os_release(
        decoding.lossy(files.content("etc/os-release") or files.content("usr/lib/os-release") or b"")
    )
    release = release_file.get("VERSION_CODENAME") or release_file.get("VERSION_ID", "")
    return ImagePackages(tuple(sorted(found)), release_file.get("ID", ""), release, release_file.get("VERSION_ID", ""))


def _debian(text: str, files: Files) -> Iterator[ImagePackage]:
    for fields in dpkg_status.installed(text):
        name = fields["Package"]
        copyright_ = files.content(f"usr/share/doc/{name}/copyright") or b""
        yield ImagePackage(
            "deb",
            name,
            fields.get("Version", ""),
            fields.get("Architecture", ""),
            _debian_licences(decoding.lossy(copyright_)),
            source=fields.get("Source", "").replace("(", "").replace(")", ""),
            requires=_debian_requires(fields.get("Pre-Depends", ""), fields.get("Depends", "")),
        )


def _debian_licences(text: str) -> tuple[str, ...]:
    """Return the licences of a machine-readable copyright file (DEP 5), by Debian's short names."""
    if not text.startswith("Format:"):
        return ()
    named = re.findall(r"^License:[ \t]*(\S.*)$", text, re.MULTILINE)
    return tuple(dict.fromkeys(name.strip()[:120] for name in named))[:_MOST_LICENCES]


def _debian_requires(*fields: str) -> tuple[tuple[str, ...], ...]:
    clauses = (clause for field in fields for clause in field.split(",") if clause.strip())
    return tuple(tuple(re.split(r"[\s(:]", one.strip(), maxsplit=1)[0] for one in c.split("|")) for c in clauses)


def _python(text: str, path: str) -> Iterator[ImagePackage]:
    header = text.partition("\n\n")[0]
    fields = dpkg_status.fields(header)
    if "Name" not in fields or "Version" not in fields:
        return
    expression = fields.get("License-Expression", "")
    stated = expression or fields.get("License", "") or "; ".join(_classified(header))
    licences = (stated[:120],) if stated else ()
    requires = tuple(_python_requires(header, path))
    yield ImagePackage(
        "pypi", distribution(fields["Name"]), fields["Version"], "", licences, bool(expression), "", requires
    )


def _classified(header: str) -> Iterator[str]:
    """Yield the last parts of the licence classifiers."""
    for line in header.splitlines():
        if line.startswith("Classifier: License ::"):
            yield line.rpartition("::")[2].strip()


def _python_requires(header: str, path: str) -> Iterator[tuple[str, ...]]:
    """Yield the requirements of a distribution on this Python and system, without extras."""
    python = _PYTHON.search(path)
    here = {"extra": "", "sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
    here |= {"python_version": python[1], "python_full_version": f"{python[1]}.0"} if python else {}
    for line in header.splitlines():
        if line.startswith("Requires-Dist:"):
            try:
                wanted = Requirement(line.removeprefix("Requires-Dist:").strip())
            except InvalidRequirement:
                continue
            if wanted.marker is None or wanted.marker.evaluate(here):
                yield (distribution(wanted.name),)


def _os_release(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key: value.strip().strip('"') for key, _, value in pairs}
