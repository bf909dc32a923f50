"""Python sources as bytes: without their prose, and as Python 3.6 can read them."""

import ast
import re
from itertools import accumulate

_TOKEN = re.compile(
    r'(?P<prose>\n[ \t]*r?"""(?:[^\\]|\\.)*?"""[ \t]*(?=\n|\Z)'
    r"|\n?[ \t]*\#[^\n]*"
    r"|\n[ \t]*(?=\n|\Z))"
    r'|"""(?:[^\\]|\\.)*?"""'
    r"|'''(?:[^\\]|\\.)*?'''"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'(?:[^'\\\n]|\\.)*'",
    re.DOTALL,
)
"""A string, or prose: a string that begins and ends its lines, a comment, an empty line. A syntax tree takes 0.5 s."""


def code_only(source: bytes) -> bytes:
    """Return the source without comments, docstrings and empty lines, the same on every version of Python."""
    code = _TOKEN.sub(lambda found: found[0] if found["prose"] is None else "", "\n" + source.decode())
    return code.removeprefix("\n").encode()


def for_python36(source: bytes) -> bytes:
    """Return a source that Python 3.6 can read, with the same lines: annotations become texts, which it only stores."""
    starts = [0, *accumulate(map(len, source.splitlines(keepends=True)))]
    cuts: list[tuple[ast.stmt | ast.expr, bytes]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            cuts.append((node, b"%b"))
        annotations = (getattr(node, name, None) for name in ("annotation", "returns"))
        cuts += [(one, b'("T"%b)') for one in annotations if one is not None]
    text = bytearray(source)
    for node, instead in sorted(cuts, key=lambda cut: (cut[0].lineno, cut[0].col_offset), reverse=True):
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        text[begin:end] = instead % (b"\n" * source.count(b"\n", begin, end))
    return bytes(text)
