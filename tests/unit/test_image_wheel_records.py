"""RECORDs of wheels: which are hashed, who may use an index's answer without proof, and what a pin proves."""

import hashlib
import posixpath
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from index_server import Site, serving, wheel
from made_images import SITE, context_of, image_of, package, row
from table_rows import rows

from envbuilder.finding import Code, Severity
from envbuilder.image import lockfile, wheel_records
from envbuilder.image.lockfile import Locked
from envbuilder.image.wheel_records import Pin, WheelRecord, WheelRecords, add_pins, hashed_rows, read_pins, rows_digest
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.client import PackageIndex
from envbuilder.pypi.index_config import IndexConfig
from envbuilder.validation.installed_files import files
from envbuilder.workspace import Workspace

THING = "thing-1.0-py3-none-any.whl"
TAGS = frozenset({"py3-none-any"})
CONTENT = wheel("thing", "1.0", {"a.txt": b"hello", "thing-1.0.dist-info/RECORD": b"a.txt,,\n"})
LOCKED = Locked("thing", "1.0", (f"sha256:{hashlib.sha256(CONTENT).hexdigest()}",), "")


@pytest.fixture
def site() -> Iterator[Site]:
    here = Site(json=True)
    here.add("thing", THING, CONTENT)
    with serving(here):
        yield here


def client(url: str, folder: Path) -> PackageIndex:
    return PackageIndex(IndexConfig(url=url), Cache(folder))


@pytest.mark.parametrize("stated", [0, 1 << 40, 7], ids=["true", "large", "small"])
def test_page_s_word_decides_not_whether_a_wheel_is_hashed(site: Site, tmp_path: Path, stated: int) -> None:
    site.stated = stated
    found = WheelRecords(client(site.url, tmp_path / "index"), Cache(tmp_path / "wheels")).of(LOCKED, TAGS)
    if stated == 7:
        assert (found.content, found.proof) == (None, "")
    else:
        assert (found.content, found.proof) == (b"a.txt,,\n", "whole")


def test_unproved_answer_is_for_its_matrix_only(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel_records, "_WHOLE", 10)
    cache, public = Cache(tmp_path / "wheels"), Site(json=True)

    def known(*own: str) -> WheelRecord:
        return WheelRecords(None, cache, own=own).of(LOCKED, TAGS)

    with serving(public):
        matrix = WheelRecords(client(public.url, tmp_path / "index"), cache, own=(site.url,))
        assert matrix.store((LOCKED,), "3.11", "x86_64") == 1
    assert (known(site.url).content, known(site.url).proof) == (b"a.txt,,\n", "")
    assert known().content is None
    assert known("https://other.example/simple").content is None
    WheelRecords(None, cache, own=(site.url,)).built(LOCKED, TAGS)
    assert [known(*own).proof for own in ((), (site.url,), ("https://other.example/simple",))] == ["built"] * 3


def test_proved_answer_of_an_own_index_is_for_every_matrix(site: Site, tmp_path: Path) -> None:
    cache, public = Cache(tmp_path / "wheels"), Site(json=True)
    with serving(public):
        own = WheelRecords(client(public.url, tmp_path / "index"), cache, own=(site.url,))
        assert own.of(LOCKED, TAGS).proof == "whole"
    assert WheelRecords(None, cache).of(LOCKED, TAGS).proof == "whole"


def test_answer_of_a_users_index_is_not_a_matrix_s(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel_records, "_WHOLE", 10)
    cache = Cache(tmp_path / "wheels")
    assert WheelRecords(client(site.url, tmp_path / "index"), cache).of(LOCKED, TAGS).content == b"a.txt,,\n"
    assert WheelRecords(None, cache).of(LOCKED, TAGS).content == b"a.txt,,\n"
    assert WheelRecords(None, cache, own=("https://other.example/simple",)).of(LOCKED, TAGS).content is None


DIGEST = "sha256:" + "a" * 64
NAME = "numpy-2.4.6-py3-none-any.whl"
NUMPY = {"numpy/__init__.py": b"version = 2\n", "numpy/core.so": b"code"}
LOCK = f"numpy==2.4.6 \\\n    --hash={DIGEST}\n"
RECORD = f"{SITE}/numpy-2.4.6.dist-info/RECORD"
WHEEL = package("numpy", "2.4.6", NUMPY)[RECORD]
CACHED = b"numpy/__pycache__/a.pyc,,\n"
INSTALLED = WHEEL + b"../../../bin/f2py,sha256=x,1\nnumpy-2.4.6.dist-info/INSTALLER,sha256=x,2\n" + CACHED


def pins(record: bytes = WHEEL) -> dict[str, Pin]:
    return {DIGEST: Pin(NAME, rows_digest(record))}


def test_installer_s_record_has_the_digest_of_its_wheel_s() -> None:
    rows = INSTALLED.splitlines(keepends=True)
    assert rows_digest(INSTALLED) == rows_digest(b"".join(reversed(rows))) == rows_digest(WHEEL) != ""
    for at, line in enumerate(WHEEL.splitlines(keepends=True)):
        if b"RECORD" not in line:
            assert rows_digest(WHEEL.replace(line, b"")) != rows_digest(WHEEL), line
            assert rows_digest(WHEEL.replace(line, line.replace(b"sha256=", b"sha256=A"))) != rows_digest(WHEEL)
        assert rows_digest(WHEEL + row(f"numpy/more{at}.py", b"x").encode()) != rows_digest(WHEEL)


@pytest.mark.parametrize(
    "record", [b"", b"\0\xff", b"a-1.dist-info/RECORD,,\n", b"a/b.py,sha256=x,1\na-1.data/purelib/c.py,sha256=y,1\n"]
)
def test_record_that_cannot_be_compared_has_none(record: bytes) -> None:
    assert rows_digest(record) == "" or b"\xff" in record


