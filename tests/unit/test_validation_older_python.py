"""The probes as old Pythons get them: the same program line by line, with no annotation that has to be evaluated."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuilder.validation.older_python import without_annotations
from envbuilder.validation.suite_plan import probe_files

SUITE = Path(__file__).parents[2] / "envbuilder" / "probes" / "suite"
MODULES = sorted(name for name in probe_files() if name.endswith(".py"))


class Bare(ast.NodeTransformer):
    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        return None if node.module == "__future__" else node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.returns = None
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        for row in node.body:
            if isinstance(row, ast.AnnAssign):
                row.annotation = ast.Constant("T")
            else:
                self.visit(row)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        return ast.Pass() if node.value is None else ast.Assign(targets=[node.target], value=node.value)


@pytest.mark.parametrize("name", MODULES)
def test_program_is_the_same_without_annotations(name: str) -> None:
    source, written = (SUITE / name).read_bytes(), probe_files()[name]
    assert written.count(b"\n") == source.count(b"\n")
    there = ast.parse(written, feature_version=(3, 6))
    assert ast.dump(there) == ast.dump(Bare().visit(ast.parse(source)))


@pytest.mark.parametrize(
    ("source", "written"),
    [
        (
            "def f(x: int, *y: str, z: 'a' = 1) -> list[\n    int\n]: ...",
            "def f(x     , *y     , z      = 1)        \\\n      \\\n : ...",
        ),
        ("x: int = 1", "x      = 1"),
        ("x: int", "pass  "),
        ("class A:\n    x: int\n    y: list[int] = []", 'class A:\n    x: "T"\n    y: "T"       = []'),
        ("class A:\n    x: T\n    y: T = 1\n    z: int", 'class A:\n    x: "T"\n    y: "T" = 1\n    z: "T"'),
        (
            "class A:\n    x: T\n    def f(self, a: int) -> T: ...",
            'class A:\n    x: "T"\n    def f(self, a     )     : ...',
        ),
        ("from __future__ import (\n    annotations\n)\nx = 1", "                        \n               \n \nx = 1"),
        ("x: list[\n\n    int] = 1", "x      \\\n\\\n         = 1"),
        ("x:T\ny: T = 1\nz: int", "pass\ny    = 1\npass  "),
        ("f = lambda x: x + 1", "f = lambda x: x + 1"),
        ("ä: str = 'é'  # -> no", "ä      = 'é'  # -> no"),
        ("def f(x='->') -> str:\n    return '->'", "def f(x='->')       :\n    return '->'"),
    ],
)
def test_annotation_becomes_blanks(source: str, written: str) -> None:
    assert without_annotations(source.encode()).decode() == written


def test_source_that_breaks_is_an_error() -> None:
    with pytest.raises(SyntaxError):
        without_annotations(b"def f() -> (\n    int\n): ...\n")


def pythons() -> Iterator[tuple[str, str]]:
    for version in ("3.6", "3.7", "3.8"):
        kept = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python3"))
        found = next((str(path) for path in kept), None) or shutil.which(f"python{version}")
        if found:
            yield version, found


IMPORT = """
import importlib, os, sys
sys.path.insert(0, sys.argv[1])
names = sorted(name[:-3] for name in os.listdir(sys.argv[1] + "/suite") if name.endswith(".py"))
for name in names:
    if name != "__main__":
        importlib.import_module("suite." + name)
from suite import elf, packages, runner, stall_rules
assert packages.satisfied("1.15.5", ">=1.15,<2") and not packages.satisfied("2.0", "<2")
steps = [dict(data=0.0, step=1.0, sync=0.0, other=0.0, traces=0, nodes=0, sessions=n, copied=0, faults=0, rss=0,
              transient=0, cpu=0.0, waited=0.0, shape="1") for n in range(60)]
print(len(names), stall_rules.causes(steps)[0].name)
"""


@pytest.mark.parametrize(("version", "python"), list(pythons()))
def test_old_python_imports_every_module(version: str, python: str, tmp_path: Path) -> None:
    folder = tmp_path / "suite"
    folder.mkdir()
    for name, content in probe_files().items():
        (folder / name).write_bytes(content)
    done = subprocess.run(
        [python, "-I", "-S", "-B", "-c", IMPORT, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ),
    )
    assert done.returncode == 0, f"{version}: {done.stderr}"
    assert done.stdout.split(maxsplit=1) == [str(len(MODULES)), "session re-creation\n"]
