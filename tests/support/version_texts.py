"""Find where a version's text is taken apart, ordered or compared as a text, or made up."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

FIELDS = frozenset(
    {
        "version", "tensorflow", "cuda", "cudnn", "driver", "python", "glibc", "minimum_driver", "built_cuda",
        "built_cudnn", "compute_capability", "capability", "first_capability", "last_capability", "ptx_isa", "isa",
        "libcuda", "driver_cuda",
    }
)  # fmt: skip
"""Fields that hold a version, wherever they stand."""


def taken_apart(tree: ast.AST) -> Iterator[str]:
    """Yield the expressions that take a version's text apart, order it as text, or make one up."""
    for node in ast.walk(tree):
        if (
            (isinstance(node, ast.Compare) and (compared(node) or asks_for_dot(node)))
            or (isinstance(node, ast.BoolOp) and any(is_number(value) for value in node.values[1:]))
            or (isinstance(node, ast.Call) and (cut(node) or taken_as_text(node)))
        ):
            yield ast.unparse(node)


def compared(node: ast.Compare) -> bool:
    """Tell whether a version is held against anything but "is it there"."""
    told = [side for side in (node.left, *node.comparators) if not is_nothing(side)]
    operators = ast.Lt | ast.Gt | ast.LtE | ast.GtE | ast.Eq | ast.NotEq
    return len(told) > 1 and any(isinstance(one, operators) for one in node.ops) and any(map(is_version, told))


def asks_for_dot(node: ast.Compare) -> bool:
    """Tell whether it is asked if a text has a dot."""
    return (
        isinstance(node.ops[0], ast.In | ast.NotIn) and isinstance(node.left, ast.Constant) and node.left.value == "."
    )


def cut(node: ast.Call) -> bool:
    """Tell whether a text is cut at a dot or at ``==``, or begins with a number, or with the name of a pin."""
    texts = [each.value for each in ast.walk(node.args[0]) if isinstance(each, ast.Constant)] if node.args else []
    match node.func:
        case ast.Attribute(attr="split" | "rsplit" | "partition" | "rpartition" | "count"):
            return texts in (["."], ["=="])
        case ast.Attribute(attr="startswith" | "endswith" | "removeprefix" | "removesuffix"):
            return any(re.match(r"\d[\d.]*$|.*==$", str(text)) for text in texts)
    return False


def taken_as_text(node: ast.Call) -> bool:
    """Tell whether versions are ordered as texts, or read as numbers."""
    match node.func:
        case ast.Name(id="min" | "max" | "sorted") if any(word.arg == "key" for word in node.keywords):
            return False
        case ast.Name(id="min" | "max" | "sorted" | "float" | "int"):
            inside = (argument.elt if isinstance(argument, ast.GeneratorExp) else argument for argument in node.args)
            return any(map(is_version, inside))
    return False


def is_version(node: ast.AST) -> bool:
    """Tell whether an expression is a field that holds a version."""
    return isinstance(node, ast.Attribute) and node.attr in FIELDS


def is_nothing(node: ast.AST) -> bool:
    """Tell whether an expression says that nothing is known."""
    return isinstance(node, ast.Constant) and node.value in {None, ""}


def is_number(node: ast.AST) -> bool:
    """Tell whether an expression is a version, written as a literal."""
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.match(r"\d[\d.]*$", node.value) is not None
    )
