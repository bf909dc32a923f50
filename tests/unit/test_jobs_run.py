"""The main job over an engine: one row an environment, whatever became of the others; and what `clean` frees."""

import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import factories
import msgspec
import pytest
from fake_engine import FakeEngine
from table_rows import rows

from envbuilder.catalog.store import load
from envbuilder.choice import Choice, choose
from envbuilder.compat.findings import finding
from envbuilder.errors import InfrastructureError
from envbuilder.finding import Code
from envbuilder.jobs.clean import CleanOptions, as_text, clean
from envbuilder.jobs.run import RunDocument, Runner, RunOptions, RunRow, next_command, run_text
from envbuilder.support.console import Console
from envbuilder.workspace import Workspace

ROOT = Path(__file__).parents[2]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Make a workspace with the quickstart's context, and with the same under a second id whose lock does not fit."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    name = choice_of().environments[0].id
    made = factories.workspace(tmp_path, name, "shared")
    shutil.copytree(made.context(name), made.context("second"))
    (made.context("second") / "requirements.lock").write_text("numpy==1.0.0\n")
    return made


def choice_of() -> Choice:
    choice = choose("quickstart", (), Workspace(ROOT), load())
    (first,) = choice.environments
    return replace(choice, environments=(first, msgspec.structs.replace(first, id="second")))


def test_each_environment_has_its_row(workspace: Workspace) -> None:
    engine = FakeEngine().with_base()
    first = Runner(choice_of(), workspace, engine, Console(), RunOptions(jobs=2, validate=False)).run()
    assert {request.tag for request in engine.builds if not request.target} == {first.rows[0].image}
    second = Runner(choice_of(), workspace, engine, Console(), RunOptions(validate=False)).run()
    assert [row.built for row in first.rows] == ["built", "not reached"]
    assert [row.built for row in second.rows] == ["unchanged", "not reached"]
    assert first.rows[0].path == f"out/{first.rows[0].environment}/image.json"
    assert (workspace.root / first.rows[0].path).is_file()
    assert "pins tensorflow-cpu at nothing" in first.rows[1].error
    assert [row.exit_code for row in first.rows] == [0, 2]
    image = f"envbuilder/tensorflow:{first.rows[0].environment}"
    assert (second.rows[0].image, second.next) == (image, f"docker run --rm -it {image}")
    text = run_text(second)
    assert (image in text, " second " in text) == (True, True)
    assert text.endswith(f"\nresults: out/<environment>/image.json\nnext: {second.next}")


