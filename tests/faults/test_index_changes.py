"""An index that changes while it is asked: pages, yanks, replaced wheels, METADATA that is not the wheel's own."""

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from index_server import Site, serving, wheel
from table_rows import rows

from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.errors import InfrastructureError, UnsatisfiableError
from envbuilder.image.lockfile import with_hashes
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.client import IndexUnavailableError, PackageIndex
from envbuilder.pypi.index_config import IndexConfig
from envbuilder.workspace import Workspace

ROOT = Path(__file__).parents[2]
NAME = "demo-1.0-py3-none-any.whl"


def demo(text: str) -> bytes:
    info = "demo-1.0.dist-info"
    members = {
        "demo/__init__.py": text.encode() * 50,
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": f"demo/__init__.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n".encode(),
    }
    return wheel("demo", "1.0", members, f"Summary: {text}\n")


OLD, NEW = demo("old"), demo("another")
HASHES = {hashlib.sha256(one).hexdigest() for one in (OLD, NEW)}


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Serve an index of one wheel, to which uv is led as well."""
    made = Site(json=True)
    made.add("demo", NAME, OLD)
    with serving(made):
        monkeypatch.setenv("UV_DEFAULT_INDEX", made.url)
        monkeypatch.setenv("UV_NO_CACHE", "1")
        monkeypatch.setenv("UV_OFFLINE", "0")  # this index is on loopback: a test's word for no network is not meant
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.delenv("UV_FIND_LINKS", raising=False)
        yield made


def replaced(site: Site) -> None:
    site.files["demo"][NAME] = NEW


def vanished(site: Site) -> None:
    site.files["demo"] = {}


def unknown(site: Site) -> None:
    site.files.pop("demo", None)


def yanked(site: Site) -> None:
    """Say that nobody is to choose it any more."""
    site.yanked.add(NAME)


def html(site: Site) -> None:
    """Answer in the other form from now on."""
    site.json = not site.json


def busy(site: Site) -> None:
    """Fail the next two requests."""
    site.fail_first = 2


CHANGES = (replaced, vanished, unknown, yanked, html, busy)
ROWS = [
    pytest.param(change, after, id=f"{change.__name__}-{after}", marks=() if (n + after) % 3 == 0 else pytest.mark.full)
    for n, change in enumerate(CHANGES)
    for after in range(5)
]
"""A third of them is tried in each run of the tests."""


def changes(site: Site, change: Callable[[Site], None], after: int) -> None:
    asked = count()

    def happens(_: Site) -> None:
        if next(asked) == after:
            change(site)

    site.happens = happens


@pytest.mark.parametrize(("change", "after"), ROWS)
def test_lock_has_hashes_of_the_index_or_is_not_written(site: Site, change: Callable[[Site], None], after: int) -> None:
    (environment,) = choose("quickstart", (), Workspace(ROOT), load()).environments
    changes(site, change, after)
    text, refused = "", None
    try:
        text = with_hashes(("demo==1.0",), environment, "2.36")
    except (InfrastructureError, UnsatisfiableError) as error:
        refused = error
    assert site.asked, "nobody asked this index"
    if refused is not None:
        assert change in (vanished, unknown)
        assert refused.exit_code in (4, 5)
        assert refused.hint
        return
    assert "demo==1.0" in text
    assert re.findall("sha256:([0-9a-f]{64})", text)
    assert set(re.findall("sha256:([0-9a-f]{64})", text)) <= HASHES


@pytest.mark.parametrize(("change", "after"), ROWS)
def test_client_reads_a_wheel_or_fails(site: Site, change: Callable[[Site], None], after: int, tmp_path: Path) -> None:
    client = PackageIndex(IndexConfig(url=site.url), Cache(tmp_path))
    changes(site, change, after)
    found, refused = set(), None
    try:
        for file in client.files("demo"):
            said = client.metadata(file)
            found.add(re.findall("Summary: (.*)", said)[0])
            member = client.member(file, "demo/__init__.py")
            assert member is not None
            found.add(member[: len(member) // 50].decode())
    except IndexUnavailableError as error:
        refused = error
    assert len(found) <= 1, found
    assert found or refused or change in (vanished, unknown)
    assert refused is None or refused.exit_code == 5


@rows
def test_metadata_of_another_wheel_is_refused(site: Site, text: str, digest: str, tmp_path: Path) -> None:
    site.beside[NAME] = (text.encode("latin-1"), digest)
    client = PackageIndex(IndexConfig(url=site.url), Cache(tmp_path))
    (file,) = client.files("demo")
    assert "Summary: old" in client.metadata(file)
    assert "Summary: old" in PackageIndex(IndexConfig(url=site.url), Cache(tmp_path)).metadata(file)


@pytest.mark.parametrize("stated", [True, False], ids=["with its digest", "of which the page says nothing"])
def test_metadata_beside_a_wheel_is_used(site: Site, tmp_path: Path, *, stated: bool) -> None:
    own = b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\nSummary: beside\n"
    site.beside[NAME], site.json = (own, hashlib.sha256(own).hexdigest()), stated
    client = PackageIndex(IndexConfig(url=site.url), Cache(tmp_path))
    (file,) = client.files("demo")
    assert "Summary: beside" in client.metadata(file)
    assert not [path for path, _ in site.asked if path.endswith(".whl")]


def test_cached_page_from_the_future_is_read_again(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = PackageIndex(IndexConfig(url=site.url), Cache(tmp_path))
    monkeypatch.setattr(time, "time", lambda: 2e9)
    assert len(client.files("demo")) == 1
    vanished(site)
    assert len(client.files("demo")) == 1
    monkeypatch.undo()
    assert client.files("demo") == ()
