"""The table of checks, the texts of their findings, the digest of the suite, and its text for old Pythons."""

import ast
import json
import os
import shutil
import string
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from suite_messages import START
from suite_messages import lines as message_lines
from table_rows import beside

from envbuilder.finding import Code
from envbuilder.support.python_source import code_only, for_python36
from envbuilder.validation import image_context, suite_plan
from envbuilder.validation.image_context import FindingText, found
from envbuilder.validation.suite_plan import CHECKS, GROUPS, HOST_GROUPS, Check, Facts, digest_of, probe_files
from envbuilder.validation.suite_session import Progress, Session, Unfinished
from envbuilder.verdict import LEVELS, HostRef
from envbuilder.workspace import packaged_yaml

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "envbuilder" / "probes" / "suite"
SOURCES = {path.name: path.read_bytes() for path in SUITE.rglob("*") if "__pycache__" not in path.parts}
"""The suite's own files, as they stand in the folder: what its digest is made of."""


HOST = ROOT / "envbuilder" / "validation"


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_each_check_has_its_probe_group_and_needs(check: Check) -> None:
    module, _, function = check.probe.partition(":")
    assert function in functions((HOST if check.group == "host" else SUITE) / f"{module}.py")
    assert check.group in {group.name for group in GROUPS}
    assert check.codes
    assert check.proves
    assert check.limit_s > 0
    for name in check.needs:
        need = next(one for one in CHECKS if one.name == name)
        assert need.flavor in ("any", check.flavor)
        assert need.profile == "quick" or check.profile == "full"


def test_check_names_are_unique_and_every_level_has_checks() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert {check.level for check in CHECKS} == set(LEVELS)


def test_selected_checks_follow_from_flavor_profile_and_lock() -> None:
    quick = suite_plan.select(Facts(flavor="gpu", locked=(("a", "1"),), environment="x"))
    full = suite_plan.select(Facts(flavor="gpu", locked=(("a", "1"),), environment="x", profile="full"))
    assert [check.name for check in full] == [check.name for check in CHECKS]
    here = suite_plan.select(Facts(flavor="gpu", locked=(("a", "1"),), place="here"))
    without_image = {"locked", "packages", "one-cuda", "no-stub", "closure", "symbol-versions", "xla-tools"}
    assert {check.name for check in here if check.group == "host"} == without_image
    assert len(quick) < len(full)
    assert all(check in full for check in quick)
    cpu = suite_plan.select(Facts(flavor="cpu", profile="full"))
    assert {check.level for check in cpu} == {"static", "load", "cpu"}
    assert not {"locked", "claims"} & {check.name for check in cpu}
    assert "secrets" not in {check.name for check in suite_plan.select(Facts(flavor="cpu", place="here"))}
    bare = suite_plan.select(Facts(flavor="gpu", locked=(("a", "1"),), environment="x", without_tools=True))
    assert {check.name for check in quick} - {check.name for check in bare} == {"xla-assembles"}
    assert all(check in quick for check in bare)


def test_plan_contains_every_check_once_after_its_needs() -> None:
    checks = suite_plan.select(Facts(flavor="gpu", profile="full"))
    plan = json.loads(suite_plan.plan(checks, Facts(flavor="gpu", libraries=("libcudart.so.12",))))
    names = [check["name"] for group in plan["groups"] for check in group["checks"]]
    assert sorted(names) == sorted(check.name for check in checks if check.group not in HOST_GROUPS)
    assert plan["facts"]["libraries"] == ["libcudart.so.12"]
    main = [c for group in plan["groups"] if group["lane"] == "main" for c in group["checks"]]
    order = {check["name"]: index for index, check in enumerate(main)}
    assert all(order[need] < order[check["name"]] for check in main for need in check["needs"])


