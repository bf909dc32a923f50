"""Static checks of every shared object: the loader finds what it needs, in versions that fit."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import List, Tuple

from . import installed, tensorflow_install
from .elf import Elf
from .loader import Search
from .result import Answer, Facts, Finding, finding, judged, measure
from .runtime_libraries import FIX

Unmet = Tuple[str, str, List[str]]
"""A need that is not found: its name, who needs it, the paths tried."""

# What the host's driver brings at run time: an image that holds it is wrong, one that lacks it is right.
FROM_DRIVER = re.compile(r"lib(cuda|nvidia-[\w-]+|nvcuvid|nvoptix)\.so")
LINUX_ITSELF = ("ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "linux-vdso.so.1")
OBJECT = re.compile(r"\.so(\.[0-9][0-9.]*)?\Z")
VERSIONED = ("libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1")


def objects(folders: Iterable[str] | None = None) -> list[str]:
    """Return every shared object below the folders of packages, links once, sorted."""
    found: dict[str, str] = {}
    for root in installed.site_folders() if folders is None else folders:
        for folder, names, files in os.walk(root):
            names[:] = [name for name in names if name != "__pycache__"]
            for name in files:
                if OBJECT.search(name):
                    path = os.path.join(folder, name)
                    found.setdefault(os.path.realpath(path), path)
    return sorted(found)


def complete(facts: Facts) -> Answer:
    """Look for the needs of each object that nothing else needs, in the loader's order."""
    search = tensorflow_install.new_search()
    return complete_in(search, objects(), tensorflow_install.callers(search))


def complete_in(search: Search, paths: Sequence[str], own: Sequence[Elf]) -> Answer:
    """Do the same for other objects; ``own`` are TensorFlow's large ones."""
    read = {path: search.read(path) for path in paths}
    names = {(one and one.soname) or os.path.basename(path) for path, one in read.items()}
    needed = {name for one in read.values() if one is not None for name in one.needed}
    roots = [p for p, one in read.items() if ((one and one.soname) or os.path.basename(p)) not in needed]
    missing: dict[str, list[Unmet]] = {}
    for root in roots:
        for name, user, tried in unmet(search, root, tensorflow_install.loaded_before(search, root, own)):
            missing.setdefault(name, []).append((root, user, tried))
    findings = [_missing(name, places, brought=name in names) for name, places in sorted(missing.items())]
    observed = "; ".join(one["message"] for one in findings) or "all needs of {0} objects are found".format(len(paths))
    return judged(findings, "every need found", observed, measurements={"objects": measure(len(paths), "1")})


def unmet(search: Search, root: str, before: Iterable[str] = ()) -> list[Unmet]:
    """Go through the needs of an object breadth first; return those that are not found: name, user, paths tried.

    A name that is loaded already (``before``) is not searched again. An RPATH also counts for the needs of needs, as it
    does for the loader (a RUNPATH does not).
    """
    first = search.read(root)
    if first is None or not first.dynamic:
        return []
    loaded = set(before)
    found: list[Unmet] = []
    queue: list[tuple[Elf, tuple[Elf, ...]]] = [(first, ())]
    while queue:
        user, chain = queue.pop(0)
        for name in user.needed:
            if name in loaded or FROM_DRIVER.match(name) or name in LINUX_ITSELF:
                continue
            loaded.add(name)
            where, tried = search.find(name, user, chain)
            read = search.read(where) if where is not None else None
            if read is None:
                found.append((name, user.path, tried))
            else:
                queue.append((read, (*chain, user)))
    return found


def is_core(path: str) -> bool:
    """Return True for an object that Python or TensorFlow always opens, False for an optional plug-in."""
    name = os.path.basename(path)
    return ".cpython-" in name or ".abi3." in name or "/tensorflow" in path


def _missing(name: str, places: list[Unmet], *, brought: bool) -> Finding:
    """Describe a need that is not found.

    A library that another package brings under that name counts as found once that package has loaded it: extension
    modules and the CUDA wheels are made so. That is not enough for a need of a core object.
    """
    users = sorted({user for _, user, _ in places})
    text = "{0}, which {1} needs, is not on the loader's path".format(name, os.path.basename(users[0]))
    severity = "error" if not brought and any(is_core(root) for root, _, _ in places) else "warning"
    tried = "needed by {0}; tried: {1}".format(", ".join(users[:4]), ", ".join(places[0][2][:12]))
    return finding("MISSING_LIBRARY", name, text, name, tried, FIX, severity=severity)


def versions(facts: Facts) -> Answer:
    """Check that the C and C++ libraries have every symbol version that the packages' objects need."""
    libc = os.confstr("CS_GNU_LIBC_VERSION") if hasattr(os, "confstr") else "?"
    return versions_in(tensorflow_install.new_search(), objects(), str(libc))


def versions_in(search: Search, paths: Iterable[str], libc: str) -> Answer:
    """Do the same for other objects; ``libc`` is the name of the C library."""
    newest: dict[str, str] = {}
    lacking: dict[tuple[str, str], list[str]] = {}
    for path in paths:
        read = search.read(path)
        if read is None:
            continue
        for library, names in read.versions.items():
            if library not in VERSIONED:
                continue
            where, _ = search.find(library, read)
            there = search.read(where) if where is not None else None
            if where is None or there is None or not there.dynamic:
                continue  # absent or damaged: other checks report it
            for name in names:
                prefix = name.rpartition("_")[0]
                newest[prefix] = max(newest.get(prefix, ""), name, key=_number)
                if name not in there.defines:
                    lacking.setdefault((name, where), []).append(path)
    findings = [_older(name, where, users) for (name, where), users in sorted(lacking.items())]
    needed = ", ".join(sorted(newest.values()))
    return judged(findings, "a C library with " + (needed or "no versioned symbols"), libc)


def _older(name: str, where: str, users: list[str]) -> Finding:
    text = "{0} needs {1}, which {2} lacks".format(os.path.basename(users[0]), name, where)
    return finding("GLIBC_TOO_OLD", name, text, name, where, "use a newer base image, or an older release")


def _number(name: str) -> list[int]:
    return [int(part) for part in re.findall(r"[0-9]+", name)]
