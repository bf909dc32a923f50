"""What is freed of the engine's disk, and what stays."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from fake_engine import FakeEngine

from envbuilder.errors import InfrastructureError
from envbuilder.jobs.clean import CleanOptions, as_text, clean

NOW = datetime.now(UTC)
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
    return {name for name in (*ON_THE_WAY, *KEPT) if engine.image(name) is not None}


def test_intermediate_images_are_removed(engine: FakeEngine) -> None:
    document = clean(engine, CleanOptions())
    assert {row.reference for row in document.images} == set(ON_THE_WAY)
    assert left(engine) == set(KEPT)
    assert (document.containers, document.freed, engine.cache) == (2, 0, 30)


def test_all_images_of_envbuilder_and_no_others_are_removed(engine: FakeEngine) -> None:
    document = clean(engine, CleanOptions(everything=True, cache_keep=10))
    assert left(engine) == {"team/tensorflow:2.20.0"}
    assert document.images[-1].reference == "envbuilder/base:debian-bookworm"
    assert (document.freed, engine.cache) == (20, 10)


def test_dry_run_removes_nothing(engine: FakeEngine) -> None:
    document = clean(engine, CleanOptions(everything=True, cache_keep=0, dry_run=True))
    assert len(document.images) == len(ON_THE_WAY) + len(KEPT) - 1
    assert left(engine) == {*ON_THE_WAY, *KEPT}
    assert (engine.left_behind, engine.cache) == (2, 30)
    assert "2 images, 0.00 GB, stay (--all removes them)" in as_text(clean(engine, CleanOptions(dry_run=True)))


def test_image_that_cannot_be_removed_is_named_others_go(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    remove = engine.remove

    def refuse(reference: str) -> None:
        if reference == ON_THE_WAY[0]:
            raise InfrastructureError("in use by container 4f")
        remove(reference)

    monkeypatch.setattr(engine, "remove", refuse)
    document = clean(engine, CleanOptions())
    assert [row.kept for row in document.images if row.kept] == ["in use by container 4f"]
    assert left(engine) == {ON_THE_WAY[0], *KEPT}


def tagged_at(engine: FakeEngine, days: dict[str, int]) -> None:
    for name, age in days.items():
        image = engine.add(name, name.encode())
        engine._store[name] = replace(image, tagged=(NOW - timedelta(days=age)).isoformat())


@pytest.mark.parametrize(
    ("options", "gone"),
    [
        (CleanOptions(before=NOW - timedelta(days=30)), {"c", "d"}),
        (CleanOptions(keep_last=1), {"b", "c", "d"}),
        (CleanOptions(before=NOW - timedelta(days=30), keep_last=3), {"d"}),
        (CleanOptions(), set()),
    ],
)
def test_old_images_go_on_request(options: CleanOptions, gone: set[str]) -> None:
    engine = FakeEngine()
    tagged_at(engine, {f"envbuilder/tensorflow:{name}": age for name, age in zip("abcd", (1, 9, 40, 90), strict=True)})
    document = clean(engine, replace(options, dry_run=True))
    assert {row.reference.partition(":")[2] for row in document.images} == gone
    assert (document.staying, document.staying_size > 0) == (4 - len(gone), True)
