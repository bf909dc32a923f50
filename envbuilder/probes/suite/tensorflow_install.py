"""The TensorFlow that this Python would import, read from its files: build, own libraries and search folders."""

from __future__ import annotations

import ast
import fnmatch
import functools
import glob
import importlib.util
import os
from collections.abc import Iterable, Sequence
from typing import Any

from . import installed, loader
from .elf import Elf
from .loader import Search

DISTRIBUTIONS = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-intel", "tf-nightly", "tf-nightly-cpu")


def tensorflow_folder() -> str | None:
    """Find the package's folder without importing it; None if there is none."""
    try:
        spec = importlib.util.find_spec("tensorflow")
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    return next(iter(spec.submodule_search_locations))


def distribution() -> tuple[str, str] | tuple[None, None]:
    """Return name and version of the installed distribution that brings TensorFlow; (None, None) if there is none."""
    for root in installed.site_folders():
        there = {one.name: one.version for one in installed.distributions([root])}
        for name in DISTRIBUTIONS:
            if name in there:
                return name, there[name]
    return None, None


def build_info(folder: str | None) -> dict[str, Any]:
    """Read the build's own description: the literals of ``build_info.py``; empty if there is none.

    Up to 2.1 it is in ``tensorflow_core``, and up to 2.2 each fact is a name of its own.
    """
    for place in ("", "../tensorflow_core"):
        path = os.path.join(folder or "", place, "python", "platform", "build_info.py")
        try:
            with open(path, encoding="utf-8") as stream:
                tree = ast.parse(stream.read())
        except (OSError, SyntaxError):
            continue
        assigned = {getattr(node.targets[0], "id", ""): node for node in ast.walk(tree) if isinstance(node, ast.Assign)}
        if "build_info" in assigned:
            return dict(_value(assigned["build_info"].value) or {})
        single = {key: _value(assigned[name].value) for name, key in SINGLE.items() if name in assigned}
        return {key: value for key, value in single.items() if value not in (None, "")}
    return {}


SINGLE = {
    "is_cuda_build": "is_cuda_build",
    "cuda_version_number": "cuda_version",
    "cudnn_version_number": "cudnn_version",
}
"""What releases up to 2.2 call a fact, and what later ones do."""


def _value(node: ast.expr) -> Any:
    """Return a literal, or that of ``collections.OrderedDict({...})``; None for any other expression."""
    if isinstance(node, ast.Call) and node.args:
        node = node.args[0]
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return None


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
    """Return TensorFlow's own large objects; empty if it is not installed."""
    folder = folder or tensorflow_folder()
    found: list[Elf] = []
    for pattern in CALLERS if folder else ():
        place, leaf = os.path.split(os.path.join(folder or "", pattern))
        for name in fnmatch.filter(search.names(place), leaf):
            read = search.read(search.real(os.path.join(place, name)))
            if read is not None and read.path not in [one.path for one in found]:
                found.append(read)
    return found


def openers(objects: Sequence[Elf]) -> Sequence[Elf]:
    """Return the objects whose code opens CUDA: libtensorflow_framework, or all if it does not exist.

    The RUNPATH of the others does not count: 2.16.1 names nearly every wheel's folder in libtensorflow_cc, 2.21.0 the
    one of cuSOLVER, and neither is found.
    """
    return [one for one in objects if os.path.basename(one.path).startswith("libtensorflow_framework.so")] or objects


def loaded_before(search: Search, path: str, objects: Sequence[Elf]) -> tuple[str, ...]:
    """Return what a process has loaded before it opens this object: TensorFlow's own libraries, for a plug-in."""
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


def located(name: str) -> str | None:
    """Return the path of a library that TensorFlow would open by name; None if it finds none."""
    search = new_search()
    return find(search, name, callers(search))[0]


def wheel_folders(paths: Iterable[str] | None = None) -> list[str]:
    """Return the library folders of CUDA wheels (``site-packages/nvidia/*/lib``)."""
    return [
        folder
        for root in installed.site_folders(paths)
        for folder in sorted(glob.glob(os.path.join(root, "nvidia", "*", "lib")))
    ]


def search_path(search: Search, objects: Sequence[Elf]) -> list[str]:
    """Return every folder on the loader's path for TensorFlow's needs, in order, each once."""
    folders: list[str] = []
    for caller in objects or (None,):
        before, after = search.places(caller)
        folders += before + after
    folders += [os.path.dirname(path) for paths in search.cache.values() for path in paths]
    folders += search.defaults
    return list(dict.fromkeys(search.real(folder) for folder in folders if search.names(folder)))


@functools.lru_cache(maxsize=1)
def new_search() -> Search:
    """Return the loader's view of this environment, which all checks of this process share."""
    return loader.Search()
