"""The upgrade probes as processes, with a small package in place of TensorFlow."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import envbuilder

UPGRADE = Path(envbuilder.__file__).parent / "probes" / "upgrade"


def answer(probe: str, arguments: object = None, **env: str) -> list[Any]:
    done = subprocess.run(
        [sys.executable, str(UPGRADE), probe, json.dumps(arguments or {})],
        capture_output=True,
        check=True,
        env={**os.environ, **env},
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("path", sorted(UPGRADE.glob("*.py")), ids=lambda path: path.name)
def test_probes_parse_on_the_oldest_python(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 7))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert not {name for name in imported if name and name.split(".")[0] == "envbuilder"}


def test_inventory_has_versions_licences_and_sizes() -> None:
    (found,) = answer("inventory")
    packages = {package["name"]: package for package in found["packages"]}
    assert packages["pytest"]["version"] == pytest.__version__
    assert packages["pytest"]["licence"] == "MIT"
    assert packages["pytest"]["size"] > 10_000
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))


def framework(folder: Path, extra: str = "") -> dict[str, str]:
    """Write a package that looks like Keras with one public module and its implementation."""
    (folder / "keras" / "src").mkdir(parents=True)
    (folder / "keras" / "layers").mkdir()
    (folder / "keras" / "src" / "__init__.py").write_text("def hidden(): pass\n")
    (folder / "keras" / "layers" / "__init__.py").write_text(
        "import os\n"
        "class Dense:\n"
        "    def __init__(self, units, activation=None, **more): pass\n"
        "    def call(self, x, *, training=False): pass\n"
        "    def _private(self): pass\n"
        "    @property\n"
        "    def weights(self): pass\n"
        "    build = None\n" + extra
    )
    (folder / "keras" / "__init__.py").write_text(
        "from keras import layers, src\n"
        "SENTINEL = object()\n"
        "def old(x, y=SENTINEL):\n"
        "    '''Add.\n\n    Deprecated: THIS FUNCTION IS DEPRECATED. It will go.'''\n"
        "def __getattr__(name):\n"
        "    raise ValueError('broken on purpose')\n"
        "def __dir__():\n"
        "    return ['layers', 'src', 'old', 'missing']\n"
    )
    return {"PYTHONPATH": str(folder)}


def test_surface_has_public_names_only(tmp_path: Path) -> None:
    (found,) = answer("surface", {"module": "keras"}, **framework(tmp_path))
    own = ["a", "self", None]
    assert found["names"] == {
        "layers": ["module", None, False],
        "layers.Dense": [
            "class",
            [["a", "self", None], ["a", "units", None], ["a", "activation", "None"], ["w", "more", None]],
            False,
        ],
        "layers.Dense.build": ["value", None, False],
        "layers.Dense.call": ["function", [own, ["a", "x", None], ["k", "training", "False"]], False],
        "layers.Dense.weights": ["property", None, False],
        "old": ["function", [["a", "x", None], ["a", "y", "<object object>"]], True],
    }


def test_warning_lines_are_normalised(tmp_path: Path) -> None:
    work = (
        "import sys, warnings\n"
        "warnings.warn('old at 0x7f00aa', DeprecationWarning)\n"
        "print('2026-01-01 10:00:00.123: W tensorflow/core/x.cc:12] slow', file=sys.stderr)\n"
        "print('W0000 00:00:1795222467.123    6150 y.cc:7] ignored', file=sys.stderr)\n"
        "print('2026-01-01 10:00:00.123: I tensorflow/core/x.cc:12] fine', file=sys.stderr)\n"
    )
    (found,) = answer("warning_lines", {"work": work})
    assert found["used"] == [
        "<script>: DeprecationWarning: old at 0x…",
        "W tensorflow/core/x.cc] slow",
        "W y.cc] ignored",
    ]


def test_crash_of_the_framework_is_a_line() -> None:
    (found,) = answer("warning_lines", {"work": "import os; os._exit(9)"})
    assert found["used"] == ["ERROR: the process ended with exit code 9"]


TESTS = """
import os, time
import pytest

