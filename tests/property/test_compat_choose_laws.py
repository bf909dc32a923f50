"""`choose`, `check`, `plan` and `doctor` give one answer about a release on a host, and name one environment."""

import json
import re
from pathlib import Path
from typing import get_args

import pytest
from fake_engine import no_engine
from hypothesis import given
from hypothesis import strategies as st
from laws import examples
from msgspec import structs
from real_questions import CATALOG, DRIVERS

from envbuilder.compat.fleet import FleetHost, HostChoice, choose_for, place
from envbuilder.compat.plan import plan
from envbuilder.compat.question import Question
from envbuilder.environment import WHOLE, Combination, Environment, Variant
from envbuilder.jobs.choose import check_with_image, choose_environment
from envbuilder.jobs.doctor import Diagnosis, diagnose
from envbuilder.jobs.plan import PlanDocument, PlanOptions, newest_for, plan_matrix
from envbuilder.matrix import Axes, Matrix
from envbuilder.verdict import GpuSeen, HostRef

NOWHERE = Path("/nonexistent")
releases = st.sampled_from(
    [one for one in CATALOG.final_versions if any(row.gpu for row in CATALOG.distributions(one))]
)
gpus = st.sampled_from([gpu.name for gpu in CATALOG.gpus])
drivers = st.sampled_from(DRIVERS)
variants = st.sampled_from(get_args(Variant))


def chosen(tensorflow: str, driver: str, gpu: str, variant: Variant = "runtime") -> HostChoice:
    wanted = Combination(tensorflow=tensorflow, flavor="gpu", variant=variant)
    return choose_for(wanted, FleetHost(name="host", driver=driver, gpus=(gpu,)), CATALOG)


def plan_of(release: str, variant: Variant) -> tuple[Environment, ...]:
    """Resolve a release without a target, as a matrix does."""
    axes = Axes(tensorflow=(release,), flavor=("gpu",), variant=(variant,))
    return plan(Matrix(name="one", axes=axes), CATALOG).environments


def fleet_plan(folder: Path, release: str, driver: str, gpu: str, variant: Variant) -> PlanDocument:
    """Plan a matrix of one release for a fleet of one host, from their files."""
    axes = {"tensorflow": [release], "flavor": ["gpu"], "form": [variant or WHOLE]}
    (folder / "matrix.yaml").write_text(json.dumps({"name": "one", "axes": axes}))
    (folder / "fleet.yaml").write_text(json.dumps([{"name": "host", "driver": driver, "gpus": [gpu]}]))
    options = PlanOptions(matrix=str(folder / "matrix.yaml"), fleet=folder / "fleet.yaml")
    return plan_matrix(options, folder, CATALOG)


def doctor(driver: str, gpu: str, environments: tuple[Environment, ...]) -> Diagnosis:
    return diagnose(
        HostRef(driver=driver, gpus=(GpuSeen(name=gpu, compute_capability=""),)),
        no_engine,
        avx=True,
        arch=next(row.arch for row in CATALOG.gpus if row.name == gpu) or "x86_64",
        base=CATALOG.systems[0],
        tools=(),
        places=(),
        environments=environments,
        catalog=CATALOG,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fleet")


@examples(24, times=5)
@given(releases, drivers, gpus, variants)
def test_choose_check_plan_and_doctor_agree_about_a_release(
    folder: Path, release: str, driver: str, gpu: str, variant: Variant
) -> None:
    found = chosen(release, driver, gpu, variant)
    document = check_with_image(Question(tensorflow=release, driver=driver, gpus=(gpu,)), CATALOG)
    named = plan_of(release, variant)
    fleet = fleet_plan(folder, release, driver, gpu, variant)
    cells = fleet.cells
    assert [row.id for row in fleet.environments] == [row.id for row in named]
    assert {one.environment: one.compatible for one in doctor(driver, gpu, named).environments} == {
        one.environment: one.compatible for one in cells
    }
    assert found.compatible is document.compatible
    drivers_to_take = {text for one in document.findings for text in re.findall(r"Update the driver to (\S+)", one.fix)}
    assert len(drivers_to_take) <= 1, document.findings
    assert (found.compatible is True) is (found.environment is not None)
    assert all(cell.compatible is not True or found.compatible is True for cell in cells)
    assert all(cell.compatible is not None or found.compatible is not False for cell in cells)
    if found.environment is None:
        assert [row.tensorflow for row in found.refused] == [release]
        return
    assert document.image.environment.removesuffix("-runtime") == found.environment.id.removesuffix(f"-{variant}")
    (cell,) = place((found.environment,), (FleetHost(name="host", driver=driver, gpus=(gpu,)),), CATALOG)
    assert cell.compatible is True


@examples(6, times=5)
@given(drivers, gpus)
def test_every_command_names_the_same_newest_environment(folder: Path, driver: str, gpu: str) -> None:
    found = chosen("", driver, gpu)
    question = Question(driver=driver, gpus=(gpu,))
    (planned,) = newest_for(PlanOptions(driver=driver, gpus=(gpu,)), CATALOG).newest
    document = choose_environment(question, None, "runtime", NOWHERE, CATALOG)
    environments = (found.environment,) if found.environment else ()
    diagnosis = doctor(driver, gpu, environments)
    (on_fleet,) = fleet_plan(folder, "2.20.0", driver, gpu, "runtime").newest
    assert (on_fleet.image, on_fleet.compatible) == (planned.image, planned.compatible)
    assert planned.image == diagnosis.chosen
    # Only `choose` knows which values were asked for.
    both = [structs.replace(one, chosen=()) for one in (document.environment, found.environment) if one is not None]
    assert both[:1] == both[1:]
    checked = check_with_image(question, CATALOG)
    assert [planned.compatible, document.compatible, checked.compatible] == [found.compatible] * 3
    assert all(cell.compatible is True for cell in diagnosis.environments)
    for refused in found.refused[::5]:
        assert chosen(refused.tensorflow, driver, gpu).environment is None
    if found.environment is not None:
        assert checked.image == planned.image
