"""The index port: pages in both forms, single members by ranges, retries, and what is kept."""

from __future__ import annotations

import os
import random
import threading
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from index_server import Site, serving, wheel

from envbuilder.pypi import fetch, index_config, lazyzip, pages
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.index_config import IndexConfig
from envbuilder.pypi.open_index import with_own
from envbuilder.pypi.package_index import DistFile, IndexUnavailableError
from envbuilder.pypi.simple_api import Client

NAME = "thing-1.0-py3-none-manylinux2014_x86_64.whl"
FILLER = random.Random(1).randbytes(600_000)  # noqa: S311 - bytes that do not compress
METADATA = "Requires-Python: >=3.9\nRequires-Dist: numpy>=1.26\n"


@pytest.fixture
def site() -> Site:
    here = Site()
    here.add("thing", NAME, wheel("thing", "1.0", {"a.txt": b"hello", "big.so": FILLER, "none.txt": b""}, METADATA))
    return here


def client(url: str, tmp_path: Path, extra: tuple[str, ...] = (), life: float = 3600.0) -> Client:
    return Client(IndexConfig(url=url, extra=extra), Cache(tmp_path / "cache"), page_life_s=life)


@pytest.mark.parametrize("json", [False, True])
def test_pages_in_both_forms_say_the_same(site: Site, tmp_path: Path, *, json: bool) -> None:
    """HTML and JSON give the same files; only JSON knows sizes and dates."""
    site.json = json
    with serving(site) as here:
        (file,) = client(here.url, tmp_path).files("thing")
    assert (file.filename, file.requires_python) == (NAME, ">=3.9")
    assert len(file.sha256) == 64
    assert file.url.endswith(f"/files/{NAME}")
    assert (file.uploaded, file.size is not None) == (("2025-08-13", True) if json else ("", False))


def test_single_members_cost_ranges_alone(site: Site, tmp_path: Path) -> None:
    """A member is read without the wheel; one that is empty differs from one that is not there."""
    with serving(site) as here:
        index = client(here.url, tmp_path)
        (file,) = index.files("thing")
        assert index.member(file, "a.txt") == b"hello"
        assert index.member(file, "none.txt") == b""
        assert index.member(file, "absent.txt") is None
        assert "numpy>=1.26" in index.metadata(file)
        big = next(one for one in index.members(file) if one.name == "big.so")
        assert b"".join(index.stream(file, big)) == FILLER
        assert index.size(file) == len(site.files["thing"][NAME])
        asked = [(path, ranges) for path, ranges in here.asked if path == f"/files/{NAME}"]
    assert all(ranges for _, ranges in asked[1:]), "every reading of the wheel itself names a range; the first is HEAD"


def test_metadata_beside_the_wheel_is_preferred(site: Site, tmp_path: Path) -> None:
    """Where the index serves METADATA beside the wheel, the wheel is not touched."""
    site.metadata = True
    with serving(site) as here:
        index = client(here.url, tmp_path)
        (file,) = index.files("thing")
        assert "numpy>=1.26" in index.metadata(file)
        assert all(not path.endswith(".whl") for path, _ in here.asked)


def test_what_was_read_is_not_asked_again(site: Site, tmp_path: Path) -> None:
    """A second client with the same cache asks nothing; with no life left a page is asked again, its files are not."""
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


