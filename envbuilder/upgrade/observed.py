"""The typed answers of the upgrade probes for one image."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, TypeVar

import msgspec

from envbuilder.verdict import CheckResult

_Named = TypeVar("_Named", "Package", "Operation", "UserTest", CheckResult)


def paired(old: Iterable[_Named], new: Iterable[_Named]) -> Iterator[tuple[str, _Named | None, _Named | None]]:
    """Yield what both images have under each name: in the new image's order, then what it lacks."""
    before, after = ({one.name: one for one in side} for side in (old, new))
    for name in after | before:
        yield name, before.get(name), after.get(name)


Precision = Literal["float32", "float16", "bfloat16", "float64"]
UserOutcome = Literal["passed", "failed", "skipped", "error", "timeout"]


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """One distribution in an image; ``licence`` as in its metadata, ``size`` in bytes with bytecode."""

    name: str
    version: str
    licence: str = ""
    size: int = 0


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """The packages of an image; ``build`` and ``requires`` are TensorFlow's own metadata."""

    python: str = ""
    packages: tuple[Package, ...] = ()
    build: dict[str, str | tuple[str, ...]] = {}
    requires: tuple[str, ...] = ()


class Parameter(msgspec.Struct, frozen=True, array_like=True):
    """One parameter: ``p`` positional only, ``a`` any, ``v`` variadic, ``k`` by keyword, ``w`` further keywords.

    ``default`` is its text, or None.
    """

    kind: Literal["p", "a", "v", "k", "w"]
    name: str
    default: str | None = None


class PublicName(msgspec.Struct, frozen=True, array_like=True):
    """One public name: its kind, its parameters (None: unknown), and whether it is deprecated."""

    kind: str
    signature: tuple[Parameter, ...] | None = None
    deprecated: bool = False


class Surface(msgspec.Struct, frozen=True, kw_only=True):
    version: str = ""
    names: dict[str, PublicName] = {}


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation in one precision (the end of its name); its error is relative to the largest exact value.

    ``values`` are its results, compressed and in base 64: doubles for double precision, else single ones.
    """

    name: str
    precision: Precision
    error: float | None
    failure: str = ""
    inputs: str = ""
    outputs: str = ""
    values: str = ""


class Numerics(msgspec.Struct, frozen=True, kw_only=True):
    """Errors and results of every operation, and digests of seeded generators ('': it raised)."""

    operations: tuple[Operation, ...] = ()
    streams: dict[str, str] = {}


class WarningLines(msgspec.Struct, frozen=True, kw_only=True):
    imported: tuple[str, ...] = ()
    used: tuple[str, ...] = ()


class TimingSample(msgspec.Struct, frozen=True, kw_only=True):
    """One new process: durations in seconds, and memory peaks in bytes, by name."""

    seconds: dict[str, float]
    bytes: dict[str, float] = {}


class SavedModels(msgspec.Struct, frozen=True, kw_only=True):
    """A small model in every format that an image can write: format → path → content in base 64."""

    saved: dict[str, dict[str, str]]


class LoadOutcomes(msgspec.Struct, frozen=True, kw_only=True):
    loaded: dict[str, str]


class UserTest(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    outcome: UserOutcome
    message: str = ""
    seconds: float = 0.0


class Observations(msgspec.Struct, frozen=True, kw_only=True):
    """All observations of one image; None if a probe gave no answer (``gaps`` give the reasons) or was not requested.

    ``again`` are further runs of files in which a test fails.
    """

    inventory: Inventory | None = None
    surface: Surface | None = None
    numerics: Numerics | None = None
    printed: WarningLines | None = None
    tests: tuple[UserTest, ...] | None = None
    again: tuple[tuple[UserTest, ...], ...] = ()
    gaps: tuple[str, ...] = ()
