"""Decode bytes from outside or from a disk: any damage raises one exception."""

import codecs
import io
import json
import os
import re
import select
import stat
import struct
import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

with suppress(ModuleNotFoundError):  # ``scripts/setup`` uses this module before any package is installed
    import msgspec

T = TypeVar("T")

_SHOWN = 300
"""Characters of a decoder's message that are passed on: some quote their input."""


class DamagedError(ValueError):
    """Damaged bytes. A ValueError whose text says what is wrong, without the bytes."""


@contextmanager
def damaged(what: str) -> Iterator[None]:
    """Turn any decoder's exception into DamagedError, whose message begins with ``what``.

    Hostile bytes cause more exceptions than documented: endless nesting, a length beyond the memory, an offset
    outside of the data.
    """
    try:
        yield
    except DamagedError:
        raise
    except (
        ValueError,  # msgspec's errors, UnicodeError, binascii.Error and json's are ValueErrors
        LookupError,
        ArithmeticError,
        TypeError,
        AttributeError,
        AssertionError,  # the standard library's parser of HTML asserts what a page should be
        RecursionError,
        MemoryError,
        EOFError,
        struct.error,
        zlib.error,
    ) as error:
        why = str(error).partition("; use sys.")[0] or type(error).__name__
        why = "it is nested too deeply" if isinstance(error, RecursionError) else why
        raise DamagedError(f"{what}: {why[:_SHOWN]}") from error


def ready(kind: object) -> None:
    """Prepare a type for decoding, in one thread at a time.

    msgspec (0.22 and before) stores its description of a class in the class before it is complete: another thread that
    decodes into the same class at that moment crashes with a segmentation fault.
    """
    if kind not in _READY:
        with _ONE_AT_A_TIME:
            msgspec.msgpack.Decoder(kind)
            _READY.add(kind)


_READY: set[object] = set()
_ONE_AT_A_TIME = threading.RLock()


def from_json(data: bytes | str, kind: type[T], what: str = "not the document that it should be") -> T:
    """Decode JSON as a type. Raises DamagedError, and nothing else, if it does not fit."""
    with damaged(what):
        ready(kind)
        return msgspec.json.decode(data, type=kind)


def from_loose_json(data: bytes, what: str = "not JSON as Python reads it") -> object:
    """Decode JSON as Python's json module does, with NaN. Raises DamagedError."""
    with damaged(what):
        found: object = json.loads(data.decode("utf-8"))
        return found


def from_exact_json(data: bytes, kind: type[T], what: str, fields: Iterable[str] | None) -> T:
    """Decode JSON as a type. Raises DamagedError if a key is there twice: readers differ in which value they take.

    A key that differs only in case from a field of its object does not fit. With ``fields``, keys that differ only in
    case are equal, and these fields are spelled as they are here in every object: Go's readers ignore case.
    """
    if fields is None:  # as it is
        return from_json(data, kind, what)
    spelling = {field.casefold(): field for field in fields}

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        keys = {name.casefold() if spelling else name: name for name, _ in pairs}
        if len(keys) < len(pairs) or any(spelling.get(key, name) != name for key, name in keys.items()):
            raise ValueError(f"a key is there twice or in another case, of {', '.join(keys)[:60]!r}")
        return dict(pairs)

    with damaged(what):
        plain = json.loads(data, object_pairs_hook=once)
        ready(kind)
        found = msgspec.json.decode(data, type=kind)
        _check_spelling(plain, found)
        return found


def _check_spelling(plain: Any, found: object) -> None:  # noqa: ANN401 - decoded JSON
    if isinstance(found, msgspec.Struct):
        names = dict(zip(found.__struct_encode_fields__, found.__struct_fields__, strict=True))
        folded = {name.casefold(): name for name in names}
        if wrong := [key for key in plain if folded.get(key.casefold(), key) != key]:
            raise ValueError(f"the key {wrong[0]!r} differs from {folded[wrong[0].casefold()]!r} only in case")
        for key in plain.keys() & names.keys():
            _check_spelling(plain[key], getattr(found, names[key]))
    elif isinstance(found, dict):
        for key, value in found.items():
            _check_spelling(plain[key], value)
    elif isinstance(found, tuple):
        for part, value in zip(plain, found, strict=True):
            _check_spelling(part, value)


def readings(data: bytes, most: int, names: Iterable[str]) -> tuple[bytes, ...]:
    """Return a JSON document in UTF-8, and as other readers take it, if they would take another one.

    Of equal keys some use the first and some the last; some ignore the case of ``names``, and underscores in them.
    There is one reading of a document with more than ``most`` values.
    """
    data = data.decode(json.detect_encoding(data), "replace").strip("\0").encode()
    known, odd = {name.casefold(): name for name in names}, list[bool]()

    def read(*, first: bool, loose: bool) -> bytes:
        def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
            plain = [(known.get(name.replace("_", "").casefold(), name), value) for name, value in pairs]
            odd.append(len(dict(plain)) < len(pairs) or [name for name, _ in plain] != [name for name, _ in pairs])
            chosen = plain if loose else pairs
            return dict(reversed(chosen) if first else chosen)

        return json.dumps(json.loads(data, object_pairs_hook=once, parse_int=str)).encode()

    with suppress(DamagedError), damaged("not JSON"):
        if data.count(b",") <= most:
            found = read(first=True, loose=False)
            return (data, found, *(read(first=one, loose=True) for one in (False, True))) if any(odd) else (data,)
    return (data,)