def test_digest_changes_with_code_and_table_and_not_with_prose() -> None:
    files = {**SOURCES, **suite_plan.outside_files()}
    assert suite_plan.digest() == digest_of(CHECKS, files)
    assert {"host/judge.py", "host/suite_plan.py"} <= files.keys()

    def with_line(name: str, line: bytes) -> str:
        return digest_of(CHECKS, {**files, name: files[name] + line})

    limit = msgspec.structs.replace(CHECKS[0], limit_s=1.5)
    sentence = msgspec.structs.replace(CHECKS[0], proves="reworded")
    changed = {
        digest_of((limit, *CHECKS[1:]), files),
        with_line("cpu_checks.py", b"\nX = 1\n"),
        with_line("host/judge.py", b"\nX = 1\n"),
        suite_plan.digest(),
    }
    assert len(changed) == 4
    assert digest_of((sentence, *CHECKS[1:]), files) == suite_plan.digest()
    assert with_line("cpu_checks.py", b"\n# a comment\n") == suite_plan.digest()


@pytest.mark.parametrize(
    ("name", "was", "now", "is_same"),
    [
        ("check_findings", b"and labels name an environment", b"", True),
        ("check_findings", b"code: IMAGE_CLAIM", b"code: FILES_DIFFER", False),
        ("entrypoint_check", b"it ran out of memory", b"no memory", True),
        ("entrypoint_check", b"os._exit(0)", b"os._exit(1)", False),
        ("file_areas", b"{are} damaged", b"{are} broken", True),
        ("file_areas", b"fix: chmod o-w", b"fix: change it", True),
        ("file_areas", b"event: damaged", b"event: machine", False),
    ],
)
def test_digest_does_not_change_with_a_sentence_of_a_table(name: str, was: bytes, now: bytes, *, is_same: bool) -> None:
    files = {**SOURCES, **suite_plan.outside_files()}
    table = files[f"host/{name}.yaml"]
    assert was in table
    changed = digest_of(CHECKS, {**files, f"host/{name}.yaml": table.replace(was, now, 1)})
    assert (changed == suite_plan.digest()) is is_same


def test_code_only_drops_prose_and_keeps_strings() -> None:
    source = b'''"""Module."""
X = """kept

# kept
"""  # dropped


def f(a):  # dropped
    """Dropped."""
    return f"{a}  # kept"
'''
    assert (
        code_only(source)
        == b'''X = """kept

# kept
"""
def f(a):
    return f"{a}  # kept"'''
    )


@pytest.mark.parametrize("path", [*SUITE.glob("*.py"), *HOST.glob("*.py")], ids=lambda path: path.name)
def test_code_only_drops_no_string_of_an_expression(path: Path) -> None:
    """It takes a string in three quotes that begins and ends its lines for a docstring."""
    tree = ast.parse(path.read_text())
    lines = path.read_text().splitlines()
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            begins = lines[node.lineno - 1].lstrip().removeprefix("r").startswith('"""')
            ends = lines[(node.end_lineno or 0) - 1].endswith('"""')
            assert (begins and ends) is (id(node) in bare), f"line {node.lineno}"


def test_container_gets_every_file_of_the_suite_for_old_pythons() -> None:
    made = suite_plan.probe_files()
    assert made.keys() == SOURCES.keys()
    for name, source in SOURCES.items():
        assert made[name] == (for_python36(source) if name.endswith(".py") else source), name


PROBES = [check for check in CHECKS if check.group not in HOST_GROUPS]


def session(*lines: dict[str, Any]) -> tuple[Session, list[Progress]]:
    heard: list[Progress] = []
    made = Session((PROBES[0], PROBES[1]), heard.append, token="k")
    for byte in b'"noise"\n' + message_lines(START, *lines, token="k"):
        made.feed(bytes([byte]))
    return made, heard


def test_check_without_an_answer_is_an_error() -> None:
    first = {"name": PROBES[0].name, "tier": PROBES[0].level, "outcome": "passed"}
    made, heard = session({"event": "begin", "name": PROBES[0].name}, {"event": "result", "result": first})
    results = made.results(Unfinished("not run: the container ran out of memory"))
    assert [(one.name, one.outcome) for one in results] == [(PROBES[0].name, "passed"), (PROBES[1].name, "error")]
    assert [found.code for found in results[1].findings] == [Code.PROBE_CRASHED]
    assert "memory" in results[1].observed
    assert [one.kind for one in heard] == ["began", "ended"]
    assert not [text for text in made.violations() if "noise" in text]
    cut, after = session()[0].results(Unfinished("not run: a long traceback"))
    assert cut.observed == "not run: a long traceback"
    assert (after.observed, after.findings) == (f"not run, for the reason of {cut.name}", ())


