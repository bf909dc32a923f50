"""Credentials in files of every kind: found by their shape wherever they stand, in binary and packed files too."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import time
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuilder.engine.layer_files import from_folders
from envbuilder.engine.port import LayerStream
from envbuilder.validation.file_secrets import FileSecrets
from envbuilder.validation.layer_scan import scan
from envbuilder.validation.secret_search import shaped_in

GITHUB = b"ghp_" + b"a1B2" * 9
SAMPLES = (
    b"-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B",
    b"PuTTY-User-Key-File-3: ssh",
    b"AKIA" + b"QWERTYUIOPASDFGH",
    b"ASIA" + b"QWERTYUIOPASDFGH",
    b"aws_secret_access_key = " + b"wJalrXUtnFEMIK7MDENGbPxRfiCY",
    b"AWS_SECRET_ACCESS_KEY=" + b"wJalrXUtnFEMIK7MDENGbPxRfiCY",
    *(prefix + b"a1B2" * 9 for prefix in (b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"github_pat_", b"npm_")),
    b"glpat-" + b"a1B2" * 6,
    *(b"xox" + kind + b"-" + b"a1B2" * 6 for kind in (b"a", b"b", b"e", b"p", b"r", b"s")),
    b"hf_" + b"abcdEFGH" * 4,
    b"AIza" + b"a1B2c" * 7,
    b"pypi-AgE" + b"a1B2" * 9,
    b"_authToken=abcdef",
    b"sk_live_" + b"a1B2" * 6,
    b"sk-proj-" + b"a1B2" * 12,
    b"dop_v1_" + b"0a" * 32,
    b"WANDB_API_KEY=" + b"0a" * 20,
    b"client-key-data: " + b"LS0tLS1C" * 6,
    b"AccountKey=" + b"a1B2" * 16,
    b"eyJhbGciOi" + b"a1B2" * 4 + b".eyJ" + b"a1B2" * 4 + b"." + b"a1B2" * 6,
)
"""One of every shape that is known; each is put together here, so that no scanner takes this file for a leak."""

NOISE = st.lists(st.sampled_from([b"ghp", b"_", b"-", b"K", b"AKI", b"I", b"J", b"xo", b" ", b"\n", b"PRIVATE "])).map(
    b"".join
)


def found(path: str, content: bytes, piece: int = 1 << 20) -> list[str]:
    """Search a file's bytes, handed over in pieces."""
    searched = FileSecrets(path)
    for at in range(0, len(content), piece):
        searched.take(bytearray(content[at : at + piece]))
    return [one.what for one in searched.found]


@given(st.sampled_from(SAMPLES), NOISE, NOISE)
def test_every_shape_is_found_amid_halves_of_others(sample: bytes, before: bytes, after: bytes) -> None:
    """No noise of letters that shapes begin or turn on keeps a credential from being found."""
    assert list(shaped_in("x", before + b" " + sample + b"\n" + after))


@given(NOISE)
def test_halves_alone_are_nothing(noise: bytes) -> None:
    """Parts of hints, in any order, are no credential."""
    assert not list(shaped_in("x", noise))


def _tar(content: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        member = tarfile.TarInfo("app/.env")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("srv/app.db", b"SQLite format 3\0" + bytes(5000) + GITHUB + bytes(100)),
        ("srv/__pycache__/settings.cpython-311.pyc", b"\xa7\r\r\n" + bytes(12) + b"\xda$" + GITHUB + b"\0"),
        ("srv/log.1.gz", gzip.compress(b"x\n" * 5000 + b"token " + GITHUB + b"\n")),
        ("srv/source.tar.gz", _tar(b"TOKEN=" + GITHUB)),
        ("srv/.git/objects/4b/825dc642cb6eb9a060e54bf8d69288fbee4904", zlib.compress(b"blob 9\0" + GITHUB)),
    ],
)
def test_files_that_are_no_text(path: str, content: bytes) -> None:
    """A token in a database, in byte code, in a packed log, archive or git object is found, however it is cut."""
    assert found(path, content) == ["a GitHub token"]
    assert found(path, content, piece=7) == ["a GitHub token"]


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("srv/a.gz", b"\x1f\x8b" + b"no such thing" * 50),
        ("srv/a.gz", gzip.compress(os.urandom(5000))[:300]),
        ("srv/objects/4b/825dc642cb6eb9a060e54bf8d69288fbee4904", b"xx" * 40),
        ("srv/empty", b""),
    ],
)
def test_what_is_damaged_is_no_secret(path: str, content: bytes) -> None:
    """A packed file that cannot be unpacked ends its own search, and no other."""
    assert found(path, content) == []


def test_a_bomb_costs_bounded_time() -> None:
    """A gigabyte of zeros in a megabyte is looked at as far as the bound, in linear time."""
    packed = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join([*(packed.compress(bytes(1 << 20)) for _ in range(1024)), packed.flush()])
    begun = time.process_time()
    assert found("srv/bomb.gz", bomb) == []
    assert time.process_time() - begun < 5


def test_large_files_are_read_beside_the_others(tmp_path: Path) -> None:
    """A layer whose files may be read in any order comes to the record of one that is read in turn."""
    (tmp_path / "srv").mkdir()
    for name, content in {
        "large": os.urandom(3 << 20),
        "large.log": b"x\n" * (1 << 20) + GITHUB,
        "exact": b"a" * (1 << 20),
        "small": b"token " + GITHUB,
        "empty": b"",
        "elf.so": b"\x7fELF" + bytes(2 << 20),
    }.items():
        (tmp_path / "srv" / name).write_bytes(content)
    (beside,) = (scan(stream) for stream in from_folders([("sha256:1", tmp_path)], ()))
    (again,) = from_folders([("sha256:1", tmp_path)], ())
    assert beside == scan(LayerStream(again.files, again.diff_id))
    assert sorted(one.path for one in beside.secrets) == ["srv/large.log", "srv/small"]
    assert {row.path: row.size for row in beside.rows}["srv/exact"] == 1 << 20
