"""The package's structure: imports point down only, names are unique, each outside thing has one port."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "envbuilder"

LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "exits", "versions", "schemas", "console"),
    ("finding", "environment", "matrix", "verdict"),
    ("catalog", "workspace", "yaml_reader"),
    ("compat",),
    ("engine", "registry", "pypi", "host"),
    ("probes", "choice", "simulated", "refresh", "image"),
    ("attest", "validation"),
    ("controls", "reproduce", "upgrade", "publish"),
    ("report", "jobs"),
    ("cli", "__main__"),
)
"""Rooms by layer, lowest first: a room may import its own layer and those before it."""

ROOM_OF = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def room(path: Path) -> str:
    """Name the room (top-level module or folder) that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def rooms_imported(path: Path) -> set[str]:
    """Name the rooms of ours that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "envbuilder":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {name.name for name in node.names}
        elif isinstance(node, ast.Import):
            found |= {name.name.split(".")[1] for name in node.names if name.name.startswith("envbuilder.")}
    return found - {"__version__"}


def third_party(path: Path) -> set[str]:
    """Name the top-level modules that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
        elif isinstance(node, ast.Import):
            found |= {name.name.split(".")[0] for name in node.names}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    """No module imports a room of a higher layer."""
    own = room(path)
    if own == "probes":
        assert not rooms_imported(path), "the probes run inside images and never import envbuilder"
        return
    assert own in ROOM_OF, f"{own} has no layer yet: add it to LAYERS"
    higher = {name for name in rooms_imported(path) if ROOM_OF.get(name, 99) > ROOM_OF[own]}
    assert not higher, f"{path.name} (layer {ROOM_OF[own]}) imports {higher} from above"


@pytest.mark.parametrize(("module", "home"), [("docker", "engine"), ("pynvml", "host"), ("click", "cli")])
def test_each_outside_thing_has_one_port(module: str, home: str) -> None:
    """Only its port imports a library that speaks to the outside."""
    users = {room(path) for path in MODULES if module in third_party(path) and room(path) != "probes"}
    assert users <= {home}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_commands_load_the_catalogue(path: Path) -> None:
    """A stage is given the catalogue that it works with: ``store.load`` is called in cli/ and nowhere else."""
    loads = [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Call) and ast.unparse(node.func) == "store.load")
        or (isinstance(node, ast.ImportFrom) and ast.unparse(node) == "from envbuilder.catalog.store import load")
    ]
    assert room(path) == "cli" or not loads


def test_module_stems_are_unique() -> None:
    """No two modules have the same stem: a name said aloud, or in a traceback, is one file."""
    stems = Counter(path.stem for path in MODULES if path.stem not in ("__init__", "__main__"))
    assert not [stem for stem, times in stems.items() if times > 1]
