"""What a rebuilt environment needs of this machine, and how it says that it lacks it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.engine.fake import FakeEngine
from envbuilder.environment import Environment
from envbuilder.errors import BuildFailedError
from envbuilder.image import debian
from envbuilder.image.names import BASE_KEY_LABEL
from envbuilder.reproduce.reproduction import Recipe
from envbuilder.reproduce.trial import Tools, Unavailable, environment_image, image_of, lock_of
from envbuilder.workspace import Workspace

ROOT = Path(__file__).parents[2]


@pytest.fixture
def environment() -> Environment:
    """Resolve the quickstart's environment, which is committed."""
    (made,) = choose("quickstart", (), Workspace(ROOT)).environments
    return made


@pytest.fixture
def tools(tmp_path: Path, environment: Environment, monkeypatch: pytest.MonkeyPatch) -> Tools:
    """Give a workspace with that environment's context, an engine without anything, and a host without programs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    workspace = Workspace(tmp_path)
    shutil.copytree(ROOT / "images" / environment.id, workspace.context(environment.id))
    return Tools(load(), workspace, FakeEngine(), [].append)


def based(tools: Tools) -> FakeEngine:
    """Give the engine its base."""
    assert isinstance(tools.engine, FakeEngine)
    tools.engine.add("envbuilder/base:debian-bookworm", b"root", {BASE_KEY_LABEL: debian.recipe("bookworm")})
    return tools.engine


def test_a_base_that_is_nowhere_is_a_circumstance(tools: Tools, environment: Environment) -> None:
    """What this machine cannot get is told as such, with both reasons; nothing is claimed of the environment."""
    with pytest.raises(Unavailable, match="no base for debian-bookworm") as caught:
        environment_image(environment, tools)
    assert "no such host" in caught.value.message
    assert "mmdebstrap" in caught.value.hint
    with pytest.raises(Unavailable, match=r"some/image:1 cannot be had here"):
        image_of(Recipe(kind="image", base="some/image:1", dockerfile="FROM some/image:1\n"), None, tools)


def test_another_failure_is_not_taken_for_it(tools: Tools, environment: Environment) -> None:
    """A step that fails is a failed build, whatever its message says."""
    engine = based(tools)
    recipe = Recipe(kind="wheels", deviations=("a==1",), dockerfile="ARG BASE\nFROM ${BASE}\nRUN exit 3\n")
    with pytest.raises(BuildFailedError, match="RUN exit 3"):
        image_of(recipe, environment, tools)
    assert [request.tag.partition(":")[0] for request in engine.builds] == [
        "envbuilder/tensorflow",
        "envbuilder/reproduced",
    ]


def test_what_deviates_is_built_once(tools: Tools, environment: Environment) -> None:
    """The same recipe on the same image is one image; the lock of its environment is the committed one."""
    engine = based(tools)
    recipe = Recipe(kind="wheels", deviations=("a==1",), dockerfile="ARG BASE\nFROM ${BASE}\nRUN echo a\n")
    first = image_of(recipe, environment, tools)
    assert first.startswith("envbuilder/reproduced:")
    assert image_of(recipe, environment, tools) == first
    assert len(engine.builds) == 2
    assert (tools.workspace.report_build(first.rpartition(":")[2]) / "build.log").is_file()
    committed = tools.workspace.context(environment.id) / "requirements.lock"
    assert lock_of(environment, tools) == committed.read_text()
