"""Remove what a list names from an installation: files, and the symbol tables of shared objects.

``python remove_files.py LIST SITE`` runs in the build step that installs, so that no layer holds what goes, and each
RECORD names what is left. A list is made for certain wheels: if a RECORD is not the one that it was made from, nothing
of that package is changed and the build ends. Standard library only, Python 3.6 or newer.
"""

import csv
import hashlib
import mmap
import os
import re
import struct
import sys
from base64 import urlsafe_b64encode
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

Rows = Dict[str, Tuple[str, str]]
"""A RECORD: path → digest and size as it writes them, '' if it has none."""

PIECE = 4 << 20
WORTH = 64 << 10
"""A shared object keeps its symbol tables if cutting them off saves fewer bytes."""

_ALLOC, _NOBITS, _INFO_LINK = 2, 8, 0x40
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_HEADER = 64
_LONGEST_NAME = 4096


class NotAsListedError(Exception):
    """The installation is not the one that the list was made from."""


class Row(NamedTuple):
    """One line of a list, tab-separated: a file, or all files of a package below a folder (``path`` ends with ``/``).

    ``digest`` is the file's, or covers the paths and digests of all files. The last two fields are those of a shared
    object without its symbol tables; '' if the files are removed.
    """

    package: str
    version: str
    reason: str
    path: str
    files: int
    size: int
    digest: str
    left: str = ""
    becomes: str = ""

    def line(self) -> str:
        """Write it as a line of a list."""
        fields = ("{0}=={1}".format(self.package, self.version), self.reason, self.path, self.files, self.size)
        return "\t".join(map(str, (*fields, self.digest, *(one for one in self[7:] if one))))


def parse_row(line: str) -> Row:
    """Read a line of a list. Raises ValueError for anything else."""
    pin, reason, path, files, size, digest, *rest = line.split("\t")
    name, separator, version = pin.partition("==")
    if not (name and separator and version and path and len(rest) in (0, 2)):
        raise ValueError("not a row of removed files: {0!r}".format(line))
    return Row(name, version, reason, path, int(files), int(size), digest, *rest)


def written(digest: bytes) -> str:
    """Write a SHA-256 as RECORD does."""
    return "sha256=" + urlsafe_b64encode(digest).decode().rstrip("=")


def digest_of_rows(rows: Iterable[Tuple[str, str]]) -> str:
    """Return one digest of several files: of their paths and digests, sorted."""
    return written(hashlib.sha256("".join("{0},{1}\n".format(*row) for row in sorted(rows)).encode()).digest())


def is_below(path: str, listed: str) -> bool:
    """Return True if a path is the listed one, or is below it if that is a folder."""
    return path == listed or (listed.endswith("/") and path.startswith(listed))


def read_record(path: str) -> Rows:
    """Read a RECORD."""
    with open(path, encoding="utf-8", newline="") as stream:
        return {row[0]: (row[1], row[2]) for row in csv.reader(stream) if len(row) == 3}


class Cut(NamedTuple):
    """A shared object without its symbol tables: another header, its own bytes up to ``keep``, other section tables.

    Every byte that a loader maps stays where it is (https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.intro.html).
    """

    header: bytes
    keep: int
    end: bytes

    @property
    def size(self) -> int:
        """The file's bytes afterwards."""
        return self.keep + len(self.end)

    def digest(self, image: mmap.mmap) -> str:
        """Return the digest of the content afterwards, as RECORD writes it."""
        hashed = hashlib.sha256(self.header)
        for at in range(_HEADER, self.keep, PIECE):
            hashed.update(image[at : min(at + PIECE, self.keep)])
        hashed.update(self.end)
        return written(hashed.digest())

    def write(self, path: str) -> None:
        """Shorten the file that it was planned for."""
        with open(path, "r+b") as stream:
            stream.write(self.header)
            stream.seek(self.keep)
            stream.write(self.end)
            stream.truncate()


def symbols_cut(image: mmap.mmap) -> Optional[Cut]:
    """Plan to cut off what follows all that is loaded; None if it is not such an object, or if that saves little."""
    if len(image) < _HEADER or image[:6] != b"\x7fELF\x02\x01":
        return None
    try:
        cut = _planned(image)
    except (struct.error, IndexError, OverflowError, ValueError):
        return None
    return cut if cut is not None and cut.size + WORTH <= len(image) else None


def _planned(image: mmap.mmap) -> Optional[Cut]:
    at, table = struct.unpack_from("<QQ", image, 32)
    size, count, _, rows, names_index = struct.unpack_from("<HHHHH", image, 54)
    segments = [_SEGMENT.unpack_from(image, at + number * size) for number in range(count)]
    sections = [_SECTION.unpack_from(image, table + number * _SECTION.size) for number in range(rows)]
    loaded = [number for number, row in enumerate(sections) if row[2] & _ALLOC]
    if not loaded or not segments:
        return None
    kept = sections[: loaded[-1] + 1]
    if len(loaded) != len(kept) - 1 or any(_refers_beyond(row, len(kept)) for row in kept):
        return None
    ends = [row[4] + row[5] for row in kept if row[1] != _NOBITS]
    keep = max(_HEADER, at + size * count, *(row[2] + row[5] for row in segments), *ends)
    names = [_name(image, sections[names_index][4] + row[0]) for row in kept]
    if keep > len(image):
        return None
    end = _tables(kept, names, keep)
    header = bytearray(image[:_HEADER])
    struct.pack_into("<Q", header, 40, keep + len(end) - (len(kept) + 1) * _SECTION.size)
    struct.pack_into("<HH", header, 60, len(kept) + 1, len(kept))
    return Cut(bytes(header), keep, end)


