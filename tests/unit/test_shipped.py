"""`make shipped`: its table, and the environments that are due."""

from pathlib import Path

import shipped
from factories import workspace
from table_rows import rows

from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.image import lockfile
from envbuilder.image.build import digests_of
from envbuilder.image.context import build_files
from envbuilder.validation import known_image
from envbuilder.workspace import Workspace, remove, write_document

LOCK = "numpy==2.1.3\n"
NAME = "tf2.21.0-py311-cu12.5-cudnn9.3-bookworm"
VALUES = (
    NAME,
    "INCONCLUSIVE",
    "cpu",
    "5.26",
    "-",
    "2026-11-21",
    shipped.short(lockfile.digest(LOCK)),
    "db2f35bb87d73b0b",
)
ROW = dict(zip(shipped.COLUMNS, VALUES, strict=True))


def test_page_reads_back_in_the_order_of_the_matrix() -> None:
    other = {**ROW, "environment": "tf2.15.1-py39-cpu-bullseye", "findings": "MISSING_LIBRARY PTX_JIT"}
    removed = {**ROW, "environment": "tf2.0.0-py37-cpu-buster"}
    rows = {row["environment"]: row for row in (ROW, other, removed)}
    page = shipped.render(rows, (other["environment"], NAME))
    assert list(shipped.parse(page).items()) == [(other["environment"], other), (NAME, ROW)]
    assert shipped.parse(shipped.HEAD) == {}
    old = {NAME: {**ROW, "lock": ROW["lock"] + shipped.OLD}}
    assert shipped.parse(shipped.render(old, (NAME,))) == {NAME: ROW}


@rows
def test_environment_without_a_good_row_of_its_lock_is_due(changes: dict[str, str], lock: str, *, due: bool) -> None:
    assert shipped.is_due({**ROW, **changes}, lock) == due


def test_environment_without_a_row_is_due() -> None:
    assert shipped.is_due(None, LOCK)


def test_environment_without_a_record_of_its_build_files_is_repeated(tmp_path: Path) -> None:
    names = ("tf2.20.0-py311-cpu-bookworm", "tf2.20.0-py311-cpu-bookworm-runtime")
    place = workspace(tmp_path, *names)
    choice = choose(shipped.MATRIX, ("tf2.20.0-py311-cpu-bookworm*",), place, load())
    remove(place.known_image(names[0]))
    key = known_image.key_of(digests_of(build_files(names[1], place)))
    known = known_image.KnownImage(files=key, suite="", recorded="", layers=(), configuration={}, checks={})
    write_document(place.known_image(names[1]), known)
    assert names[0] in shipped.without_record(choice, place)
    assert names[1] not in shipped.without_record(choice, place)
    (place.context(names[1]) / lockfile.LOCK).write_text("another lock")
    assert names[1] in shipped.without_record(choice, place)


def test_page_has_every_shipped_environment_and_marks_rows_of_an_old_lock() -> None:
    """`make shipped` writes the page. Every CPU image passed."""
    workspace = Workspace(shipped.ROOT)
    choice = choose(shipped.MATRIX, (), workspace, load())
    page = shipped.PAGE.read_text()
    rows = shipped.parse(page)
    assert set(rows) == {one.id for one in choice.environments}, "run make shipped"
    assert all(rows[one.id]["verdict"] == "PASSED" for one in choice.environments if one.flavor == "cpu")
    order = tuple(one.id for one in choice.environments)
    assert page == shipped.render(shipped.marked(rows, choice, workspace), order), "run make shipped"
