"""Rules of the package that import-linter and ruff (see pyproject.toml) cannot express."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "envbuilder"
IN_IMAGES = sorted([*PACKAGE.glob("probes/**/*.py"), *PACKAGE.glob("controls/defects/*.py")])
ON_HOST = sorted({*PACKAGE.rglob("*.py")} - {*IN_IMAGES})

MOST_ENTRIES, MOST_IMPORTS = 40, 190
"""Top-level packages and modules, and imports between them. More of either is a decision: raise the number with it."""

FRAMEWORK = {"tensorflow", "numpy", "keras", "pytest"}
"""What a probe may import inside a function, next to the standard library and its own folder."""


def entry(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text())))


def imported(path: Path) -> Iterator[tuple[ast.stmt, str]]:
    """Yield each absolute import of a module, wherever it is, with its full dotted name."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from ((node, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((node, f"{node.module}.{name.name}") for name in node.names)


def test_number_of_packages_and_imports_between_them_is_bounded() -> None:
    entries = {entry(path) for path in [*ON_HOST, *IN_IMAGES]} - {"__main__", "__init__"}
    pairs = {
        (entry(path), name.split(".")[1])
        for path in ON_HOST
        for _, name in imported(path)
        if name.startswith("envbuilder.")
    }
    assert len(entries) <= MOST_ENTRIES
    assert len({(a, b) for a, b in pairs if a != b and {a, b} <= entries}) <= MOST_IMPORTS


def test_catalogue_is_loaded_by_commands_only() -> None:
    """A stage gets the catalogue as an argument, so that one run has one."""
    loads = [
        path
        for path in ON_HOST
        if entry(path) != "cli"
        for node in nodes(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "load"
        if ast.unparse(node.func) == "store.load"
    ]
    assert not loads


def test_no_decision_depends_on_the_text_of_an_error() -> None:
    """Errors and findings have types, codes and fields; their sentences may be reworded."""
    wrong = [
        f"{path.name}:{node.lineno}"
        for path in ON_HOST
        for node in nodes(path)
        if isinstance(node, ast.Compare)
        for side in (node.left, *node.comparators)
        if ast.unparse(side) == "str(error)" or ast.unparse(side).endswith(".message")
    ]
    assert not wrong


def test_probes_import_the_standard_library_and_the_framework_only() -> None:
    own = {path.stem for path in IN_IMAGES} | {path.parent.name for path in IN_IMAGES} | {"envbuilder_probes"}
    for path in IN_IMAGES:
        for node, name in imported(path):
            top = name.split(".")[0]
            more = FRAMEWORK | own if path.name != "capture.py" else set()  # people run that alone
            assert top in sys.stdlib_module_names | more, f"{path.name}:{node.lineno} imports {top}"
            assert top not in FRAMEWORK or node.col_offset, f"{path.name}:{node.lineno}: import it in a function"


def test_probes_parse_with_the_oldest_python_of_an_image() -> None:
    """The grammar of 3.7, and 3.6 for the script that people run for a report; `make lint` checks names as well."""
    for path in IN_IMAGES:
        ast.parse(path.read_text(), feature_version=(3, 6) if path.name == "capture.py" else (3, 7))
