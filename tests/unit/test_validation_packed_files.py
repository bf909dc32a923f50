"""Credentials in packed files: every kind is gone through as it goes by, within bounds, and damage ends it quietly."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import struct
import subprocess
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuilder.validation.file_secrets import FileSecrets
from envbuilder.validation.packed_files import unpacker

GITHUB = b"token = ghp_" + b"a1B2" * 9 + b"\n"
NOISE = os.urandom(3000) + bytes(9000)


def found(path: str, content: bytes, piece: int = 1 << 20) -> list[str]:
    """Search a file's bytes, handed over in pieces."""
    searched = FileSecrets(path)
    for at in range(0, len(content), piece):
        searched.take(bytearray(content[at : at + piece]))
    return [one.what for one in searched.found]


def zipped(
    content: bytes, name: str = "notes.txt", *, how: int = zipfile.ZIP_DEFLATED, streamed: bool = False
) -> bytes:
    """Make a zip of noise and a file; a streamed one says its sizes behind each entry."""

    class Forward(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def seek(self, *_: object) -> int:
            raise io.UnsupportedOperation

        def tell(self) -> int:
            raise io.UnsupportedOperation

    made = Forward() if streamed else io.BytesIO()
    with zipfile.ZipFile(made, "w", how) as archive:
        archive.writestr("noise", NOISE)
        archive.writestr(name, content)
    return made.getvalue()


def pack(*contents: bytes) -> bytes:
    """Make a pack of git's: whole objects, then one that is a delta of another by its id."""

    def head(kind: int, size: int) -> bytes:
        out, size, first = bytearray(), size >> 4, kind << 4 | size & 15
        while size:
            out.append(first | 0x80)
            first, size = size & 0x7F, size >> 7
        return bytes((*out, first))

    objects = [head(3, len(one)) + zlib.compress(one) for one in contents[:-1]]
    objects.append(head(7, len(contents[-1])) + bytes(20) + zlib.compress(contents[-1]))
    return b"PACK" + struct.pack(">II", 2, len(contents)) + b"".join(objects) + bytes(20)


PACK = "srv/app/.git/objects/pack/pack-1.pack"


@pytest.mark.parametrize("piece", [64, 1 << 20])
@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("srv/a.gz", gzip.compress(NOISE) + gzip.compress(GITHUB)),
        ("srv/a.tar.xz", lzma.compress(NOISE + GITHUB)),
        ("srv/a.xz", lzma.compress(NOISE) + lzma.compress(GITHUB)),
        ("srv/a.bz2", bz2.compress(NOISE) + bz2.compress(GITHUB)),
        ("srv/a.zip", zipped(GITHUB)),
        ("srv/a.whl", zipped(GITHUB, how=0)),
        ("srv/a.jar", zipped(GITHUB, streamed=True)),
        ("srv/a.zip", zipped(b"DB_PASSWORD=correct-horse\n", "app/.env")),
        (PACK, pack(NOISE, GITHUB, b"delta")),
        (PACK, pack(NOISE, b"x" * 70000, GITHUB)),
    ],
)
def test_a_credential_in_a_packed_file_is_found(path: str, content: bytes, piece: int) -> None:
    """However the file goes by, in the second of two that were joined too, and by an entry's own name in a zip."""
    assert found(path, content, piece)


@pytest.mark.parametrize("content", [zipped(b"nothing"), lzma.compress(NOISE), bz2.compress(NOISE)])
def test_what_holds_none_is_none(content: bytes) -> None:
    """Noise, packed, is no credential."""
    assert found("srv/a", content, 100) == []


def test_a_repository_s_history_is_searched(tmp_path: Path) -> None:
    """A file that a later commit deleted is in the pack that git itself writes."""
    here = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run([*here, "init", "-q"], check=True)
    for name, content in (("settings.py", GITHUB), ("settings.py", b"token = None\n")):
        (tmp_path / name).write_bytes(content * 50)
        subprocess.run([*here, "add", "."], check=True)
        subprocess.run([*here, "commit", "-qm", "x"], check=True)
    subprocess.run([*here, "gc", "-q"], check=True)
    (packed,) = (tmp_path / ".git/objects/pack").glob("*.pack")
    assert found(f"srv/{packed.relative_to(tmp_path)}", packed.read_bytes(), 64)


@given(st.sampled_from([zipped(GITHUB), lzma.compress(GITHUB), bz2.compress(GITHUB), pack(NOISE, GITHUB)]), st.data())
def test_damage_ends_the_search_and_nothing_else(content: bytes, data: st.DataObject) -> None:
    """A byte more, less or other: no exception leaves it."""
    at = data.draw(st.integers(0, len(content) - 1))
    damaged = content[:at] + data.draw(st.binary(max_size=4)) + content[at + data.draw(st.integers(0, 4)) :]
    found(PACK, damaged, data.draw(st.sampled_from([3, 1 << 20])))


@pytest.mark.parametrize("pack_up", [lambda content: lzma.compress(content, preset=0), bz2.compress, zipped])
def test_a_file_that_unpacks_without_end_costs_what_is_looked_at(pack_up: Callable[[bytes], bytes]) -> None:
    """Of 80 MiB of zeros the first 64 MiB are gone through."""
    content = pack_up(bytes(80 << 20))
    begun = time.process_time()
    assert found("srv/a", content) == []
    assert time.process_time() - begun < 6


def test_other_files_are_not_unpacked() -> None:
    """A pack outside of a repository, a text that begins with an x."""
    assert unpacker("srv/a.pack", b"PACK") is None
    assert unpacker("srv/x", b"x") is None
