"""Images that lie, hang or flood, run for real: none is PASSED, each is red by its code, and each ends in time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from liars import LIARS, Liar

from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.engine.docker import DockerEngine, connect
from envbuilder.engine.port import BuildRequest
from envbuilder.finding import Severity
from envbuilder.image.build import Built
from envbuilder.image.ensure import ensure
from envbuilder.validation.validate import ValidationRequest, validate
from envbuilder.workspace import Workspace

NAME = "envbuilder/liar"
WORST_S = 150.0
"""A start limit or a silence, and what a busy engine adds. An import's own limit is beside it."""


@pytest.fixture(scope="module")
def engine() -> Iterator[DockerEngine]:
    """Connect, and leave no image behind."""
    made = connect()
    yield made
    for tag in made.names(NAME):
        made.remove(tag)


@pytest.fixture(scope="module")
def good(engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build the quickstart's environment where it is not yet."""
    workspace = Workspace(tmp_path_factory.mktemp("liars"))
    choice = choose("quickstart", (), workspace, load())
    return ensure(choice.environments[0], choice.catalog, workspace, engine, lambda _: None)


def hold(engine: DockerEngine, good: Built, row: Liar, folder: Path) -> float:
    """Build the row's image, validate it as the environment that it was, and return the seconds that took."""
    user = "" if "USER " in row.lines else "\nUSER envbuilder"
    (folder / "Dockerfile").write_text(f"FROM {good.record.image}\nUSER root\n{row.lines}{user}\n")
    image = engine.build(BuildRequest(context=folder, tag=f"{NAME}:{row.name}"), lambda _: None)
    begun = time.monotonic()
    verdict = validate(engine, ValidationRequest.of(good, image=image.tags[0], gpus="none"))
    errors = {finding.code.value for finding in verdict.findings if finding.severity is Severity.ERROR}
    assert verdict.verdict == "FAILED", verdict.reasons
    assert row.code in errors, verdict.reasons
    assert not any(text.startswith("::") for reason in verdict.reasons for text in reason.splitlines())
    assert engine.sweep() == 0
    return time.monotonic() - begun


@pytest.mark.engine
@pytest.mark.network
@pytest.mark.long
@pytest.mark.parametrize("row", [row for row in LIARS if row.quick], ids=lambda row: row.name)
def test_liars_that_never_import(engine: DockerEngine, good: Built, row: Liar, tmp_path: Path) -> None:
    """Red with its own code, within the limits of a start, nothing left on the host."""
    assert hold(engine, good, row, tmp_path) < WORST_S


@pytest.mark.engine
@pytest.mark.network
@pytest.mark.long
@pytest.mark.parametrize("row", [row for row in LIARS if not row.quick], ids=lambda row: row.name)
def test_liars_that_import(engine: DockerEngine, good: Built, row: Liar, tmp_path: Path) -> None:
    """Red with its own code, and nothing left on the host."""
    hold(engine, good, row, tmp_path)
