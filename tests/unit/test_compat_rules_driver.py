"""The driver rules: drivers in the numbers of Windows, and `NVIDIA_REQUIRE_CUDA` of an image."""

import pytest
from table_rows import rows

from envbuilder import versions
from envbuilder.catalog.store import load
from envbuilder.compat.candidate import Candidate, with_rows
from envbuilder.compat.rules.driver import minimum_driver, own_driver, reaches_minimum, requirement_met

CATALOG = load()
RELEASE = CATALOG.release("2.18.0")
REQUIREMENT = "cuda>=12.5 brand=tesla,driver>=535,driver<536 brand=nvidia,driver>=550,driver<551"


def with_driver(driver: str) -> Candidate:
    assert RELEASE is not None
    return with_rows(Candidate(release=RELEASE, driver=driver), CATALOG)


def test_drivers_of_a_toolkit_for_windows_have_the_branch_of_those_for_linux_and_reach_its_minimum() -> None:
    for toolkit in (row for row in CATALOG.cuda if row.windows_driver is not None):
        for linux, windows in (
            (toolkit.driver, toolkit.windows_driver),
            (toolkit.minimum_driver, toolkit.windows_minimum_driver),
        ):
            assert CATALOG.branch(linux) is not None
            assert CATALOG.branch(linux) is CATALOG.branch(windows)
        assert versions.key(toolkit.windows_minimum_driver or "") <= versions.key(toolkit.windows_driver or "")
        for driver in (toolkit.driver, toolkit.windows_driver, toolkit.windows_minimum_driver):
            assert driver is not None
            assert reaches_minimum(with_driver(driver), toolkit)


def test_host_with_a_number_of_windows_never_gets_one_of_linux() -> None:
    for number in (number for row in CATALOG.drivers for number in row.windows):
        host = with_driver(f"{number}.50")
        assert host.windows == number
        for toolkit in CATALOG.cuda:
            named = (minimum_driver(host, toolkit, CATALOG), own_driver(host, toolkit, CATALOG) or "Windows")
            assert all("Windows" in one or one.startswith("branch ") for one in named), (toolkit.version, named)


@rows
def test_requirement_is_evaluated_as_the_runtime_does(cuda, driver, brand, met) -> None:
    assert requirement_met(REQUIREMENT, cuda=cuda, driver=driver, brand=brand, capability=None) is met
    assert requirement_met("", cuda=cuda, driver=driver, brand=brand, capability=None) is True


@pytest.mark.parametrize("text", ["cuda", "cuda>>1", "colour=red", "cuda>=12.5,,brand=tesla"])
def test_invalid_condition_is_refused(text) -> None:
    with pytest.raises(ValueError, match="NVIDIA_REQUIRE_CUDA"):
        requirement_met(text, cuda="1.0", driver="1.0", brand="tesla", capability=None)