def test_programs_and_data_of_a_wheel_are_left_to_its_files() -> None:
    more = b"numpy-2.4.6.data/scripts/f2py,sha256=x,1\nnumpy-2.4.6.data/data/share/a,sha256=x,1\n"
    assert rows_digest(WHEEL + more) == rows_digest(WHEEL)


def test_pins_are_written_once_and_never_changed(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    assert read_pins(workspace) == {}
    add_pins(workspace, [(DIGEST, NAME, b"")])
    assert not workspace.wheels.exists()
    add_pins(workspace, [("sha256:b", "b.whl", WHEEL), (DIGEST, NAME, WHEEL)])
    text = workspace.wheels.read_text()
    assert text.index(DIGEST) < text.index("sha256:b")
    add_pins(workspace, [(DIGEST, "other.whl", WHEEL + b"more.py,sha256=x,1\n")])
    assert workspace.wheels.read_text() == text
    assert read_pins(workspace)[DIGEST] == Pin(NAME, rows_digest(WHEEL))


def test_only_records_that_a_build_proved_are_yielded(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    (locked,) = lockfile.parse(LOCK)
    tags = frozenset({"py3-none-any"})
    cache.put(DIGEST, "wheel-record-2", f"{NAME}\t\n".encode() + WHEEL)
    records = WheelRecords(None, cache)
    assert list(records.proved([locked])) == []
    records.built(locked, tags)
    assert list(records.proved([locked])) == [(DIGEST, NAME, WHEEL)]


def found(cache: Path, changed: bytes = b"", pinned: bytes = WHEEL, kept: bytes = b"") -> tuple[list[Code], float]:
    there = package("numpy", "2.4.6", {**NUMPY, **({"numpy/core.so": changed} if changed else {})})
    records = Cache(cache)
    if kept:
        records.put(DIGEST, "wheel-record-2", f"{NAME}\t\n".encode() + kept)
    subject = replace(context_of(image_of(there), lock=LOCK), wheels=WheelRecords(None, records, pins(pinned)))
    looked = files(subject)
    severities = {Code.UNKNOWN: Severity.WARNING, Code.FILES_DIFFER: Severity.ERROR}
    assert all(one.severity is severities[one.code] for one in looked.findings)
    return [one.code for one in looked.findings], dict(looked.measurements)["proved"].value


def test_pinned_wheel_needs_no_index(tmp_path: Path) -> None:
    assert found(tmp_path / "a") == ([], 1)
    assert found(tmp_path / "a", changed=b"swapped") == ([Code.FILES_DIFFER], 0)


def test_index_that_lies_about_a_pinned_wheel_is_not_believed(tmp_path: Path) -> None:
    lie = package("numpy", "2.4.6", {**NUMPY, "numpy/core.so": b"swapped"})[RECORD]
    assert found(tmp_path / "a", changed=b"swapped", kept=lie) == ([Code.FILES_DIFFER], 0)
    assert found(tmp_path / "a", kept=lie) == ([], 1), "and an honest image is not blamed for it"
    assert found(tmp_path / "b", kept=WHEEL) == ([], 1)


def image_with(rows: str, there: dict[str, bytes]) -> list[str]:
    layer = package("numpy", "2.4.6", NUMPY)
    record = layer[RECORD]
    assert isinstance(record, bytes)
    subject = context_of(image_of({**layer, RECORD: record + rows.encode(), **there}), lock=LOCK)
    looked = files(replace(subject, wheels=WheelRecords(None, Cache(Path("/nonexistent")), pins())))
    return [one.message for one in looked.findings if one.severity is Severity.ERROR]


EVIL = b"evil"
EVIL_ROW = row("x", EVIL).strip().partition(",")[2]


@rows
def test_pin_vouches_for_no_row_that_it_does_not_cover(path: str, placed: str) -> None:
    there = {posixpath.normpath(f"{SITE}/{placed}"): EVIL}
    assert image_with("", {}) == []
    assert image_with(f"{path},{EVIL_ROW}\n", there)


@rows
def test_row_that_two_readers_may_read_differently_is_not_as_pinned(row: str) -> None:
    digest, _, size = EVIL_ROW.partition(",")
    text = row.format(digest=digest, size=size)
    assert rows_digest(WHEEL + text.encode()) != rows_digest(WHEEL)
    assert image_with(text, {f"{SITE}/numpy/__init__.py": EVIL})


def test_index_vouches_for_no_row_that_a_pin_does_not_cover(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    (locked,) = lockfile.parse(LOCK)
    more = b"../../../lib/python3.11/site-packages/sitecustomize.py,sha256=x,1\n"
    cache.put(DIGEST, "wheel-record-2", f"{NAME}\t\n".encode() + WHEEL + more)
    kept = WheelRecords(None, cache, pins()).of(locked, frozenset({"py3-none-any"}))
    assert kept.proof == "built"
    assert kept.content is not None
    assert b"numpy/core.so," in kept.content
    assert b"sitecustomize" not in kept.content


def test_wheel_that_puts_files_elsewhere_is_not_pinned(tmp_path: Path) -> None:
    add_pins(Workspace(tmp_path), [(DIGEST, NAME, WHEEL + b"numpy-2.4.6.data/scripts/f2py,sha256=x,1\n")])
    assert read_pins(Workspace(tmp_path)) == {}


def test_name_with_a_comma_is_hashed_as_it_is_written() -> None:
    record = WHEEL + b'"numpy/a,b ""c"".py",sha256=x,1\n'
    assert rows_digest(hashed_rows(record)) == rows_digest(record) != rows_digest(WHEEL)
    assert b'"numpy/a,b ""c"".py",sha256=x,' in hashed_rows(record)
