"""Versions: what is final, how far two are apart, and what unknown ones agree with."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuilder import versions


@pytest.mark.parametrize(
    ("text", "final"),
    [("2.20.0", True), ("2.20.0.post1", True), ("2.21.0rc0", False), ("2.0.0b1", False), ("2.5.0.dev1", False)],
)
def test_what_is_final(text: str, *, final: bool) -> None:
    """Releases and post-releases are final; candidates, betas and development versions are not."""
    assert versions.is_final(text) is final


def test_the_nearer_version_has_the_smaller_distance() -> None:
    """Distance is counted number by number, the first ones first, in either direction."""
    near = sorted(("11.8", "12.0", "11.1", "10.2"), key=lambda text: versions.distance(text, "11.2"))
    assert near == ["11.1", "11.8", "10.2", "12.0"]
    assert versions.distance("8.9.7", "8.6") == versions.distance("8.6", "8.9.7") == (0, 3)


def test_what_is_unknown_agrees_with_nothing() -> None:
    """An unknown version is of no major line, not even of another unknown one's."""
    assert versions.same_major("12.5", "12.0")
    assert not versions.same_major("11.8", "12.0")
    assert not versions.same_major(None, "12.0")
    assert not versions.same_major("12.0", None)
    assert not versions.same_major(None, None)


@pytest.mark.parametrize("text", ["", "nightly", "cu12", "-1"])
def test_what_is_no_version_has_no_key(text: str) -> None:
    """A text that is no version is told apart without an exception; the strict form raises."""
    assert versions.key_or_none(text) is None
    with pytest.raises(ValueError, match="not a version"):
        versions.key(text)


def test_one_version_has_several_spellings_and_what_is_unknown_is_like_nothing() -> None:
    """Equality is that of versions, not of texts; neither what is unknown nor what is no version equals anything."""
    assert versions.same("2.20", "2.20.0")
    assert versions.same("2.21.0-rc1", "2.21.0rc1")
    assert not versions.same("2.2.0", "2.20.0")
    for text in (None, "", "nightly"):
        assert not versions.same(text, "2.20.0")
        assert not versions.same(text, text)


def test_what_is_unknown_comes_before_every_version() -> None:
    """Sorting by `order` never raises, and does not take the unknown for version 0."""
    texts = ["3.9", None, "3.11", "", "0"]
    assert sorted(texts, key=versions.order) == [None, "", "0", "3.9", "3.11"]


@pytest.mark.parametrize(
    ("text", "line", "named"), [("12.5.1", "12.5", True), ("12.5", "12.5", True), ("12", "12", False)]
)
def test_a_line_says_no_more_than_its_version(text: str, line: str, *, named: bool) -> None:
    """A major alone stays one: it names no line that `minor` would make up."""
    assert versions.line(text) == line
    assert versions.names_line(text) is named


@pytest.mark.parametrize(
    ("text", "pin"),
    [
        ("numpy==2.0.0", ("numpy", "2.0.0")),
        ("tensorflow[and-cuda]==2.21.0rc1", ("tensorflow", "2.21.0rc1")),
        ("Opt_Einsum==3.4.0", ("opt-einsum", "3.4.0")),
        ("torch==2.1.0+cu121", ("torch", "2.1.0+cu121")),
        ("keras>=3", None),
        ("keras==3.*", None),
        ("keras===3", None),
        ("keras", None),
        ("==3", None),
        ("keras==3 ; python_version<'3'", None),
        ("", None),
    ],
)
def test_a_pin_is_one_version_of_one_distribution(text: str, pin: tuple[str, str] | None) -> None:
    """The name comes normalised and without extras; what admits several versions, or none, is no pin."""
    assert versions.pin_or_none(text) == pin
    if pin is None:
        with pytest.raises(ValueError, match="not a pin"):
            versions.pin(text)
    else:
        assert versions.pins((text,)) == dict((pin,))


PACKAGE = Path(versions.__file__).parent
FIELDS = frozenset(
    {
        "version", "tensorflow", "cuda", "cudnn", "driver", "python", "glibc", "minimum_driver", "built_cuda",
        "built_cudnn", "compute_capability", "capability", "first_capability", "last_capability", "ptx_isa", "isa",
        "libcuda", "driver_cuda",
    }
)  # fmt: skip
"""Fields that hold a version, wherever they stand."""

ALLOWED: dict[tuple[str, str], str] = {
    ("controls/control_run.py", "environment.tensorflow == _NUMPY_1"): "the name of an environment of one matrix",
    ("controls/control_run.py", "environment.tensorflow != _NUMPY_1"): "the name of an environment of one matrix",
    ("engine/docker.py", "api.api_version.split('.')"): "what the engine's client itself does with it, tried out",
    ("image/debian.py", "left.name.split('.')"): "a file's name",
    ("reproduce/mending_commands.py", "near.tensorflow != question.tensorflow"): "whether the search changed it",
    ("reproduce/mending_commands.py", "near.python != question.python"): "whether the search changed it",
    ("reproduce/mending_commands.py", "near.cudnn != question.cudnn"): "whether the search changed it",
    ("reproduce/mending_commands.py", "near.cuda != question.cuda"): "whether the search changed it",
    ("image/wheel_records.py", "part.split('.')"): "a wheel's compressed tags",
    ("reproduce/report/form.py", "target.partition('.')"): "a field of a form",
    ("reproduce/report/grammar.py", "field.partition('.')"): "a field of a report",
    ("reproduce/report/read.py", "row.field.partition('.')"): "a field of a report",
    ("validation/stray_files.py", "name.partition('.')"): "a module's name",
    ("validation/stray_files.py", "top.partition('.')"): "a module's name",
    ("workspace.py", "left.name.split('.')"): "a file's name",
    ("upgrade/surface.py", "path.rpartition('.')"): "a public name",
    ("upgrade/surface.py", "group[0].name.rpartition('.')"): "a public name",
    ("upgrade/surface.py", "change.name.rpartition('.')"): "a public name",
    ("yaml_reader.py", "key.count('.')"): "a key of a document",
    ("reproduce/report/grammar.py", "text.startswith('11')"): "the digits in a file's name",
    ("registry/reference.py", "'.' in host"): "a registry's host",
    ("catalog/image_names.py", "'.' in head"): "a registry's host",
    ("catalog/image_names.py", "pieces[0].partition('.')"): "a tag's piece, which may be a system's name",
}
"""What looks like a version taken apart or compared, and is none: what it is."""


