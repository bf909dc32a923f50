"""Whatever bytes a decoder is given, it answers a value or raises one exception."""

import struct
import subprocess
import sys
import zlib

import msgspec
import pytest

from envbuilder.image.build import ImageRecord
from envbuilder.support import decoding
from envbuilder.verdict import Verdict

HOSTILE = {
    "not UTF-8 in a string": b'{"schema":"\xff"}',
    "cut": b'{"schema":',
    "empty": b"",
    "deep": b"[" * 200_000,
    "another shape": b"[1, 2]",
    "a huge number": b'{"size": 1' + b"0" * 400 + b"}",
    "a lone surrogate": b'{"schema":"\\ud800"}',
    "NUL": b"\0" * 64,
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("kind", [ImageRecord, Verdict])
def test_damaged_json_is_one_exception(data: bytes, kind: type[msgspec.Struct]) -> None:
    with pytest.raises(decoding.DamagedError):
        decoding.from_json(data, kind)


@pytest.mark.parametrize(
    "error", [zlib.error("bad block"), struct.error("too short"), IndexError(), RecursionError(), MemoryError()]
)
def test_exceptions_of_a_parser_are_damage(error: Exception) -> None:
    with pytest.raises(decoding.DamagedError, match=r"a wheel: ."), decoding.damaged("a wheel"):
        raise error


def test_exception_that_is_not_about_the_bytes_passes() -> None:
    for error in (OSError(5, "I/O"), KeyboardInterrupt()):
        with pytest.raises(type(error)), decoding.damaged("a wheel"):
            raise error


def test_values_are_converted_or_refused() -> None:
    assert decoding.converted({"a": 1}, dict[str, int]) == {"a": 1}
    with pytest.raises(decoding.DamagedError):
        decoding.converted({"a": "x"}, dict[str, int])
    assert decoding.text("ä".encode()) == "ä"
    assert decoding.lossy(b"\xff") == "\ufffd"


def test_rows_that_cannot_be_read_are_left_out() -> None:
    data = b"a.py,sha256=x,3\n" + b"b" * 200_000 + b',,\n\0c.py,\xff,4\r\n"d,e.py",,\n"f'
    assert list(decoding.csv_rows(data)) == [
        ["a.py", "sha256=x", "3"],
        ["c.py", "\ufffd", "4"],
        ["d,e.py", "", ""],
        ["f"],
    ]
    assert list(decoding.csv_rows(b"")) == []


FIRST_TIME = """
import sys, threading
sys.setswitchinterval(1e-6)
from msgspec import Struct
from envbuilder.support import decoding

for number in range(39, -1, -1):
    inner = f"tuple[C{number + 1}, ...]" if number < 39 else "int"
    exec(f"class C{number}(Struct, frozen=True):\\n a: dict[str, str] = {{}}\\n b: {inner} | None = None")
data = b'{"a": {}}'
for _ in range(39):
    data = b'{"b": [' + data + b"]}"
together = threading.Barrier(8)

def read(ways):
    together.wait()
    for way in ways:
        way()

ways = [
    lambda: decoding.from_json(data, C0),
    lambda: decoding.converted({"a": {"x": "y"}}, C7),
    lambda: decoding.from_msgpack(b"\\x81\\xa1a\\x80", list[C3] | C3),
]
threads = [threading.Thread(target=read, args=(ways[n % 3 :] + ways[: n % 3],)) for n in range(8)]
[one.start() for one in threads], [one.join() for one in threads]
print("read")
"""


@pytest.mark.parametrize("number", range(3))
def test_threads_may_meet_a_type_at_once(number: int) -> None:
    ended = subprocess.run([sys.executable, "-c", FIRST_TIME], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "read\n"), (number, ended.stderr[-500:])
