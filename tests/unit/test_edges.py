"""Every edge is crossed by a helper: what decodes, opens or reads does it where its failures become our errors."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "envbuilder"

HELPERS = frozenset({"errors/decode.py", "workspace.py", "engine/fake.py", "pypi/lazyzip.py", "validation/process.py"})
"""The modules that may decode and read as they like: the helpers, the engine of the tests, and those of `PARSERS`."""

PARSERS = {
    "lazyzip.directory": "decode",
    "lazyzip.content_at": "decode",
    "lazyzip.unpack": "decode",
    "follow": "program",
}
"""Calls of modules that say what they raise: whoever calls them guards them, as if it were done there."""

DECODERS = frozenset(
    {"decode", "convert", "loads", "b64decode", "decompress", "unpack", "unpack_from", "fromstring", "ZipFile"}
)
VALUES = frozenset({"fromisoformat", "fromhex", "unhexlify"})
FILES = frozenset({"open", "read_bytes", "read_text", "write_bytes", "write_text", "unlink"})
PROGRAMS = frozenset({"subprocess.run", "subprocess.Popen", "subprocess.check_output"})
GUARDS = {
    "decode": frozenset({"damaged", "reading", "_as_ours"}),
    "value": frozenset({"damaged"}),
    "file": frozenset({"writing", "asking", "temporary_folder", "reading"}),
}
"""Blocks within which a call may stand that decodes, reads a value, or works on a file."""

CATCHES = {"file": ("OSError",), "value": ("ValueError",), "program": ("OSError",), "timed": ("OSError", "Timeout")}
"""What an ``except`` has to name to guard a call on a file, a value, a program, and one with a limit of time."""


def kind_of(node: ast.Call) -> str:
    """Name the edge that a call crosses; '' for one that crosses none, or cannot fail by what it is given."""
    called = ast.unparse(node.func)
    name = called.rpartition(".")[2]
    if called in PARSERS:
        return PARSERS[called]
    if called in PROGRAMS:
        return "timed" if any(one.arg == "timeout" for one in node.keywords) else "program"
    named = {"decode": DECODERS, "value": VALUES, "file": FILES}
    kind = next((kind for kind, names in named.items() if name in names), "")
    return "" if is_safe(called, node) else kind


def crossings(path: Path) -> Counter[str]:
    """Count a module's unguarded calls of what crosses an edge, by the call's last name."""
    found: Counter[str] = Counter()
    _count(ast.parse(path.read_text(encoding="utf-8")), frozenset(), found)
    return found


def _count(node: ast.AST, guards: frozenset[str], found: Counter[str]) -> None:
    if isinstance(node, ast.Call):
        kind = kind_of(node)
        if kind and kind not in guards:
            found[ast.unparse(node.func).rpartition(".")[2]] += 1
    inner = guards
    if isinstance(node, ast.With):
        calls = (item.context_expr for item in node.items)
        names = {ast.unparse(one.func).rpartition(".")[2] for one in calls if isinstance(one, ast.Call)}
        inner |= {kind for kind, helpers in GUARDS.items() if names & helpers}
        inner |= caught_by(" ".join(ast.unparse(item.context_expr) for item in node.items if is_suppress(item)))
        for item in node.items:  # the first item guards those after it: with writing(path), path.open() as file
            _count(item, inner if item is not node.items[0] else guards, found)
        for line in node.body:
            _count(line, inner, found)
        return
    if isinstance(node, ast.Try):
        caught = " ".join(ast.unparse(handler.type) for handler in node.handlers if handler.type)
        inner |= caught_by(caught)
        for line in node.body:
            _count(line, inner, found)
        for part in (*node.handlers, *node.orelse, *node.finalbody):
            _count(part, guards, found)
        return
    for child in ast.iter_child_nodes(node):
        _count(child, inner, found)


def is_suppress(item: ast.withitem) -> bool:
    """Tell whether a block suppresses exceptions, which are then its words."""
    return isinstance(item.context_expr, ast.Call) and ast.unparse(item.context_expr.func).endswith("suppress")


def caught_by(exceptions: str) -> frozenset[str]:
    """Name the edges that are guarded where these exceptions are caught."""
    any_of_programs = exceptions.replace("SubprocessError", "Timeout")
    return frozenset(kind for kind, names in CATCHES.items() if all(name in any_of_programs for name in names))


def is_safe(called: str, node: ast.Call) -> bool:
    """Tell whether a call cannot fail by what it is given: encoding of our own text, a decoder that replaces."""
    last = called.rpartition(".")[2]
    values = [ast.unparse(value) for value in (*node.args, *(keyword.value for keyword in node.keywords))]
    if last == "decode":
        return "'replace'" in values or "encode" in called or "format" in called
    if last == "loads":
        return all("encode(" in value for value in values)
    return called.startswith("yaml.") or (last == "open" and called == "opener.open")


def every() -> Counter[tuple[str, str]]:
    """Count the crossings of the package, but for the probes, which run in images, and the helpers."""
    found: Counter[tuple[str, str]] = Counter()
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).as_posix()
        if place not in HELPERS and not place.startswith(("probes/", "controls/defects/", "simulated/sources/")):
            found.update({(place, name): count for name, count in crossings(path).items()})
    return found


def test_every_edge_has_its_helper() -> None:
    """No module decodes, unpacks, opens, reads or starts a program where a failure would not become one of ours."""
    assert every() == Counter(), "use envbuilder.errors.decode and envbuilder.workspace"


def test_crossings_are_found(tmp_path: Path) -> None:
    """The search itself: decoders and readers count, our own encoding and what replaces do not."""
    path = tmp_path / "m.py"
    path.write_text(
        "msgspec.json.decode(x)\nopen(p)\np.read_text()\nb.decode('utf-8', 'replace')\nb.decode(errors='replace')\n"
        "base64.b64encode(x).decode()\ndecode.from_json(x, T)\n"
        "with damaged('x'):\n    json.loads(x)\n    open(q)\n"
        "try:\n    p.read_bytes()\n    json.loads(x)\nexcept (ValueError, OSError):\n    p.read_bytes()\n"
        "with writing(p), p.open('w') as f:\n    pass\n"
    )
    assert crossings(path) == Counter({"decode": 1, "open": 2, "read_text": 1, "loads": 1, "read_bytes": 1})


def test_unguarded_programs_and_values_are_found(tmp_path: Path) -> None:
    """A program with a limit of time needs both of its failures caught; a time or a number that is none, its own."""
    path = tmp_path / "m.py"
    path.write_text(
        "subprocess.run(a)\nsubprocess.run(a, timeout=1)\ndatetime.fromisoformat(x)\nzlib.decompress(x)\n"
        "try:\n    subprocess.run(a)\n    subprocess.run(a, timeout=1)\nexcept OSError:\n    pass\n"
        "try:\n    subprocess.run(a, timeout=1)\nexcept (OSError, subprocess.TimeoutExpired):\n    pass\n"
        "try:\n    datetime.fromisoformat(x)\n    zlib.decompress(x)\nexcept ValueError:\n    pass\n"
        "with damaged('x'):\n    zlib.decompress(x)\n    bytes.fromhex(x)\njson.loads(msgspec.json.encode(x))\n"
    )
    assert crossings(path) == Counter({"run": 3, "fromisoformat": 1, "decompress": 2})
