"""Walk the public names of ``tf.*`` as a user reaches them, each with its kind, signature and deprecation.

A name is public if every part of its path is: no leading underscore, reached from ``tensorflow`` by attributes. Classes
are listed with the attributes that they or a base class of the framework define.
"""

from __future__ import annotations

import importlib
import inspect
import re
import types
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, List, Optional

from ..suite.channel import Writer

Row = List[Any]
"""Kind, signature, whether it is deprecated."""

Parameter = List[Optional[str]]
"""Kind, name, and the default as Python writes it; None if there is none."""

OURS = ("tensorflow", "keras", "tf_keras", "tensorflow_estimator")
"""Packages whose classes may define public attributes."""

PUBLIC = re.compile(
    r"^(tensorflow\.(_api|compat|experimental|keras|python\.keras\.api)|(tf_)?keras(?!\.src)|tensorboard\.summary"
    r"|tensorflow_estimator\.python\.estimator\.api)\b"
)
"""Modules of the interface; other modules of these packages are the implementation, even if they are visible."""

SKIPPED = ("compat.v2", "compat.v1.compat")
"""The same interface again under another name."""

KINDS = {0: "p", 1: "a", 2: "v", 3: "k", 4: "w"}


def main(writer: Writer, wanted: Mapping[str, Any]) -> None:
    """Print the surface as one JSON document: path → [kind, signature, deprecated]."""
    warnings.simplefilter("ignore")
    root = importlib.import_module(wanted.get("module", "tensorflow"))
    found: dict[str, Row] = {}
    walk(root, "", found, set())
    writer.send({"version": str(attribute(root, "__version__") or ""), "names": found})


def walk(module: types.ModuleType, prefix: str, found: dict[str, Row], open_modules: set[int]) -> None:
    open_modules = open_modules | {id(module)}
    for name in public(module):
        path = prefix + name
        value = attribute(module, name)
        if value is None:
            continue
        if isinstance(value, types.ModuleType):
            if id(value) not in open_modules and belongs(value) and path not in SKIPPED:
                found[path] = ["module", None, False]
                walk(value, path + ".", found, open_modules)
        else:
            add(path, value, found)


def public(value: object) -> list[str]:
    try:
        return sorted(name for name in dir(value) if not name.startswith("_"))
    except Exception:
        return []


def attribute(owner: object, name: str) -> Any:
    """Return an attribute; None if reading it raises, as a lazily loaded part may."""
    try:
        return getattr(owner, name, None)
    except Exception:
        return None


def belongs(module: types.ModuleType) -> bool:
    """Return True if a module is part of the public interface, False if it is only imported there."""
    return bool(PUBLIC.match(getattr(module, "__name__", "")))


def add(path: str, value: Any, found: dict[str, Row]) -> None:
    if inspect.isclass(value):
        found[path] = ["class", signature(value.__init__), deprecated(value)]
        for name, member in members(value):
            found[path + "." + name] = [kind_of(member), signature(member), deprecated(member)]
    else:
        found[path] = [kind_of(value), signature(value), deprecated(value)]


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public attributes of a class that a class of the framework defines."""
    seen = set()
    for base in kind.__mro__:
        if getattr(base, "__module__", "").split(".")[0] not in OURS:
            continue
        for name in sorted(vars(base)):
            if not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name, inspect.getattr_static(kind, name)


def kind_of(value: object) -> str:
    if isinstance(value, (property, types.GetSetDescriptorType)):
        return "property"
    return "function" if callable(unwrapped(value)) else "value"


def unwrapped(value: Any) -> Any:
    return value.__func__ if isinstance(value, (staticmethod, classmethod)) else value


def signature(value: Any) -> list[Parameter] | None:
    value = unwrapped(value)
    if not callable(value):
        return None
    try:
        parameters = inspect.signature(value).parameters.values()
    except Exception:
        return None
    return [parameter(one) for one in parameters]


def parameter(one: inspect.Parameter) -> Parameter:
    """Describe one parameter, without addresses in the text of its default: they differ in each run."""
    if one.default is inspect.Parameter.empty:
        return [KINDS[int(one.kind)], one.name, None]
    default = re.sub(r" at 0x[0-9a-f]+", "", repr(one.default))
    return [KINDS[int(one.kind)], one.name, default[:120]]


def deprecated(value: object) -> bool:
    text = getattr(unwrapped(value), "__doc__", None)
    head = text[:600] if isinstance(text, str) else ""
    return "THIS FUNCTION IS DEPRECATED" in head or "THIS CLASS IS DEPRECATED" in head or "Deprecated:" in head
