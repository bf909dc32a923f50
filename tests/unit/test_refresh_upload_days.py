"""Days of upload: compared where the index states them, for releases, CUDA wheels and the packages beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from index_server import Site, serving, wheel

from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import CudnnWheel, PackageRelease, TensorflowRelease
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.client import Client
from envbuilder.pypi.index_config import IndexConfig
from envbuilder.refresh.verify_catalog import verify

DAY = "2025-08-13"
"""What the index of the tests states for every file."""

SEEN: dict[str, Any] = {"source": ("a test",), "verified": "2026-11-20 made up"}
TRUE = Catalog(
    tensorflow=(TensorflowRelease(package="tensorflow", version="2.20.0", gpu=False, released=DAY, **SEEN),),
    cudnn_wheels=(CudnnWheel(package="nvidia-cudnn-cu12", versions=("9.3.0.75",), uploaded=(DAY,), **SEEN),),
    package_releases=(PackageRelease(bound="numpy<2", version="2.0.0", released=DAY, python="3.9", **SEEN),),
)


def days(catalog: Catalog, folder: Path, *, json: bool) -> dict[str, str]:
    """Verify a catalogue against an index with one wheel of each project; return what came of the days."""
    site = Site(json=json)
    for project, version in (("tensorflow", "2.20.0"), ("nvidia-cudnn-cu12", "9.3.0.75"), ("numpy", "2.0.0")):
        name = project.replace("-", "_")
        file = f"{name}-{version}-cp313-cp313-manylinux2014_x86_64.whl"
        site.add(project, file, wheel(name, version, {"a": b"b"}))
    with serving(site) as here:
        index = Client(IndexConfig(url=here.url), Cache(folder))
        found = verify(catalog, index)
    return {one.row: one.outcome for one in found if one.field in {"released", "uploaded"}}


def test_days_that_the_index_states_agree(tmp_path: Path) -> None:
    """A release, each wheel of a line, and the first package beyond a bound are compared."""
    rows = ("tensorflow 2.20.0", "nvidia-cudnn-cu12", "numpy 2.0.0")
    assert days(TRUE, tmp_path, json=True) == dict.fromkeys(rows, "agrees")


def test_an_index_without_days_decides_nothing(tmp_path: Path) -> None:
    """Pages of the older form state none: that is said, and is no disagreement."""
    assert set(days(TRUE, tmp_path, json=False).values()) == {"unchecked"}


@pytest.mark.parametrize("table", ["tensorflow", "cudnn_wheels", "package_releases"])
def test_a_wrong_day_disagrees(table: str, tmp_path: Path) -> None:
    """One day off is seen, in its own row alone."""
    (row,) = getattr(TRUE, table)
    wrong = {"uploaded": ("2025-08-14",)} if table == "cudnn_wheels" else {"released": "2025-08-14"}
    catalog = msgspec.structs.replace(TRUE, **{table: (msgspec.structs.replace(row, **wrong),)})
    assert sorted(days(catalog, tmp_path, json=True).values()) == ["agrees", "agrees", "disagrees"]
