"""Newly failing tests are run again on both images, their whole files, until each has both passed and failed."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import repeat
from pathlib import Path
from unittest.mock import Mock

import pytest
from fake_engine import FakeEngine, Script
from table_rows import beside, rows

from envbuilder.engine.port import ContainerSpec
from envbuilder.errors import UsageError
from envbuilder.upgrade import user_tests
from envbuilder.upgrade.observe import AnswerCache, Output, ProbeTarget
from envbuilder.upgrade.user_tests import AGAIN, UserSuite, read_suite, results, run_again, run_on_both

FILES = {"test_a.py": b"def test_x(): pass", "test_b.py": b"def test_y(): pass", "job.sh": b"true", "data.txt": b"1"}
X = "test_a.py::test_x"


@dataclass
class ComparedImage:
    """An image in which one test ends as it is told and all others pass; ``ran`` and ``limits`` are of each run."""

    outcomes: Iterator[str]
    ran: list[list[str]] = field(default_factory=list)
    limits: list[tuple[int, float]] = field(default_factory=list)

    @property
    def place(self) -> ProbeTarget:
        engine = FakeEngine(script=self.answer)
        engine.add("image")
        return ProbeTarget(engine, "image")

    def answer(self, spec: ContainerSpec) -> Script:
        order = json.loads(spec.command[3])
        assert "suite/data.txt" in spec.files, "tests may need any file of their folder"
        self.ran.append([*order["tests"], *order["scripts"]])
        self.limits.append((order["limit_s"], spec.time_limit))
        lines = [{"name": X, "outcome": next(self.outcomes), "message": "no"}] if "test_a.py" in order["tests"] else []
        lines += [{"name": "test_b.py::test_y", "outcome": "passed"}] if "test_b.py" in order["tests"] else []
        return Script(stdout="\n".join(map(json.dumps, [*lines, {"end": True}])).encode())


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UserSuite:
    monkeypatch.setattr(user_tests, "pytest_files", lambda _: {})
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    return read_suite(tmp_path)


def test_only_files_of_failing_tests_run_again(suite: UserSuite) -> None:
    side = ComparedImage(repeat("failed"))
    runs = run_again(side.place, suite, "3.11", {X})
    assert side.ran == [["test_a.py"]] * AGAIN
    assert len(runs) == AGAIN


def test_slow_test_runs_once_more(suite: UserSuite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_tests, "AGAIN_S", -1.0)
    assert len(run_again(ComparedImage(repeat("failed")).place, suite, "3.11", {X})) == 1


def test_limits_are_shown_while_tests_run_and_reach_both_containers(suite: UserSuite, tmp_path: Path) -> None:
    side, shown = ComparedImage(repeat("passed")), Mock()
    places = [side.place, side.place]
    limited = replace(suite, test_limit=5, limit=70)
    (_, old_again), (_, new_again) = run_on_both(places, ("3.11", "3.11"), limited, AnswerCache(tmp_path), shown)
    assert (old_again, new_again) == ((), ())
    texts = [call.args[0] for call in shown.update.call_args_list]
    limits = "(each at most 5 s, together 70 s)"
    assert texts == [f"your tests on the {name} image {limits}" for name in ("old", "new")]
    assert side.limits == [(5, 70.0)] * 2


def test_digest_of_a_suite_covers_every_file_and_limit(suite: UserSuite) -> None:
    other = replace(suite, files={**suite.files, "data.txt": b"2"})
    parts = (other, replace(suite, test_limit=5), replace(suite, limit=5), replace(suite, skip=frozenset({X})))
    assert len({suite.digest, *(part.digest for part in parts)}) == 5
    assert suite.only({X}).digest == suite.digest


FOLDER = beside(__file__)["FOLDER"]


def test_suite_contains_pytest_files_and_scripts(tmp_path: Path) -> None:
    for name, text in {**FOLDER, "__pycache__/test_a.py": ""}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    suite = read_suite(tmp_path)
    assert suite.tests == ("sub/b_test.py", "test_a.py")
    assert set(suite.scripts) == {"train.py", "check.sh"}
    assert set(suite.files) == FOLDER.keys()


@pytest.mark.parametrize("name", ["", "readme.txt"], ids=["empty", "no tests"])
def test_suite_folder_without_tests_is_a_usage_error(name: str, tmp_path: Path) -> None:
    if name:
        (tmp_path / name).write_text("x")
    with pytest.raises(UsageError, match="holds no tests"):
        read_suite(tmp_path)


def test_link_out_of_the_suite_is_a_usage_error(tmp_path: Path) -> None:
    """A test of somebody else's could print that file; the environment's own links are not of the suite."""
    suite, inside = tmp_path / "suite", tmp_path / "suite" / ".venv" / "python"
    inside.parent.mkdir(parents=True)
    inside.symlink_to("/bin/sh")
    (suite / "test_a.py").write_text("")
    (suite / "test_b.py").symlink_to("test_a.py")
    assert read_suite(suite).tests == ("test_a.py", "test_b.py")
    (suite / "data").symlink_to("/etc/passwd")
    with pytest.raises(UsageError, match="data leads out of the folder"):
        read_suite(suite)


@rows
def test_results_are_read_from_lines(lines: str, wrong: str, tests: list[tuple[str, str, str]]) -> None:
    assert [(test.name, test.outcome, test.message) for test in results(Output(lines.encode(), wrong))] == tests
