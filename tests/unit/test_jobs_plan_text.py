"""Text of a large plan: reasons instead of rows, host classes instead of hosts, lines that fit a terminal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from envbuilder.catalog.store import load
from envbuilder.cli.plan_command import command
from envbuilder.jobs.plan import PlanDocument, PlanOptions, plan_matrix
from envbuilder.jobs.plan_text import FEW, plan_text

CATALOG = load()
GPUS = ("Tesla T4", "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB", "NVIDIA L4", "NVIDIA H100 80GB HBM3")
DRIVERS = ("450.80.02", "470.57.02", "525.85.12", "535.104.05", "550.54.15", "570.124.06", "580.65.06", "590.44.01")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> PlanDocument:
    matrix = tmp_path_factory.mktemp("many") / "matrix.yaml"
    releases = ", ".join(CATALOG.final_versions[-40:])
    matrix.write_text(
        f"name: many\naxes:\n  tensorflow: [{releases}]\n  python: ['3.6', '3.8', '3.11', '3.13']\n"
        "  os: [debian-bookworm, debian-trixie]\nexclude:\n  - {reason: not here, os: debian-trixie, python: '3.8'}\n"
        "  - {reason: nor this, os: debian-trixie, python: '3.6'}\n"
    )
    return plan_matrix(PlanOptions(str(matrix)), matrix.parent, CATALOG)


def test_many_rejections_are_counted_by_reason(many: PlanDocument) -> None:
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


def test_all_lists_every_rejection(many: PlanDocument) -> None:
    text = plan_text(many, everything=True)
    assert all(row.id in text for row in many.rejections)
    reasons = {(many.findings[row.findings[0]].message, row.changes) for row in many.rejections}
    assert text.count("nearest that can be built here") == len(reasons) < len(many.rejections)
    shown = CliRunner().invoke(command, ["negative-controls", "--all"]).stdout
    assert shown == CliRunner().invoke(command, ["negative-controls"]).stdout


def fleet_of(folder: Path, number: int) -> Path:
    rows = (
        f"- {{name: host-{one:04}, driver: {DRIVERS[one % 8]}, gpus: [{GPUS[one % 5]}]}}\n" for one in range(number)
    )
    (folder / "fleet.yaml").write_text("".join(rows))
    return folder / "fleet.yaml"


@pytest.mark.parametrize(("number", "width"), [(12, 120), (1000, 120), (1000, 90)])
def test_a_fleet_fits_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, width: int) -> None:
    monkeypatch.setattr("envbuilder.jobs.plan_text.WIDTH", width)
    document = plan_matrix(PlanOptions("tensorflow", (), fleet_of(tmp_path, number)), tmp_path, CATALOG)
    text = plan_text(document)
    grid = text[text.index("\n\nenvironment ") :]
    assert max(map(len, grid.splitlines())) <= width
    names = " ".join(re.findall(r"^environment +(.*)$", grid, re.MULTILINE))
    columns = re.findall(r"(host-\d{4})(?: \+(\d+))?", names)
    assert len({name for name, _ in columns}) == len(columns)
    assert sum(1 + int(others or 0) for _, others in columns) == number
    assert len(document.kinds) == min(number, 40)
    assert len(text.splitlines()) < 400


def test_the_newest_release_is_shown_for_every_host_class(tmp_path: Path) -> None:
    document = plan_matrix(PlanOptions("tensorflow", (), fleet_of(tmp_path, 40)), tmp_path, CATALOG)
    text = plan_text(document)
    end = text.index("newer releases are blocked by:")
    newest = text[text.rindex("\n\nhost ", 0, end) : end]
    assert all(f"host-{number:04}" in newest for number in range(40))
