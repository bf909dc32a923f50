"""A driver is judged and told by the numbers of its host's system."""

from __future__ import annotations

import pytest

from envbuilder import versions
from envbuilder.catalog.rows import CudaToolkit
from envbuilder.catalog.store import load
from envbuilder.compat.candidate import Candidate, with_rows
from envbuilder.compat.rules.driver import minimum_driver, own_driver, reaches_minimum

CATALOG = load()
RELEASE = CATALOG.release("2.18.0")
WITH_WINDOWS = [row for row in CATALOG.cuda if row.windows_driver is not None]


def on(driver: str) -> Candidate:
    """Make a candidate with this driver."""
    assert RELEASE is not None
    return with_rows(Candidate(release=RELEASE, driver=driver), CATALOG)


@pytest.mark.parametrize("toolkit", WITH_WINDOWS, ids=[row.version for row in WITH_WINDOWS])
def test_a_toolkits_windows_drivers_are_of_the_branch_of_its_linux_ones(toolkit: CudaToolkit) -> None:
    """What Windows calls a toolkit's drivers is of the branch that Linux' numbers name; the minimum comes first."""
    for linux, windows in (
        (toolkit.driver, toolkit.windows_driver),
        (toolkit.minimum_driver, toolkit.windows_minimum_driver),
    ):
        named, called = CATALOG.branch(linux), CATALOG.branch(windows)
        assert named is not None
        assert called is named
    assert versions.key(toolkit.windows_minimum_driver or "") <= versions.key(toolkit.windows_driver or "")


@pytest.mark.parametrize("toolkit", WITH_WINDOWS, ids=[row.version for row in WITH_WINDOWS])
def test_a_toolkits_own_driver_for_windows_reaches_its_minimum(toolkit: CudaToolkit) -> None:
    """A toolkit runs with the driver that it came with, on either system."""
    for driver in (toolkit.driver, toolkit.windows_driver, toolkit.windows_minimum_driver):
        assert driver is not None
        assert reaches_minimum(on(driver), toolkit)


@pytest.mark.parametrize("number", [number for row in CATALOG.drivers for number in row.windows])
def test_a_number_of_windows_is_never_told_to_take_one_of_linux(number: str) -> None:
    """To a host with Windows' numbers every toolkit's driver is told as one of Windows, or as a branch."""
    host = on(f"{number}.50")
    assert host.windows == number
    for toolkit in CATALOG.cuda:
        told = (minimum_driver(host, toolkit, CATALOG), own_driver(host, toolkit, CATALOG) or "Windows")
        assert all("Windows" in one or one.startswith("branch ") for one in told), (toolkit.version, told)


@pytest.mark.parametrize("row", CATALOG.drivers, ids=[row.branch for row in CATALOG.drivers])
def test_a_number_of_linux_is_told_as_it_is(row) -> None:
    """A host with Linux' numbers reads the catalogue's figure."""
    for release in row.releases:
        host = on(release)
        assert host.windows == ""
        for toolkit in CATALOG.cuda:
            assert minimum_driver(host, toolkit, CATALOG) == toolkit.minimum_driver
            assert own_driver(host, toolkit, CATALOG) == toolkit.driver