HOSTILE = {
    "not UTF-8": b'{"event":"\xff"}',
    "deep": b"[" * 100_000,
    "of another shape": b'{"event":"result","result":{"name":[]}}',
    "phases of texts": (
        b'{"event":"result","result":{"name":"x","tier":"cpu","outcome":"passed","phases":{"a":{"cold_s":["b"]}}}}'
    ),
    "a driver of another shape": (
        b'{"event":"result","result":{"name":"driver","tier":"gpu","outcome":"passed","data":{"count":"many"}}}'
    ),
    "a host of another shape": b'{"event":"start","host":{"cpus":"many"}}',
}


@pytest.mark.parametrize("payload", HOSTILE.values(), ids=HOSTILE.keys())
def test_malformed_message_is_a_protocol_violation(payload: bytes) -> None:
    made = Session((CHECKS[0],), lambda _: None, token="k")
    made.feed(b"k " + payload + b"\n")
    assert any("cannot be read" in text for text in made.violations())
    assert made.driver.count == 0
    assert made.host == HostRef()


MODULES = sorted(name for name in SOURCES if name.endswith(".py"))


class Bare(ast.NodeTransformer):
    """Removes the imports from __future__, and replaces every annotation by a text."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        return None if node.module == "__future__" else node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name in ("annotation", "returns"):
            if getattr(node, name, None) is not None:
                setattr(node, name, ast.Constant("T"))
        return node


@pytest.mark.parametrize("name", MODULES)
def test_program_is_the_same_without_annotations(name: str) -> None:
    source, written = (SUITE / name).read_bytes(), probe_files()[name]
    assert written.count(b"\n") == source.count(b"\n")
    there = ast.parse(written, feature_version=(3, 6))
    assert ast.dump(there) == ast.dump(Bare().visit(ast.parse(source)))


def pythons() -> Iterator[tuple[str, str]]:
    for version in ("3.6", "3.7", "3.8"):
        kept = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python3"))
        found = next((str(path) for path in kept), None) or shutil.which(f"python{version}")
        if found:
            yield version, found


@pytest.mark.parametrize(("version", "python"), list(pythons()))
def test_old_python_imports_every_module(version: str, python: str, tmp_path: Path) -> None:
    folder = tmp_path / "suite"
    folder.mkdir()
    for name, content in probe_files().items():
        (folder / name).write_bytes(content)
    done = subprocess.run(
        [python, "-I", "-S", "-B", "-c", beside(__file__)["import"], str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ),
    )
    assert done.returncode == 0, f"{version}: {done.stderr}"
    assert done.stdout.split(maxsplit=1) == [str(len(MODULES)), "session re-creation\n"]


TEXTS = packaged_yaml("validation/check_findings.yaml", dict[str, FindingText])
PARTIAL = {"found": set[str](), "about": {"name", "value", "built"}}
"""Functions that write a finding, and the fields that they give by themselves."""


def strings(node: ast.AST) -> set[str]:
    return {one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)}


@cache
def calls() -> list[tuple[set[str], set[str]]]:
    """Return the strings that may be the row's name, and the fields, of each call that writes a finding."""
    found = []
    for module in (ast.parse(path.read_text()) for path in Path(image_context.__file__).parent.glob("*.py")):
        for node in ast.walk(module):
            function = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Call) and function in PARTIAL and node.args:
                name = node.args[0]
                fields = {keyword.arg for keyword in node.keywords if keyword.arg}
                found.append((strings(module if isinstance(name, ast.Name) else name), fields | PARTIAL[function]))
    return found


@pytest.mark.parametrize("name", TEXTS)
def test_finding_is_written_by_a_check_that_gives_its_fields(name: str) -> None:
    row = TEXTS[name]
    parts = (row.subject, row.message, row.requires, row.found, row.fix)
    fields = {field.split(".")[0] for part in parts for _, field, _, _ in string.Formatter().parse(part) if field}
    assert any(fields <= given for names, given in calls() if name in names), fields


def test_text_of_an_image_starts_no_line_of_a_report() -> None:
    one = found("claim", name="label x", claimed="1\n::error::\x1b[2J", actual="2")
    assert all(text.isprintable() for text in (one.subject, one.message, one.requires, one.found, one.fix))
    assert one.message == "label x says 1 : :error::, and it is 2"
