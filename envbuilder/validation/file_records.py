"""The distributions of an image, and the files in their RECORD and in that of their locked wheel."""

from __future__ import annotations

import base64
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from envbuilder.support import decoding, dpkg_status
from envbuilder.validation.image_files import ROW, ImageFiles
from envbuilder.validation.layer_scan import PATHS
from envbuilder.versions import distribution

_INFO = r"\A(?P<site>{})/(?P<folder>[^/]+\.dist-info)/(?P<leaf>[^/]+)\Z"
_UNLISTED = ("RECORD", "RECORD.jws", "RECORD.p7s")
_PROGRAMS = ("[console_scripts]", "[gui_scripts]")

OF_PACKAGE = 3000
"""Bytes of memory for one file of metadata."""

_OF_SYSTEMS = ("usr", "usr/local")
"""Prefixes that a Python shares with the system."""

Rows = Mapping[str, str]
"""Path in the image → digest in RECORD (``sha256=…``), '' if it has none."""


@dataclass(frozen=True)
class InstalledPackage:
    """One installed distribution: its folder, its tags, and its RECORD (None without one)."""

    site: str
    folder: str
    name: str
    version: str
    tags: frozenset[str]
    rows: Rows | None
    editable: bool = False
    scripts: frozenset[str] = field(default_factory=frozenset)

    def vouches_for(self, path: str, *, in_environment: bool = True) -> bool:
        """Return True if its RECORD may list a file: of its folder or (``in_environment``) environment, no library."""
        if path.startswith(f"{self.site}/"):
            return True
        prefix = prefix_of(self.site)
        if not in_environment or site_of(path) or not path.startswith(f"{prefix}/"):
            return False
        return prefix not in _OF_SYSTEMS or not path[len(prefix) + 1 :].startswith("lib")


def site_of(path: str) -> str:
    """Return the innermost folder above a path into which Python installs packages; '' if there is none."""
    folder = path
    while "/" in folder:
        folder = folder.rpartition("/")[0]
        if PATHS["site"].search(folder):
            return folder
    return ""


def prefix_of(site: str) -> str:
    """Return the folder of the Python, or of the environment, to which a folder of packages belongs."""
    return posixpath.normpath(f"/{site}/../../..").lstrip("/")


def python_of(site: str) -> str:
    """Return the Python of a folder of packages: ``3.11``, ``3`` for any, '' if it is unknown."""
    found = re.search(r"/python(3(?:\.\d{1,2})?)/", f"/{site}")
    return found[1] if found else ""


@lru_cache(maxsize=2)
def distributions(files: ImageFiles, at: str = "") -> tuple[InstalledPackage, ...]:
    """Return the distributions in all folders into which Python installs packages, or in the folder ``at``, sorted."""
    pattern = re.compile(_INFO.format(re.escape(at) if at else r".*?(?:site|dist)-packages"))
    found: dict[tuple[str, str], dict[str, bytes]] = {}
    for path in files.paths:
        if ".dist-info/" in path and (match := pattern.match(path)) is not None:
            content = files.content(path)
            rows = (content or b"").count(b"\n") if match["leaf"] == "RECORD" else 0
            content = content if files.budget.spend(OF_PACKAGE + rows * ROW) else None
            kept = found.setdefault((match["site"], match["folder"]), {})
            kept |= {match["leaf"]: content} if content is not None else {}
    return tuple(_distribution(site, folder, kept) for (site, folder), kept in sorted(found.items()))


def _distribution(site: str, folder: str, kept: Mapping[str, bytes]) -> InstalledPackage:
    name, _, version = folder.removesuffix(".dist-info").partition("-")
    fields = dpkg_status.fields(decoding.lossy(kept.get("METADATA", b"")).partition("\n\n")[0])
    name = distribution(fields.get("Name", name))
    scripts = _scripts(decoding.lossy(kept.get("entry_points.txt", b"")))
    if name == "pip":  # its wheel names pip and pip3; pip and uv add the name with Python's version
        scripts |= {f"pip{python_of(site)}"}
    return InstalledPackage(
        site=site,
        folder=folder,
        name=name,
        version=fields.get("Version", version),
        tags=frozenset(re.findall(r"(?m)^Tag:\s*(\S+)", decoding.lossy(kept.get("WHEEL", b"")))),
        rows=dict(parse(kept["RECORD"], site)) if "RECORD" in kept else None,
        editable=re.search(rb'"editable"\s*:\s*true', kept.get("direct_url.json", b"")) is not None,
        scripts=scripts,
    )


def _scripts(entry_points: str) -> frozenset[str]:
    sections = re.split(r"(?m)^\s*(\[.*\])\s*$", entry_points)
    of_programs = (text for name, text in zip(sections[1::2], sections[2::2], strict=True) if name in _PROGRAMS)
    return frozenset(
        line.partition("=")[0].strip() for text in of_programs for line in text.splitlines() if "=" in line
    )


def parse(record: bytes, site: str) -> Iterator[tuple[str, str]]:
    for row in decoding.csv_rows(record):
        if row and row[0]:
            yield _placed(row[0], site), row[1] if len(row) > 1 else ""


def _placed(path: str, site: str) -> str:
    if ".." not in path and not path.startswith(("/", ".")):
        return f"{site}/{path}"  # nearly every row: a hundred thousand of them are read for one image
    return posixpath.normpath(posixpath.join("/", site, path)).lstrip("/")


def of_wheel(record: bytes, distribution: InstalledPackage) -> tuple[dict[str, str], frozenset[str]]:
    """Return a wheel's files as installed (of ``.data``: moved), and the scripts, whose first line is rewritten."""
    site, rows, rewritten = distribution.site, dict[str, str](), set[str]()
    prefix = prefix_of(site)
    for row in decoding.csv_rows(record):
        path, digest = (*row, "", "")[:2]
        top, _, rest = path.partition("/")
        if not path or (top.endswith(".dist-info") and rest in _UNLISTED):
            continue
        if not top.endswith(".data"):
            rows[_placed(path, site)] = digest
            continue
        scheme, _, leaf = rest.partition("/")
        target = {"purelib": site, "platlib": site, "scripts": f"{prefix}/bin", "data": prefix}.get(scheme)
        if target is not None:
            placed = _placed(leaf, target)
            rows[placed] = digest
            rewritten |= {placed} if scheme == "scripts" else set()
    return rows, frozenset(rewritten)


def digest_of(content: bytes) -> str:
    return f"sha256={base64.urlsafe_b64encode(content).decode().rstrip('=')}"
