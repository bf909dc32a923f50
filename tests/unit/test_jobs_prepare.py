"""Locking anew says what changed, keeps forms of one environment together, and needs no engine."""

import json
from pathlib import Path

import pytest
from command_line import ran
from package_folders import MemoryIndex

from envbuilder.catalog.store import load
from envbuilder.choice import Choice, choose
from envbuilder.errors import UsageError
from envbuilder.image import context, lockfile, system_lock
from envbuilder.jobs.prepare import prepare_all, stale_all, write_standalone
from envbuilder.support.console import Console
from envbuilder.workspace import Workspace

LOCK = "tensorflow-cpu==2.20.0 --hash=sha256:" + "0" * 64 + "\n"


@pytest.fixture(autouse=True)
def no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "open_index", MemoryIndex)
    monkeypatch.setattr(lockfile, "resolve", lambda *_, **__: LOCK)


def test_newer_package_of_the_system_is_a_changed_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first lock is new, an equal one unchanged, and another version of a system's package changed."""
    (tmp_path / "m.yaml").write_text(
        json.dumps(
            {"name": "ours", "system_packages": ["git"], "include": [{"tensorflow": "2.20.0", "os": "debian-bookworm"}]}
        )
    )
    workspace, version = Workspace(tmp_path), ["1"]
    monkeypatch.setattr(system_lock, "resolve", lambda *_: f"{'0' * 64}  git_{version[0]}_amd64.deb\n")
    choices = (choose(str(tmp_path / "m.yaml"), (), workspace, load()),)
    said = [
        prepare_all(choices, workspace, Console(), renew=True),
        prepare_all(choices, workspace, Console(), renew=True),
    ]
    version[0] = "2"
    said.append(prepare_all(choices, workspace, Console(), renew=True))
    assert said == [(1, 0), (0, 1), (1, 0)]
    folder = workspace.context(choices[0].environments[0].id)
    assert "install-apt git=2\n" in (folder / "Dockerfile").read_text()


def both_forms(folder: Path) -> tuple[Choice, ...]:
    axes = {"tensorflow": ["2.20.0"], "os": ["debian-bookworm"], "form": ["runtime", "devel"]}
    (folder / "m.yaml").write_text(json.dumps({"name": "ours", "axes": axes}))
    return (choose(str(folder / "m.yaml"), (), Workspace(folder), load()),)


def test_forms_of_one_environment_are_renewed_to_one_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One resolution gives both their pins, whatever an index says later."""
    answers = iter([LOCK, LOCK.replace("0" * 64, "1" * 64)])
    monkeypatch.setattr(lockfile, "resolve", lambda *_, **__: next(answers))
    workspace, choices = Workspace(tmp_path), both_forms(tmp_path)
    runtime, devel = (workspace.context(one.id) for one in choices[0].environments)
    assert prepare_all(choices, workspace, Console(), renew=True) == (2, 0)
    first = lockfile.of_context(runtime)
    assert (first, lockfile.of_context(devel)) == (LOCK, LOCK + lockfile.installer("3.11"))
    assert (devel / "Dockerfile").is_file()
    assert (runtime / "Dockerfile").is_file()
    assert prepare_all(choices, workspace, Console(), renew=True) == (2, 0)
    second = lockfile.of_context(runtime) or ""
    assert lockfile.of_context(devel) == second + lockfile.installer("3.11") != first
    assert second != first


def test_rendering_locks_and_writes_what_is_missing(tmp_path: Path) -> None:
    """Both variants are written from one lock, and their comparison finds nothing; `render --check` sees an edit."""
    workspace, choices = Workspace(tmp_path), both_forms(tmp_path)
    assert prepare_all(choices, workspace, Console()) == (2, 0)
    assert stale_all(choices, workspace, whole=True) == ()
    for edited in (workspace.images / "shared/steps/install", workspace.images / "README.md"):
        before = edited.read_bytes()
        edited.write_text("mine\n")
        assert [one.path for one in stale_all(choices, workspace, whole=True)] == [str(edited)]
        edited.write_bytes(before)


def test_render_check_prints_one_changed_character(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    choices = both_forms(tmp_path)
    prepare_all(choices, Workspace(tmp_path), Console())
    assert ran(capsys, "render", "m.yaml", "--check")[0] == 0
    dockerfile = Workspace(tmp_path).context(choices[0].environments[0].id) / "Dockerfile"
    dockerfile.write_text(dockerfile.read_text().replace("PYTHONUNBUFFERED=1", "PYTHONUNBUFFERED=2"))
    code, out, _ = ran(capsys, "render", "m.yaml", "--check")
    changed = [line for line in out.splitlines() if "PYTHONUNBUFFERED" in line and line[0] in "+-"]
    values = [(line[0], line.partition("PYTHONUNBUFFERED=")[2][0]) for line in changed]
    assert (code, values) == (1, [("-", "2"), ("+", "1")])


def test_standalone_folder_is_of_one_environment(tmp_path: Path) -> None:
    workspace, choices = Workspace(tmp_path), both_forms(tmp_path)
    with pytest.raises(UsageError, match="2 environments are selected"):
        write_standalone(choices, workspace, tmp_path / "alone")
    (one,) = (choose(str(tmp_path / "m.yaml"), ("*-runtime",), workspace, load()),)
    name = write_standalone((one,), workspace, tmp_path / "alone")
    assert (tmp_path / "alone" / name / lockfile.LOCK).read_text() == LOCK
    assert (tmp_path / "alone/Dockerfile").is_file()
