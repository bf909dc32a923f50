"""Render an upgrade's document as text; the templates of its rows and its sections are in wording.yaml."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import msgspec

from envbuilder import versions
from envbuilder.support import terminal_text
from envbuilder.support.templates import rendered
from envbuilder.upgrade import compare
from envbuilder.upgrade.document import Clause, ModelExchange, PackageChange, UpgradeDocument
from envbuilder.upgrade.statistics import Interval, RatioResult
from envbuilder.upgrade.surface import without_aliases
from envbuilder.workspace import packaged_yaml

_SHOWN = 12
_WIDTH = 100


def as_text(document: UpgradeDocument) -> str:
    def shown(section: SectionText, rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
        return rows if section.whole else [tuple(map(_short, row)) for row in rows[:_SHOWN]]

    parts = {"sentence": sentence, "compared": compared_row, "sections": sections}
    return rendered("jobs/upgrade", document=document, shown=shown, parts=parts)


def as_markdown(document: UpgradeDocument) -> str:
    """Write a document for a pull request: decision and clauses first, long lists folded."""
    old, new = document.old, document.new
    parts = [
        f"## TensorFlow {old.tensorflow} → {new.tensorflow} ({document.flavor}): {document.decision}",
        terminal_text.markdown(sentence(document)),
        f"Policy {terminal_text.code(document.policy)} {document.rounds} interleaved rounds.",
        *map(terminal_text.markdown, compared_row(document)),
    ]
    for title, section, rows in sections(document):
        body = "\n".join([_pipe(section.headers), "|" + " --- |" * len(section.headers), *map(_pipe, rows)])
        folded = f"<details><summary>{title} ({len(rows)})</summary>\n\n{body}\n\n</details>"
        parts.append(f"### {title}\n\n{body}" if section.whole else folded)
    if document.gaps:
        parts.append("### Not known\n\n" + "\n".join(f"- {terminal_text.markdown(gap)}" for gap in document.gaps))
    return "\n\n".join(parts) + "\n"


def _pipe(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(terminal_text.markdown, cells))} |"


def _short(text: str) -> str:
    plain = terminal_text.line(text)
    return plain if len(plain) <= _WIDTH else plain[: _WIDTH - 1] + "…"


def sentence(document: UpgradeDocument) -> str:
    """Say the decision, grounds and longer durations: ``REJECT: 2 of your 16 tests fail only on 2.20.0 (a, b).``."""
    wanted = ("reject", {"REJECT": "violated", "UNDECIDED": "unknown"}.get(document.decision))
    grounds = [clause for clause in document.clauses if (clause.otherwise, clause.state) == wanted]
    slower = [row for row in document.differences.timings or () if row.change == "slower" and not speed(row)]
    old, new = (one.image.id if one.image else one.environment.id for one in (document.old, document.new))
    parts = ["the driver was simulated"] * document.simulated + ["both are the same image"] * (old == new)
    if versions.key(document.new.tensorflow) < versions.key(document.old.tensorflow):
        parts.append(f"{document.new.tensorflow} is older than {document.old.tensorflow}")
    parts += [_broken_tests(clause, document) or f"{clause.says}: {clause.found}" for clause in grounds]
    if not document.rounds:
        rows = sorted(document.differences.hosts or (), key=lambda row: row.old == row.new)
        hosts = list(dict.fromkeys(write("{gpu} with driver {driver} {old:word} → {new:word}", row) for row in rows))
        parts += [*hosts[:3], *([f"{len(hosts) - 3} more GPUs below"] if hosts[3:] else [])]
    parts += [write("{name:word} {old_s.value:seconds} → {new_s.value:seconds}", row) for row in slower[:2]]
    return f"{document.decision}: {'; '.join(parts) or 'nothing rejects'}."


def _broken_tests(clause: Clause, document: UpgradeDocument) -> str:
    tests = [row.name.rpartition("::")[2] for row in document.differences.tests or () if compare.newly_failed(row)]
    if clause.clause != "tests-newly-failed" or not tests:
        return ""
    names, total = ", ".join([*tests[:3], *(["…"] if tests[3:] else [])]), document.differences.tests_run
    return f"{len(tests)} of your {total} tests fail only on {document.new.tensorflow} ({names})"


def compared_row(document: UpgradeDocument) -> Iterator[str]:
    """Name the compared row and whether the matrix offers it; empty for older documents."""
    if not document.row:
        return
    offered = f"matrix {document.matrix}" if document.matrix else "in no matrix"
    images = (document.old, document.new)
    built = (f"{one.environment.id} ({wording().words[one.lock_is if one.image else 'absent']})" for one in images)
    yield f"on {document.row}, {offered}: {' → '.join(built)}"
    if document.not_judged:
        yield f"also in the matrix, not compared here (--select): {', '.join(document.not_judged)}"


def sections(document: UpgradeDocument) -> Iterator[Section]:
    """Yield every section with content, the reasons of the decision first."""
    for title, text in wording().sections.items():
        lists = ((each, row) for each in text.rows for row in rows_of(document, each.of) or ())
        rows = [tuple(write(cell, row) for cell in each.cells) for each, row in lists if holds(row, each.condition)]
        if rows:
            yield title, text, rows


class RowText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    of: str
    condition: str = msgspec.field(default="", name="if")
    text: str = ""
    cells: tuple[str, ...] = ()


class ClauseText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    says: str
    unknown: str = ""
    unasked: str = ""
    nothing: str = "none"
    decides: str = ""
    rows: tuple[RowText, ...] = ()


class SectionText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the report; a ``whole`` one is shown in full."""

    headers: tuple[str, ...]
    rows: tuple[RowText, ...]
    whole: bool = False


