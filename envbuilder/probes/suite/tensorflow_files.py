"""The TensorFlow that this Python would import, from its files alone: folder, distribution, what its build says."""

from __future__ import annotations

import ast
import importlib.util
import os
from typing import Any

from . import installed

DISTRIBUTIONS = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-intel", "tf-nightly", "tf-nightly-cpu")


def tensorflow_folder() -> str | None:
    """Find the package's folder without importing it; None where there is none."""
    try:
        spec = importlib.util.find_spec("tensorflow")
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    return next(iter(spec.submodule_search_locations))


def distribution() -> tuple[str, str] | tuple[None, None]:
    """Name the installed distribution that brings TensorFlow, and its version; (None, None) where none says so."""
    for root in installed.site_folders():
        there = {one.name: one.version for one in installed.distributions([root])}
        for name in DISTRIBUTIONS:
            if name in there:
                return name, there[name]
    return None, None


def build_info(folder: str | None) -> dict[str, Any]:
    """Read what the build wrote about itself: the literals of ``build_info.py``; empty where there is none.

    Up to 2.1 it lies in ``tensorflow_core``, and up to 2.2 each fact is a name of its own.
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
            return _literal(assigned["build_info"].value)
        single = {key: _constant(assigned[name].value) for name, key in SINGLE.items() if name in assigned}
        return {key: value for key, value in single.items() if value not in (None, "")}
    return {}


SINGLE = {
    "is_cuda_build": "is_cuda_build",
    "cuda_version_number": "cuda_version",
    "cudnn_version_number": "cudnn_version",
}
"""What releases up to 2.2 call a fact, and what later ones do."""


def _constant(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def _literal(node: ast.expr) -> dict[str, Any]:
    """Read a dict literal or ``collections.OrderedDict({...})`` of constants and lists."""
    if isinstance(node, ast.Call) and node.args:
        node = node.args[0]
    try:
        return dict(ast.literal_eval(node))
    except (ValueError, TypeError):
        return {}
