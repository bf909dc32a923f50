"""Write the probes for Python 3.6: the same lines, without annotations.

Postponed annotations are new with 3.7: before, every annotation is evaluated. Every line stays where it was. The fields
of a class keep an annotation without a meaning, because typing.NamedTuple needs one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

_FIELD = b'"T"'
"""The annotation of a field: a text, which no Python evaluates."""

_LINE_END = re.compile(rb" ?(\r?\n)")


class _Cut(NamedTuple):
    """Bytes of a source that are replaced; spaces fill the rest.

    ``is_whole`` is a complete statement that is removed: its lines become empty.
    """

    begin: int
    end: int
    instead: bytes = b""
    is_whole: bool = False


def without_annotations(source: bytes) -> bytes:
    """Return a module's source for Pythons from 3.6 on.

    Raises SyntaxError for a source that is not valid, also without its annotations.
    """
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    text = bytearray(source)
    # From the end on: a replacement may be longer than the original and moves everything after it.
    for cut in sorted(_cuts(ast.parse(source), source, starts), reverse=True):
        gone = source[cut.begin + len(cut.instead) : cut.end]
        blank = bytes(byte if byte in b"\r\n" else 0x20 for byte in gone)
        if not cut.is_whole:
            blank = _LINE_END.sub(rb"\\\1", blank)  # the bracket that joined the lines is gone
        text[cut.begin : cut.end] = cut.instead + blank
    written = bytes(text)
    ast.parse(written)
    return written


def _cuts(tree: ast.Module, source: bytes, starts: list[int]) -> Iterator[_Cut]:
    fields = {id(row) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for row in node.body}

    def begin(node: ast.expr | ast.stmt | ast.arg) -> int:
        return starts[node.lineno - 1] + node.col_offset

    def end(node: ast.expr | ast.stmt | ast.arg) -> int:
        return starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)

    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            yield _Cut(begin(node), end(node), is_whole=True)
        elif isinstance(node, ast.arg) and node.annotation is not None:
            yield _Cut(begin(node) + len(node.arg.encode()), end(node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield _Cut(source.rindex(b"->", 0, begin(node.returns)), end(node.returns))
        elif isinstance(node, ast.AnnAssign):
            yield _annotated(
                node, begin(node), end(node.target), (begin(node.annotation), end(node.annotation)), fields
            )


def _annotated(node: ast.AnnAssign, first: int, target: int, annotation: tuple[int, int], fields: set[int]) -> _Cut:
    if id(node) in fields:
        return _Cut(*annotation, _FIELD)
    return _Cut(target, annotation[1]) if node.value is not None else _Cut(first, annotation[1], b"pass")
