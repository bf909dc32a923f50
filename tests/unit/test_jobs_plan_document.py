"""A plan's document has each finding once, and its rows refer to all findings of the resolver."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from envbuilder.catalog.store import load
from envbuilder.choice import read_matrix
from envbuilder.compat.fleet import FleetHost, kinds_of, place
from envbuilder.compat.plan import plan
from envbuilder.jobs.plan import NewestOptions, PlanOptions, newest_for, plan_matrix

CATALOG = load()
MATRIX = """
name: mixed
axes:
  tensorflow: [2.4.1, 2.10.1, 2.15.1, 2.20.0]
  python: ['3.8', '3.11', '3.13']
  os: [debian-bookworm, debian-trixie]
  flavor: [cpu, gpu]
targets: {drivers: [535.104.05], gpus: [H100, T4]}
"""
FLEET = """
- {name: one, driver: 535.104.05, gpus: [H100]}
- {name: two, driver: 450.80.02, gpus: [T4]}
- {name: three, driver: 535.104.05, gpus: [H100, H100]}
- {name: four}
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Write the matrix and the fleet."""
    matrix, fleet = tmp_path / "matrix.yaml", tmp_path / "fleet.yaml"
    matrix.write_text(MATRIX)
    fleet.write_text(FLEET)
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
    alone = newest_for(NewestOptions(fleet=fleet), CATALOG)
    for asked in (document, alone):
        assert [row.tensorflow for row in asked.newest] == ["2.16.2", "2.14.1", None]
        assert [row.compatible for row in asked.newest] == [True, True, False]
        for best in asked.newest[:2]:
            assert best.image is not None
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
    environments = plan(read_matrix(matrix), CATALOG).environments
    every = {(cell.host, cell.environment): cell for cell in document.cells}
    for kind in document.kinds:
        for name in kind.hosts:
            host = next(one for one in document.hosts if one.name == name)
            for cell in place(environments, (host,), CATALOG):
                told = every[kind.host, cell.environment]
                assert told.compatible is cell.compatible
                assert {document.findings[one].code for one in told.findings} == {one.code for one in cell.findings}


def test_hosts_with_another_driver_or_gpu_are_another_class() -> None:
    host = FleetHost(name="a", driver="535.104.05", gpus=("T4",))
    others = (
        msgspec.structs.replace(host, name="b"),
        msgspec.structs.replace(host, name="c", driver="535.104.06"),
        msgspec.structs.replace(host, name="d", gpus=("L4",)),
        msgspec.structs.replace(host, name="e", driver=None),
    )
    assert [kind.hosts for kind in kinds_of((host, *others))] == [("a", "b"), ("c",), ("d",), ("e",)]
