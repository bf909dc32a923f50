"""Negative controls, built for real: each fails with exactly its one code, and the good environments with none.

`make test` runs one control per mechanism of the suite, `make test-full` all of them.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

import pytest
from table_rows import beside

from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.cli import exit_codes
from envbuilder.controls.control import Base, Control, controls, named
from envbuilder.controls.run import Controller, ControlsDocument
from envbuilder.engine.docker import connect
from envbuilder.finding import Code
from envbuilder.image.build import Built, ensure
from envbuilder.pypi.client import open_index
from envbuilder.support.console import Console
from envbuilder.workspace import Workspace

CONTROLS = controls()

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.timeout(2700)]


MECHANISMS = set(beside(__file__)["mechanisms"])
"""One control for each way in which the suite finds a defect: `make test` runs these."""

BUSY = {Code.PROBE_TIMEOUT, Code.SLOW_PHASE}


def by_base(controls: Iterable[Control]) -> Iterator[tuple[Control, ...]]:
    """Divide controls by their base: the layers of several images are read from one archive."""
    return (tuple(group) for _, group in groupby(controls, key=lambda control: control.base))


CHOSEN = sorted(named(tuple(sorted(MECHANISMS))), key=lambda control: control.base)
OTHERS = (control for control in CONTROLS if control.name not in MECHANISMS)


@pytest.mark.parametrize(
    "group",
    [
        *(pytest.param(group, id=f"mechanisms@{group[0].base}") for group in by_base(CHOSEN)),
        *(
            pytest.param(group, id=f"others@{group[0].base}-{number}", marks=pytest.mark.full)
            for number, group in enumerate(by_base(OTHERS))
        ),
    ],
)
def test_each_control_leads_to_its_one_finding(group: tuple[Control, ...], controller: Controller) -> None:
    rows = {row.control: row for row in controller.run(group).rows}
    late = tuple(one for one in group if {*rows[one.name].found} & BUSY - {one.code})
    rows |= {row.control: row for row in controller.run(late).rows}  # the machine was busy: once more
    assert not {row.control: f"{row.wrong}; red: {', '.join(row.red)}" for row in rows.values() if not row.right}
    assert exit_codes.of(ControlsDocument(rows=tuple(rows.values()))) == 0
    for control in group:
        row = rows[control.name]
        red = control.code is not None and not control.warned
        assert row.verdict == ("FAILED" if red else "PASSED" if control.base == "cpu" else "INCONCLUSIVE"), row
        assert row.simulated is bool(control.simulate), row


class Slim(Controller):
    """Breaks the quickstart's CPU environment, whose image leaves out what it can."""

    def good(self, base: Base) -> Built:
        assert base == "cpu"
        if base not in self._good:
            choice = choose("quickstart", ("tf2.20.0-py311-cpu-bookworm-runtime",), self.workspace, self.catalog)
            (environment,) = choice.environments
            self._good[base] = ensure(environment, choice.catalog, self.workspace, self.engine, lambda _: None)
        return self._good[base]


@pytest.fixture(scope="module")
def slim() -> Controller:
    return Slim(Workspace(Path(__file__).parents[2]), connect(), open_index(), load(), Console())


RUNTIME = ("good-cpu", "file-changed", "not-as-locked")
"""Controls of what is compared with a list of removed files."""


@pytest.mark.full
def test_runtime_images_fail_as_whole_ones(slim: Controller) -> None:
    group = named(RUNTIME)
    for control, row in zip(group, slim.run(group).rows, strict=True):
        assert row.environment.endswith("-runtime")
        assert row.right, f"{row.control}: {row.wrong}; red: {', '.join(row.red)}"
        assert row.verdict == ("FAILED" if control.code else "PASSED")
