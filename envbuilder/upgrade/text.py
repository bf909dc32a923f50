"""Render an upgrade's document as text; the templates of its rows are in wording.yaml."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, reduce
from importlib import resources
from typing import Any

import msgspec

from envbuilder import versions
from envbuilder.support import terminal_text
from envbuilder.support.console import table
from envbuilder.upgrade import compare
from envbuilder.upgrade.document import (
    Clause,
    Differences,
    PackageChange,
    UpgradeDocument,
)
from envbuilder.upgrade.statistics import Interval, RatioResult
from envbuilder.upgrade.surface import without_aliases
from envbuilder.workspace import packaged_yaml

Rows = Sequence[tuple[str, ...]]
Section = tuple[str, tuple[str, ...], Rows]

_SUPPORT = {"native": "runs", "ptx": "runs after compiling PTX", "lost": "does not run", "unknown": "is not known"}
_MARK = {"ok": "ok", "violated": "VIOLATED", "unknown": "unknown", "not asked": "-"}
_SHOWN = 12
_WIDTH = 100


def as_text(document: UpgradeDocument) -> str:
    title = f"TensorFlow {document.old.tensorflow} → {document.new.tensorflow} ({document.flavor}): {document.decision}"
    parts = ["\n".join([sentence(document), title, *compared_row(document)])]
    for title, headers, rows in sections(document):
        shown = len(rows) if title in WHOLE else _SHOWN
        cut = [tuple(cell if title in WHOLE else _short(cell) for cell in row) for row in rows[:shown]]
        more = [] if len(rows) <= shown else [f"  … and {len(rows) - shown} more (--format json)"]
        parts.append("\n".join([title, *(f"  {line}" for line in table(headers, cut).splitlines()), *more]))
    parts += [f"gap: {gap}" for gap in document.gaps]
    parts.append(
        f"{document.old.tensorflow} → {document.new.tensorflow}: {document.decision} (policy {document.policy})"
    )
    return "\n\n".join(parts)


def as_markdown(document: UpgradeDocument) -> str:
    """Write a document for a pull request: decision and clauses first, long lists folded."""
    old, new = document.old, document.new
    parts = [
        f"## TensorFlow {old.tensorflow} → {new.tensorflow} ({document.flavor}): {document.decision}",
        terminal_text.markdown(sentence(document)),
        f"Policy {terminal_text.code(document.policy)} {document.rounds} interleaved rounds.",
        *map(terminal_text.markdown, compared_row(document)),
    ]
    for title, headers, rows in sections(document):
        if title in WHOLE:
            parts.append(f"### {title}\n\n{_pipes(headers, rows)}")
        else:
            summary = f"<summary>{title} ({len(rows)})</summary>"
            parts.append(f"<details>{summary}\n\n{_pipes(headers, rows)}\n\n</details>")
    if document.gaps:
        parts.append("### Not known\n\n" + "\n".join(f"- {terminal_text.markdown(gap)}" for gap in document.gaps))
    return "\n\n".join(parts) + "\n"


def sentence(document: UpgradeDocument) -> str:
    """Say the decision, grounds and longer durations: ``REJECT: 2 of your 16 tests fail only on 2.20.0 (a, b).``."""
    wanted = ("reject", {"REJECT": "violated", "UNDECIDED": "unknown"}.get(document.decision))
    grounds = [clause for clause in document.clauses if (clause.otherwise, clause.state) == wanted]
    slower = [row for row in document.differences.timings or () if row.change == "slower" and not _speed(row)]
    sides = document.old.image, document.new.image
    same = sides[0] is not None and sides[1] is not None and sides[0].id == sides[1].id
    parts = ["the driver was simulated"] * document.simulated + ["both sides are the same image"] * same
    parts += [_broken_tests(clause, document) or f"{clause.says}: {clause.found}" for clause in grounds]
    if not document.rounds:
        parts += [
            write("{gpu} with driver {driver} {old:support} → {new:support}", row)
            for row in document.differences.hosts or ()
        ]
    parts += [write("{name} {old_s.value:seconds} → {new_s.value:seconds}", row) for row in slower[:2]]
    return f"{document.decision}: {'; '.join(parts) or 'nothing rejects'}."


def _broken_tests(clause: Clause, document: UpgradeDocument) -> str:
    tests = [row.name.rpartition("::")[2] for row in document.differences.tests or () if compare.newly_failed(row)]
    if clause.clause != "tests-newly-failed" or not tests:
        return ""
    names = ", ".join([*tests[:3], *(["…"] if tests[3:] else [])])
    return (
        f"{len(tests)} of your {document.differences.tests_run} tests fail only on {document.new.tensorflow} ({names})"
    )


_LOCKS = {
    "committed": "committed lock",
    "made": "locked for this comparison",
    "proposed": "proposed, close to the old lock",
}


def compared_row(document: UpgradeDocument) -> Iterator[str]:
    """Name the compared row and whether the matrix offers it; empty for older documents."""
    if not document.row:
        return
    offered = f"matrix {document.matrix}" if document.matrix else "in no matrix"
    sides = " → ".join(
        f"{side.environment.id} ({_LOCKS[side.lock_is] if side.image else 'not built'})"
        for side in (document.old, document.new)
    )
    yield f"on {document.row}, {offered}: {sides}"
    if document.not_judged:
        yield f"also in the matrix, not compared here (--select): {', '.join(document.not_judged)}"


REJECTS, OPEN, DECIDES = "Why it is rejected", "What is open", "What would decide it"
WHOLE = (REJECTS, OPEN, DECIDES, "Sides", "Policy", "Platform")
"""Sections that are shown in full."""


def _pipes(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(headers) + " |", "|" + " --- |" * len(headers)]
    lines += ["| " + " | ".join(terminal_text.markdown(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _short(text: str) -> str:
    plain = terminal_text.line(text)
    return plain if len(plain) <= _WIDTH else plain[: _WIDTH - 1] + "…"


def sections(document: UpgradeDocument) -> list[Section]:
    """Return every section with content, the reasons of the decision first."""
    clauses, differences = document.clauses, document.differences
    judged = [(c.says, _MARK[c.state], f"{c.limit:g}", c.found, c.otherwise) for c in clauses]
    every: tuple[Section, ...] = (
        (REJECTS, ("clause", "detail"), _details(clauses, "reject", "violated")),
        (OPEN, ("clause", "detail"), _details(clauses, "reject", "unknown")),
        (DECIDES, ("what",), [(line,) for line in document.would_decide]),
        ("Sides", ("side", "environment", "verdict", "level", "size", "image"), _sides(document)),
        ("Policy", ("clause", "state", "limit", "found", "otherwise"), judged),
        ("Platform", ("fact", "old", "new"), _platform(differences)),
        ("Notes", ("clause", "detail"), _details(clauses, "note", "violated", "unknown")),
        *((title, text.headers, _written(text, differences)) for title, text in wording().sections.items()),
    )
    return [section for section in every if section[2]]


def _written(section: SectionText, differences: Differences) -> Rows:
    return [
        tuple(write(cell, row) for cell in each.cells)
        for each in section.rows
        for row in rows_of(differences, each) or ()
    ]


def _details(clauses: Sequence[Clause], otherwise: str, *states: str) -> Rows:
    """List the details of clauses that are not ok; one without details shows its value."""
    return [
        (clause.clause, _tidy(line))
        for clause in clauses
        if clause.otherwise == otherwise and clause.state in states
        for line in (clause.details or (f"{clause.found} (limit {clause.limit:g})",))
    ]


def _sides(document: UpgradeDocument) -> Rows:
    return [
        (
            name,
            side.environment.id,
            f"{side.verdict or 'none'}{' (simulated)' * document.simulated}",
            side.level,
            f"{side.image.size / 1e6:.0f} MB" if side.image else "-",
            side.image.id[:19] if side.image else "-",
        )
        for name, side in (("old", document.old), ("new", document.new))
    ]


def _platform(differences: Differences) -> Rows:
    changed = [row for row in differences.sets if row.gained or row.lost]
    return [
        *((row.name, row.old or "-", row.new or "-") for row in differences.platform),
        *((c.name, f"lost {', '.join(c.lost) or 'none'}", f"gained {', '.join(c.gained) or 'none'}") for c in changed),
    ]


class RowText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    of: str
    condition: str = msgspec.field(default="", name="if")
    text: str = ""
    cells: tuple[str, ...] = ()


class ClauseText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    says: str
    unknown: str = ""
    rows: tuple[RowText, ...] = ()


class SectionText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    headers: tuple[str, ...]
    rows: tuple[RowText, ...]


class Wording(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    clauses: dict[str, ClauseText]
    details: dict[str, str]
    sections: dict[str, SectionText]


@cache
def wording() -> Wording:
    return packaged_yaml(resources.files("envbuilder.upgrade") / "wording.yaml", Wording)


def rows_of(differences: Differences, wanted: RowText) -> Iterator[Any] | None:
    """Yield the rows of a list that fulfil the condition; None if it could not be compared."""
    source = SOURCES.get(wanted.of)
    every: Iterable[Any] | None = source(differences) if source else _member(differences, wanted.of)
    if every is None:
        return None
    holds = CONDITIONS.get(wanted.condition)
    return (row for row in every if not wanted.condition or (holds(row) if holds else getattr(row, wanted.condition)))


def _member(differences: Differences, path: str) -> Any:  # noqa: ANN401 - any list of the document
    return reduce(lambda found, name: None if found is None else getattr(found, name), path.split("."), differences)


def details(name: str, of: Iterable[object]) -> tuple[str, ...]:
    template = wording().details[name]
    return tuple(write(template, row) for row in of)


class _Formatter(string.Formatter):
    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401, ARG002
        return args[0] if key == "row" else getattr(args[0], str(key))

    def format_field(self, value: Any, format_spec: str) -> str:  # noqa: ANN401 - any field of a row
        if format_spec in FORMATS:
            return FORMATS[format_spec](value)
        return interval(value, format_spec) if isinstance(value, Interval) else format(value, format_spec)


def write(template: str, row: object) -> str:
    return _Formatter().vformat(template, (row,), {})


def interval(value: Interval, form: str) -> str:
    """Format an estimate with its bounds: ``1.03 (0.99 to 1.07)``."""
    if value.low is None or value.high is None:
        return format(value.value, form)
    return f"{value.value:{form}} ({value.low:{form}} to {value.high:{form}})"


def ratio_text(ratio: Interval) -> str:
    """Format a ratio with its interval: ``1.03 x (0.99 to 1.07)``."""
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.2f} x (too few rounds for an interval)"
    return f"{ratio.value:.2f} x ({ratio.low:.2f} to {ratio.high:.2f})"


def speed_changed(old: Interval, new: Interval, ratio: Interval) -> bool:
    """Return True if two medians over all rounds disagree with the ratio within rounds: only the ratio then counts."""
    plain = new.value / old.value
    return ratio.low is not None and ratio.high is not None and not ratio.low <= plain <= ratio.high


SPEED_CHANGED = "the machine's speed changed: compare by the ratio, not the medians"


def _speed(row: RatioResult) -> str:
    return SPEED_CHANGED if speed_changed(row.old_s, row.new_s, row.ratio) else ""


def _medians(row: RatioResult) -> str:
    return _speed(row) or write("medians {old_s.value:seconds} and {new_s.value:seconds}", row)


def _seconds(measured: Interval | float) -> str:
    if not isinstance(measured, Interval):
        measured = Interval(measured, None, None)
    factor, unit = (1000.0, "ms") if measured.value < 0.1 else (1.0, "s")  # noqa: PLR2004 - a tenth of a second
    bounds = (None if bound is None else bound * factor for bound in (measured.low, measured.high))
    return f"{interval(Interval(measured.value * factor, *bounds), '.3g')} {unit}"


def _tidy(text: str) -> str:
    """Cut what a reader does not need in a message: addresses of objects, and all but the end of long paths."""
    return re.sub(r"(?:/[\w.@+-]+){3,}(/[\w.@+-]+)", r"…\1", re.sub(r"0x[0-9a-fA-F]{6,}", "0x…", text))


def _licence(row: PackageChange) -> str:
    if row.old is None or not _relicensed(row):
        return row.new_licence or "-"
    return f"{row.old_licence or '-'} → {row.new_licence or '-'}"


def _relicensed(row: PackageChange) -> bool:
    if row.old is None or row.new is None:
        return row.new is not None
    return compare.spdx(row.old_licence or "") != compare.spdx(row.new_licence or "")


def _new_major(row: PackageChange) -> bool:
    return row.old is not None and row.new is not None and _major(row.old) != _major(row.new)


def _major(version: str) -> int | None:
    try:
        return versions.major(version)
    except ValueError:
        return None


def _drift(drift: float | None) -> str:
    return "not comparable" if drift is None else f"{drift:.1e}"


FORMATS: Mapping[str, Callable[[Any], str]] = {
    "MB": lambda size: f"{size / 1e6:.0f}",
    "layer_MB": lambda size: "-" if size is None else f"{size / 1e6:.1f}",
    "absent": lambda outcome: outcome or "absent",
    "after_colon": lambda text: text and f": {text}",
    "bracketed": lambda text: text and f" ({text})",
    "difference": lambda drift: _drift(drift) if drift is None else f"differs by {drift:.1e} of the largest result",
    "drift": _drift,
    "error": lambda error: "raises" if error is None else f"{error:.2e}",
    "findings": lambda findings: "; ".join(f"{finding.code}: {finding.message}" for finding in findings),
    "first_two": lambda texts: ", ".join(texts[:2]),
    "flaky": lambda flaky: "FLAKY: " * flaky,
    "licence": _licence,
    "listed": ", ".join,
    "medians": _medians,
    "numeric": lambda row: row.message or ("outside tolerance" if row.outside else "within tolerance"),
    "old_licence": lambda row: "absent" if row.old is None else row.old_licence or "none stated",
    "or_dash": lambda text: text or "-",
    "outside": lambda outside: "outside" if outside else "within",
    "ratio": ratio_text,
    "seconds": _seconds,
    "speed": _speed,
    "tidy": _tidy,
    "support": lambda state: _SUPPORT[state],
    "stated": lambda licence: licence or "none stated",
}
CONDITIONS: Mapping[str, Callable[[Any], bool]] = {
    "newly_failed": compare.newly_failed,
    "newly_outside": compare.newly_outside,
    "new_major": _new_major,
    "relicensed": _relicensed,
    "resized": lambda layer: layer.old != layer.new,
}
SOURCES: Mapping[str, Callable[[Differences], Iterable[Any] | None]] = {
    "calls": lambda found: without_aliases(found.surface.signatures) if found.surface else None,
}
