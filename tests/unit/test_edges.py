"""Every edge is crossed by a helper: what decodes, opens or reads does it where its failures become our errors."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "envbuilder"

HELPERS = frozenset({"errors/decode.py", "workspace.py"})
"""The modules that may decode and read as they like: they are the helpers."""

DECODERS = frozenset({"decode", "convert", "loads", "b64decode"})
FILES = frozenset({"open", "read_bytes", "read_text", "write_bytes", "write_text", "unlink"})
GUARDS = {"decode": frozenset({"damaged"}), "file": frozenset({"writing", "asking", "temporary_folder", "suppress"})}
"""Blocks within which a decoder, or a call on a file, may stand; ``except OSError`` guards files as well."""

NOT_YET = Counter(
    {
        # Files that ship with the package: one that is missing is a broken installation.
        ("catalog/store.py", "read_bytes"): 2,
        ("catalog/store.py", "convert"): 1,
        ("controls/control_run.py", "read_bytes"): 1,
        ("reproduce/messages/recognise.py", "read_text"): 1,
        ("reproduce/messages/recognise.py", "convert"): 1,
        ("reproduce/trial.py", "read_bytes"): 1,
        ("simulated/shared_library.py", "read_bytes"): 2,
        ("upgrade/observe.py", "read_bytes"): 1,
        ("validation/checks/suite_plan.py", "read_bytes"): 2,
        # The rest is to be given its helper.
        ("attest/envelope.py", "b64decode"): 1,
        ("attest/envelope.py", "decode"): 2,
        ("attest/keys.py", "decode"): 1,
        ("attest/sbom_contents.py", "decode"): 1,
        ("attest/sbom_contents.py", "open"): 2,
        ("attest/statement.py", "decode"): 1,
        ("attest/trust.py", "decode"): 2,
        ("catalog/runpath.py", "decode"): 1,
        ("cli/capture_command.py", "read_text"): 1,
        ("cli/capture_command.py", "write_text"): 1,
        ("cli/termination.py", "open"): 1,
        ("controls/control_run.py", "unlink"): 1,
        ("controls/recipe.py", "read_bytes"): 1,
        ("engine/fake.py", "open"): 1,
        ("engine/fake.py", "read_bytes"): 1,
        ("engine/fake.py", "read_text"): 1,
        ("engine/layer_files.py", "open"): 1,
        ("publish/journal.py", "decode"): 1,
        ("publish/journal.py", "read_bytes"): 2,
        ("publish/publish.py", "decode"): 1,
        ("publish/publish_all.py", "decode"): 1,
        ("publish/verify.py", "decode"): 2,
        ("refresh/propose.py", "read_bytes"): 1,
        ("refresh/ptx_text.py", "decode"): 2,
        ("registry/bounded_json.py", "decode"): 1,
        ("registry/client.py", "decode"): 1,
        ("registry/credentials.py", "b64decode"): 1,
        ("registry/credentials.py", "decode"): 3,
        ("registry/referrers.py", "decode"): 6,
        ("registry/transport.py", "decode"): 1,
        ("reproduce/report/captured.py", "convert"): 2,
        ("reproduce/report/captured.py", "loads"): 1,
        ("reproduce/report/read.py", "convert"): 2,
        ("reproduce/transcript.py", "loads"): 1,
        ("schemas.py", "loads"): 1,
        ("simulated/shared_library.py", "write_bytes"): 1,
        ("upgrade/bisect.py", "unlink"): 1,
        ("upgrade/kept.py", "decode"): 1,
        ("upgrade/model_exchange.py", "b64decode"): 1,
        ("upgrade/observe.py", "decode"): 1,
        ("upgrade/outputs.py", "b64decode"): 1,
        ("upgrade/user_tests.py", "decode"): 2,
        ("validation/image_claims.py", "decode"): 2,
        ("validation/image_files.py", "decode"): 1,
        ("validation/image_files.py", "read_bytes"): 1,
        ("validation/launcher.py", "write_bytes"): 1,
        ("validation/secret_search.py", "decode"): 1,
        ("validation/user_start.py", "convert"): 1,
        ("validation/user_start.py", "decode"): 1,
        ("validation/user_start.py", "loads"): 1,
        ("yaml_reader.py", "convert"): 2,
        ("yaml_reader.py", "decode"): 1,
    }
)
"""Crossings without a helper, by module and call: how many there are. The list may only become shorter."""


def crossings(path: Path) -> Counter[str]:
    """Count a module's unguarded calls of what crosses an edge, by the call's last name."""
    found: Counter[str] = Counter()
    _count(ast.parse(path.read_text(encoding="utf-8")), frozenset(), found)
    return found


def _count(node: ast.AST, guards: frozenset[str], found: Counter[str]) -> None:
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        name = called.rpartition(".")[2]
        kind = "decode" if name in DECODERS else "file" if name in FILES else ""
        if kind and kind not in guards and not is_safe(called, node):
            found[name] += 1
    inner = guards
    if isinstance(node, ast.With):
        calls = (item.context_expr for item in node.items)
        names = {ast.unparse(one.func).rpartition(".")[2] for one in calls if isinstance(one, ast.Call)}
        inner |= {kind for kind, helpers in GUARDS.items() if names & helpers}
        for item in node.items:  # the first item guards those after it: with writing(path), path.open() as file
            _count(item, inner if item is not node.items[0] else guards, found)
        for line in node.body:
            _count(line, inner, found)
        return
    if isinstance(node, ast.Try):
        caught = " ".join(ast.unparse(handler.type) for handler in node.handlers if handler.type)
        inner |= {"file"} if "OSError" in caught else set()
        for line in node.body:
            _count(line, inner, found)
        for part in (*node.handlers, *node.orelse, *node.finalbody):
            _count(part, guards, found)
        return
    for child in ast.iter_child_nodes(node):
        _count(child, inner, found)


def is_safe(called: str, node: ast.Call) -> bool:
    """Tell whether a call cannot fail by what it is given: encoding of our own text, a decoder that replaces."""
    last = called.rpartition(".")[2]
    values = [ast.unparse(value) for value in (*node.args, *(keyword.value for keyword in node.keywords))]
    if last == "decode":
        return "'replace'" in values or "encode" in called or "format" in called
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
    """No module decodes, opens or reads past the helpers, but for the list, which names no crossing that has gone."""
    found = every()
    assert found - NOT_YET == Counter(), "use envbuilder.errors.decode and envbuilder.workspace"
    assert NOT_YET - found == Counter(), "these have their helper now: take them off the list"


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
