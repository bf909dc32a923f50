"""The code of a Python source without its comments and docstrings."""

from __future__ import annotations

import ast
import io
import tokenize


def code_only(source: bytes) -> bytes:
    """Return the source without comments, docstrings, other bare strings and blank lines.

    The result is the same on every Python version: lines are cut from the source, nothing is written again from a
    syntax tree. Raises SyntaxError if the source is not Python.
    """
    lines = source.decode().splitlines()
    tree = ast.parse(source)
    dropped: set[int] = set()
    inside_strings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            dropped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.Constant | ast.JoinedStr):
            inside_strings.update(range(node.lineno + 1, (node.end_lineno or node.lineno) + 1))
    for token in tokenize.generate_tokens(io.StringIO(source.decode()).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
    kept = (line for row, line in enumerate(lines, 1) if row not in dropped and (line.strip() or row in inside_strings))
    return "\n".join(kept).encode()
