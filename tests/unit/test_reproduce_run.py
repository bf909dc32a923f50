"""Reproduction runs: the output of a container, and the images of a recipe."""

import json
from pathlib import Path

import pytest
from factories import resolved, workspace
from fake_engine import FakeEngine, Script
from suite_messages import answer_to
from table_rows import rows

from envbuilder.catalog.store import load
from envbuilder.engine.port import ContainerSpec
from envbuilder.environment import Environment
from envbuilder.errors import BaseUnavailableError, BuildFailedError, InfrastructureError
from envbuilder.image import debian
from envbuilder.image.names import BASE_KEY_LABEL
from envbuilder.jobs import reproduction
from envbuilder.jobs.reproduction import ReproduceTools, ensured, image_of
from envbuilder.reproduce.compare import RunObservation
from envbuilder.reproduce.document import NearestRun, Recipe
from envbuilder.reproduce.report.reported import SCHEMA
from envbuilder.workspace import Workspace


def observe(printed: str, tmp_path: Path) -> RunObservation:
    """Observe an image whose capture script prints this, and whose probes give no result."""

    def script(spec: ContainerSpec) -> Script:
        captured = "capture.py" in spec.command[-1]
        suite = b"" if captured else answer_to(spec.stdin)
        return Script(stdout=printed.encode() if captured else suite, stderr=b"its last words")

    engine = FakeEngine(script=script)
    engine.add("ours:1")
    return reproduction.observe("ours:1", None, ReproduceTools(load(), Workspace(tmp_path), engine, lambda _: None))


@rows
def test_output_of_capture_is_read(fields: dict[str, object], text: str, tmp_path: Path) -> None:
    assert observe(json.dumps({"schema": SCHEMA, **fields}), tmp_path).text == text


@pytest.mark.parametrize("printed", ["", "[]", "7", "null", '{"devices": []}', "{", "Traceback: no module"])
def test_capture_without_document_raises_with_stderr(printed: str, tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="its last words"):
        observe(printed, tmp_path)


@pytest.fixture
def environment() -> Environment:
    return resolved()


@pytest.fixture
def tools(tmp_path: Path, environment: Environment, monkeypatch: pytest.MonkeyPatch) -> ReproduceTools:
    """Give a workspace with that environment's context, an engine without anything, and a host without programs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    known = workspace(tmp_path, environment.id, "shared/packages")
    return ReproduceTools(load(), known, FakeEngine(), lambda _: None)


def based(tools: ReproduceTools) -> FakeEngine:
    assert isinstance(tools.engine, FakeEngine)
    tools.engine.add("envbuilder/base:debian-bookworm", b"root", {BASE_KEY_LABEL: debian.recipe("bookworm")})
    return tools.engine


def test_missing_base_raises_base_unavailable(tools: ReproduceTools, environment: Environment) -> None:
    with pytest.raises(BaseUnavailableError, match="no base for debian-bookworm") as caught:
        ensured(environment, tools)
    assert "no such host" in caught.value.message
    assert "mmdebstrap" in caught.value.hint
    with pytest.raises(BaseUnavailableError, match=r"some/image:1 is not available here"):
        image_of(Recipe(kind="image", base="some/image:1", dockerfile="FROM some/image:1\n"), None, tools)


def test_failed_step_raises_build_failed(tools: ReproduceTools, environment: Environment) -> None:
    engine = based(tools)
    recipe = Recipe(kind="wheels", deviations=("a==1",), dockerfile="ARG BASE\nFROM ${BASE}\nRUN exit 3\n")
    with pytest.raises(BuildFailedError, match="RUN exit 3"):
        image_of(recipe, ensured(environment, tools), tools)
    assert [request.tag.partition(":")[0] for request in engine.builds] == [
        "envbuilder/tensorflow",
        "envbuilder/reproduced",
    ]


def test_recipe_with_deviations_is_built_once(tools: ReproduceTools, environment: Environment) -> None:
    engine = based(tools)
    recipe = Recipe(kind="wheels", deviations=("a==1",), dockerfile="ARG BASE\nFROM ${BASE}\nRUN echo a\n")
    built = ensured(environment, tools)
    first = image_of(recipe, built, tools)
    assert first.startswith("envbuilder/reproduced:")
    assert image_of(recipe, built, tools) == first
    assert len(engine.builds) == 2
    assert (tools.workspace.report_build(first.rpartition(":")[2]) / "build.log").is_file()
    committed = tools.workspace.context(environment.id) / "requirements.lock"
    assert built.lock == committed.read_text()


def test_nearest_with_another_driver_is_not_run(tools: ReproduceTools) -> None:
    report = "tensorflow 2.15.1\nGPU: H100\nDriver: 470.82.01\ncuDNN 8.1\nGPU not detected\n"
    near = reproduction.reproduce(report, tools, prove=True).nearest
    assert near.proof == NearestRun(needs="it takes driver 525")
    assert based(tools).builds == []
