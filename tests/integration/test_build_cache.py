"""The build cache of a registry: an engine that never ran a step takes its layer instead."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from own_engine import OwnEngine, own_engine

from envbuilder.catalog.store import load
from envbuilder.engine.docker import connect
from envbuilder.engine.port import BuildRequest
from envbuilder.image.bases import ensure_base
from envbuilder.support.console import Step
from envbuilder.workspace import cache_dir

pytestmark = [pytest.mark.engine, pytest.mark.full, pytest.mark.timeout(600)]

DOCKERFILE = b"ARG BASE\nFROM ${BASE}\nRUN date +%N > /made\n"
TAG = "envbuilder-test/cache:1"


def test_cached_step_does_not_run_on_another_engine(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    engine, system = connect(), load().system("debian-bookworm")
    assert system is not None
    base = ensure_base(engine, system, cache_dir() / "bases", lambda *_: None).reference
    arguments = {"BASE": base, "BUILDKIT_INLINE_CACHE": "1"}
    request = BuildRequest(context={"Dockerfile": DOCKERFILE}, tag=TAG, build_args=arguments)
    image = engine.build(request, lambda _: None)
    try:
        archive = tmp_path / "images.tar"
        subprocess.run(["docker", "save", "-o", archive, base, TAG], check=True)
    finally:
        engine.remove(TAG)
    folder = tmp_path_factory.mktemp("engine")
    with own_engine(OwnEngine(folder, folder / "docker")) as own:
        subprocess.run(["docker", "-H", own.host, "load", "-i", archive], check=True)
        steps: list[Step] = []
        request = replace(request, tag="again", build_args={"BASE": base}, cache_from=(TAG,))
        again = own.connect().build(request, steps.append)
    assert [one.diff_id for one in again.layers] == [one.diff_id for one in image.layers]
    assert "cached" in {one.kind for one in steps if "date" in one.name}
