"""Every negative control, built for real: each fails with exactly its one code, and the good environments with none."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuilder import exits
from envbuilder.catalog.store import load
from envbuilder.console import Console
from envbuilder.controls.control import Control
from envbuilder.controls.control_run import Controller, ControlRow
from envbuilder.controls.table import CONTROLS
from envbuilder.engine.docker import connect
from envbuilder.pypi.open_index import open_index
from envbuilder.workspace import Workspace

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def controller() -> Controller:
    return Controller(Workspace(Path(__file__).parents[2]), connect(), open_index(), load(), Console())


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.name)
def test_each_control_leads_to_its_one_finding(control: Control, controller: Controller) -> None:
    """The suite finds the defect, names it by its code, and turns nothing else red."""
    document = controller.run((control,))
    row: ControlRow = document.rows[0]
    assert row.right, f"{row.wrong}; red: {', '.join(row.red)}"
    assert exits.of(document) == 0
    assert row.verdict == ("FAILED" if control.code else "PASSED" if control.base == "cpu" else "INCONCLUSIVE")
    assert row.simulated is bool(control.simulate)
