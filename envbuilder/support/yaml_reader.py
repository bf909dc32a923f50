"""Read a user's YAML file into a value, or report every problem with its line."""

import difflib
import functools
import math
import operator
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml
from msgspec import inspect

from envbuilder.errors import InputError, Problem, UsageError, text_of
from envbuilder.support import decoding

MAX_BYTES = 1 << 20
"""Files above this size are refused: the largest file of the catalogue has a sixth of it."""

MAX_DEPTH = 32
"""Levels of keys in a value."""

MAX_NESTED = 100
"""Lists and maps within one another before anything is made of them: at a thousand Python's own stack ends."""

_SHOWN = 60
"""Characters of a value that a message repeats: a value may be as long as the file."""

MAX_PROBLEMS = 100
"""A file with more problems than this is another kind of file."""

FIX = "fix the file, then run the same command again"
_Value = TypeVar("_Value")
_Refused = object()
_type_info = functools.cache(inspect.type_info)


def read_yaml(path: Path, kind: type[_Value]) -> _Value:
    """Read a YAML file as ``kind``, a msgspec type. Raises InputError with every problem, UsageError without a file."""
    try:
        data = decoding.file_content(path, MAX_BYTES, piped=True)
    except (OSError, decoding.DamagedError) as error:
        why = getattr(error, "strerror", "") or str(error)
        raise UsageError(f"{path}: {why}", hint="give the path of an existing YAML file") from error
    return parse_yaml(data, str(path), kind)


def parse_yaml(data: bytes, path: str, kind: type[_Value]) -> _Value:
    """Turn YAML into ``kind``; ``path`` only names the source in messages."""
    reader = _Reader(path)
    node = reader.compose(data)
    plain: object = _Refused
    with suppress(_TooManyError):
        info = _type_info(kind)  # type: ignore[arg-type]  # every type is hashable
        plain = reader.walk(node, info, "") if node is not None else _Refused
    if reader.problems or plain is _Refused:
        problems = tuple(reader.problems) or (Problem(path, 0, "", "the file is empty"),)
        raise InputError(problems, hint=FIX)
    try:
        decoding.ready(kind)
        return msgspec.convert(plain, kind, strict=False)
    except ValueError as error:  # a rule of a type that no schema has
        text, _, key = str(error).partition(" - at `$")
        key = key.strip(".`")
        raise InputError((Problem(path, _line(node, key), key, text),), hint=FIX) from error


def _line(node: yaml.Node | None, key: str) -> int:
    """Return the line of a key such as ``clauses[0].clause``, or of the last part of it that is there."""
    for name in re.findall(r"[^.[\]]+", key):
        match node:
            case yaml.SequenceNode():
                node = node.value[int(name)]
            case yaml.MappingNode():
                node = next((value for part, value in node.value if part.value == name), node)
    return node.start_mark.line + 1 if node else 0


class _Loader(yaml.SafeLoader):
    """Stops at the line where lists and maps nest without end."""

    nested = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.nested > MAX_NESTED:
            begins = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, f"more than {MAX_NESTED} deep", begins.start_mark)
        self.nested += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self.nested -= 1
        return node


class _TooManyError(Exception):
    """The file has more than `MAX_PROBLEMS`."""


