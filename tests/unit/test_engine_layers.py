"""The layers of an image's archive, file by file; an entry that an engine would read differently is refused."""

import gzip
import hashlib
import os
from collections.abc import Callable, Iterable

import pytest

from envbuilder.engine.layers import as_text, layers, path_in_image
from envbuilder.engine.port import LayerFile
from envbuilder.errors import InfrastructureError

GLOBAL, PAX, LONG, LINK, V7 = b"g", b"x", b"L", b"K", b"\0"
WANTED = "opt/six.py"
END = bytes(1024)


def header(name: str, kind: bytes = b"0", size: int = 0, **fields: bytes) -> bytes:
    """Write one header of 512 bytes, by the POSIX form's places unless a field says otherwise, with its sum."""
    raw = bytearray(512)
    places = {"magic": (257, b"ustar\x0000"), "prefix": (345, b""), "tail": (508, b""), "linkname": (157, b"")}
    raw[0 : len(name)] = name.encode()
    for at, value in ((100, b"0000644\0"), (108, b"0000000\0"), (116, b"0000000\0"), (136, b"00000000000\0")):
        raw[at : at + len(value)] = value
    raw[124:136] = f"{size:011o}\0".encode()
    raw[156:157] = kind
    for field, (at, default) in places.items():
        value = fields.get(field, default)
        raw[at : at + len(value)] = value
    raw[148:156] = b" " * 8
    raw[148:156] = f"{sum(raw):06o}\0 ".encode()
    return bytes(raw)


def padded(content: bytes) -> bytes:
    return content.ljust(-(-len(content) // 512) * 512, b"\0")


def entry(name: str, content: bytes = b"", kind: bytes = b"0", **fields: bytes) -> bytes:
    return header(name, kind, len(content), **fields) + padded(content)


def archive(*layers: bytes, manifest: bool = True, name: str = "{0}/layer.tar") -> list[bytes]:
    entries = [entry(name.format(number), content) for number, content in enumerate(layers)]
    entries += [entry("blobs/sha256/config", b"{}" * 600), entry("manifest.json", b"[]") if manifest else b"", END]
    saved = b"".join(entries)
    return [saved[at : at + 7777] for at in range(0, len(saved), 7777)]


def contents(files: Iterable[LayerFile]) -> dict[str, tuple[str, str, bytes]]:
    return {one.path: (one.kind, one.target, b"".join(one.pieces()) if one.kind == "file" else b"") for one in files}


def read(layer: bytes) -> dict[str, tuple[str, bytes]]:
    rows = [row for stream in layers(archive(layer)) for row in contents(stream.files).items()]
    return {path: (kind, content or target.encode()) for path, (kind, target, content) in rows}


LAYER = (
    entry("./etc", kind=b"5")
    + entry("./etc/a", b"content")
    + entry("etc/b", kind=b"1", linkname=b"./etc/a")
    + entry("etc/c", kind=b"2", linkname=b"/etc/a")
    + entry("etc/.wh.gone")
    + entry("var/.wh..wh..opq")
    + END
)
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
def test_layers_have_files_links_deletions_and_the_diff_id(packed: Callable[[bytes], bytes], name: str) -> None:
    """The diff id is the digest of the unpacked layer, packed or not."""
    diff_id = f"sha256:{hashlib.sha256(LAYER).hexdigest()}"
    found = [(contents(one.files), one.diff_id) for one in layers(archive(packed(LAYER), packed(LAYER), name=name))]
    assert found == [(EXPECTED, diff_id)] * 2
    (unread,) = layers(archive(packed(LAYER), name=name))
    assert unread.diff_id == diff_id


def test_next_layer_starts_at_its_beginning_if_a_reader_stops_early() -> None:
    streams = layers(archive(LAYER, LAYER))
    next(next(streams).files)
    assert contents(next(streams).files) == EXPECTED


def test_damaged_layer_is_an_error_or_has_another_diff_id() -> None:
    layer = LAYER + os.urandom(500) + bytes(5000)
    diff_id = f"sha256:{hashlib.sha256(layer).hexdigest()}"
    packed, refused = gzip.compress(layer, mtime=0), 0
    for at in range(10, len(packed) - 4, 7):
        flipped = bytearray(packed)
        flipped[at] ^= 0xFF
        found = []
        try:
            for stream in layers(archive(bytes(flipped))):
                contents(stream.files)
                found.append(stream.diff_id)
        except InfrastructureError:
            refused += 1
        assert diff_id not in found or gzip.decompress(flipped) == layer  # a bit that fills a byte means nothing
    assert refused > 10


@pytest.mark.parametrize("chunks", [[b"noise" * 1000], archive(LAYER)[:1], archive(LAYER, manifest=False)])
def test_noise_and_truncated_archives_are_the_engines_failure(chunks: list[bytes]) -> None:
    with pytest.raises(InfrastructureError, match="archive of the image"):
        list(layers(chunks))


def test_capabilities_of_a_program_are_read() -> None:
    layer = pax(SCHILY_xattr_security_capability="\x01") + entry("ping") + entry("ls") + END
    assert [[one.has_capabilities for one in stream.files] for stream in layers(archive(layer))] == [[True, False]]


def pax(**records: str) -> bytes:
    """Write a header of further fields; ``_`` in a name stands for a point."""
    text = b""
    for keyword, value in records.items():
        row = f" {keyword.replace('_', '.')}={value}\n"
        size = len(row.encode()) + 1
        size += len(str(size)) - 1
        size = len(row.encode()) + len(str(size))
        text += f"{size}{row}".encode()
    return header("pax", PAX, len(text)) + padded(text)


def long_name(name: str, kind: bytes = LONG) -> bytes:
    return header("././@LongLink", kind, len(name) + 1, magic=b"ustar  \0") + padded(name.encode() + b"\0")


def test_forms_that_all_readers_read_alike_are_read() -> None:
    """Plain entries, long names of either form, a prefix of the POSIX form, an end without zeros."""
    deep = "d" * 120 + "/six.py"
    layer = (
        entry(WANTED, b"1")
        + pax(path=deep)
        + entry("short", b"2")
        + long_name(f"{deep}2")
        + entry("short", b"3", magic=b"ustar  \0")
        + long_name(deep, LINK)
        + long_name(f"{deep}4")
        + entry("short", kind=b"1", magic=b"ustar  \0")
        + entry("six.py", b"5", prefix=b"opt/lib")
        + entry("old/", kind=V7)
    )
    found = read(layer)
    assert found == read(layer + END)
    assert found == {
        WANTED: ("file", b"1"),
        deep: ("file", b"2"),
        f"{deep}2": ("file", b"3"),
        f"{deep}4": ("same", deep.encode()),
        "opt/lib/six.py": ("file", b"5"),
        "old": ("folder", b""),
    }


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (pax(path="srv/x") + long_name(WANTED) + entry("x"), "two headers"),
        (long_name(WANTED) + pax(path="srv/x") + entry("x"), "two headers"),
        (pax(path="srv/x") + pax(path=WANTED) + entry("x"), "two headers"),
        (pax(path=WANTED) + entry("g", kind=GLOBAL) + entry("x"), "two headers"),
        (long_name("srv/x") + long_name(WANTED) + entry("x"), "two headers"),
        (pax(path="") + entry(WANTED), "no valid path"),
        (pax(linkpath="") + entry("x", kind=b"1", linkname=WANTED.encode()), "no valid linkpath"),
        (pax(size="") + entry("x", entry(WANTED)), "no valid size"),
        (pax(size="1_0") + entry("x"), "no valid size"),
        (entry(WANTED, magic=b"ustar  \0", prefix=b"00000000001"), "the tar format"),
        (entry(WANTED, magic=b"\0" * 8, prefix=b"srv"), "the tar format"),
        (entry(WANTED, prefix=b"srv", tail=b"tar\0"), "the tar format"),
        (pax(path=WANTED) + entry("x/", b"evil", kind=V7), "only the name"),
        (long_name(f"{WANTED}/") + entry("x", kind=V7), "only the name"),
        (entry("a") + b"noise".ljust(512, b"x") + entry(WANTED), "bad checksum|invalid"),
        (pax(SCHILY_xattr_trusted_overlay_redirect="/opt/x") + entry("opt/lib", kind=b"5"), "attribute of the engine"),
        (pax(SCHILY_xattr_user_overlay_metacopy="y") + entry(WANTED), "attribute of the engine"),
        (pax(comment="x" * (7 << 20)) + entry(WANTED), "too long"),
        (long_name("x" * (7 << 20)) + entry("x"), "too long"),
    ],
)
def test_entry_with_two_readings_is_refused(layer: bytes, why: str) -> None:
    with pytest.raises(InfrastructureError, match=why):
        read(entry("before", b"x") + layer + END)


