"""The client of package indexes: pages in both forms, files of wheels by ranges, retries, limits and the cache."""

import os
import random
import struct
import threading
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from index_server import Site, serving, wheel

from envbuilder.pypi import client as pypi
from envbuilder.pypi import pages
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.client import IndexUnavailableError, PackageIndex, Transport
from envbuilder.pypi.index_config import IndexConfig
from envbuilder.pypi.pages import DistFile

NAME = "thing-1.0-py3-none-manylinux2014_x86_64.whl"
FILLER = random.Random(1).randbytes(600_000)  # noqa: S311 - bytes that do not compress
METADATA = "Requires-Python: >=3.9\nRequires-Dist: numpy>=1.26\n"


@pytest.fixture
def site() -> Site:
    here = Site()
    here.add("thing", NAME, wheel("thing", "1.0", {"a.txt": b"hello", "big.so": FILLER, "none.txt": b""}, METADATA))
    return here


def client(url: str, tmp_path: Path, extra: tuple[str, ...] = (), life: float = 3600.0) -> PackageIndex:
    return PackageIndex(IndexConfig(url=url, extra=extra), Cache(tmp_path / "cache"), page_life_s=life)


@pytest.mark.parametrize("json", [False, True])
def test_html_and_json_pages_have_the_same_files(site: Site, tmp_path: Path, *, json: bool) -> None:
    """Only JSON has sizes and dates."""
    site.json = json
    with serving(site) as here:
        (file,) = client(here.url, tmp_path).files("thing")
        assert client(here.url, tmp_path).files("nothing") == ()
    assert (file.filename, file.requires_python) == (NAME, ">=3.9")
    assert len(file.sha256) == 64
    assert file.url.endswith(f"/files/{NAME}")
    assert (file.uploaded, file.size is not None) == (("2025-08-13", True) if json else ("", False))


def test_members_are_read_by_ranges(site: Site, tmp_path: Path) -> None:
    """An empty member differs from a missing one."""
    with serving(site) as here:
        index = client(here.url, tmp_path)
        (file,) = index.files("thing")
        assert index.member(file, "a.txt") == b"hello"
        assert index.member(file, "none.txt") == b""
        assert index.member(file, "absent.txt") is None
        assert "numpy>=1.26" in index.metadata(file)
        big = next(one for one in index.members(file) if one.filename == "big.so")
        assert b"".join(index.stream(file, big)) == FILLER
        assert index.size(file) == len(site.files["thing"][NAME])
        asked = [(path, ranges) for path, ranges in here.asked if path == f"/files/{NAME}"]
    assert all(ranges for _, ranges in asked[1:]), "every request for the wheel has a range, except the first, HEAD"


def test_nothing_is_requested_twice(site: Site, tmp_path: Path) -> None:
    with serving(site) as here:
        first = client(here.url, tmp_path)
        (file,) = first.files("thing")
        first.member(file, "a.txt")
        before = len(here.asked)
        second = client(here.url, tmp_path)
        assert second.member(second.files("thing")[0], "a.txt") == b"hello"
        assert len(here.asked) == before
        third = client(here.url, tmp_path, life=0.0)
        assert third.member(third.files("thing")[0], "a.txt") == b"hello"
        assert [path for path, _ in here.asked[before:]] == ["/simple/thing/"]


def test_busy_server_is_asked_again(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pypi, "BACK_OFF_S", 0.01)
    site.fail_first = 2
    with serving(site) as here:
        assert len(client(here.url, tmp_path).files("thing")) == 1
        assert len(here.asked) == 3


def test_server_without_ranges_is_refused(site: Site, tmp_path: Path) -> None:
    site.ranges = False
    with serving(site) as here:
        index = client(here.url, tmp_path)
        (file,) = index.files("thing")
        with pytest.raises(IndexUnavailableError, match="range requests"):
            index.member(file, "a.txt")