def test_failed_step_is_marked_once_at_its_line(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.chdir(workspace.root)
    broken = {"Dockerfile.j2": "FROM envbuilder/base:debian-bookworm\nRUN exit 7\n", "tools.lock": "uv==1\n"}
    monkeypatch.setattr("envbuilder.image.context.templates", lambda: broken)
    engine = FakeEngine().with_base()
    choice = replace(choice_of(), environments=choice_of().environments[:1])
    (row,) = Runner(choice, workspace, engine, Console(), RunOptions(validate=False)).run().rows
    marks = [line for line in capsys.readouterr().err.splitlines() if line.startswith("::error")]
    assert [mark.partition("::")[2].partition("::")[0] for mark in marks] == [
        f"error title=envbuilder,file=images/{row.environment}/Dockerfile,line=2"
    ]


def test_base_that_cannot_be_had_stops_before_any_build(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(workspace.root))
    engine = FakeEngine()
    with pytest.raises(InfrastructureError, match="there is no base for debian-bookworm"):
        Runner(choice_of(), workspace, engine, Console(), RunOptions(validate=False)).run()
    assert engine.builds == []


def test_next_command_after_a_failure_explains_it() -> None:
    found = finding(Code.GPU_NOT_VISIBLE, "no_driver", environment="x")
    passed = RunRow(environment="a", image="a", verdict="PASSED", findings=(found,))
    rows = (passed, msgspec.structs.replace(passed, verdict="FAILED"))
    environments = choice_of().environments
    assert next_command(rows, environments) == "envbuilder explain GPU_NOT_VISIBLE"
    assert next_command(rows[:1], environments[:1]).startswith("docker run")
    assert next_command((RunRow(environment="a", error="x"),), environments[:1]) == ""


def test_table_has_the_begin_of_an_error_and_the_first_reason_of_a_verdict() -> None:
    row = RunRow(environment="a", verdict="INCONCLUSIVE", reasons=("gpu: devices was not run: no GPU", "another"))
    text = run_text(RunDocument(matrix="m", rows=(row, row)))
    assert text.endswith("\n\nINCONCLUSIVE: gpu: devices was not run: no GPU (and 1 more)")
    row = RunRow(environment="a", error=f"a cannot be locked: {'because ' * 40}")
    *_, line = run_text(RunDocument(matrix="m", rows=(row,))).splitlines()
    assert re.fullmatch(r"ERROR .* cannot be locked: because .{,60}…", line)


NOW = datetime.now(UTC)
ON_THE_WAY = ("envbuilder/control:stub", "envbuilder/reproduced:0123", "envbuilder/tensorflow:tf2.16.2-x-after-2.15.1")
KEPT = ("envbuilder/base:debian-bookworm", "envbuilder/tensorflow:tf2.20.0-x", "team/tensorflow:2.20.0")


@pytest.fixture
def engine() -> FakeEngine:
    """Make an engine with images of every kind, one of somebody else among them."""
    made = FakeEngine(left_behind=2, cache=30)
    for name in (*ON_THE_WAY, *KEPT):
        made.add(name, name.encode())
    return made


def left(engine: FakeEngine) -> set[str]:
    return {name for name in (*ON_THE_WAY, *KEPT) if engine.image(name) is not None}


def test_intermediate_images_are_removed(engine: FakeEngine) -> None:
    document = clean(engine, CleanOptions())
    assert {row.reference for row in document.images} == set(ON_THE_WAY)
    assert left(engine) == set(KEPT)
    assert (document.containers, document.freed, engine.cache) == (2, 0, 30)


def test_all_images_of_envbuilder_and_no_others_are_removed(engine: FakeEngine) -> None:
    document = clean(engine, CleanOptions(everything=True, cache_keep=10))
    assert left(engine) == {"team/tensorflow:2.20.0"}
    assert document.images[-1].reference == "envbuilder/base:debian-bookworm"
    assert (document.freed, engine.cache) == (20, 10)


def test_dry_run_removes_nothing(engine: FakeEngine) -> None:
    document = clean(engine, CleanOptions(everything=True, cache_keep=0, dry_run=True))
    assert len(document.images) == len(ON_THE_WAY) + len(KEPT) - 1
    assert left(engine) == {*ON_THE_WAY, *KEPT}
    assert (engine.left_behind, engine.cache) == (2, 30)
    assert "2 images, 0.00 GB, stay (--all removes them)" in as_text(clean(engine, CleanOptions(dry_run=True)))


def test_image_that_cannot_be_removed_is_named_others_go(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    remove = engine.remove

    def refuse(reference: str) -> None:
        if reference == ON_THE_WAY[0]:
            raise InfrastructureError("in use by container 4f")
        remove(reference)

    monkeypatch.setattr(engine, "remove", refuse)
    document = clean(engine, CleanOptions())
    assert [row.kept for row in document.images if row.kept] == ["in use by container 4f"]
    assert left(engine) == {ON_THE_WAY[0], *KEPT}


def tagged_at(engine: FakeEngine, days: dict[str, int]) -> None:
    for name, age in days.items():
        image = engine.add(name, name.encode())
        engine._store[name] = replace(image, tagged=(NOW - timedelta(days=age)).isoformat())


@rows
def test_old_images_go_on_request(days: int | None, keep_last: int | None, gone: set[str]) -> None:
    before = None if days is None else NOW - timedelta(days=days)
    engine = FakeEngine()
    tagged_at(engine, {f"envbuilder/tensorflow:{name}": age for name, age in zip("abcd", (1, 9, 40, 90), strict=True)})
    document = clean(engine, CleanOptions(before=before, keep_last=keep_last, dry_run=True))
    assert {row.reference.partition(":")[2] for row in document.images} == gone
    assert (document.staying, document.staying_size > 0) == (4 - len(gone), True)