def test_layer_that_ends_in_a_header_is_refused() -> None:
    with pytest.raises(InfrastructureError, match="truncated"):
        read(entry("a") + entry(WANTED)[:300])


def test_global_header_changes_no_entry() -> None:
    """Engines ignore it; an archive of git begins with one."""
    extended = pax(path="srv/x", size="99")[512:]
    layer = header("g", GLOBAL, len(extended.rstrip(b"\0"))) + extended
    assert read(layer + entry(WANTED, b"1") + layer + entry("b", b"2") + END) == {
        WANTED: ("file", b"1"),
        "b": ("file", b"2"),
    }


def test_paths_are_those_where_an_engine_unpacks() -> None:
    layer = (
        entry("opt//six.py", b"1")
        + entry("../../opt/./a/../b.py", b"2")
        + entry("/opt/c.py", kind=b"1", linkname=b"./opt//six.py")
        + entry("opt//x/../.wh.gone.py")
        + entry("opt/y/.wh..")
    )
    assert read(layer + END) == {
        WANTED: ("file", b"1"),
        "opt/b.py": ("file", b"2"),
        "opt/c.py": ("same", WANTED.encode()),
        "opt/gone.py": ("deleted", b""),
        "opt/y": ("deleted", b""),
    }


def test_opaque_folder_is_known_by_its_attribute() -> None:
    layer = pax(SCHILY_xattr_trusted_overlay_opaque="y") + entry("opt", kind=b"5") + entry(WANTED, b"1")
    assert read(layer + END) == {"opt": ("emptied", b""), WANTED: ("file", b"1")}


@pytest.mark.parametrize("name", [b"srv/\xff.py", "srv/ü.py".encode()])
def test_bytes_of_a_name_that_are_not_text_are_escaped(name: bytes) -> None:
    raw = bytearray(entry("srv/xxxxxx", b"1"))
    raw[0:10] = name.ljust(10, b"\0")
    raw[148:156] = b" " * 8
    raw[148:156] = f"{sum(raw[:512]):06o}\0 ".encode()
    (found,) = read(bytes(raw) + END)
    assert found.encode() == (b"srv/\\xff.py" if b"\xff" in name else name)


def test_escaped_and_normalised_names() -> None:
    assert [as_text(one) for one in ("a", "ü", "a\udcffb")] == ["a", "ü", "a\\xffb"]
    assert [path_in_image(one) for one in ("./", "/", "a/..", "..", "a/b/")] == ["", "", "", "", "a/b"]
