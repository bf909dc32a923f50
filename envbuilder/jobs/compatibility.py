"""Tables of compatibility: each cell is the answer of ``envbuilder check`` to one question."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.compat.check import findings_of
from envbuilder.compat.question import Question
from envbuilder.errors import UsageError
from envbuilder.finding import Code, Severity, compatible, is_condition, obstacle
from envbuilder.support.templates import rendered

Answer = Literal["yes", "conditional", "no", "unknown"]


class CompatibilityCell(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer about one TensorFlow release with the fields that are not empty.

    ``code`` is the finding that decides, or the most serious warning. "unknown": the catalogue makes no claim.
    """

    table: str
    tensorflow: str
    driver: str = ""
    gpu: str = ""
    python: str = ""
    cuda: str = ""
    cudnn: str = ""
    answer: Answer
    code: Code | None = None


class CompatibilityDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``envbuilder catalog table``."""

    schema: Literal["envbuilder/compatibility/v1"] = "envbuilder/compatibility/v1"
    cells: tuple[CompatibilityCell, ...]


class Table(NamedTuple):
    """The field that a table varies, its values, oldest first, and the GPU of every cell."""

    field: str
    values: Callable[[Catalog], Sequence[str]]
    gpu: str = ""


def _branches(catalog: Catalog) -> list[str]:
    return [row.branch for row in catalog.drivers]


TABLES = {
    "drivers": Table("driver", _branches),
    # Forward compatibility exists for data-centre GPUs only. Every branch since 410 supports a T4.
    "data-centre-drivers": Table("driver", _branches, gpu="T4"),
    "gpus": Table("gpu", lambda catalog: [row.name for row in reversed(catalog.gpus)]),
    "python": Table("python", lambda catalog: _ordered(text for row in catalog.tensorflow for text in row.pythons)),
    "cuda": Table("cuda", lambda catalog: _ordered(row.version for row in catalog.cuda)),
    "cudnn": Table("cudnn", lambda catalog: _ordered(row.version for row in catalog.cudnn)),
}


def _ordered(texts: Iterable[str]) -> list[str]:
    return sorted(set(texts), key=versions.key)


def compatibility(catalog: Catalog, name: str | None = None) -> CompatibilityDocument:
    """Ask every question of one table, or of all. Raises UsageError for an unknown table."""
    if name is not None and name not in TABLES:
        raise UsageError(f"there is no table {name!r}", hint="one of: " + ", ".join(TABLES))
    cells = (
        cell(catalog, one, **{"tensorflow": release, "gpu": table.gpu, table.field: value})
        for one, table in TABLES.items()
        for value in (table.values(catalog) if name in {None, one} else ())
        for release in catalog.final_versions
    )
    return CompatibilityDocument(cells=tuple(cells))


def cell(catalog: Catalog, table: str, *, gpu: str = "", **fields: str) -> CompatibilityCell:
    asked = msgspec.structs.replace(Question(gpus=(gpu,) if gpu else ()), **fields)
    found = findings_of(asked, catalog)
    reason = obstacle(found) or next((row for row in found if row.severity is Severity.WARNING), None)
    answer: Answer = "yes" if compatible(found) else "no" if compatible(found) is False else "unknown"
    if answer == "unknown" and reason is not None and is_condition(reason):
        answer = "conditional"
    bare = CompatibilityCell(table=table, tensorflow="", gpu=gpu, answer=answer, code=reason.code if reason else None)
    return msgspec.structs.replace(bare, **fields)


class Grid(NamedTuple):
    """A table as text: an answer for each release and value. What has the same answers shares a label.

    Labels are mapped to a release or value that they include, the newest first. GPUs of a compute capability are one
    value.
    """

    answers: dict[tuple[str, str], str]
    ordered: tuple[str, ...]
    releases: dict[str, str]
    values: dict[str, str]


def grid(document: CompatibilityDocument, table: str, catalog: Catalog) -> Grid:
    field = TABLES[table].field
    answers = {
        (one.tensorflow, value_of(getattr(one, field), field, catalog)): _text(one)
        for one in document.cells
        if one.table == table
    }
    ordered = sorted({value for _, value in answers}, key=order)
    known = catalog.final_versions
    values = grouped({value: tuple(answers[release, value] for release in known) for value in ordered})
    releases = grouped({release: tuple(answers[release, value] for value in ordered) for release in known})
    return Grid(answers, tuple(ordered), releases, values)


def _text(one: CompatibilityCell) -> str:
    return f"{one.answer} {one.code}" if one.code not in {None, Code.UNKNOWN} else one.answer


def value_of(text: str, field: str, catalog: Catalog) -> str:
    """Return a value as tables show it: for a GPU its compute capability, such as ``8.6`` or ``9.0 aarch64``."""
    row = catalog.gpu(text) if field == "gpu" else None
    if row is None:
        return text
    return "several" if row.variants else f"{row.compute_capability} {row.arch}".strip()


def order(value: str) -> tuple[bool, tuple[bool, versions.Key]]:
    """Return a key that puts values in order: GPUs of Arm machines first, then versions."""
    number, _, arch = value.partition(" ")
    return not arch, versions.order(number)


def grouped(answers: Mapping[str, object]) -> dict[str, str]:
    """Return a label for all keys that have the same answer, such as ``2.5.0 to 2.6.1, 2.7.0``, with one of them.

    Keys are ordered, the oldest first; the newest label comes first.
    """
    keys = list(answers)
    alike: dict[object, list[int]] = {}
    for place, answer in enumerate(answers.values()):
        alike.setdefault(answer, []).append(place)
    found = {}
    for places in sorted(alike.values(), reverse=True, key=max):
        firsts = [place for place in places if place - 1 not in places]
        lasts = [place for place in places if place + 1 not in places]
        runs = [
            " to ".join(dict.fromkeys((keys[first], keys[last]))) for first, last in zip(firsts, lasts, strict=True)
        ]
        found[", ".join(runs)] = keys[places[-1]]
    return found


def as_text(document: CompatibilityDocument, catalog: Catalog) -> str:
    grids = {table: grid(document, table, catalog) for table in dict.fromkeys(one.table for one in document.cells)}

    def alike(found: Grid, release: str) -> dict[str, str]:
        return grouped({value: found.answers[release, value] for value in found.ordered})

    return rendered("jobs/compatibility", grids=grids, alike=alike)


def as_csv(document: CompatibilityDocument) -> str:
    text = io.StringIO()
    names = CompatibilityCell.__struct_fields__
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([getattr(one, name) for name in names] for one in document.cells)
    return text.getvalue().rstrip("\n")
