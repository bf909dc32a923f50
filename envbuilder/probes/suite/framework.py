"""Where TensorFlow's own libraries lie, and how its code would look for others: read from files, nothing imported."""

from __future__ import annotations

import fnmatch
import functools
import glob
import os
from collections.abc import Iterable, Sequence

from . import installed, loader, tensorflow_files
from .elf import Elf
from .loader import Search

# TensorFlow's own large objects, by release: what it loads itself, and what opens CUDA.
CALLERS = (
    "libtensorflow_framework.so*",
    "libtensorflow_cc.so*",
    "python/_pywrap_tensorflow_internal.so",
    "python/lib_pywrap_tensorflow_common.so",
    "../tensorflow_core/libtensorflow_framework.so*",
    "../tensorflow_core/python/_pywrap_tensorflow_internal.so",
)


def callers(search: Search, folder: str | None = None) -> list[Elf]:
    """List TensorFlow's own large objects as read by the loader's eyes; empty where it is not installed."""
    folder = folder or tensorflow_files.tensorflow_folder()
    found: list[Elf] = []
    for pattern in CALLERS if folder else ():
        place, leaf = os.path.split(os.path.join(folder or "", pattern))
        for name in fnmatch.filter(search.names(place), leaf):
            read = search.read(search.real(os.path.join(place, name)))
            if read is not None and read.path not in [one.path for one in found]:
                found.append(read)
    return found


def openers(objects: Sequence[Elf]) -> Sequence[Elf]:
    """Choose the objects whose code opens CUDA: libtensorflow_framework, or all where there is none.

    The RUNPATH of the others does not count: 2.16.1 names nearly every wheel's folder in libtensorflow_cc, 2.21.0 the
    one of cuSOLVER, and neither is found.
    """
    return [one for one in objects if os.path.basename(one.path).startswith("libtensorflow_framework.so")] or objects


def loaded_before(search: Search, path: str, objects: Sequence[Elf]) -> tuple[str, ...]:
    """Name what a process has loaded that opens this object: TensorFlow's own libraries, for a plug-in beside it."""
    folders = {os.path.dirname(one.path) for one in objects}
    inside = any(search.real(path).startswith(folder + os.sep) for folder in folders)
    return () if inside else tuple(one.soname or os.path.basename(one.path) for one in objects)


def find(search: Search, name: str, objects: Sequence[Elf]) -> tuple[str | None, list[str]]:
    """Return (path or None, paths tried) for a library that TensorFlow opens by name."""
    tried: list[str] = []
    for caller in openers(objects) or (None,):
        path, places = search.find(name, caller)
        tried += [place for place in places if place not in tried]
        if path:
            return path, tried
    return None, tried


def wheel_folders(paths: Iterable[str] | None = None) -> list[str]:
    """List the library folders that CUDA wheels bring (``site-packages/nvidia/*/lib``)."""
    return [
        folder
        for root in installed.site_folders(paths)
        for folder in sorted(glob.glob(os.path.join(root, "nvidia", "*", "lib")))
    ]


def search_path(search: Search, objects: Sequence[Elf]) -> list[str]:
    """List every folder on the loader's path for TensorFlow's needs, in order, each once."""
    folders: list[str] = []
    for caller in objects or (None,):
        before, after = search.places(caller)
        folders += before + after
    folders += [os.path.dirname(path) for paths in search.cache.values() for path in paths]
    folders += search.defaults
    return list(dict.fromkeys(search.real(folder) for folder in folders if search.names(folder)))


@functools.lru_cache(maxsize=1)
def new_search() -> Search:
    """Return the loader's view of this environment; what it has read is kept for the process's other checks."""
    return loader.Search()