Section = tuple[str, SectionText, list[tuple[str, ...]]]
"""The title, the form and the rows of a table."""


class Wording(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    words: dict[str, str]
    answers: dict[str, str]
    clauses: dict[str, ClauseText]
    details: dict[str, str]
    sections: dict[str, SectionText]


def wording() -> Wording:
    return packaged_yaml("upgrade/wording.yaml", Wording)


def rows_of(document: UpgradeDocument, of: str) -> list[Any] | None:
    """Return the rows of a list; None if it could not be compared."""
    if of in SOURCES:
        found = SOURCES[of](document)
    else:
        first, *more = of.split(".")
        found = getattr(document if first in UpgradeDocument.__struct_fields__ else document.differences, first)
        found = reduce(lambda value, name: None if value is None else getattr(value, name), more, found)
    return None if found is None else list(found)


def holds(row: Any, condition: str) -> bool:  # noqa: ANN401 - any row of the document
    known = CONDITIONS.get(condition)
    return not condition or bool(known(row) if known else getattr(row, condition))


def details(name: str, of: Iterable[object]) -> tuple[str, ...]:
    template = wording().details[name]
    return tuple(write(template, row) for row in of)


class _Formatter(string.Formatter):
    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401, ARG002
        return args[0] if key == "row" else getattr(args[0], str(key))

    def format_field(self, value: Any, format_spec: str) -> str:  # noqa: ANN401 - any field of a row
        if format_spec in FORMATS:
            return FORMATS[format_spec](value)
        if format_spec.startswith("or "):
            return value or format_spec[3:]
        return interval(value, format_spec) if isinstance(value, Interval) else format(value, format_spec)


def write(template: str, row: object) -> str:
    return _Formatter().vformat(template, (row,), {})


def interval(value: Interval, form: str, unit: str = "") -> str:
    """Format an estimate with its bounds: ``1.03 (0.99 to 1.07)``."""
    if value.low is None or value.high is None:
        return format(value.value, form)
    return f"{value.value:{form}}{unit} ({value.low:{form}} to {value.high:{form}})"


def ratio_text(ratio: Interval) -> str:
    """Format a ratio with its interval: ``1.03 x (0.99 to 1.07)``."""
    few = ratio.low is None or ratio.high is None
    return f"{interval(ratio, '.2f')} x (too few rounds for an interval)" if few else interval(ratio, ".2f", " x")


SPEED_CHANGED = "the machine's speed changed: compare by the ratio, not the medians"


def speed(row: RatioResult) -> str:
    """Say if two medians over all rounds disagree with the ratio within rounds: only the ratio then counts."""
    low, high = row.ratio.low, row.ratio.high
    agree = low is None or high is None or low <= row.new_s.value / row.old_s.value <= high
    return "" if agree else SPEED_CHANGED


def _seconds(measured: Interval | float) -> str:
    measured = measured if isinstance(measured, Interval) else Interval(measured, None, None)
    factor, unit = (1000.0, "ms") if measured.value < 0.1 else (1.0, "s")  # noqa: PLR2004 - a tenth of a second
    bounds = (None if bound is None else bound * factor for bound in (measured.low, measured.high))
    return f"{interval(Interval(measured.value * factor, *bounds), '.3g')} {unit}"


def _tidy(text: str) -> str:
    """Cut what a reader does not need in a message: addresses of objects, and all but the end of long paths."""
    return re.sub(r"(?:/[\w.@+-]+){3,}(/[\w.@+-]+)", r"…\1", re.sub(r"0x[0-9a-fA-F]{6,}", "0x…", text))


def _licence(row: PackageChange) -> str:
    if row.old is None or not compare.relicensed(row):
        return row.new_licence or "-"
    return f"{row.old_licence or '-'} → {row.new_licence or '-'}"


def _new_major(row: PackageChange) -> bool:
    old, new = (text and versions.key_or_none(text) for text in (row.old, row.new))
    changed = row.old and row.new and row.old != row.new
    return bool(changed and not (old and new and old[0][0] == new[0][0]))  # not numbers: the safe answer


FORMATS: Mapping[str, Callable[[Any], str]] = {
    "MB": lambda size: f"{size / 1e6:.0f}",
    "layer_MB": lambda size: "-" if size is None else f"{size / 1e6:.1f}",
    "after_colon": lambda text: text and f": {text}",
    "bracketed": lambda text: text and f" ({text})",
    "difference": lambda drift: "not comparable" if drift is None else f"differs by {drift:.1e} of the largest result",
    "drift": lambda drift: "not comparable" if drift is None else f"{drift:.1e}",
    "error": lambda error: "raises" if error is None else f"{error:.2e}",
    "findings": lambda findings: "; ".join(f"{finding.code}: {finding.message}" for finding in findings),
    "first_two": lambda texts: ", ".join(texts[:2]),
    "flaky": lambda flaky: "FLAKY: " * flaky,
    "licence": _licence,
    "listed": ", ".join,
    "mark": lambda state: {"violated": "VIOLATED", "not asked": "-"}.get(state, state),
    "medians": lambda row: speed(row) or write("medians {old_s.value:seconds} and {new_s.value:seconds}", row),
    "numeric": lambda row: row.message or ("outside tolerance" if row.outside else "within tolerance"),
    "old_licence": lambda row: "absent" if row.old is None else row.old_licence or "none stated",
    "or_none": lambda texts: ", ".join(texts) or "none",
    "outside": lambda outside: "outside" if outside else "within",
    "ratio": ratio_text,
    "seconds": _seconds,
    "speed": speed,
    "tidy": _tidy,
    "simulated": lambda simulated: " (simulated)" * simulated,
    "word": lambda word: wording().words.get(word, word),
}
CONDITIONS: Mapping[str, Callable[[Any], bool]] = {
    "built": lambda row: row[1].image,
    "moved": lambda row: row.gained or row.lost,
    "slower": lambda row: row.change == "slower",
    "newly_failed": compare.newly_failed,
    "newly_skipped": lambda row: (row.old, row.new) == ("passed", "skipped"),
    "newly_outside": compare.newly_outside,
    "new_major": _new_major,
    "relicensed": compare.relicensed,
    "resized": lambda layer: layer.old != layer.new,
}


def _lines(document: UpgradeDocument, otherwise: str, *states: str) -> Iterator[tuple[str, str]]:
    """Yield the details of clauses that are not ok; one without details shows its value."""
    for clause in document.clauses:
        if clause.otherwise == otherwise and clause.state in states:
            shown = clause.details or (f"{clause.found} (limit {clause.limit:g})",)
            yield from ((clause.clause, line) for line in shown)


def _lost(document: UpgradeDocument, *names: str) -> list[str] | None:
    changes = [change for change in document.differences.sets if change.name in names]
    return [f"{change.name}: {text}" for change in changes for text in change.lost] if changes else None


def _models(document: UpgradeDocument, saved_by: str) -> list[ModelExchange] | None:
    models = document.differences.models
    return None if models is None else [row for row in models if row.saved_by == saved_by]


SOURCES: Mapping[str, Callable[[UpgradeDocument], Iterable[Any] | None]] = {
    "calls": lambda one: without_aliases(one.differences.surface.signatures) if one.differences.surface else None,
    "lost_capabilities": lambda one: _lost(one, compare.CUBINS, compare.PTX),
    "lost_pythons": lambda one: _lost(one, compare.PYTHONS),
    "models_of_new": lambda one: _models(one, "new"),
    "models_of_old": lambda one: _models(one, "old"),
    "notes": lambda one: _lines(one, "note", "violated", "unknown"),
    "open": lambda one: _lines(one, "reject", "unknown"),
    "rejecting": lambda one: _lines(one, "reject", "violated"),
    # The durations, if they were measured often enough to prove a change.
    "certain_timings": lambda one: (
        one.differences.timings if all(row.ratio.low is not None for row in one.differences.timings or ()) else None
    ),
    "images": lambda one: (("old", one.old, one.simulated), ("new", one.new, one.simulated)),
}
