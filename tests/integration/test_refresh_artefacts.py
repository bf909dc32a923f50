"""The catalogue against the real artefacts on the package index."""

import time
from pathlib import Path

import pytest

from envbuilder.catalog import store
from envbuilder.pypi import index_config
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.client import PackageIndex
from envbuilder.refresh.verify_catalog import verify

pytestmark = pytest.mark.network

SAMPLE = ("1.15.0", "2.4.1", "2.12.1", "2.15.0", "2.16.2", "2.20.0", "2.21.0")


def test_rows_agree_with_their_artefacts(tmp_path: Path) -> None:
    catalog = store.load()
    rows = tuple(row for row in catalog.tensorflow if row.version in SAMPLE)
    index = PackageIndex(index_config.read(), Cache(tmp_path))
    found = verify(catalog, index, rows)
    assert [one for one in found if one.outcome == "disagrees"] == []
    assert [one for one in found if one.outcome == "unchecked" and one.field in {"requires", "cuda_wheels"}] == []
    assert sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file()) < 20_000_000
    started = time.monotonic()
    assert verify(catalog, PackageIndex(index_config.read(), Cache(tmp_path)), rows) == found
    assert time.monotonic() - started < 10
