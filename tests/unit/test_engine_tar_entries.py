"""A layer's tar is read in one way: what engines would read otherwise is refused, or read as they do."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator

import pytest

from envbuilder.engine.layer_files import from_archive
from envbuilder.engine.tar_entries import plain, unpacked
from envbuilder.errors import InfrastructureError

GLOBAL, PAX, LONG, LINK, V7 = b"g", b"x", b"L", b"K", b"\0"
WANTED = "opt/six.py"


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


def entry(name: str, content: bytes = b"", kind: bytes = b"0", **fields: bytes) -> bytes:
    return header(name, kind, len(content), **fields) + padded(content)


def read(layer: bytes) -> dict[str, tuple[str, bytes]]:
    """Read a layer of an archive to its end: path → kind, content."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for name, content in (("a/layer.tar", layer), ("manifest.json", b"[]")):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))

    def told() -> Iterator[tuple[str, tuple[str, bytes]]]:
        for stream in from_archive([written.getvalue()]):
            for file in stream.files:
                yield file.path, (file.kind, b"".join(file.pieces()) if file.kind == "file" else file.target.encode())

    return dict(told())


END = bytes(1024)


def test_what_every_reader_takes_alike_is_read() -> None:
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
        (pax(path="") + entry(WANTED), "path says nothing"),
        (pax(linkpath="") + entry("x", kind=b"1", linkname=WANTED.encode()), "linkpath says nothing"),
        (pax(size="") + entry("x", entry(WANTED)), "size says nothing"),
        (pax(size="1_0") + entry("x"), "size says nothing"),
        (entry(WANTED, magic=b"ustar  \0", prefix=b"00000000001"), "which form of tar"),
        (entry(WANTED, magic=b"\0" * 8, prefix=b"srv"), "which form of tar"),
        (entry(WANTED, prefix=b"srv", tail=b"tar\0"), "which form of tar"),
        (pax(path=WANTED) + entry("x/", b"evil", kind=V7), "by its name alone"),
        (long_name(f"{WANTED}/") + entry("x", kind=V7), "by its name alone"),
        (entry("a") + b"noise".ljust(512, b"x") + entry(WANTED), "bad checksum|invalid"),
        (pax(SCHILY_xattr_trusted_overlay_redirect="/opt/x") + entry("opt/lib", kind=b"5"), "attribute of the engine"),
        (pax(SCHILY_xattr_user_overlay_metacopy="y") + entry(WANTED), "attribute of the engine"),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused(layer: bytes, why: str) -> None:
    """Whichever file an engine would make of it, this host judges no other: it judges none, and says why."""
    with pytest.raises(InfrastructureError, match=why):
        read(entry("before", b"x") + layer + END)


def test_a_layer_that_ends_within_a_header_is_refused() -> None:
    """What is behind such an end, nobody knows."""
    with pytest.raises(InfrastructureError, match="truncated"):
        read(entry("a") + entry(WANTED)[:300])


def test_a_global_header_renames_nothing() -> None:
    """Engines pass it over, wherever it stands; an archive of git begins with one."""
    told = pax(path="srv/x", size="99")[512:]
    layer = header("g", GLOBAL, len(told.rstrip(b"\0"))) + told
    assert read(layer + entry(WANTED, b"1") + layer + entry("b", b"2") + END) == {
        WANTED: ("file", b"1"),
        "b": ("file", b"2"),
    }


def test_names_lead_where_an_engine_unpacks_them() -> None:
    """Doubled slashes, points and ways out of the image are as nothing, for files, further names and deletions."""
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


def test_a_folder_that_hides_what_is_below_is_told_by_its_attribute() -> None:
    """Engines give it the attribute that the archive holds."""
    layer = pax(SCHILY_xattr_trusted_overlay_opaque="y") + entry("opt", kind=b"5") + entry(WANTED, b"1")
    assert read(layer + END) == {"opt": ("emptied", b""), WANTED: ("file", b"1")}


@pytest.mark.parametrize("name", [b"srv/\xff.py", "srv/ü.py".encode()])
def test_a_name_that_is_no_text_is_written_out(name: bytes) -> None:
    """Whatever is made of it later can be written to a document; what is text stays as it is."""
    raw = bytearray(entry("srv/xxxxxx", b"1"))
    raw[0:10] = name.ljust(10, b"\0")
    raw[148:156] = b" " * 8
    raw[148:156] = f"{sum(raw[:512]):06o}\0 ".encode()
    (found,) = read(bytes(raw) + END)
    assert found.encode() == (b"srv/\\xff.py" if b"\xff" in name else name)


def test_plain_names_are_texts() -> None:
    """Bytes that are no text are written out, others stay."""
    assert [plain(one) for one in ("a", "ü", "a\udcffb")] == ["a", "ü", "a\\xffb"]
    assert [unpacked(one) for one in ("./", "/", "a/..", "..", "a/b/")] == ["", "", "", "", "a/b"]