def test_passes(tmp_path): (tmp_path / "x").write_text("x")
def test_fails(): assert 1 + 1 == 3, "arithmetic"
def test_exits(): os._exit(0)
def test_crashes(): os.kill(os.getpid(), 11)
def test_skipped(): pytest.skip("not here")
@pytest.fixture
def broken(): raise RuntimeError("no fixture")
def test_set_up(broken): pass
def test_hangs(): time.sleep(600)
def test_prints(): print('{"end": true}')
@pytest.mark.parametrize("n", [1, 2])
def test_each(n): assert n == 1
"""


def test_each_user_test_only_costs_itself(tmp_path: Path) -> None:
    (tmp_path / "test_all.py").write_text(TESTS)
    (tmp_path / "test_import.py").write_text("import no_such_module_here\n")
    (tmp_path / "good.py").write_text('if __name__ == "__main__":\n    print("fine")\n')
    (tmp_path / "bad.sh").write_text("echo broken pipe dream >&2\nexit 3\n")
    site = Path(pytest.__file__).parents[1]
    order = {
        "tests": ["test_all.py", "test_import.py"],
        "scripts": ["good.py", "bad.sh"],
        "root": str(tmp_path),
        "pytest": str(site),
        "limit_s": 6,
    }
    *documents, end = answer("user_tests", order)
    assert end == {"end": True}
    outcomes = {document["name"]: (document["outcome"], document["message"]) for document in documents}
    assert {name: outcome for name, (outcome, _) in outcomes.items()} == {
        "test_all.py::test_passes": "passed",
        "test_all.py::test_fails": "failed",
        "test_all.py::test_exits": "error",
        "test_all.py::test_crashes": "error",
        "test_all.py::test_skipped": "skipped",
        "test_all.py::test_set_up": "error",
        "test_all.py::test_hangs": "timeout",
        "test_all.py::test_prints": "passed",
        "test_all.py::test_each[1]": "passed",
        "test_all.py::test_each[2]": "failed",
        "test_import.py": "error",
        "good.py": "passed",
        "bad.sh": "failed",
    }
    assert "arithmetic" in outcomes["test_all.py::test_fails"][1]
    assert outcomes["test_all.py::test_crashes"][1].endswith("signal 11")
    assert "no_such_module_here" in outcomes["test_import.py"][1]
    assert outcomes["bad.sh"][1] == "exit code 3: broken pipe dream"


def outcomes_of(folder: Path, **files: str) -> dict[str, tuple[str, str]]:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    order = {
        "tests": sorted(path.name for path in folder.glob("test_*.py")),
        "scripts": sorted(path.name for path in folder.glob("*.sh")),
        "root": str(folder),
        "pytest": str(Path(pytest.__file__).parents[1]),
        "limit_s": 20,
    }
    *documents, end = answer("user_tests", order)
    assert end == {"end": True}
    return {document["name"]: (document["outcome"], document["message"]) for document in documents}


FORKS = """
import os, time
def test_leaves_a_child():
    if os.fork() == 0:
        time.sleep(120)
        os._exit(0)
def test_after(): pass
def test_child_runs_on(): assert os.fork() >= 0
def test_last(): pass
"""


def test_child_that_a_test_leaves_behind_costs_no_time(tmp_path: Path) -> None:
    began = time.monotonic()
    found = outcomes_of(tmp_path, test_forks__py=FORKS, s__sh="sleep 120 &\n")
    assert time.monotonic() - began < 60
    names = ("test_leaves_a_child", "test_after", "test_child_runs_on", "test_last")
    assert found == {**{f"test_forks.py::{name}": ("passed", "") for name in names}, "s.sh": ("passed", "")}


ODD = r"""
import os
def test_odd_message(): raise ValueError(b"caf\xe9".decode("utf-8", "surrogateescape"))
def test_writes_everywhere():
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, b'not an answer\n[1]\n{"x": \xff')
        except OSError:
            pass
def test_after(): pass
"""


def test_output_of_tests_with_odd_bytes_is_readable(tmp_path: Path) -> None:
    found = outcomes_of(tmp_path, test_odd__py=ODD)
    assert {name.partition("::")[2]: outcome for name, (outcome, _) in found.items()} == {
        "test_odd_message": "failed",
        "test_writes_everywhere": "passed",
        "test_after": "passed",
    }
    assert "caf?" in found["test_odd.py::test_odd_message"][1]


@pytest.mark.parametrize(
    "settings",
    [
        "[pytest]\naddopts = -n auto --cov-nothing-of-that-name\n",
        "[pytest]\nrequired_plugins = pytest-no-such-plugin\n",
        "[pytest]\naddopts = -x\n",
        "[pytest]\naddopts = -p no_such_plugin_here\n",
    ],
    ids=["unknown options", "missing plugin", "stop at the first failure", "plugin that cannot be imported"],
)
def test_pytest_options_without_their_plugin_are_dropped(tmp_path: Path, settings: str) -> None:
    text = "def test_a(): assert 0\ndef test_b(): pass\n"
    found = outcomes_of(tmp_path, test_some__py=text, pytest__ini=settings)
    assert {name: outcome for name, (outcome, _) in found.items()} == {
        "test_some.py::test_a": "failed",
        "test_some.py::test_b": "passed",
    }


def test_tests_after_the_end_of_a_session_are_errors(tmp_path: Path) -> None:
    text = "import pytest\ndef test_a(): pass\ndef test_b(): pytest.exit('enough')\ndef test_c(): pass\n"
    found = outcomes_of(tmp_path, test_some__py=text)
    assert found["test_some.py::test_a"][0] == "passed"
    assert found["test_some.py::test_c"] == ("error", "was not run: pytest ended before it")


def test_broken_conftest_is_one_result_for_each_file(tmp_path: Path) -> None:
    found = outcomes_of(tmp_path, test_some__py="def test_a(): pass\n", conftest__py="import no_such_module_here\n")
    assert {name: outcome for name, (outcome, _) in found.items()} == {"test_some.py": "error"}
