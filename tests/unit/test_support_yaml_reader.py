"""Reading YAML, every problem at once with its line; and decoders, which answer any bytes with a value or one error."""

import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from table_rows import beside, rows

from envbuilder.choice import read_matrix
from envbuilder.compat.fleet import FleetHost
from envbuilder.errors import EnvbuilderError, InputError
from envbuilder.image.build import ImageRecord
from envbuilder.matrix import Budgets, Matrix
from envbuilder.support import decoding
from envbuilder.support.yaml_reader import parse_yaml
from envbuilder.upgrade.policy import Policy
from envbuilder.verdict import Verdict

GOOD, ALL_WRONG = (beside(__file__)[name].encode() for name in ("good", "all wrong"))


def problems(data: bytes) -> list[tuple[int, str, str]]:
    with pytest.raises(InputError) as caught:
        parse_yaml(data, "m.yaml", Matrix)
    return [(problem.line, problem.key, problem.message) for problem in caught.value.problems]


def test_texts_stay_as_written() -> None:
    matrix = parse_yaml(GOOD, "m.yaml", Matrix)
    assert matrix.axes.python == ("3.10", "3.11")
    assert matrix.budgets.size_gb == 2.5


@rows
def test_each_mistake_names_its_line(text: str, line: int, key: str, words: str) -> None:
    found = problems(text.encode("latin-1"))
    assert any(place == line and name == key and words in message for place, name, message in found), found


def test_all_problems_of_a_file_at_once() -> None:
    assert [line for line, _, _ in problems(ALL_WRONG)] == [2, 4, 5, 6, 8]


def test_empty_file_and_a_matrix_of_nothing_are_refused(tmp_path: Path) -> None:
    for content in ("", "name: nothing\n"):
        path = tmp_path / "m.yaml"
        path.write_text(content)
        with pytest.raises(InputError):
            read_matrix(path)


def test_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(EnvbuilderError, match="No such file"):
        read_matrix(tmp_path / "absent.yaml")


TAGS = ("!!timestamp x", "!!bool maybe", "!!int x", "!!float y", "!!binary '*'")
ODD: dict[str, tuple[bytes, str]] = {
    **{f"a tag that does not fit, {tag}": (f"name: {tag}\naxes: 7".encode(), "m.yaml:") for tag in TAGS},
    "an escape beyond Unicode": (b'name: "\\U00110000"', "m.yaml: is not YAML: an escape"),
    "an escape beyond a machine's word": (b'name: "\\Uffffffff"', "m.yaml: is not YAML: an escape"),
    "a hexadecimal number of 5,000 digits": (b"name: 0x" + b"f" * 5000, "m.yaml:1: name: YAML reads 0xfff"),
    "a binary number of 20,000 digits": (b"name: 0b" + b"1" * 20_000, "m.yaml:1: name: YAML reads 0b111"),
    "a decimal number of 5,000 digits": (b"name: " + b"9" * 5000, "m.yaml:1: name: "),
    "a sexagesimal number": (b"name: 2:20:00", "the number 8400"),
    "a text of a megabyte": (b"name: X" + b"a" * 1_000_000, "m.yaml:1: name: 'Xaaa"),
    "a key of a megabyte": (b"? " + b"k" * 1_000_000 + b"\n: 1", "unknown key"),
    "a key of a megabyte, twice": (b"? " + b"k" * 400_000 + b"\n: 1\n? " + b"k" * 400_000 + b"\n: 1", "given twice"),
    "a number as a key": (b"name: x\n.nan: 1", "m.yaml:2: .nan: unknown key"),
    "a list as a key": (b"name: x\n? [a]\n: 1", "m.yaml:2: ?: unknown key"),
    "a merge key": (b"name: x\n<<: {a: b}", "m.yaml:2: <<: unknown key"),
    "two documents": (b"name: x\n---\nname: y", "m.yaml:2: is not YAML"),
    "UTF-16": ("name: x".encode("utf-16"), "m.yaml:1: is not UTF-8 text"),
    "UTF-16 without its mark": ("name: x".encode("utf-16-le"), "m.yaml:1: holds U+0000"),
    "a NUL on a later line": (b"name: x\n# \0", "m.yaml:2: holds U+0000"),
}


@pytest.mark.parametrize(("data", "says"), ODD.values(), ids=ODD.keys())
def test_oddity_is_named_briefly(data: bytes, says: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_yaml(data, "m.yaml", Matrix)
    assert says in caught.value.message
    assert len(caught.value.message) < 1500
    assert caught.value.hint


def test_number_of_problems_is_limited() -> None:
    with pytest.raises(InputError) as caught:
        parse_yaml("".join(f"k{number}: 1\n" for number in range(20_000)).encode(), "m.yaml", Matrix)
    assert len(caught.value.problems) == 101
    assert "fix these first" in caught.value.message


@pytest.mark.parametrize("deep", [b"name: " + b"[" * 5000, b"{" * 5000, b"- " * 5000, b"[" * 200 + b"]" * 200])
def test_nesting_without_end_is_reported_with_its_line(deep: bytes) -> None:
    with pytest.raises(InputError, match=r"m\.yaml:[12]: is not YAML: more than 100 deep"):
        parse_yaml(deep, "m.yaml", Matrix)


class Share(msgspec.Struct):
    share: Annotated[float, msgspec.Meta(ge=0, lt=1)]


@rows
def test_number_outside_of_its_bounds_is_named_with_them(value: str, kind: str, says: str) -> None:
    kinds: dict[str, Any] = {"name: a, count": FleetHost, "size_gb": Budgets, "share": Share}
    with pytest.raises(InputError) as error:
        parse_yaml(f"{{{kind}: {value}}}".encode(), "f.yaml", kinds[kind])
    (problem,) = error.value.problems
    assert says in problem.message


@pytest.mark.parametrize("kind", [Matrix, FleetHost, Policy])
def test_every_integer_of_a_file_format_has_bounds(kind: type) -> None:
    unbounded = [
        f"{struct.cls.__name__}.{field.name}"
        for struct in structs_of(msgspec.inspect.type_info(kind))
        for field in struct.fields
        for one in types_of(field.type)
        if isinstance(one, msgspec.inspect.IntType)
        if (one.ge is None and one.gt is None) or (one.le is None and one.lt is None)
    ]
    assert unbounded == []


def types_of(one: msgspec.inspect.Type) -> Iterator[msgspec.inspect.Type]:
    """Yield a type and those within it; a struct's fields are not within it."""
    yield one
    parts = (getattr(one, name, None) for name in ("type", "item_type", "key_type", "value_type"))
    for part in (*filter(None, parts), *getattr(one, "types", ())):
        yield from types_of(part)


def structs_of(one: msgspec.inspect.Type) -> Iterator[msgspec.inspect.StructType]:
    for part in types_of(one):
        if isinstance(part, msgspec.inspect.StructType):
            yield part
            for field in part.fields:
                yield from structs_of(field.type)


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


@pytest.mark.parametrize("number", range(3))
def test_threads_may_meet_a_type_at_once(number: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", beside(__file__)["first_time"]], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (0, "read\n"), (number, ended.stderr[-500:])
