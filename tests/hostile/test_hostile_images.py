"""Each broken or hostile image is built from a good one and looked at from outside: red, with its own codes alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile_images import HOSTILE, Hostile

from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.engine.docker import DockerEngine, connect
from envbuilder.engine.port import BuildRequest, Image
from envbuilder.finding import Severity
from envbuilder.image.ensure import ensure
from envbuilder.image.wheel_records import WheelRecords
from envbuilder.pypi.open_index import open_index
from envbuilder.validation import expectations as facts_of
from envbuilder.validation.checks import suite_plan
from envbuilder.validation.events import Identity
from envbuilder.validation.host_checks import check_outside
from envbuilder.validation.image_claims import ENVIRONMENT_LABEL, brings_cuda, carried_lock, document
from envbuilder.validation.image_files import ImageFiles, read_image
from envbuilder.validation.outside import Outside
from envbuilder.verdict import CheckResult
from envbuilder.workspace import Workspace

NAME = "envbuilder/hostile"
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
        """Built at first use: the GPU image is 5 GB, and the fast rows do not need it."""

        def __missing__(self, flavor: str) -> str:
            choice = choose("negative-controls", (), workspace, CATALOG)
            wanted = next(one for one in choice.environments if one.flavor == flavor and one.python == "3.11")
            built = ensure(wanted, choice.catalog, workspace, engine, lambda _: None)
            self[flavor] = built.record.reference
            return self[flavor]

    yield Bases()
    for tag in engine.names(NAME):
        engine.remove(tag)


def derived(engine: DockerEngine, base: str, row: Hostile, folder: Path) -> Image:
    """Build the row's image."""
    user = "" if "USER " in row.lines else "\nUSER envbuilder"
    (folder / "Dockerfile").write_text(f"FROM {base}\nUSER root\n{row.lines}{user}\n")
    return engine.build(BuildRequest(context=folder, tag=f"{NAME}:{row.name}"), lambda _: None)


def looked_at(image: Image, files: ImageFiles) -> tuple[CheckResult, ...]:
    """Make every check of the host of an image that is known by its name alone; the image itself is asked nothing."""
    told, lock = document(files), carried_lock(files)
    label = image.labels.get(ENVIRONMENT_LABEL, "")
    if told is not None and told.id == label:
        facts = facts_of.of_environment(told, lock, image, profile="quick", simulated=False)
    else:
        silent = Identity(python="3.11", executable="python")
        cuda = brings_cuda(files)
        facts = facts_of.of_foreign(silent, CATALOG, image, profile="quick", simulated=False, for_gpus=cuda)
        facts = facts_of.of_claimed(facts, files, image)
    subject = Outside(image, files, facts, lock, WheelRecords(open_index()))
    return tuple(check_outside(subject, check) for check in suite_plan.select(facts) if check.group == "host")


def errors(results: tuple[CheckResult, ...]) -> dict[str, str]:
    """Return the codes that are errors, each with its message."""
    findings = [finding for result in results for finding in result.findings]
    return {one.code.value: one.message for one in findings if one.severity is Severity.ERROR}


def hold(engine: DockerEngine, bases: dict[str, str], row: Hostile, folder: Path) -> None:
    """Build, look, compare."""
    image = derived(engine, bases[row.base], row, folder)
    found = errors(looked_at(image, read_image(engine, image)))
    assert set(found) == row.codes, found


@pytest.mark.engine
@pytest.mark.network
@pytest.mark.long
@pytest.mark.parametrize("row", [row for row in HOSTILE if row.fast], ids=lambda row: row.name)
def test_fast(engine: DockerEngine, bases: dict[str, str], row: Hostile, tmp_path: Path) -> None:
    """An image that is broken in one of the commonest ways is red with its own codes, and nothing else is."""
    hold(engine, bases, row, tmp_path)


@pytest.mark.engine
@pytest.mark.network
@pytest.mark.long
@pytest.mark.parametrize("row", [row for row in HOSTILE if not row.fast], ids=lambda row: row.name)
def test_all_others(engine: DockerEngine, bases: dict[str, str], row: Hostile, tmp_path: Path) -> None:
    """Every other broken image is red with its own codes, and nothing else is."""
    hold(engine, bases, row, tmp_path)
