"""What is freed of the engine's disk, and what stays."""

from __future__ import annotations

import pytest
from fake_engine import FakeEngine

from envbuilder.errors import InfrastructureError
from envbuilder.jobs.clean import CleanOptions, clean

ON_THE_WAY = ("envbuilder/control:stub", "envbuilder/reproduced:0123", "envbuilder/tensorflow:tf2.16.2-x-after-2.15.1")
KEPT = ("envbuilder/base:debian-bookworm", "envbuilder/tensorflow:tf2.20.0-x", "team/tensorflow:2.20.0")


@pytest.fixture
def engine() -> FakeEngine:
    """Make an engine with images of every kind, one of somebody else among them."""
    made = FakeEngine(left_behind=2, cache=30)
    for name in (*ON_THE_WAY, *KEPT):
        made.add(name, name.encode())
    return made


def left(engine: FakeEngine) -> set[str]:
    """Name the images that are still there."""
    return {name for name in (*ON_THE_WAY, *KEPT) if engine.image(name) is not None}


def test_what_was_made_on_the_way_goes(engine: FakeEngine) -> None:
    document = clean(engine, CleanOptions())
    assert {row.reference for row in document.images} == set(ON_THE_WAY)
    assert left(engine) == set(KEPT)
    assert (document.containers, document.freed, engine.cache) == (2, 0, 30)


def test_everything_of_ours_and_nothing_of_others(engine: FakeEngine) -> None:
    document = clean(engine, CleanOptions(everything=True, cache_keep=10))
    assert left(engine) == {"team/tensorflow:2.20.0"}
    assert document.images[-1].reference == "envbuilder/base:debian-bookworm"
    assert (document.freed, engine.cache) == (20, 10)


def test_a_dry_run_removes_nothing(engine: FakeEngine) -> None:
    document = clean(engine, CleanOptions(everything=True, cache_keep=0, dry_run=True))
    assert len(document.images) == len(ON_THE_WAY) + len(KEPT) - 1
    assert left(engine) == {*ON_THE_WAY, *KEPT}
    assert (engine.left_behind, engine.cache) == (2, 30)


def test_what_cannot_go_is_named_and_the_rest_goes(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    remove = engine.remove

    def refuse(reference: str) -> None:
        if reference == ON_THE_WAY[0]:
            raise InfrastructureError("in use by container 4f")
        remove(reference)

    monkeypatch.setattr(engine, "remove", refuse)
    document = clean(engine, CleanOptions())
    assert [row.kept for row in document.images if row.kept] == ["in use by container 4f"]
    assert left(engine) == {ON_THE_WAY[0], *KEPT}
