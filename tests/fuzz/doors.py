"""The doors of the package: each function that reads what others wrote, and which of them the fuzzer's targets enter."""

from __future__ import annotations

import ast
import contextlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

from fuzz_target import Target

from envbuilder.catalog import store

PACKAGE = Path(__file__).parents[2] / "envbuilder"

READERS = frozenset({"from_json", "from_msgpack", "damaged", "parse_yaml", "read_yaml", "read_document", "parsed"})
"""Calls that make values of bytes: whoever calls one of them is a door."""

NAMES = ("parse", "parse_", "_parse")
"""Functions of these names are doors as well, whatever they call."""

_ELSEWHERE = ("probes/", "controls/defects/", "simulated/sources/", "errors/")
"""What runs in images, and the helpers themselves."""

Door = tuple[str, str]
"""A module's path in the package, and a function's qualified name."""


def doors() -> set[Door]:
    """Find every door by the package's own text."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE).as_posix()
        if not place.startswith(_ELSEWHERE):
            found |= {(place, name) for name in _in(ast.parse(path.read_text(encoding="utf-8")), "")}
    return found


def _in(tree: ast.AST, prefix: str) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _in(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            named = node.name.startswith(NAMES[1:]) or node.name == NAMES[0]
            if named or any(_reads(one) for one in ast.walk(node)):
                yield prefix + node.name
        else:
            yield from _in(node, prefix)


def _reads(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in READERS


def entered(targets: tuple[Target, ...]) -> set[Door]:
    """Run every target's seeds; return the functions of the package that were entered meanwhile."""
    codes: set[CodeType] = set()
    store.load.cache_clear()  # whoever came before in this process may have read the catalogue already

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            codes.add(frame.f_code)

    sys.setprofile(note)
    try:
        for target in targets:
            for seed in target.seeds():
                with contextlib.redirect_stderr(io.StringIO()):
                    target.ends(seed)
    finally:
        sys.setprofile(None)
    found = set()
    for code in codes:
        path = Path(code.co_filename)
        if path.is_relative_to(PACKAGE):
            name = code.co_qualname.replace(".<locals>", "").partition(".<")[0]
            found.add((path.relative_to(PACKAGE).as_posix(), name))
    return found
