"""The side of a report that works, as the first candidate for the nearest: where the rules find it possible here."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.compat.nearest import Near, nearest
from envbuilder.compat.question import Question
from envbuilder.compat.works import Works
from envbuilder.environment import Change
from envbuilder.reproduce.question_from_report import release_of
from envbuilder.reproduce.report.reported import Evidence, Reported

_FIELDS = ("tensorflow", "python", "cuda", "cudnn")
"""What of a working side can be had on the failing one: its driver, GPU and system are another machine's."""

_Said = dict[str, tuple[str, Evidence]]


def working_side(
    reported: Reported, question: Question, works: Works[Question], catalog: Catalog, *, as_it_is: bool
) -> tuple[Near[Question], tuple[Evidence, ...]] | None:
    """Return what the report has working, where the rules find it possible on the failing host, and who says so.

    None where nothing is said to work, where it is what failed, and where the rules forbid it. ``as_it_is`` allows no
    change but those to what worked; else what the report does not say of the working side may give way to it.
    """
    for said in _sides(reported.works, catalog):
        new = {name: value for name, (value, _) in said.items() if _differs(getattr(question, name), value)}
        if not new:
            continue
        found = nearest(msgspec.structs.replace(question, **new), works)
        if found is None or (as_it_is and found.changes):
            continue
        if any(_differs(getattr(found.wish, name), value) for name, (value, _) in said.items()):
            continue  # it could be had only without what worked
        changes = tuple(
            Change(name, getattr(question, name), value) for name, value in new.items() if _has(question, name)
        )
        rest = tuple(change for change in found.changes if change.field not in new)
        if changes:
            return found._replace(changes=(*changes, *rest)), tuple(said[name][1] for name in new)
    return None


def _has(question: Question, name: str) -> bool:
    return getattr(question, name) is not None


def _differs(old: str | None, new: str) -> bool:
    """Tell whether a version is another one: 2.10 is no other than 2.10.1, of which somebody said less."""
    return old is None or not (versions.is_prefix(new, old) or versions.is_prefix(old, new))


def _sides(rows: tuple[Evidence, ...], catalog: Catalog) -> Iterator[_Said]:
    """List the working sides: one where each field has one value, else what each line says."""
    told = [row for row in rows if row.field in _FIELDS]
    if all(len({row.value for row in told if row.field == name}) <= 1 for name in _FIELDS):
        yield _known(told, catalog)
        return
    for _, line in groupby(told, key=lambda row: row.line):
        yield _known(list(line), catalog)


def _known(rows: list[Evidence], catalog: Catalog) -> _Said:
    """Keep what the catalogue has a row for, as questions write it; of two values in one line neither is known."""
    said: _Said = {}
    for name in _FIELDS:
        own = [row for row in rows if row.field == name]
        value = _written(name, own[0].value, catalog) if len({row.value for row in own}) == 1 else None
        if value is not None:
            said[name] = (value, own[0])
    return said


def _written(name: str, value: str, catalog: Catalog) -> str | None:
    match name:
        case "tensorflow":
            return catalog.version(release_of(value))
        case "python":
            return versions.minor(value) if versions.names_line(value) else None
        case "cuda":
            return value if versions.names_line(value) and catalog.toolkit(value) else None
        case _:
            return value if not versions.names_line(value) or catalog.cudnn_row(value) else None
