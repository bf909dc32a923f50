"""Decode bytes that came from outside, or from a disk: one exception, whatever is wrong with them.

The decoder of documents is imported where it is used: ``scripts/setup`` reads settings through this module before any
package is installed.
"""

from __future__ import annotations

import os
import re
import stat
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_SHOWN = 300
"""Characters of a decoder's own message that are passed on: some quote what they could not read."""


class DamagedError(ValueError):
    """Bytes are not what they should be. It is a ValueError, and its text says what is wrong, without the bytes."""


@contextmanager
def damaged(what: str) -> Iterator[None]:
    """Turn what any decoder raises within into DamagedError, whose message begins with ``what``.

    A decoder of hostile bytes may end in more ways than its documentation names: nesting without end, a length that
    no memory holds, an offset outside of the data.
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
        raise DamagedError(f"{what}: {_said(error)}") from error


def ready(kind: object) -> None:
    """Have the decoder look at a type, one thread at a time, before anything is decoded into it.

    msgspec (0.22 and before) keeps in a class what it found out about it while it is still finding out: another thread
    that decodes into the same class at that moment ends the process by a segmentation fault.
    """
    import msgspec  # noqa: PLC0415 - see above

    if kind not in _READY:
        with _ONE_AT_A_TIME:
            msgspec.msgpack.Decoder(kind)
            _READY.add(kind)


_READY: set[object] = set()
_ONE_AT_A_TIME = threading.RLock()


def from_json(data: bytes | str, kind: type[T], what: str = "not the document that it should be") -> T:
    """Decode JSON as a type. Raises DamagedError, and nothing else, where it is not that."""
    import msgspec  # noqa: PLC0415 - see above

    with damaged(what):
        ready(kind)
        return msgspec.json.decode(data, type=kind)


def from_loose_json(data: bytes, what: str = "not JSON as Python reads it") -> object:
    """Decode JSON as Python's own library does, NaN included, for what such programs read. Raises DamagedError."""
    import json  # noqa: PLC0415 - see above

    with damaged(what):
        found: object = json.loads(data.decode("utf-8"))
        return found


def from_msgpack(data: bytes, kind: Any, what: str = "not the record that it should be") -> Any:  # noqa: ANN401
    """Decode MessagePack as a type, which may be a generic one. Raises DamagedError where it is not that."""
    import msgspec  # noqa: PLC0415 - see above

    with damaged(what):
        ready(kind)
        return msgspec.msgpack.decode(data, type=kind)


def converted(value: object, kind: type[T], what: str = "not the value that it should be") -> T:
    """Convert plain values to a type. Raises DamagedError where they do not fit."""
    import msgspec  # noqa: PLC0415 - see above

    with damaged(what):
        ready(kind)
        return msgspec.convert(value, kind)


def to_json(value: object) -> bytes:
    """Encode as JSON. Text that is none, such as a file's name in another encoding, gets U+FFFD where it is not."""
    import msgspec  # noqa: PLC0415 - see above

    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_whole_text(msgspec.to_builtins(value)))


def _whole_text(value: object) -> object:
    match value:
        case str():
            return _SURROGATE.sub("\ufffd", value)
        case dict():
            return {_whole_text(key): _whole_text(one) for key, one in value.items()}
        case list() | tuple():
            return [_whole_text(one) for one in value]
        case _:
            return value


_SURROGATE = re.compile("[\ud800-\udfff]")


_MOST_OF_A_FILE = 16 << 20


def small_file(path: Path, *, piped: bool = False) -> bytes:
    """Read a key or a configuration. Raises OSError, and DamagedError for what is larger than any: a device, say.

    A pipe is refused but where a user may give one (``piped``), and nothing is waited for: nobody may ever write to it.
    """
    waiting = 0 if piped else os.O_NONBLOCK
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | waiting)) as file:
        if waiting and (stat.S_ISFIFO(os.fstat(file.fileno()).st_mode) or file.isatty()):
            raise DamagedError("it is a pipe or a terminal")
        data = file.read(_MOST_OF_A_FILE + 1)
    if len(data) > _MOST_OF_A_FILE:
        raise DamagedError(f"larger than {_MOST_OF_A_FILE >> 20} MB")
    return data


def text(data: bytes, what: str = "not UTF-8 text") -> str:
    """Decode UTF-8. Raises DamagedError where it is not that."""
    with damaged(what):
        return data.decode("utf-8")


def csv_rows(data: bytes) -> Iterator[list[str]]:
    """Yield the rows of comma-separated text; one that cannot be read, or with a field beyond 128 KiB, is left out."""
    import csv  # noqa: PLC0415 - what an image's records need, and no command's start

    reader = csv.reader(lossy(data).replace("\0", "").splitlines())
    while True:
        try:
            yield next(reader)
        except csv.Error:
            continue
        except StopIteration:
            return


def lossy(data: bytes) -> str:
    """Decode UTF-8 that is shown to people or searched: what is not, is replaced by U+FFFD."""
    return data.decode("utf-8", "replace")


def _said(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:_SHOWN]
