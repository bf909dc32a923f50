"""The distributions that are installed in this Python, from the metadata on its path; nothing is imported."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from itertools import takewhile
from typing import List, NamedTuple


class Distribution(NamedTuple):
    """One installed distribution: normalised name, version, folder, and requirements with their markers."""

    name: str
    version: str
    folder: str
    requires: List[str]


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
    for path in (os.path.join(folder, "METADATA"), os.path.join(folder, "PKG-INFO"), folder):
        if os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as stream:
                return described(stream, folder)
    return None


def described(metadata: Iterable[str], folder: str) -> Distribution | None:
    """Read a distribution from the lines of its metadata; None if they have no name."""
    header = (line.partition(":") for line in takewhile(str.strip, metadata))
    fields = [(key, value.strip()) for key, _, value in header]
    requires = [value for key, value in fields if key == "Requires-Dist"]
    name, version = (dict(fields).get(key, "") for key in ("Name", "Version"))
    return Distribution(normalise(name), version, folder, requires) if name else None


def site_folders(paths: Iterable[str] | None = None) -> list[str]:
    """Return the folders in which packages are installed, in import order."""
    roots = [os.path.realpath(path or ".") for path in (sys.path if paths is None else paths)]
    return [root for root in dict.fromkeys(roots) if os.path.isdir(root)]