def _refers_beyond(row: Tuple[int, ...], count: int) -> bool:
    return row[6] >= count or (bool(row[2] & _INFO_LINK) and row[7] >= count)


def _name(image: mmap.mmap, start: int) -> bytes:
    end = image.find(b"\0", start, start + _LONGEST_NAME)
    if end < 0:
        raise ValueError("a section has no name")
    return image[start:end]


def _tables(sections: List[Tuple[int, ...]], names: List[bytes], keep: int) -> bytes:
    """Write the names and the table of the sections that stay, aligned, for a file of which they begin at ``keep``."""
    texts, rows = bytearray(b"\0"), [bytes(_SECTION.size)]
    for row, name in zip(sections[1:], names[1:]):
        rows.append(_SECTION.pack(len(texts), *row[1:]))
        texts += name + b"\0"
    place = len(texts)
    texts += b".shstrtab\0"
    before = -keep % 8
    rows.append(_SECTION.pack(place, 3, 0, 0, keep + before, len(texts), 0, 0, 1, 0))
    behind = -(keep + before + len(texts)) % 8
    return bytes(before) + bytes(texts) + bytes(behind) + b"".join(rows)


def info_folder(site: str, name: str, version: str) -> Optional[str]:
    """Return the ``.dist-info`` folder of a package; None if it is not installed in this version."""
    for folder in sorted(os.listdir(site)):
        parts = folder[: -len(".dist-info")].partition("-")
        if folder.endswith(".dist-info") and re.sub(r"[-_.]+", "-", parts[0]).lower() == name and parts[2] == version:
            return os.path.join(site, folder)
    return None


def apply(rows: Iterable[Row], site: str) -> int:
    """Remove what a list names; return the bytes that went. Raises NotAsListedError."""
    packages = {}  # type: Dict[Tuple[str, str], List[Row]]
    for row in rows:
        packages.setdefault((row.package, row.version), []).append(row)
    return sum(_apply(name, version, listed, site) for (name, version), listed in packages.items())


def _apply(name: str, version: str, listed: List[Row], site: str) -> int:
    folder = info_folder(site, name, version)
    if folder is None:
        raise NotAsListedError("{0} {1} is not installed".format(name, version))
    record = os.path.join(folder, "RECORD")
    rows = read_record(record)
    leaving = [path for row in listed if not row.left for path in _matched(row, rows)]
    cuts = [(row, _cut(row, rows, site)) for row in listed if row.left]
    for path in leaving:
        os.unlink(_place(site, path))
        del rows[path]
    for row, cut in cuts:
        cut.write(_place(site, row.path))
        rows[row.path] = (row.becomes, row.left)
    with open(record, "w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows((path, *row) for path, row in rows.items())
    for path in leaving:
        _remove_empty(os.path.dirname(_place(site, path)), site)
    return sum(row.size - int(row.left or 0) for row in listed)


def _matched(row: Row, rows: Rows) -> List[str]:
    found = [path for path in rows if is_below(path, row.path) and not path.endswith(".pyc")]
    if len(found) != row.files or digest_of_rows((path, rows[path][0]) for path in found) != row.digest:
        raise NotAsListedError("{0}: {1} is not what the list was made from".format(row.package, row.path))
    return found


def _cut(row: Row, rows: Rows, site: str) -> Cut:
    with open(_place(site, row.path), "rb") as stream:
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as image:
            cut = symbols_cut(image)
            if cut is None or rows.get(row.path, ("", ""))[0] != row.digest or cut.digest(image) != row.becomes:
                raise NotAsListedError("{0}: {1} is not what the list was made from".format(row.package, row.path))
            return cut


def _place(site: str, path: str) -> str:
    """Return the file of a RECORD's path; it must be in the environment that has the site folder."""
    place, root = os.path.normpath(os.path.join(site, path)), os.path.normpath(os.path.join(site, "../../.."))
    if not place.startswith(root + os.sep):
        raise NotAsListedError("{0} leads out of {1}".format(path, root))
    return place


def _remove_empty(folder: str, site: str) -> None:
    while folder.startswith(site + os.sep):
        try:
            os.rmdir(folder)
        except OSError:
            return
        folder = os.path.dirname(folder)


def read_list(path: str) -> Iterator[Row]:
    """Read a list of removed files."""
    with open(path, encoding="utf-8") as stream:
        for line in stream:
            yield parse_row(line.rstrip("\n"))


def main(arguments: List[str]) -> int:
    """Remove what the list names; 1 if the installation is not as listed."""
    listed, site = arguments
    try:
        gone = apply(read_list(listed), os.path.normpath(site))
    except (NotAsListedError, ValueError, OSError) as error:
        print("not removed: {0}".format(error), file=sys.stderr)
        return 1
    print("removed {0:.1f} MB".format(gone / 1e6))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