def test_answer_that_breaks_off_is_continued(site: Site, tmp_path: Path) -> None:
    with serving(site) as here:
        index = client(here.url, tmp_path)
        (file,) = index.files("thing")
        big = next(one for one in index.members(file) if one.filename == "big.so")
        site.break_after = 150_000
        assert b"".join(index.stream(file, big)) == FILLER
        starts = [ranges for path, ranges in here.asked if path.endswith(".whl") and ranges]
    assert len(starts) > big.compress_size // 150_000


def test_index_that_is_down_is_an_error_with_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pypi, "TRIES", 0)
    with pytest.raises(IndexUnavailableError) as caught:
        client("http://127.0.0.1:9/simple", tmp_path).files("thing")
    assert "SSL_CERT_FILE" in caught.value.hint


def test_folder_can_be_an_index(tmp_path: Path, site: Site) -> None:
    """The main index precedes it if both have a file."""
    folder = tmp_path / "simple" / "thing"
    folder.mkdir(parents=True)
    (folder / NAME).write_bytes(site.files["thing"][NAME])
    (folder / "index.html").write_text(f'<a href="{NAME}">{NAME}</a>')
    local = (tmp_path / "simple").as_uri()
    index = client(local, tmp_path)
    (file,) = index.files("thing")
    assert index.member(file, "a.txt") == b"hello"
    assert "numpy>=1.26" in index.metadata(file)
    with serving(site) as here:
        both = client(here.url, tmp_path / "other", extra=(local,))
        assert [one.url.split(":")[0] for one in both.files("thing")] == ["http"]


class InMemory(Transport):
    def __init__(self, content: bytes) -> None:
        super().__init__(IndexConfig(url=""))
        self.content = content

    def _range(self, _: str, start: int, stop: int) -> Iterator[bytes]:
        yield self.content[start:stop]


def served(content: bytes) -> tuple[PackageIndex, DistFile]:
    index = PackageIndex(IndexConfig(url=""), Cache(Path("/nonsuch")))
    index._transport = InMemory(content)
    return index, DistFile(project="demo", filename="demo-1-py3-none-any.whl", url="x", size=len(content))


@given(
    members=st.dictionaries(st.text("abc/._", min_size=1, max_size=12), st.binary(max_size=3000), max_size=6),
    stored=st.booleans(),
)
def test_members_are_those_of_the_archive(members: dict[str, bytes], *, stored: bool) -> None:
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    index, file = served(packed.getvalue())
    infos = index.members(file)
    assert {info.filename: b"".join(index.stream(file, info)) for info in infos} == members
    assert [info.file_size for info in infos] == list(map(len, members.values()))


def zipped(content: bytes, *, states: int | None = None) -> bytes:
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", content)
    data = bytearray(packed.getvalue())
    if states is not None:
        at = data.rindex(b"PK\x01\x02")
        data[at + 24 : at + 28] = struct.pack("<L", states)
    return bytes(data)


@pytest.mark.parametrize("states", [1000, (200 << 20) + 1])
def test_member_of_another_size_than_stated_is_refused(states: int) -> None:
    """A member that unpacks to more, or to less; nothing is unpacked beyond the stated size."""
    index, file = served(zipped(bytes(200 << 20), states=states))
    (member,) = index.members(file)
    sizes: list[int] = []
    with pytest.raises(IndexUnavailableError, match="demo-1"):
        sizes.extend(map(len, index.stream(file, member)))
    assert sum(sizes) <= states
    assert max(sizes, default=0) <= 1 << 20


@pytest.mark.parametrize(("length", "offset"), [(1 << 30, 0), (10, 1 << 30)])
def test_directory_beyond_the_limits_is_refused(length: int, offset: int) -> None:
    index, file = served(struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, length, offset, 0))
    with pytest.raises(IndexUnavailableError):
        index.members(file)