def test_a_busy_server_is_asked_again(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two refusals with 503 are waited out."""
    monkeypatch.setattr(fetch, "BACK_OFF_S", 0.01)
    site.fail_first = 2
    with serving(site) as here:
        assert len(client(here.url, tmp_path).files("thing")) == 1
        assert len(here.asked) == 3


def test_a_server_without_ranges_is_refused(site: Site, tmp_path: Path) -> None:
    """A server that would send the whole wheel is told apart before anything is read."""
    site.ranges = False
    with serving(site) as here:
        index = client(here.url, tmp_path)
        (file,) = index.files("thing")
        with pytest.raises(IndexUnavailableError, match="range requests"):
            index.member(file, "a.txt")


def test_an_answer_that_breaks_off_is_taken_up_again(site: Site, tmp_path: Path) -> None:
    """A member arrives whole from a server that closes the connection again and again."""
    with serving(site) as here:
        index = client(here.url, tmp_path)
        (file,) = index.files("thing")
        big = next(one for one in index.members(file) if one.name == "big.so")
        site.break_after = 150_000
        assert b"".join(index.stream(file, big)) == FILLER
        starts = [ranges for path, ranges in here.asked if path.endswith(".whl") and ranges]
    assert len(starts) > big.packed // 150_000


def test_an_unknown_project_has_no_files(site: Site, tmp_path: Path) -> None:
    """404 is an answer."""
    with serving(site) as here:
        assert client(here.url, tmp_path).files("nothing") == ()


def test_an_index_that_is_down_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused connection is our error with a hint, not a traceback."""
    monkeypatch.setattr(fetch, "TRIES", 0)
    with pytest.raises(IndexUnavailableError) as caught:
        client("http://127.0.0.1:9/simple", tmp_path).files("thing")
    assert "SSL_CERT_FILE" in caught.value.hint


def test_a_folder_is_an_index(tmp_path: Path, site: Site) -> None:
    """A file:// index answers like a server; the main index wins where both hold a file."""
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


@given(
    members=st.dictionaries(st.text("abc/._", min_size=1, max_size=12), st.binary(max_size=3000), max_size=6),
    stored=st.booleans(),
)
def test_members_equal_what_the_archive_holds(members: dict[str, bytes], *, stored: bool) -> None:
    """Directory and contents read by ranges are those that the standard library reads from the whole archive."""
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    whole = packed.getvalue()

    def read(start: int, stop: int) -> bytes:
        return whole[start:stop]

    found = {}
    for member in lazyzip.directory(read, len(whole)):
        start = lazyzip.content_at(read, member)
        found[member.name] = b"".join(lazyzip.unpack(member, iter([whole[start : start + member.packed]])))
        assert len(found[member.name]) == member.size
    assert found == members


@given(st.binary(max_size=300))
def test_what_is_no_archive_is_refused(noise: bytes) -> None:
    """Anything but a zip archive raises ValueError and nothing else."""
    try:
        lazyzip.directory(lambda start, stop: noise[start:stop], len(noise))
    except ValueError:
        return
    assert b"PK\x05\x06" in noise


def test_an_html_page_as_indexes_write_it() -> None:
    """Relative links, a base, fragments, entities, yanked files and metadata attributes are understood."""
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


def test_configuration_of_uv_and_pip(tmp_path: Path) -> None:
    """Variables outrank files, uv outranks pip, named indexes lose their names, extras keep their order."""
    pip, uv = tmp_path / "pip.conf", tmp_path / "uv.toml"
    pip.write_text("[global]\nindex-url = https://pip.example/simple\nextra-index-url = file:///one file:///two\n")
    uv.write_text(
        '[[index]]\nurl = "https://uv.example/simple"\ndefault = true\n[[index]]\nurl = "https://more.example"\n'
    )
    none = {"HOME": str(tmp_path), "XDG_CONFIG_DIRS": str(tmp_path), "UV_NO_CONFIG": "1", "PIP_CONFIG_FILE": os.devnull}
    from_pip = index_config.read({**none, "PIP_CONFIG_FILE": str(pip)})
    assert from_pip.urls == ("https://pip.example/simple", "file:///one", "file:///two")
    assert index_config.read({"UV_CONFIG_FILE": str(uv), "PIP_CONFIG_FILE": str(pip)}).urls[:2] == (
        "https://uv.example/simple",
        "https://more.example",
    )
    environ = {**none, "PIP_INDEX_URL": "https://env.example/simple/", "UV_INDEX": "mine=https://named.example"}
    assert index_config.read(environ).urls == ("https://env.example/simple", "https://named.example")
    assert index_config.read({**environ, "UV_DEFAULT_INDEX": "https://first.example"}).url == "https://first.example"


def test_without_configuration_the_clients_own_default_holds() -> None:
    """No setting gives what pip or uv itself would use, over TLS."""
    assert index_config.read({"PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1"}).url.startswith("https://")


def test_every_kind_of_question_gives_its_connection_back(tmp_path: Path) -> None:
    """More questions of each kind than there are connections are all answered; none waits for ever for a free one."""
    site = Site()
    site.add("probe", "probe-1.0-py3-none-any.whl", wheel("probe", "1.0", {"a": b"b"}))
    times = 2 * fetch.CONNECTIONS
    answered: list[int] = []

    def ask(url: str) -> None:
        client = fetch.Transport(IndexConfig(url=url), agent="test")
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


def test_a_matrix_s_own_index_is_asked_first(tmp_path: Path) -> None:
    """A name that both hold means the private one's file, and what only the main one holds is found."""
    public, private = Site(), Site()
    for here, name, text in ((public, "ours", b"taken"), (private, "ours", b"meant"), (public, "theirs", b"x")):
        here.add(name, f"{name}-1.0-py3-none-any.whl", wheel(name, "1.0", {"a.txt": text}))
    with serving(public) as main, serving(private) as own:
        index = client(main.url, tmp_path)
        both = with_own(index, (own.url,))
        assert both is not None
        for asked, said in ((index, b"taken"), (both, b"meant")):
            (file,) = asked.files("ours")
            assert asked.member(file, "a.txt") == said
        assert [file.filename for file in both.files("theirs")] == ["theirs-1.0-py3-none-any.whl"]
        assert with_own(index, ()) is index
    assert with_own(None, ("https://pypi.example.org/simple",)) is None
