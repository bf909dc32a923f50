"""The distributions that are installed in this Python, from the metadata on its path; nothing is imported."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable


class Distribution:
    """One installed distribution: normalised name, version, folder, and requirements with their markers."""

    def __init__(self, name: str, version: str, folder: str, requires: list[str]) -> None:
        self.name = name
        self.version = version
        self.folder = folder
        self.requires = requires


def normalise(name: str) -> str:
    """Return the name of a project in the form that indexes compare (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def distributions(paths: Iterable[str] | None = None) -> list[Distribution]:
    """Return every distribution on the path, once per metadata folder, sorted by name."""
    found = []
    seen = set()
    for root in sys.path if paths is None else paths:
        root = os.path.realpath(root or ".")
        if root in seen or not os.path.isdir(root):
            continue
        seen.add(root)
        for entry in sorted(os.listdir(root)):
            if entry.endswith((".dist-info", ".egg-info")):
                one = _read(os.path.join(root, entry))
                if one is not None:
                    found.append(one)
    return sorted(found, key=lambda one: (one.name, one.version))


def _read(folder: str) -> Distribution | None:
    for leaf in ("METADATA", "PKG-INFO", ""):
        path = os.path.join(folder, leaf) if leaf else folder
        if os.path.isfile(path):
            break
    else:
        return None
    with open(path, encoding="utf-8", errors="replace") as stream:
        return described(stream, folder)


def described(metadata: Iterable[str], folder: str) -> Distribution | None:
    """Read a distribution from the lines of its metadata; None if they have no name."""
    name = version = ""
    requires = []
    for line in metadata:
        if line.strip() == "":
            break
        key, _, value = line.partition(":")
        if key == "Name":
            name = value.strip()
        elif key == "Version":
            version = value.strip()
        elif key == "Requires-Dist":
            requires.append(value.strip())
    return Distribution(normalise(name), version, folder, requires) if name else None


def site_folders(paths: Iterable[str] | None = None) -> list[str]:
    """Return the folders in which packages are installed, in import order."""
    roots = [os.path.realpath(path or ".") for path in (sys.path if paths is None else paths)]
    return [root for root in dict.fromkeys(roots) if os.path.isdir(root)]
