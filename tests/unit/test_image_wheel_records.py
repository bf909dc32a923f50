"""Wheels' own RECORDs: which is hashed as a whole, and who may be told what one index said without a proof."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from index_server import Site, serving, wheel

from envbuilder.image import wheel_records
from envbuilder.image.lockfile import Locked
from envbuilder.image.wheel_records import WheelRecord, WheelRecords
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.client import Client
from envbuilder.pypi.index_config import IndexConfig

NAME = "thing-1.0-py3-none-any.whl"
TAGS = frozenset({"py3-none-any"})
RECORD = "thing-1.0.dist-info/RECORD"
CONTENT = wheel("thing", "1.0", {"a.txt": b"hello", RECORD: b"a.txt,,\n"})
LOCKED = Locked("thing", "1.0", (f"sha256:{hashlib.sha256(CONTENT).hexdigest()}",), "")


@pytest.fixture
def site() -> Iterator[Site]:
    here = Site(json=True)
    here.add("thing", NAME, CONTENT)
    with serving(here):
        yield here


def client(url: str, folder: Path) -> Client:
    return Client(IndexConfig(url=url), Cache(folder))


@pytest.mark.parametrize("stated", [0, 1 << 40, 7], ids=["true", "large", "small"])
def test_a_page_s_word_decides_not_whether_a_wheel_is_hashed(site: Site, tmp_path: Path, stated: int) -> None:
    """A small wheel whose page calls it large is hashed as a whole; one whose page calls it smaller proves nothing."""
    site.stated = stated
    found = WheelRecords(client(site.url, tmp_path / "index"), Cache(tmp_path / "wheels")).of(LOCKED, TAGS)
    if stated == 7:
        assert (found.content, found.proof) == (None, "")
    else:
        assert (found.content, found.proof) == (b"a.txt,,\n", "whole")


def test_what_an_own_index_says_unproved_is_for_its_matrix_alone(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its RECORD of a large wheel is kept for who asks the same indexes; by a build's proof it becomes everyone's."""
    monkeypatch.setattr(wheel_records, "_WHOLE", 10)
    cache, public = Cache(tmp_path / "wheels"), Site(json=True)

    def known(*own: str) -> WheelRecord:
        return WheelRecords(None, cache, own=own).of(LOCKED, TAGS)

    with serving(public):
        matrix = WheelRecords(client(public.url, tmp_path / "index"), cache, own=(site.url,))
        assert matrix.keep((LOCKED,), "3.11", "x86_64") == 1
    assert (known(site.url).content, known(site.url).proof) == (b"a.txt,,\n", "")
    assert known().content is None
    assert known("https://other.example/simple").content is None
    WheelRecords(None, cache, own=(site.url,)).built(LOCKED, TAGS)
    assert [known(*own).proof for own in ((), (site.url,), ("https://other.example/simple",))] == ["built"] * 3


def test_what_an_own_index_proved_is_everyone_s(site: Site, tmp_path: Path) -> None:
    """The whole wheel was hashed: then its RECORD is the locked wheel's, wherever it came from."""
    cache, public = Cache(tmp_path / "wheels"), Site(json=True)
    with serving(public):
        own = WheelRecords(client(public.url, tmp_path / "index"), cache, own=(site.url,))
        assert own.of(LOCKED, TAGS).proof == "whole"
    assert WheelRecords(None, cache).of(LOCKED, TAGS).proof == "whole"


def test_what_the_user_s_own_index_says_is_no_matrix_s_word(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept unproved of the configured index stands for those who ask it alone, and not for other indexes."""
    monkeypatch.setattr(wheel_records, "_WHOLE", 10)
    cache = Cache(tmp_path / "wheels")
    assert WheelRecords(client(site.url, tmp_path / "index"), cache).of(LOCKED, TAGS).content == b"a.txt,,\n"
    assert WheelRecords(None, cache).of(LOCKED, TAGS).content == b"a.txt,,\n"
    assert WheelRecords(None, cache, own=("https://other.example/simple",)).of(LOCKED, TAGS).content is None
