"""Broken and hostile images, built and validated for real: each is red by its own codes, in time, with nothing left."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile_images import HOSTILE
from hostile_row import Hostile

from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.engine.docker import DockerEngine, connect
from envbuilder.engine.port import BuildRequest
from envbuilder.finding import Severity
from envbuilder.image.ensure import ensure
from envbuilder.pypi.open_index import open_index
from envbuilder.validation.validate import ValidationRequest, validate
from envbuilder.verdict import Verdict
from envbuilder.workspace import Workspace

NAME = f"envbuilder/hostile-{os.environ.get('PYTEST_XDIST_WORKER', 'gw0')}"
"""Each worker has its own: what one is done with, another may be looking at."""
WORST_S = 90.0
"""An image may take so long to be judged, whatever it does."""

CATALOG = load()


@pytest.fixture(scope="module")
def engine() -> DockerEngine:
    """Connect to the engine."""
    return connect()


@pytest.fixture(scope="module")
def bases(engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Find the good images, built where they are not yet: by flavour, when they are asked for."""
    workspace = Workspace(tmp_path_factory.mktemp("hostile"))

    class Bases(dict[str, str]):
        """Built at first use: the GPU image is 5 GB."""

        def __missing__(self, flavor: str) -> str:
            choice = choose("negative-controls", (), workspace, CATALOG)
            wanted = next(one for one in choice.environments if one.flavor == flavor and one.python == "3.11")
            built = ensure(wanted, choice.catalog, workspace, engine, lambda _: None)
            self[flavor] = built.record.reference
            return self[flavor]

    yield Bases()
    for tag in engine.names(NAME):
        engine.remove(tag)


def judged(engine: DockerEngine, base: str, row: Hostile, folder: Path) -> Verdict:
    """Build the row's image and validate it as ``envbuilder validate`` does; its time is bounded."""
    (folder / "Dockerfile").write_text(f"FROM {base}\n{row.dockerfile}")
    image = engine.build(BuildRequest(context=folder, tag=f"{NAME}:{row.name}", network="none"), lambda _: None)
    begun = time.monotonic()
    verdict = validate(engine, ValidationRequest(image.tags[0], catalog=CATALOG, gpus="none", index=open_index()))
    assert time.monotonic() - begun < WORST_S
    engine.remove(image.tags[0])
    return verdict


def codes(verdict: Verdict, severity: Severity) -> set[str]:
    """Return the codes of one severity."""
    return {one.code.value for one in verdict.findings if one.severity is severity}


def hold(engine: DockerEngine, bases: dict[str, str], row: Hostile, folder: Path) -> None:
    """Build, validate, compare: the word, the errors and no others, the warnings among others; nothing is left."""
    verdict = judged(engine, bases[row.base], row, folder)
    good = "INCONCLUSIVE" if row.base == "gpu" else "PASSED"
    assert codes(verdict, Severity.ERROR) == row.codes, verdict.reasons
    assert verdict.verdict == ("FAILED" if row.codes else good), verdict.reasons
    assert row.warns <= codes(verdict, Severity.WARNING)
    assert not any(line.startswith("::") for reason in verdict.reasons for line in reason.splitlines())
    assert engine.sweep() == 0


@pytest.mark.engine
@pytest.mark.network
@pytest.mark.full
@pytest.mark.parametrize("row", HOSTILE, ids=lambda row: row.name)
def test_adversarial_image_has_its_codes_only(
    engine: DockerEngine, bases: dict[str, str], row: Hostile, tmp_path: Path
) -> None:
    hold(engine, bases, row, tmp_path)
