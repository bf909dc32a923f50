"""A large plan is read at a glance: causes instead of rows, kinds instead of hosts, lines that fit a terminal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from envbuilder.catalog.store import load
from envbuilder.cli.plan_command import command
from envbuilder.jobs.plan_document import PlanDocument
from envbuilder.jobs.plan_matrix import PlanOptions, plan_matrix
from envbuilder.jobs.plan_text import FEW, WIDTH, plan_text

CATALOG = load()
GPUS = ("Tesla T4", "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB", "NVIDIA L4", "NVIDIA H100 80GB HBM3")
DRIVERS = ("450.80.02", "470.57.02", "525.85.12", "535.104.05", "550.54.15", "570.124.06", "580.65.06", "590.44.01")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> PlanDocument:
    """Plan several hundred combinations, most of them impossible, some excluded."""
    matrix = tmp_path_factory.mktemp("many") / "matrix.yaml"
    releases = ", ".join(CATALOG.final_versions[-40:])
    matrix.write_text(
        f"name: many\naxes:\n  tensorflow: [{releases}]\n  python: ['3.6', '3.8', '3.11', '3.13']\n"
        "  os: [debian-bookworm, debian-trixie]\nexclude:\n  - {reason: not here, os: debian-trixie, python: '3.8'}\n"
        "  - {reason: nor this, os: debian-trixie, python: '3.6'}\n"
    )
    return plan_matrix(PlanOptions(str(matrix)), matrix.parent, CATALOG)


def test_many_rejections_are_summed_up_by_their_cause(many: PlanDocument) -> None:
    """The sums add up to all of them, each cause has an example, and the lines do not grow with the rows."""
    text = plan_text(many)
    assert len(many.rejections) > 2 * FEW
    assert f"rejected: {len(many.rejections)} combinations" in text
    counted = [int(number) for number in re.findall(r"^  [A-Z_]+: (\d+)$", text, re.MULTILINE)]
    assert sum(counted) == len(many.rejections)
    assert len(many.excluded) > FEW
    assert f"excluded: {len(many.excluded)} combinations" in text
    assert "not here" in text
    assert len(text.splitlines()) < len(many.environments) + FEW
    ids = {row.id for row in many.rejections}
    assert set(re.findall(r"\d+ x (tf\S+):", text)) <= ids


def test_all_lists_each_of_them(many: PlanDocument) -> None:
    """With --all each rejection has its line, its reason and what is nearest; few are listed anyway."""
    text = plan_text(many, everything=True)
    for row in many.rejections:
        assert f"  {row.id}: {many.findings[row.findings[0]].message}" in text
    assert text.count("nearest that can be built here") == len(many.rejections)
    shown = CliRunner().invoke(command, ["negative-controls", "--all"]).stdout
    assert shown == CliRunner().invoke(command, ["negative-controls"]).stdout


@pytest.mark.parametrize("number", [12, 400, 1000])
def test_a_fleet_fits_a_terminal(tmp_path: Path, number: int) -> None:
    """However many hosts there are, no line is longer than 120 columns, and each host is counted."""
    fleet = tmp_path / "fleet.yaml"
    rows = (
        f"- {{name: host-{one:04}, driver: {DRIVERS[one % 8]}, gpus: [{GPUS[one % 5]}]}}\n" for one in range(number)
    )
    fleet.write_text("".join(rows))
    document = plan_matrix(PlanOptions("tensorflow", (), fleet), tmp_path, CATALOG)
    text = plan_text(document)
    grid = text[text.index("\n\nenvironment ") :]
    assert max(map(len, grid.splitlines())) <= WIDTH
    legend, newest = grid[grid.index("hosts:") : grid.index("newest:")], grid[grid.index("newest:") :]
    for part in (legend, newest):
        assert sum(map(int, re.findall(r": (\d+) hosts? of", part))) == number
    assert len(document.kinds) == min(number, 40)
    assert len(text.splitlines()) < 250


def test_a_grid_without_end_is_cut_into_parts_that_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinds that run different environments stand under letters, and more columns than fit go below each other."""
    monkeypatch.setattr("envbuilder.jobs.plan_text.WIDTH", 72)
    fleet = tmp_path / "fleet.yaml"
    gpus = ("K80", "M60", "P100", "V100", "T4", "A100", "L4", "H100", "B200", "RTX 3090", "RTX 5090")
    names = [
        f"- {{name: h{at}-{where}, driver: {driver}, gpus: [{gpu}]}}\n"
        for at, driver in enumerate(DRIVERS)
        for where, gpu in enumerate(gpus)
    ]
    fleet.write_text("".join(names))
    matrix = tmp_path / "matrix.yaml"
    releases = ", ".join(CATALOG.final_versions[-25:])
    matrix.write_text(f"name: wide\naxes:\n  tensorflow: [{releases}]\n  flavor: [gpu]\n")
    text = plan_text(plan_matrix(PlanOptions(str(matrix), (), fleet), tmp_path, CATALOG))
    grid = text[text.index("\n\nenvironment ") : text.index("\nhosts:")]
    letters = re.findall(r"^environment +(.*)$", grid, re.MULTILINE)
    assert len(letters) > 1
    assert max(map(len, grid[: grid.index("yes: uses")].splitlines())) <= 72
    every = " ".join(letters).split()
    assert len(every) == len(set(every)) == len(re.findall(r"^  [A-Z]+: \d+ hosts? of", text, re.MULTILINE))
