"""A broken, endless or foreign answer of an index is the index's failure, in bounded memory."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from index_server import Site, serving, wheel

from envbuilder.pypi import fetch, lazyzip, pages
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.index_config import IndexConfig
from envbuilder.pypi.package_index import DistFile, IndexUnavailableError, Member
from envbuilder.pypi.simple_api import Client
from envbuilder.support import decoding

NAME = "demo-1.0-py3-none-any.whl"
LOGIN = (
    b"<html><head><title>Welcome to Hotel</title></head><body><form><a href='/terms'>Log in</a></form></body></html>"
)


def reader(content: bytes) -> lazyzip.Read:
    """Give ranges of a content."""
    return lambda start, stop: content[start:stop]


def client(site: Site, folder: Path) -> Client:
    """Make a client with an empty cache."""
    return Client(IndexConfig(url=site.url), Cache(folder))


def test_a_login_page_is_not_an_unknown_project() -> None:
    """A page without files that is no index's is refused; an index's page of a project without files is not."""
    with pytest.raises(ValueError, match="no index's"):
        pages.parse("demo", LOGIN, "text/html", "http://x/simple/demo/")
    for empty in (
        b"<html><head><title>Links for demo</title></head><body></body></html>",
        b'<html><head><meta name="pypi:repository-version" content="1.0"></head><body></body></html>',
    ):
        assert pages.parse("demo", empty, "text/html", "http://x/simple/demo/") == ()


def test_a_page_without_end_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page above the bound is refused while it is read."""
    monkeypatch.setattr(fetch, "MAX_PAGE", 100)
    site = Site()
    site.add("demo", NAME, wheel("demo", "1.0", {}))
    with serving(site), pytest.raises(IndexUnavailableError, match="larger than 100 bytes"):
        client(site, tmp_path).files("demo")


def test_damaged_wheels_are_the_indexs_failure(tmp_path: Path) -> None:
    """Wherever a byte of a wheel is wrong, reading it is exit 5 or right; never zlib's or struct's error."""
    whole = wheel("demo", "1.0", {"demo/a.txt": b"text " * 50})
    for place in range(0, len(whole), 7):
        site = Site()
        site.add("demo", NAME, whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        (tmp_path / "file").write_bytes(site.files["demo"][NAME])
        file = DistFile(
            project="demo", filename=NAME, url=f"file://{tmp_path}/file", sha256=f"{place}", has_metadata=False
        )
        try:
            content = client(site, tmp_path / "cache").member(file, "demo/a.txt")
        except IndexUnavailableError as error:
            content = str(error).encode()
        assert content is None or isinstance(content, bytes)


def test_a_bomb_is_stopped() -> None:
    """A member that unpacks to more than it states is refused after what it stated, in small pieces."""
    packed = zlib.compress(bytes(200 << 20), 9)[2:-4]
    member = Member(name="bomb", packed=len(packed), size=1000, offset=0, method=8)
    with pytest.raises(ValueError, match="more than the 1000 bytes"):
        list(lazyzip.unpack(member, iter([packed])))
    whole = Member(name="bomb", packed=len(packed), size=200 << 20, offset=0, method=8)
    assert max(map(len, lazyzip.unpack(whole, iter([packed])))) <= 1 << 20


def test_a_member_is_whole_or_refused() -> None:
    """A member that ends before what it states is refused."""
    member = Member(name="short", packed=3, size=4, offset=0, method=0)
    with pytest.raises(ValueError, match="3 of the 4 bytes"):
        list(lazyzip.unpack(member, iter([b"abc"])))


def test_a_directory_has_bounds() -> None:
    """A directory that says it is larger than the archive, or than any, is not read."""
    for length, offset in ((1 << 30, 0), (10, 1 << 30)):
        end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, length, offset, 0)
        with pytest.raises(ValueError, match="directory of"):
            lazyzip.directory(reader(end), len(end))


@given(st.binary(max_size=300))
def test_no_archive_ends_otherwise(data: bytes) -> None:
    """Arbitrary bytes are a directory, or damage."""
    data += struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, len(data), 0, 0)
    try:
        with decoding.damaged("an archive"):
            found: object = lazyzip.directory(lambda a, b: data[a:b], len(data))
    except decoding.DamagedError as error:
        found = str(error)
    assert isinstance(found, tuple | str)
