"""An image's layers, file by file: the archive and the engine's own folders say the same of them."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from envbuilder.engine.layer_files import from_archive, from_folders, overlay_folders
from envbuilder.engine.port import LayerFile
from envbuilder.errors import InfrastructureError


def layer(*entries: tuple[str, bytes, bytes, str]) -> bytes:
    """Write a layer's tar: name, tar's type, content, target."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for name, kind, content, target in entries:
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname, info.mode = kind, len(content), target, 0o4755
            tar.addfile(info, io.BytesIO(content))
    return written.getvalue()


def archive(*layers: bytes, manifest: bool = True, name: str = "{0}/layer.tar") -> list[bytes]:
    """Write what an engine saves, in chunks of odd sizes."""
    entries = [(name.format(number), tarfile.REGTYPE, content, "") for number, content in enumerate(layers)]
    entries += [("blobs/sha256/config", tarfile.REGTYPE, b"{}" * 600, "")]
    entries += [("manifest.json", tarfile.REGTYPE, b"[]", "")] if manifest else []
    whole = layer(*entries)
    return [whole[at : at + 7777] for at in range(0, len(whole), 7777)]


WHOLE = layer(
    ("./etc", tarfile.DIRTYPE, b"", ""),
    ("./etc/a", tarfile.REGTYPE, b"content", ""),
    ("etc/b", tarfile.LNKTYPE, b"", "./etc/a"),
    ("etc/c", tarfile.SYMTYPE, b"", "/etc/a"),
    ("etc/.wh.gone", tarfile.REGTYPE, b"", ""),
    ("var/.wh..wh..opq", tarfile.REGTYPE, b"", ""),
)


def read(files: object) -> dict[str, tuple[str, str, bytes]]:
    """Read a layer to its end: path → kind, target, content."""
    told: dict[str, tuple[str, str, bytes]] = {}
    for file in files:  # type: ignore[attr-defined]
        assert isinstance(file, LayerFile)
        told[file.path] = (file.kind, file.target, b"".join(file.pieces()) if file.kind == "file" else b"")
    return told


EXPECTED = {
    "etc": ("folder", "", b""),
    "etc/a": ("file", "", b"content"),
    "etc/b": ("same", "etc/a", b""),
    "etc/c": ("link", "/etc/a", b""),
    "etc/gone": ("deleted", "", b""),
    "var": ("emptied", "", b""),
}


@pytest.mark.parametrize("packed", [bytes, gzip.compress])
@pytest.mark.parametrize("name", ["{0}/layer.tar", "blobs/sha256/{0}"])
def test_an_archive_s_layers(packed: Callable[[bytes], bytes], name: str) -> None:
    """Files, further names, links and deletions; the diff id is the unpacked layer's digest, packed or not."""
    (stream,) = from_archive(archive(packed(WHOLE), name=name))
    diff_id = f"sha256:{hashlib.sha256(WHOLE).hexdigest()}"
    streams = from_archive(archive(packed(WHOLE), packed(WHOLE), name=name))
    told = [(read(one.files), one.diff_id) for one in streams]
    assert told == [(EXPECTED, diff_id), (EXPECTED, diff_id)]
    assert stream.diff_id == diff_id


def test_a_reader_that_stops_early_gets_the_next_layer_whole() -> None:
    """What one reader leaves of a layer is passed over; the next layer begins at its beginning."""
    streams = from_archive(archive(WHOLE, WHOLE))
    next(next(streams).files)
    assert read(next(streams).files) == EXPECTED


def test_a_damaged_layer_is_never_taken_for_the_whole() -> None:
    """Whichever byte of a packed layer flips, it is our error, or the layer's own diff id is missing."""
    whole = WHOLE + os.urandom(500) + bytes(5000)
    diff_id = f"sha256:{hashlib.sha256(whole).hexdigest()}"
    packed, refused = gzip.compress(whole, mtime=0), 0
    for at in range(10, len(packed) - 4, 7):
        flipped = bytearray(packed)
        flipped[at] ^= 0xFF
        seen = []
        try:
            for stream in from_archive(archive(bytes(flipped))):
                read(stream.files)
                seen.append(stream.diff_id)
        except InfrastructureError:
            refused += 1
        assert diff_id not in seen
    assert refused > 10


def test_what_is_no_archive_is_the_engine_s_failure() -> None:
    """Noise, a stream that is cut off and one without a manifest are our error, never a traceback."""
    for chunks in ([b"noise" * 1000], archive(WHOLE)[:1], archive(WHOLE, manifest=False)):
        with pytest.raises(InfrastructureError, match="archive of the image"):
            list(from_archive(chunks))