class _Reader:
    """Walks the nodes of one file along a type, collecting problems instead of stopping at the first."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.problems: list[Problem] = []
        self._seen: set[int] = set()

    def compose(self, data: bytes) -> yaml.Node | None:
        """Parse the text into nodes, which know their lines. Raises InputError if it is too large or not UTF-8."""
        if len(data) > MAX_BYTES:
            raise InputError((Problem(self.path, 0, "", f"larger than {MAX_BYTES} bytes"),), hint=FIX)
        text = text_of(data, self.path)
        try:
            with decoding.damaged("an escape names no character"):  # as ``\\U00110000``, for which it raises ValueError
                return yaml.compose(text, Loader=_Loader)
        except yaml.reader.ReaderError as error:
            line, why = text[: error.position].count("\n") + 1, f"holds U+{error.character:04X}, which no YAML may hold"
        except yaml.MarkedYAMLError as error:
            line, why = error.problem_mark.line + 1 if error.problem_mark else 0, f"is not YAML: {error.problem}"
        except (yaml.YAMLError, decoding.DamagedError) as error:
            line, why = 0, f"is not YAML: {str(error)[:_SHOWN]}"
        self.problems.append(Problem(self.path, line, "", why))
        return None

    def refuse(self, node: yaml.Node, key: str, message: str) -> object:
        if len(self.problems) >= MAX_PROBLEMS:
            self.problems.append(Problem(self.path, node.start_mark.line + 1, "", "and more: fix these first"))
            raise _TooManyError
        self.problems.append(Problem(self.path, node.start_mark.line + 1, key, message))
        return _Refused

    def walk(self, node: yaml.Node, kind: inspect.Type, key: str) -> object:
        if id(node) in self._seen or key.count(".") > MAX_DEPTH:
            return self.refuse(node, key, "aliases (&name, *name) and deep nesting are not supported: write it out")
        self._seen.add(id(node))
        description = ""
        if isinstance(kind, inspect.Metadata):
            description = str((kind.extra_json_schema or {}).get("description", ""))
            kind = kind.type
        match kind:
            case inspect.StructType():
                return self._struct(node, kind, key)
            case inspect.VarTupleType():
                return self._sequence(node, kind, key)
            case inspect.UnionType():
                return self._union(node, kind, key)
            case inspect.DictType():
                return self._mapping(node, kind, key)
            case inspect.LiteralType():
                return self._literal(node, kind.values, key)
            case _:
                return self._scalar(node, kind, key, description)

    def _pairs(self, node: yaml.Node, key: str) -> dict[str, tuple[yaml.Node, yaml.Node]] | None:
        if not isinstance(node, yaml.MappingNode):
            self.refuse(node, key, f"expected keys and values, found {_noun(node, key)}")
            return None
        found: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for name, value in node.value:
            text = name.value if isinstance(name, yaml.ScalarNode) else "?"
            if text in found:
                first = found[text][0].start_mark.line + 1
                self.refuse(name, _join(key, text), f"is given twice, first on line {first}")
            else:
                found[text] = (name, value)
        return found

    def _struct(self, node: yaml.Node, kind: inspect.StructType, key: str) -> object:
        pairs = self._pairs(node, key)
        if pairs is None:
            return _Refused
        fields = {field.encode_name: field for field in kind.fields}
        aliases = {alias: name for name, field in fields.items() if (alias := _described(field).get("alias"))}
        result: dict[str, object] = {}
        for written, (name_node, value) in pairs.items():
            name = aliases.get(written, written)
            if name in result:
                self.refuse(name_node, _join(key, written), f"is the same key as {name}, which is given too")
            elif name in fields:
                result[name] = self.walk(value, fields[name].type, _join(key, name))
            else:
                self.refuse(name_node, _join(key, name), f"unknown key{_near(name[:_SHOWN], fields)}")
        for name, field in fields.items():
            if field.required and name not in result:
                text = _described(field).get("description")
                self.refuse(node, _join(key, name), f"is missing: give {text}" if text else "is missing")
        return result

    def _sequence(self, node: yaml.Node, kind: inspect.VarTupleType, key: str) -> object:
        if not isinstance(node, yaml.SequenceNode):
            wrapped = f": write [{_shown(node)}]" if key else ""
            return self.refuse(node, key, f"expected a list, found {_noun(node, key)}{wrapped}")
        if len(node.value) < (kind.min_length or 0):
            return self.refuse(node, key, "the list is empty")
        return [self.walk(child, kind.item_type, f"{key}[{index}]") for index, child in enumerate(node.value)]

    def _mapping(self, node: yaml.Node, kind: inspect.DictType, key: str) -> object:
        pairs = self._pairs(node, key)
        if pairs is None:
            return _Refused
        result = {}
        for name, (name_node, value) in pairs.items():
            self.walk(name_node, kind.key_type, _join(key, name[:60]))
            result[name] = self.walk(value, kind.value_type, _join(key, name[:60]))
        return result

    def _union(self, node: yaml.Node, kind: inspect.UnionType, key: str) -> object:
        real = [option for option in kind.types if not isinstance(option, inspect.NoneType)]
        is_null = node.tag == "tag:yaml.org,2002:null" and isinstance(node, yaml.ScalarNode)
        if is_null and len(real) < len(kind.types):
            return None
        self._seen.discard(id(node))
        return self.walk(node, real[0], key)

    def _literal(self, node: yaml.Node, values: tuple[Any, ...], key: str) -> object:
        if isinstance(node, yaml.ScalarNode) and node.value in values:
            return node.value
        choices = ", ".join(map(str, values))
        return self.refuse(node, key, f"{_shown(node)!r} is not one of {choices}")

    def _scalar(self, node: yaml.Node, kind: inspect.Type, key: str, description: str) -> object:
        if not isinstance(node, yaml.ScalarNode):
            return self.refuse(node, key, f"expected {description or 'a single value'}, found {_noun(node, key)}")
        if isinstance(kind, inspect.StrType):
            return self._text(node, kind, key, description)
        try:
            with decoding.damaged("another kind of value"):
                value: object = msgspec.convert(node.value, _PLAIN.get(type(kind), str), strict=False)
        except decoding.DamagedError:
            return self.refuse(node, key, f"{_shown(node)!r} is not {description or 'a number'}")
        if isinstance(value, int | float):
            bounds = {name: limit for name in _BOUNDS if (limit := getattr(kind, name, None)) is not None}
            if not math.isfinite(value) or not all(_BOUNDS[name][1](value, limit) for name, limit in bounds.items()):
                limits = ", ".join(f"{_BOUNDS[name][0]} {limit:,}" for name, limit in bounds.items())
                noun = description or ("a number" if limits else "a finite number")
                return self.refuse(node, key, f"{_shown(node)} is not {noun}{f' ({limits})' if limits else ''}")
            if node.tag == "tag:yaml.org,2002:str":  # as in quotes
                return self.refuse(node, key, f"{_shown(node)!r} is a text to YAML: write {value:.15g} without quotes")
        return value

    def _text(self, node: yaml.ScalarNode, kind: inspect.StrType, key: str, description: str) -> object:
        text: str = node.value
        read_as = _misread(node)
        if read_as is not None:
            shown = _shown(node)
            return self.refuse(node, key, f'YAML reads {shown} as {read_as}: write "{shown}" in quotes')
        if kind.pattern and not re.search(kind.pattern, text):
            return self.refuse(node, key, f"{_shown(node)!r} is not {description or 'a valid value'}")
        if kind.min_length and len(text.strip()) < kind.min_length:
            return self.refuse(node, key, f"is empty or too short: give {description or 'a text'}")
        return text


_PLAIN: dict[type, type] = {inspect.FloatType: float, inspect.IntType: int, inspect.BoolType: bool}
_BOUNDS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "gt": ("above", operator.gt),
    "ge": ("at least", operator.ge),
    "lt": ("below", operator.lt),
    "le": ("at most", operator.le),
}


def _join(key: str, name: str) -> str:
    name = name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"
    return f"{key}.{name}" if key else name


def _noun(node: yaml.Node, key: str) -> str:
    """Name a kind of node. A text that is the complete file is another kind of file, perhaps of secrets."""
    match node:
        case yaml.MappingNode():
            return "keys and values"
        case yaml.SequenceNode():
            return "a list"
        case _:
            return f"the single value {_shown(node)!r}" if key else "a text"


def _shown(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        return "…"
    return str(node.value) if len(node.value) <= _SHOWN else f"{node.value[:_SHOWN]}…"


def _near(name: str, fields: dict[str, Any]) -> str:
    near = difflib.get_close_matches(name, fields, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known keys: {', '.join(fields)}"


def _described(field: inspect.Field) -> dict[str, str]:
    """Return what the type of a field adds to its JSON Schema: ``description``, and ``alias``, a second name."""
    return (field.type.extra_json_schema or {}) if isinstance(field.type, inspect.Metadata) else {}


_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("timestamp", "bool", "int", "float", "binary"))


def _misread(node: yaml.ScalarNode) -> str | None:
    """Return another YAML reader's value of an unquoted scalar, if it is not the text in the file."""
    if node.style is not None:
        return None
    try:
        with decoding.damaged("no value of its tag"):  # !!timestamp and !!bool end in AttributeError and KeyError
            value = yaml.SafeLoader.construct_object(yaml.SafeLoader(""), node)
            read_as = str(value)  # a ValueError for a number of more than 4,300 digits, which 0x… may be
    except (decoding.DamagedError, yaml.YAMLError):
        return f"something of the tag {node.tag.rpartition(':')[2]}" if node.tag in _TAGS else None
    if isinstance(value, str) or read_as == node.value:
        return None
    if value is None:
        return "nothing"
    kind = "the number" if isinstance(value, int | float) and not isinstance(value, bool) else "a truth value or date,"
    return f"{kind} {read_as[:_SHOWN]}"
