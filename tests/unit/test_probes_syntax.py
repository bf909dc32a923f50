"""The probes as files: readable by every Python that a catalogued TensorFlow supports, and independent of us."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROBES = Path(__file__).parents[2] / "envbuilder" / "probes"
DEFECTS = PROBES.parent / "controls" / "defects"  # they run where the probes run
FILES = sorted([*PROBES.rglob("*.py"), *DEFECTS.glob("*.py")])

OLDEST = {"capture.py": (3, 6)}
"""The oldest grammar, where it is not 3.7: the script for reports runs on Pythons older than our environments'."""

OWN = {path.stem for path in FILES} | {"envbuilder_probes"}
# Imported inside of functions alone: the framework under test, and what runs a user's own tests beside it.
FRAMEWORK = {"tensorflow", "numpy", "keras", "pytest"}

TYPING_3_6 = {
    *(
        "Any",
        "Callable",
        "Dict",
        "FrozenSet",
        "IO",
        "Iterable",
        "Iterator",
        "List",
        "Mapping",
        "NamedTuple",
        "NoReturn",
    ),
    *("Optional", "Sequence", "Set", "TextIO", "Tuple", "TypeVar", "Union"),
}
"""What ``typing`` had in 3.6.2 of what anybody here may want."""

GENERIC_SINCE_3_9 = {"dict", "frozenset", "list", "set", "tuple", "type", "Popen", "deque"}
ABSTRACT_SINCE_3_9 = {"Callable", "Iterable", "Iterator", "Mapping", "Sequence"}
TYPES = {"int", "str", "bytes", "float", "bool", "dict", "list", "set", "tuple"}

every = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PROBES.parent)))


def oldest(path: Path) -> tuple[int, int]:
    """Return the oldest Python that has to read a file."""
    return OLDEST.get(path.name, (3, 7))


def postponed(tree: ast.Module) -> bool:
    """Tell whether a module's annotations are never evaluated (PEP 563; an error before 3.7)."""
    future = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    return any(name.name == "annotations" for node in future for name in node.names)


def evaluated(node: ast.AST, *, annotations: bool) -> Iterator[ast.AST]:
    """Yield what is evaluated when code runs: everything, but annotations only where they are asked for."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns") and not annotations:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from evaluated(child, annotations=annotations)


def too_new(tree: ast.Module) -> list[str]:
    """Name what parses on an old Python and fails when it is evaluated there: newer generics and unions of types."""
    builtin = GENERIC_SINCE_3_9 | {
        name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "collections.abc"
        for name in node.names
        if name.name in ABSTRACT_SINCE_3_9
    }
    found = []
    for node in evaluated(tree, annotations=not postponed(tree)):
        if isinstance(node, ast.Subscript):
            value = node.value
            name = value.id if isinstance(value, ast.Name) else value.attr if isinstance(value, ast.Attribute) else ""
            found += [f"{node.lineno}: {name}[...]"] if name in builtin else []
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            sides = [side for side in (node.left, node.right) if isinstance(side, ast.Name | ast.Constant)]
            types = [side for side in sides if getattr(side, "id", "") in TYPES or getattr(side, "value", 0) is None]
            found += [f"{node.lineno}: {ast.unparse(node)}"] if types else []
    return found


@every
def test_parses_with_its_oldest_python(path: Path) -> None:
    """Every probe parses with the grammar of 3.7, the script for reports with that of 3.6."""
    ast.parse(path.read_text(), feature_version=oldest(path))


@every
def test_types_cost_nothing_at_run_time(path: Path) -> None:
    """Nothing that is evaluated needs a newer Python: no ``list[str]`` or ``X | Y`` outside postponed annotations."""
    tree = ast.parse(path.read_text())
    assert not too_new(tree), path.name
    assert not postponed(tree) or oldest(path) >= (3, 7), f"{path.name}: postponed annotations are new with 3.7"
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "typing":
            assert {name.name for name in node.names} <= TYPING_3_6, f"{path.name}:{node.lineno}"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("def f(x: list[str]) -> str | None: ...", True),
        ("from __future__ import annotations\ndef f(x: list[str]) -> str | None: ...", False),
        ("from __future__ import annotations\nRow = dict[str, int]", True),
        ("from __future__ import annotations\nRow = int | None", True),
        ("from __future__ import annotations\nfrom collections.abc import Mapping\nRow = Mapping[str, int]", True),
        ("from typing import Dict\nRow = Dict[str, int]\nflags = 1 | 2", False),
    ],
)
def test_what_is_too_new_is_seen(text: str, *, wrong: bool) -> None:
    """The check itself tells what an old Python evaluates from what it only reads."""
    assert bool(too_new(ast.parse(text))) is wrong


@every
def test_imports_the_standard_library_alone(path: Path) -> None:
    """A probe imports its own folder, the standard library and the framework; the last never at its top."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [name.name.split(".")[0] for name in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [str(node.module).split(".")[0]]
        else:
            continue
        foreign = set(names) - sys.stdlib_module_names - FRAMEWORK - OWN
        assert not foreign, f"{path.name}:{node.lineno} imports {foreign}"
        assert node not in tree.body or not FRAMEWORK & set(names), f"{path.name}:{node.lineno}: at the top"


SHARED_WITH_THE_UPGRADE = {"installed", "tensorflow_files"}


def test_the_suite_is_imported_by_no_other_folder_but_for_what_is_shared() -> None:
    """The suite's folder stands alone; the upgrade probes take from it what is named, and that takes no more."""
    for path in FILES:
        outside = [
            node
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom) and node.level > 1
        ]
        if path.parent.name != "upgrade":
            assert not outside, path.name
        for node in outside:
            assert node.module == "suite"
            assert {name.name for name in node.names} <= SHARED_WITH_THE_UPGRADE
    for stem in SHARED_WITH_THE_UPGRADE:
        tree = ast.parse((PROBES / "suite" / f"{stem}.py").read_text())
        taken = {
            n.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level for n in node.names
        }
        assert taken <= SHARED_WITH_THE_UPGRADE
