"""The code of a Python source without its comments and docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

_STRING_OR_COMMENT = re.compile(
    r'"""(?:[^\\]|\\.)*?"""'
    r"|'''(?:[^\\]|\\.)*?'''"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'(?:[^'\\\n]|\\.)*'"
    r"|(?P<comment>[ \t]*\#[^\n]*)",
    re.DOTALL,
)
"""A regular expression, because `tokenize` needs a second for the whole suite."""

_BLANK = "\0"
"""Replaces an empty line inside a string, so that it is kept."""


def code_only(source: bytes) -> bytes:
    """Return the source without comments, docstrings, other bare strings and blank lines.

    The result is the same on every Python version: lines are cut from the source, nothing is written again from a
    syntax tree. Raises SyntaxError if the source is not Python.
    """
    lines = _STRING_OR_COMMENT.sub(_without_comment, source.decode()).split("\n")
    for string in _bare_strings(ast.parse(source).body):
        for row in range(string.lineno, (string.end_lineno or string.lineno) + 1):
            lines[row - 1] = ""
    kept = ("" if line == _BLANK else line for line in lines if line == _BLANK or line.strip())
    return "\n".join(kept).encode()


def _without_comment(found: re.Match[str]) -> str:
    return "" if found["comment"] else re.sub(r"(?<=\n)[ \t]*(?=\n)", _BLANK, found[0])


def _bare_strings(body: list[ast.stmt]) -> Iterator[ast.Constant]:
    for statement in body:
        value = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            inside = getattr(statement, block, None)
            if isinstance(inside, list):
                yield from _bare_strings(inside)