def taken_apart(tree: ast.AST) -> Iterator[str]:
    """Yield the expressions that take a version's text apart, order it as text, or make one up."""
    for node in ast.walk(tree):
        if (
            (isinstance(node, ast.Compare) and (compared(node) or asks_for_dot(node)))
            or (isinstance(node, ast.BoolOp) and any(is_number(value) for value in node.values[1:]))
            or (isinstance(node, ast.Call) and (cut(node) or taken_as_text(node)))
        ):
            yield ast.unparse(node)


def compared(node: ast.Compare) -> bool:
    """Tell whether a version is held against anything but "is it there"."""
    told = [side for side in (node.left, *node.comparators) if not is_nothing(side)]
    operators = ast.Lt | ast.Gt | ast.LtE | ast.GtE | ast.Eq | ast.NotEq
    return len(told) > 1 and any(isinstance(one, operators) for one in node.ops) and any(map(is_version, told))


def asks_for_dot(node: ast.Compare) -> bool:
    """Tell whether it is asked if a text has a dot."""
    return (
        isinstance(node.ops[0], ast.In | ast.NotIn) and isinstance(node.left, ast.Constant) and node.left.value == "."
    )


def cut(node: ast.Call) -> bool:
    """Tell whether a text is cut at a dot or at ``==``, or begins with a number, or with the name of a pin."""
    texts = [each.value for each in ast.walk(node.args[0]) if isinstance(each, ast.Constant)] if node.args else []
    match node.func:
        case ast.Attribute(attr="split" | "rsplit" | "partition" | "rpartition" | "count"):
            return texts in (["."], ["=="])
        case ast.Attribute(attr="startswith" | "endswith" | "removeprefix" | "removesuffix"):
            return any(re.match(r"\d[\d.]*$|.*==$", str(text)) for text in texts)
    return False


def taken_as_text(node: ast.Call) -> bool:
    """Tell whether versions are ordered as texts, or read as numbers."""
    match node.func:
        case ast.Name(id="min" | "max" | "sorted") if any(word.arg == "key" for word in node.keywords):
            return False
        case ast.Name(id="min" | "max" | "sorted" | "float" | "int"):
            inside = (argument.elt if isinstance(argument, ast.GeneratorExp) else argument for argument in node.args)
            return any(map(is_version, inside))
    return False


def is_version(node: ast.AST) -> bool:
    """Tell whether an expression is a field that holds a version."""
    return isinstance(node, ast.Attribute) and node.attr in FIELDS


def is_nothing(node: ast.AST) -> bool:
    """Tell whether an expression says that nothing is known."""
    return isinstance(node, ast.Constant) and node.value in {None, ""}


def is_number(node: ast.AST) -> bool:
    """Tell whether an expression is a version, written as a literal."""
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.match(r"\d[\d.]*$", node.value) is not None
    )


@pytest.mark.parametrize(
    "text",
    [
        "cuda.split('.')[0]", "text.partition('==')", "row.cuda or '0'",
        "row.version == other.version", "one.python < x", "max(row.cudnn for row in rows)",
        "cuda.startswith(('9', '10'))", "'.' in cuda", "float(row.capability) >= 8",
        "pin.startswith('numpy==')", "sorted(row.version for row in rows)",
    ],
)  # fmt: skip
def test_what_takes_a_version_apart_is_seen(text: str) -> None:
    """The search below finds each way in which this has gone wrong."""
    assert list(taken_apart(ast.parse(text)))


@pytest.mark.parametrize(
    "text",
    [
        "versions.key(row.version) < wanted", "row.cuda is None", "row.cuda == ''",
        "sorted(rows, key=lambda row: row.version)",
        "name.startswith('nvidia-')", "row.cuda or 'none'",
    ],
)  # fmt: skip
def test_what_only_passes_a_version_on_is_not(text: str) -> None:
    """Values of versions are compared, texts are shown and asked whether they are there."""
    assert not list(taken_apart(ast.parse(text)))


def test_nothing_else_takes_a_version_apart() -> None:
    """Versions are compared, ordered and taken apart here alone; every exception says what it is instead."""
    modules = [path for path in sorted(PACKAGE.rglob("*.py")) if path.relative_to(PACKAGE).parts[0] != "probes"]
    found = {
        (str(path.relative_to(PACKAGE)), text)
        for path in modules
        if path != Path(versions.__file__)
        for text in taken_apart(ast.parse(path.read_text()))
    }
    unknown = sorted(found - ALLOWED.keys())
    assert not unknown, f"compare by envbuilder.versions, or say above what it is instead: {unknown}"
    assert ALLOWED.keys() - found == set(), "no longer there: take it off the list"