def test_endless_page_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pypi, "MAX_PAGE", 100)
    site = Site()
    site.add("demo", NAME, wheel("demo", "1.0", {}))
    with serving(site), pytest.raises(IndexUnavailableError, match="larger than 100 bytes"):
        client(site.url, tmp_path).files("demo")


LOGIN = (
    b"<html><head><title>Welcome to Hotel</title></head><body><form><a href='/terms'>Log in</a></form></body></html>"
)


def test_login_page_is_not_an_unknown_project() -> None:
    """A page without files is refused, unless it is an index's page of a project without files."""
    with pytest.raises(ValueError, match="not a page of an index"):
        pages.parse("demo", LOGIN, "text/html", "http://x/simple/demo/")
    for empty in (
        b"<html><head><title>Links for demo</title></head><body></body></html>",
        b'<html><head><meta name="pypi:repository-version" content="1.0"></head><body></body></html>',
    ):
        assert pages.parse("demo", empty, "text/html", "http://x/simple/demo/") == ()


def test_html_page_as_indexes_write_it() -> None:
    page = b"""<html><head><base href="https://files.example/root/"></head><body>
    <a href="a/x-1.0-py3-none-any.whl#sha256=aa" data-requires-python="&gt;=3.9,&lt;4" data-yanked="">x</a>
    <a href="../b/x-1.1.tar.gz" data-core-metadata="sha256=bb">y</a></body></html>"""
    first, second = pages.parse("x", page, "text/html", "https://index.example/simple/x/")
    assert first == DistFile(
        project="x",
        filename="x-1.0-py3-none-any.whl",
        url="https://files.example/root/a/x-1.0-py3-none-any.whl",
        sha256="aa",
        requires_python=">=3.9,<4",
        yanked=True,
    )
    assert (second.filename, second.has_metadata) == ("x-1.1.tar.gz", True)
    with pytest.raises(ValueError, match="simple API"):
        pages.parse("x", b"[]", pages.JSON_TYPE, "https://index.example/simple/x/")


def test_every_kind_of_request_returns_its_connection(tmp_path: Path) -> None:
    site = Site()
    site.add("probe", "probe-1.0-py3-none-any.whl", wheel("probe", "1.0", {"a": b"b"}))
    times = 2 * pypi.CONNECTIONS
    answered: list[int] = []

    def ask(url: str) -> None:
        client = Transport(IndexConfig(url=url))
        file = f"{url.removesuffix('/simple')}/files/probe-1.0-py3-none-any.whl"
        for _ in range(times):
            size = client.size(file)
            answered.append(len(client.read(file, 0, size)))
            assert client.page(f"{url}/probe/", "*/*") is not None
            assert client.page(f"{url}/none/", "*/*") is None

    with serving(site):
        asking = threading.Thread(target=ask, args=(site.url,), daemon=True)
        asking.start()
        asking.join(timeout=60)
    assert len(answered) == times


def test_index_of_the_matrix_is_asked_first(tmp_path: Path) -> None:
    public, private = Site(), Site()
    for here, name, text in ((public, "ours", b"taken"), (private, "ours", b"meant"), (public, "theirs", b"x")):
        here.add(name, f"{name}-1.0-py3-none-any.whl", wheel(name, "1.0", {"a.txt": text}))
    with serving(public) as main, serving(private) as own:
        index = client(main.url, tmp_path)
        both = index.with_indexes((own.url,))
        for asked, said in ((index, b"taken"), (both, b"meant")):
            (file,) = asked.files("ours")
            assert asked.member(file, "a.txt") == said
        assert [file.filename for file in both.files("theirs")] == ["theirs-1.0-py3-none-any.whl"]
        assert index.with_indexes(()) is index


def test_cache_removes_the_least_recently_used_answers(tmp_path: Path) -> None:
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


def test_cache_without_a_folder_is_not_an_error(tmp_path: Path) -> None:
    absent = Cache(tmp_path / "gone")
    absent.used("a", "kind")
    absent.trim(0)
    assert absent.get("a", "kind") is None
