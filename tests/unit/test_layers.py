"""The package's structure: imports point down only, names are unique, each outside thing has one port."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest
from version_texts import taken_apart

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


PROBES = "envbuilder.probes"


def room(path: Path) -> str:
    """Name the room (top-level module or folder) that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def name_of(path: Path) -> str:
    """Name a module as it is imported."""
    parts = ("envbuilder", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


KNOWN = {name_of(path): path for path in [PACKAGE / "__init__.py", *MODULES]}
CONTAINER_NAMES = {
    "suite": "envbuilder.probes.suite",
    "upgrade": "envbuilder.probes",
    "defects": "envbuilder.probes.suite",
}
"""What ``envbuilder_probes`` is, in a container, for the code of a folder."""


def modules_imported(path: Path) -> set[str]:
    """Name the modules of ours that a file imports: at its top, inside functions, for types, and named in strings.

    A string counts where it is a module's whole name, or what is put behind a package's name (``PACKAGE + ".worker"``).
    """
    named: set[str] = set()
    own = name_of(path) if path.name == "__init__.py" else name_of(path).rpartition(".")[0]
    alias = CONTAINER_NAMES.get(path.parent.name, "")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = ".".join(own.split(".")[: len(own.split(".")) - node.level + 1]) if node.level else ""
            start = ".".join(part for part in (base, node.module or "") if part)
            named |= {f"{start}.{name.name}" if f"{start}.{name.name}" in KNOWN else start for name in node.names}
        elif isinstance(node, ast.Import):
            named |= {name.name for name in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            named |= {node.value, f"{alias}{node.value}" if node.value.startswith(".") else ""}
    named = {alias + name.removeprefix("envbuilder_probes") if "envbuilder_probes" in name else name for name in named}
    return (named & KNOWN.keys()) - {name_of(path)}


def test_the_floors_of_the_architecture_are_the_layers() -> None:
    """The page for newcomers names the same rooms on the same floors in the same order as what is held here."""
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text()
    table = page.partition("| floor | rooms |")[2].partition("\n\n")[0]
    cells = [row.split("|")[2] for row in table.splitlines()[2:]]
    *floors, inside = [set(re.findall(r"`([a-z_]+)/?`(?!:)", re.sub(r"\(.*?\)", "", cell))) for cell in cells]
    assert inside == {"probes"}, "what runs in the image stands on no floor: it imports nothing of ours"
    assert floors == [{room for room in rooms if room not in {"probes", "__main__"}} for rooms in LAYERS]


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """List the groups of names that reach each other (Tarjan's strongly connected components of two and more)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph.get(name, ()):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in graph:
        if name not in index:
            visit(name)
    return found


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
    """No module imports a room of a higher layer: not in a function, for its types or by a name in a string either."""
    own = room(path)
    if own == "probes":
        assert not rooms_imported(path), "the probes run inside images and never import envbuilder"
        return
    assert own in ROOM_OF, f"{own} has no layer yet: add it to LAYERS"
    by_name = {room(KNOWN[name]) for name in modules_imported(path)} - {"__init__"}
    higher = {name for name in rooms_imported(path) | by_name if ROOM_OF.get(name, 99) > ROOM_OF[own]}
    assert not higher, f"{path.name} (layer {ROOM_OF[own]}) imports {higher} from above"


@pytest.mark.parametrize(
    ("module", "home"), [("docker", "engine"), ("pynvml", "host"), ("click", "cli"), ("distributed", "jobs")]
)
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


def test_no_module_imports_itself_by_way_of_others() -> None:
    """No circle of imports in the whole package, the probes' included: not by lazy imports, types or strings either."""
    assert not cycles({name: modules_imported(path) for name, path in KNOWN.items()})


def test_circles_are_found() -> None:
    """The search itself: circles of two and of three are named, a diamond is none."""
    assert cycles({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": set()}) == []
    assert cycles({"a": {"b"}, "b": {"a"}, "c": {"d"}, "d": {"e"}, "e": {"c"}}) == [["a", "b"], ["c", "d", "e"]]


def test_imports_are_seen_wherever_they_stand() -> None:
    """A module named in a string, a lazy import and a relative one all count."""
    assert f"{PROBES}.suite.worker" in modules_imported(KNOWN[f"{PROBES}.suite.__main__"])
    assert f"{PROBES}.upgrade.upgrade_answer" in modules_imported(KNOWN[f"{PROBES}.upgrade.__main__"])
    assert f"{PROBES}.suite.packages" in modules_imported(KNOWN[f"{PROBES}.suite.startup"])
    assert f"{PROBES}.suite.installed" in modules_imported(KNOWN[f"{PROBES}.upgrade.upgrade_inventory"])
    assert f"{PROBES}.suite.answer" in modules_imported(KNOWN["envbuilder.controls.defects.misbehave"])


def test_no_room_imports_itself_by_way_of_others() -> None:
    """No circle of rooms either: what lies on one floor is still in an order."""
    graph: dict[str, set[str]] = {}
    for path in MODULES:
        graph.setdefault(room(path), set()).update(rooms_imported(path) - {room(path)})
    assert not cycles(graph)


def test_module_stems_are_unique() -> None:
    """No two modules have the same stem: a name said aloud, or in a traceback, is one file."""
    stems = Counter(path.stem for path in MODULES if path.stem not in ("__init__", "__main__"))
    assert not [stem for stem, times in stems.items() if times > 1]


DOORS, ARROWS = 36, 190
"""What the house may have at most: entries of the package, and imports from one of them to another."""


def test_the_house_stays_small() -> None:
    """A new room, or a new import between two that had none, is a decision: it has to make another one superfluous."""
    outside = {"__main__", "__init__"}
    doors = {room(path) for path in MODULES} - outside
    arrows = {
        (room(path), other)
        for path in MODULES
        if room(path) != "probes"
        for other in rooms_imported(path) - {room(path)} - outside
    }
    assert len(doors) <= DOORS
    assert len(arrows) <= ARROWS


SAID = re.compile(r"(?:.*\.message|str\((?:error|wrong|caught)\)|(?:error|wrong|caught)\.args\[0\])")


LOOKS = {"startswith", "endswith", "partition", "rpartition", "split", "find", "match", "search"}


def text_decides(tree: ast.AST) -> list[str]:
    """Find where something is decided by what an error or a finding says."""
    found = []
    for node in ast.walk(tree):
        sides: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOOKS:
            sides = [node.func.value, *node.args]
        found += [ast.unparse(node) for side in sides if SAID.fullmatch(ast.unparse(side))]
    return found


@pytest.mark.parametrize(
    "text",
    ["'no' in error.message", "str(error) == 'x'", "found.message.startswith('a')", "re.search('x', str(wrong))"],
)
def test_a_decision_by_a_text_is_seen(text: str) -> None:
    """The search below finds what it is for."""
    assert text_decides(ast.parse(text))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_decision_rests_on_what_an_error_says(path: Path) -> None:
    """Errors and findings have types, codes and fields; their sentences are for people alone, and may be reworded.

    What runs in an image has the framework's own messages and nothing else.
    """
    assert room(path) == "probes" or not text_decides(ast.parse(path.read_text()))


HOMES = {
    "Candidate": "compat/candidate.py",
    "engine.build": "image/build.py",
    "Environment": "compat/resolver.py",
    "Near": "compat/nearest.py",
}
"""What is made in one place alone: everybody else asks for it there."""


@pytest.mark.parametrize("what", HOMES)
def test_there_is_one_way_to_make_it(what: str) -> None:
    """A second constructor, or a second build, is how two commands come to disagree."""
    makers = {
        str(path.relative_to(PACKAGE))
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(what)
        if ast.unparse(node.func) in {what, f"self.{what}", f"tools.{what}"}
    }
    assert makers == {HOMES[what]}


def test_only_the_workspace_knows_where_results_lie() -> None:
    """Paths under ``out/`` are put together in one module."""
    joined = {
        path.name
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
        if re.search(r"\bout\b", ast.unparse(node.left))
    }
    assert joined == {"workspace.py"}


NO_VERSIONS: dict[tuple[str, str], str] = {
    ("controls/control_run.py", "environment.tensorflow == _NUMPY_1"): "the name of an environment of one matrix",
    ("controls/control_run.py", "environment.tensorflow != _NUMPY_1"): "the name of an environment of one matrix",
    ("engine/docker.py", "told.api_version.split('.')"): "what the engine's client itself does with it, tried out",
    ("image/debian.py", "left.name.split('.')"): "a file's name",
    ("reproduce/mending_commands.py", "near.tensorflow != question.tensorflow"): "whether the search changed it",
    ("reproduce/mending_commands.py", "near.python != question.python"): "whether the search changed it",
    ("reproduce/mending_commands.py", "near.cudnn != question.cudnn"): "whether the search changed it",
    ("reproduce/mending_commands.py", "near.cuda != question.cuda"): "whether the search changed it",
    ("image/wheel_records.py", "part.split('.')"): "a wheel's compressed tags",
    ("reproduce/report/form.py", "target.partition('.')"): "a field of a form",
    ("reproduce/report/grammar.py", "field.partition('.')"): "a field of a report",
    ("reproduce/report/read.py", "row.field.partition('.')"): "a field of a report",
    ("validation/python_path.py", "top.partition('.')"): "a module's name",
    ("workspace.py", "left.name.split('.')"): "a file's name",
    ("upgrade/surface.py", "path.rpartition('.')"): "a public name",
    ("upgrade/surface.py", "group[0].name.rpartition('.')"): "a public name",
    ("upgrade/surface.py", "change.name.rpartition('.')"): "a public name",
    ("yaml_reader.py", "key.count('.')"): "a key of a document",
    ("reproduce/report/grammar.py", "text.startswith('11')"): "the digits in a file's name",
    ("registry/reference.py", "'.' in host"): "a registry's host",
    ("catalog/image_names.py", "'.' in head"): "a registry's host",
    ("catalog/image_names.py", "pieces[0].partition('.')"): "a tag's piece, which may be a system's name",
}
"""What looks like a version taken apart or compared, and is none: what it is."""


def test_versions_are_taken_apart_in_one_place() -> None:
    """Nothing but `versions` compares, orders or cuts a version's text; every exception says what it is instead."""
    found = {
        (str(path.relative_to(PACKAGE)), text)
        for path in MODULES
        if room(path) not in {"probes", "versions"}
        for text in taken_apart(ast.parse(path.read_text()))
    }
    unknown = sorted(found - NO_VERSIONS.keys())
    assert not unknown, f"compare by envbuilder.versions, or say above what it is instead: {unknown}"
    assert not NO_VERSIONS.keys() - found, "no longer there: take it off the list"
