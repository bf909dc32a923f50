"""What is kept on disk has a bound: what was used longest ago goes first, and is only ever read anew."""

from __future__ import annotations

import os
from pathlib import Path

from envbuilder.pypi.answer_cache import Cache


def test_the_least_used_answers_go_first(tmp_path: Path) -> None:
    """Beyond the bound the oldest are removed, and none that fits; one that was used is not old."""
    kept = Cache(tmp_path)
    for number in range(4):
        kept.put(str(number), "kind", bytes(1000))
    for path in tmp_path.glob("??/*"):
        os.utime(path, (1, 1))
    kept.used("2", "kind")
    kept.trim(1 << 20)
    assert all(kept.get(str(number), "kind") for number in range(4))
    kept.trim(1500)
    assert [number for number in range(4) if kept.get(str(number), "kind")] == [2]


def test_a_folder_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    """A cache is no source of errors."""
    absent = Cache(tmp_path / "gone")
    absent.used("a", "kind")
    absent.trim(0)
    assert absent.get("a", "kind") is None