def from_msgpack(data: bytes, kind: Any, what: str = "not the record that it should be") -> Any:  # noqa: ANN401
    """Decode MessagePack as a type, which may be generic. Raises DamagedError if it does not fit."""
    with damaged(what):
        ready(kind)
        return msgspec.msgpack.decode(data, type=kind)


def converted(value: object, kind: type[T], what: str = "not the value that it should be") -> T:
    """Convert plain values to a type. Raises DamagedError if they do not fit."""
    with damaged(what):
        ready(kind)
        return msgspec.convert(value, kind)


def to_json(value: object) -> bytes:
    """Encode as JSON. Surrogates, such as in a file name of another encoding, become U+FFFD."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        plain = _SURROGATE.sub("\ufffd", json.dumps(msgspec.to_builtins(value), ensure_ascii=False))
        return msgspec.json.encode(json.loads(plain))


_SURROGATE = re.compile("[\ud800-\udfff]")

SMALL, LARGE, LARGEST = 16 << 20, 256 << 20, 4 << 30
"""Bytes of a key or a configuration, of a document or what a pipe brings, and of a file for an image."""
READ_S = 15.0  # in which a pipe or a terminal ends


def unblocked(path: Path) -> io.BufferedReader:
    """Open a file; a pipe without waiting for its writer."""
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115 - its reader's
    os.set_blocking(file.fileno(), True)
    return file


def awaited(file: io.BufferedReader, seconds: float) -> io.BufferedReader:
    """Wait for a byte, or for the end. Raises DamagedError if neither comes: nobody may ever write to a pipe."""
    if not select.select([file], [], [], max(0.0, seconds))[0]:
        raise DamagedError(f"not read in {READ_S:g} s; is it a pipe or terminal that nothing writes to?")
    return file


def file_content(path: Path, most: int = SMALL, *, piped: bool = False) -> bytes:
    """Read a file. Raises OSError, and DamagedError for one above ``most`` bytes, such as a device.

    A pipe is refused unless ``piped`` is set, and waited for within READ_S: nobody may ever write to it.
    """
    ends = time.monotonic() + READ_S
    with unblocked(path) as file:
        state = os.fstat(file.fileno())
        is_plain = stat.S_ISREG(state.st_mode)
        size, most = (state.st_size, most) if is_plain else (0, min(most, LARGE))
        if not piped and (stat.S_ISFIFO(state.st_mode) or file.isatty()):
            raise DamagedError("it is a pipe or a terminal")
        pieces, left = [file.read(size)] if size <= most else [], most + 1 - size
        while left > 0:
            ready = file if is_plain else awaited(file, ends - time.monotonic())
            if not (piece := ready.read1(min(left, io.DEFAULT_BUFFER_SIZE << 7))):
                break
            pieces.append(piece)
            left -= len(piece)
    if left <= 0:
        raise DamagedError(f"larger than {most >> 20} MB")
    return b"".join(pieces)


def joined(pieces: Iterable[bytes], most: int, within: float) -> bytes:
    """Join the pieces of an answer. Raises DamagedError above ``most`` bytes, and after ``within`` seconds."""
    found, ends = bytearray(), time.monotonic() + within
    for piece in pieces:
        found += piece
        if len(found) > most:
            raise DamagedError(f"larger than {most} bytes")
        if time.monotonic() > ends:
            raise DamagedError(f"not complete after {within:.0f} s")
    return bytes(found)


class ByteStream(io.RawIOBase):
    """A file over pieces, read once. ``read`` may return fewer bytes than requested; b'' only at the end."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = memoryview(b"")

    def read(self, size: int = -1) -> bytes:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._rest = memoryview(piece)
        size = len(self._rest) if size < 0 else size
        taken, self._rest = self._rest[:size], self._rest[size:]
        return bytes(taken)


def text(data: bytes, what: str = "not UTF-8 text") -> str:
    """Decode UTF-8. Raises DamagedError for other bytes."""
    with damaged(what):
        return data.decode("utf-8")


def csv_rows(data: bytes) -> Iterator[list[str]]:
    """Yield the rows of CSV text; a row that cannot be read, or with a field above 128 KiB, is skipped."""
    import csv  # noqa: PLC0415 - only needed for the records of an image

    reader = csv.reader(line[0] for line in re.finditer(".+", lossy(data).replace("\0", "")))
    while True:
        try:
            yield next(reader)
        except csv.Error:
            continue
        except StopIteration:
            return


def lossy(data: bytes) -> str:
    """Decode UTF-8 for people or for a search: other bytes become U+FFFD."""
    return data.decode("utf-8", "replace")


_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32"}
_MARKS |= dict.fromkeys((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "utf-16")  # after UTF-32, which begins with it


def marked(data: bytes) -> str:
    """Return the encoding that the byte order mark of a text names, as PowerShell and Notepad write it; '' without."""
    return next((name for mark, name in _MARKS.items() if data.startswith(mark)), "")


def written(data: bytes) -> str:
    """Decode a text of any editor: UTF-8, or what its mark names; other bytes become U+FFFD."""
    return data.decode(marked(data) or "utf-8", "replace")
