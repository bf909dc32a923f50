"""Reproduction runs, and the stand-in libraries that they need."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
from factories import resolved, workspace
from fake_engine import FakeEngine, Script
from suite_messages import answer_to

from envbuilder.catalog.store import load
from envbuilder.engine.port import ContainerSpec
from envbuilder.environment import Environment
from envbuilder.errors import BuildFailedError, InfrastructureError
from envbuilder.image import debian
from envbuilder.image.names import BASE_KEY_LABEL
from envbuilder.reproduce import run
from envbuilder.reproduce.document import Recipe
from envbuilder.reproduce.messages.catalog import match
from envbuilder.reproduce.report.captured import SCHEMA
from envbuilder.reproduce.run import (
    REPLACED,
    ImageUnavailableError,
    ReproduceTools,
    RunObservation,
    environment_image,
    image_of,
    lock_of,
    needed,
    stand_ins,
)
from envbuilder.workspace import Workspace


def observe(printed: str, tmp_path: Path) -> RunObservation:
    """Observe an image whose capture script prints this, and whose probes give no result."""

    def script(spec: ContainerSpec) -> Script:
        captured = "capture.py" in spec.command[-1]
        suite = b"" if captured else answer_to(spec.stdin)
        return Script(stdout=printed.encode() if captured else suite, stderr=b"its last words")

    engine = FakeEngine(script=script)
    engine.add("ours:1")
    return run.observe("ours:1", None, ReproduceTools(load(), Workspace(tmp_path), engine, lambda _: None))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"devices": ["CPU"], "log": ["one", "two"]}, "one\ntwo\n[]"),
        ({"devices": ["CPU", "GPU"], "log": ["one"]}, "one"),
        ({"devices": [], "log": None}, ""),
        ({"devices": 7, "log": ["one", 2, None]}, "one"),
        ({"devices": {"GPU": 1}, "log": {"a": "b"}, "later": [1]}, ""),
    ],
)
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


def test_missing_base_raises_image_unavailable(tools: ReproduceTools, environment: Environment) -> None:
    with pytest.raises(ImageUnavailableError, match="no base for debian-bookworm") as caught:
        environment_image(environment, tools)
    assert "no such host" in caught.value.message
    assert "mmdebstrap" in caught.value.hint
    with pytest.raises(ImageUnavailableError, match=r"some/image:1 is not available here"):
        image_of(Recipe(kind="image", base="some/image:1", dockerfile="FROM some/image:1\n"), None, tools)


def test_failed_step_raises_build_failed(tools: ReproduceTools, environment: Environment) -> None:
    engine = based(tools)
    recipe = Recipe(kind="wheels", deviations=("a==1",), dockerfile="ARG BASE\nFROM ${BASE}\nRUN exit 3\n")
    with pytest.raises(BuildFailedError, match="RUN exit 3"):
        image_of(recipe, environment, tools)
    assert [request.tag.partition(":")[0] for request in engine.builds] == [
        "envbuilder/tensorflow",
        "envbuilder/reproduced",
    ]


def test_recipe_with_deviations_is_built_once(tools: ReproduceTools, environment: Environment) -> None:
    engine = based(tools)
    recipe = Recipe(kind="wheels", deviations=("a==1",), dockerfile="ARG BASE\nFROM ${BASE}\nRUN echo a\n")
    first = image_of(recipe, environment, tools)
    assert first.startswith("envbuilder/reproduced:")
    assert image_of(recipe, environment, tools) == first
    assert len(engine.builds) == 2
    assert (tools.workspace.report_build(first.rpartition(":")[2]) / "build.log").is_file()
    committed = tools.workspace.context(environment.id) / "requirements.lock"
    assert lock_of(environment, tools) == committed.read_text()


pytestmark = pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="no C compiler")


GPU = resolved(flavor="gpu")


def test_stand_ins_are_needed_for_cudnn_refusals_only() -> None:
    refused = "Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.3.0."
    assert needed(match(refused))
    assert not needed(match("Cannot dlopen some GPU libraries"))


def test_stand_ins_cover_the_libraries_that_the_environment_opens(tmp_path: Path) -> None:
    made = stand_ins(GPU, tmp_path)
    assert set(made.names) == {name for name in GPU.libraries if name.startswith(REPLACED)}
    assert all(path.startswith("simulated/") for path in made.files)
    assert not any("libcuda.so" in path for path in made.files)
    assert made.env["TF_ENVBUILDER_CUDA_RUNTIME"] == "12050"
    older = msgspec.structs.replace(GPU, cuda="11.8")
    assert stand_ins(older, tmp_path).env["TF_ENVBUILDER_CUDA_RUNTIME"] == "11080"


def test_stand_in_returns_the_version_of_the_real_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = stand_ins(GPU, tmp_path)
    path = tmp_path / "standin.so"
    path.write_bytes(next(iter(made.files.values())))
    source = "unsigned long cudnnGetVersion(void) { return 90100; }"
    real = tmp_path / "real.so"
    words = [shutil.which("cc") or "gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(real)]
    subprocess.run(words, input=source.encode(), check=True)
    program = f"import ctypes; f = ctypes.CDLL({str(path)!r}).cudnnGetVersion; f.restype = ctypes.c_size_t; print(f())"
    for paths, version in ((f"/nowhere/libcudnn.so.9:{real}", "90100"), ("/nowhere/libcudnn.so.9", "0")):
        env = {**os.environ, "TF_ENVBUILDER_REAL_CUDNN": paths}
        done = subprocess.run(["python3", "-c", program], env=env, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == version
    monkeypatch.setenv("TF_ENVBUILDER_CUDA_RUNTIME", "12050")
    number = ctypes.c_int()
    assert ctypes.CDLL(str(path)).cudaRuntimeGetVersion(ctypes.byref(number)) == 0
    assert number.value == 12050
