"""A plan: its document has each finding once; its text has reasons instead of rows, and lines that fit a terminal."""

import re
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from table_rows import beside

from envbuilder.catalog.store import load
from envbuilder.choice import read_matrix
from envbuilder.cli.plan_command import command
from envbuilder.compat.fleet import FleetHost, host_groups, place
from envbuilder.compat.plan import plan
from envbuilder.jobs.plan import FEW, PlanDocument, PlanOptions, newest_for, plan_matrix, plan_text

CATALOG = load()


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    matrix, fleet = tmp_path / "matrix.yaml", tmp_path / "fleet.yaml"
    matrix.write_text(beside(__file__)["MATRIX"])
    fleet.write_text(beside(__file__)["FLEET"])
    return matrix, fleet


def test_rejections_refer_to_the_findings_of_the_resolver(files: tuple[Path, Path]) -> None:
    matrix, _ = files
    resolved = plan(read_matrix(matrix), CATALOG)
    document = plan_matrix(PlanOptions(str(matrix)), matrix.parent, CATALOG)
    assert len(resolved.rejections) > 10
    for row, told in zip(resolved.rejections, document.rejections, strict=True):
        assert tuple(document.findings[one] for one in told.findings) == row.findings
        assert (told.id, told.nearest, told.changes) == (row.id, row.nearest, row.changes)
        assert not row.findings or document.findings[told.findings[0]].message == row.sentence
    assert len(set(document.findings)) == len(document.findings)
    assert len(document.findings) < sum(len(row.findings) for row in document.rejections)


def test_environments_and_newest_releases_refer_to_their_findings(files: tuple[Path, Path]) -> None:
    matrix, fleet = files
    document = plan_matrix(PlanOptions(str(matrix), (), fleet), matrix.parent, CATALOG)
    environments = plan(read_matrix(matrix), CATALOG).environments
    assert any(row.findings for row in environments)
    for row, told in zip(environments, document.environments, strict=True):
        assert tuple(document.findings[one] for one in told.findings) == row.findings
        held = msgspec.to_builtins(told) | {"findings": ()}
        assert held == msgspec.to_builtins(msgspec.structs.replace(row, findings=()))
    alone = newest_for(PlanOptions(fleet=fleet), CATALOG)
    for asked in (document, alone):
        assert [row.tensorflow for row in asked.newest] == ["2.16.2", "2.14.1", None]
        assert [row.compatible for row in asked.newest] == [True, True, False]
        for best in asked.newest[:2]:
            assert best.image.image == f"envbuilder/tensorflow:{best.image.environment}"
            assert {asked.findings[one].severity for one in best.findings} <= {"warning", "info"}
        assert len(set(asked.findings)) == len(asked.findings)
    for row_of_any in msgspec.to_builtins(document).values():
        rows = row_of_any if isinstance(row_of_any, (list, tuple)) else ()
        assert all(isinstance(one, int) for each in rows for one in each.get("findings", ()))


def test_equal_hosts_are_one_host_class(files: tuple[Path, Path]) -> None:
    matrix, fleet = files
    document = plan_matrix(PlanOptions(str(matrix), (), fleet), matrix.parent, CATALOG)
    assert [(kind.host, kind.hosts) for kind in document.kinds] == [
        ("one", ("one", "three")),
        ("two", ("two",)),
        ("four", ("four",)),
    ]
    assert len(document.cells) == len(document.environments) * 3
    another = FleetHost(name="five", driver="535.104.06", gpus=("H100",))
    assert len(host_groups((*document.hosts, another))) == 4, "a driver of another last number is another class"
    environments = plan(read_matrix(matrix), CATALOG).environments
    every = {(cell.host, cell.environment): cell for cell in document.cells}
    for kind in document.kinds:
        for name in kind.hosts:
            host = next(one for one in document.hosts if one.name == name)
            for cell in place(environments, (host,), CATALOG):
                told = every[kind.host, cell.environment]
                assert told.compatible is cell.compatible
                assert {document.findings[one].code for one in told.findings} == {one.code for one in cell.findings}


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


@pytest.mark.parametrize("release", ["2.15.1", "latest"])
def test_selection_shows_its_own_rejections_and_exclusions(tmp_path: Path, release: str) -> None:
    (tmp_path / "matrix.yaml").write_text(
        beside(__file__)["MATRIX"] + "exclude: [{reason: not here, os: debian-trixie, python: '3.11'}]\n"
    )
    asked = PlanOptions(str(tmp_path / "matrix.yaml"), (f"tensorflow={release}",))
    document = plan_matrix(asked, tmp_path, CATALOG)
    for rows in (document.rejections, document.excluded):
        assert {row.combination.tensorflow for row in rows} == {release.replace("latest", "2.20.0")}
    assert [row.combination.flavor for row in document.excluded] == ["cpu", "gpu"]


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


@pytest.mark.parametrize(("number", "widths"), [(12, [120]), (1000, [120, 90])])
def test_fleet_fits_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, widths: list[int]) -> None:
    document = plan_matrix(PlanOptions("tensorflow", (), fleet_of(tmp_path, number)), tmp_path, CATALOG)
    assert len(document.kinds) == min(number, 40)
    for width in widths:
        monkeypatch.setattr("envbuilder.jobs.plan.WIDTH", width)
        text = plan_text(document)
        grid = text[text.index("\n\nenvironment ") :]
        assert max(map(len, grid.splitlines())) <= width
        names = " ".join(re.findall(r"^environment +(.*)$", grid, re.MULTILINE))
        columns = re.findall(r"(host-\d{4})(?: \+(\d+))?", names)
        assert len({name for name, _ in columns}) == len(columns)
        assert sum(1 + int(others or 0) for _, others in columns) == number
        assert len(text.splitlines()) < 400


def test_hosts_without_a_gpu_are_not_counted_under_a_host_with_one(files: tuple[Path, Path]) -> None:
    """Every host runs a CPU environment; each column names its own hosts."""
    matrix, fleet = files
    fleet.write_text(beside(__file__)["FLEET"] + "- {name: builders, count: 19}\n")
    document = plan_matrix(PlanOptions(str(matrix), ("flavor=cpu",), fleet), matrix.parent, CATALOG)
    assert re.search(r"^environment  +one \+2  +four \+19$", plan_text(document), re.MULTILINE)


def test_newest_release_is_shown_for_every_host_class(tmp_path: Path) -> None:
    document = plan_matrix(PlanOptions("tensorflow", (), fleet_of(tmp_path, 40)), tmp_path, CATALOG)
    text = plan_text(document)
    end = text.index("newer releases are blocked by:")
    newest = text[text.rindex("\n\nhost ", 0, end) : end]
    assert all(f"host-{number:04}" in newest for number in range(40))