def test_an_engine_s_folders(tmp_path: Path) -> None:
    """A folder of the engine says what the archive says; a link out of it is read as a link."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "a").write_bytes(b"content")
    os.link(tmp_path / "etc" / "a", tmp_path / "etc" / "b")
    (tmp_path / "etc" / "c").symlink_to("/etc/passwd")
    (stream,) = from_folders([("sha256:1", tmp_path)], ())
    assert stream.diff_id == "sha256:1"
    assert read(stream.files) == {
        **{k: EXPECTED[k] for k in ("etc", "etc/a", "etc/b")},
        "etc/c": ("link", "/etc/passwd", b""),
    }
    assert list(from_folders([("sha256:1", tmp_path)], {"sha256:1"})) == []


def test_a_path_that_the_system_does_not_take_at_once(tmp_path: Path) -> None:
    """A layer's folders are followed however deep they are, and their files read; beyond any sense it is an error."""

    def deepen(times: int) -> None:
        at = os.open(tmp_path, os.O_RDONLY)
        for _ in range(times):
            os.mkdir("d" * 200, dir_fd=at)
            at = os.open("d" * 200, os.O_RDONLY, dir_fd=at)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
        os.symlink("target", "link", dir_fd=at)

    deepen(30)
    (stream,) = from_folders([("sha256:1", tmp_path)], ())
    told = read(stream.files)
    deep = "/".join(["d" * 200] * 30)
    assert (told[f"{deep}/file"][0], told[f"{deep}/link"][:2]) == ("file", ("link", "target"))
    assert len(told) == 32
    shutil.rmtree(tmp_path / ("d" * 200))
    deepen(200)
    (stream,) = from_folders([("sha256:1", tmp_path)], ())
    with pytest.raises(InfrastructureError, match="paths of more than"):
        read(stream.files)


def test_a_program_with_capabilities_is_told(tmp_path: Path) -> None:
    """The kernel's capabilities are read of programs, in folders and archives alike."""
    program = tmp_path / "ping"
    program.write_bytes(b"x")
    program.chmod(0o755)
    try:
        os.setxattr(program, "security.capability", struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0))
    except OSError:
        pytest.skip("this file system, or this user, takes no capabilities")
    (stream,) = from_folders([("sha256:1", tmp_path)], ())
    assert [file.has_capabilities for file in stream.files] == [True]
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("ping")
        info.pax_headers = {"SCHILY.xattr.security.capability": "\x01"}
        tar.addfile(info)
    told = [[file.has_capabilities for file in stream.files] for stream in from_archive(archive(written.getvalue()))]
    assert told == [[True]]


def test_an_engine_s_own_attributes(tmp_path: Path) -> None:
    """A folder that leads elsewhere, or a file with another one's content, is not judged by what lies in its place."""
    for name, attribute in (("folder", "trusted.overlay.redirect"), ("file", "trusted.overlay.metacopy")):
        layer = tmp_path / name
        layer.mkdir()
        place = layer / name
        place.mkdir() if name == "folder" else place.write_bytes(b"")
        try:
            os.setxattr(place, attribute, b"/opt")
        except OSError:
            pytest.skip("this file system, or this user, takes no such attribute")
        (stream,) = from_folders([("sha256:1", layer)], ())
        with pytest.raises(InfrastructureError, match="attribute of the engine"):
            read(stream.files)


def test_a_name_that_is_no_text_is_written_out_and_read(tmp_path: Path) -> None:
    """Files, what is in such folders, links and further names: what is told of them can be written to a document."""
    odd = Path(os.fsdecode(bytes(tmp_path) + b"/\xff"))
    odd.mkdir()
    (odd / "a").write_bytes(b"content")
    os.link(odd / "a", odd / "b")
    (tmp_path / "c").symlink_to(os.fsdecode(b"\xff/a"))
    (stream,) = from_folders([("sha256:1", tmp_path)], ())
    expected = {"\\xff": ("folder", "", b""), "\\xff/a": ("file", "", b"content"), "\\xff/b": ("same", "\\xff/a", b"")}
    assert read(stream.files) == {**expected, "c": ("link", "\\xff/a", b"")}


def test_folders_are_used_where_they_can_be_read(tmp_path: Path) -> None:
    """Another storage, a remote engine's folders or a number that does not fit: the archive is the way."""
    data = {"UpperDir": str(tmp_path), "LowerDir": str(tmp_path)}
    told = {"GraphDriver": {"Name": "overlay2", "Data": data}, "RootFS": {"Layers": ["sha256:1", "sha256:2"]}}
    if os.geteuid() == 0:
        assert overlay_folders(told) == (("sha256:1", tmp_path), ("sha256:2", tmp_path))
    assert overlay_folders({**told, "GraphDriver": {"Name": "zfs", "Data": data}}) is None
    assert overlay_folders({**told, "RootFS": {"Layers": ["sha256:1"]}}) is None
    gone = {"UpperDir": "/no/such/folder", "LowerDir": str(tmp_path)}
    assert overlay_folders({**told, "GraphDriver": {"Name": "overlay2", "Data": gone}}) is None
