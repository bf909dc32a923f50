"""The probes as files: readable by every Python that a catalogued TensorFlow supports, and independent of us."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

PROBES = Path(__file__).parents[2] / "envbuilder" / "probes"
FILES = sorted(PROBES.rglob("*.py"))

OWN = {path.stem for path in FILES}
# Imported inside of functions alone: the framework under test, and what runs a user's own tests beside it.
FRAMEWORK = {"tensorflow", "numpy", "keras", "pytest"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PROBES)))
def test_parses_as_python_3_7(path: Path) -> None:
    """Every probe parses with the grammar of 3.7."""
    ast.parse(path.read_text(), feature_version=(3, 7))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PROBES)))
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
