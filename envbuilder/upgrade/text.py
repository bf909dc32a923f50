"""Render an upgrade's document as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from envbuilder.support import terminal_text
from envbuilder.support.console import table
from envbuilder.upgrade.document import (
    Clause,
    Differences,
    FactChange,
    HostChange,
    MemoryChange,
    NumericChange,
    OutcomeChange,
    OutputChange,
    PackageChange,
    SurfaceChange,
    UpgradeDocument,
)
from envbuilder.upgrade.inventory import spdx
from envbuilder.upgrade.quantities import SPEED_CHANGED, speed_changed
from envbuilder.upgrade.statistics import Interval, RatioResult
from envbuilder.upgrade.surface import without_aliases

Rows = Sequence[tuple[str, ...]]
Section = tuple[str, tuple[str, ...], Rows]

_MARK = {"ok": "ok", "violated": "VIOLATED", "unknown": "unknown", "not asked": "-"}
_SHOWN = 12
_WIDTH = 100


def as_text(document: UpgradeDocument) -> str:
    title = f"TensorFlow {document.old.tensorflow} → {document.new.tensorflow} ({document.flavor}): {document.decision}"
    parts = ["\n".join([title, *compared_row(document)])]
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
    sides = " → ".join(f"{side.environment.id} ({_LOCKS[side.lock_is]})" for side in (document.old, document.new))
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


def sections(document: UpgradeDocument) -> Iterator[Section]:
    """Yield every section with content, the reasons of the decision first."""
    differences = document.differences
    for title, state in ((REJECTS, "violated"), (OPEN, "unknown")):
        details = _details(document.clauses, "reject", state)
        if details:
            yield title, ("clause", "detail"), details
    if document.would_decide:
        yield DECIDES, ("what",), [(line,) for line in document.would_decide]
    yield "Sides", ("side", "environment", "verdict", "level", "size", "image"), _sides(document)
    yield "Policy", ("clause", "state", "limit", "found", "otherwise"), _clauses(document.clauses)
    yield "Platform", ("fact", "old", "new"), _platform(differences)
    yield from (section for section in _rest(document.clauses, differences) if section[2])


def _details(clauses: Sequence[Clause], otherwise: str, *states: str) -> Rows:
    """List the details of clauses that are not ok; one without details shows its value."""
    return [
        (clause.clause, line)
        for clause in clauses
        if clause.otherwise == otherwise and clause.state in states
        for line in (clause.details or (f"{clause.found} (limit {clause.limit:g})",))
    ]


def _rest(clauses: Sequence[Clause], differences: Differences) -> Iterator[Section]:
    d = differences
    yield "Notes", ("clause", "detail"), _details(clauses, "note", "violated", "unknown")
    yield "Your tests", ("test", "old", "new", "message"), [_test(row) for row in d.tests or ()]
    checks = [(row.name, row.old, row.new, row.message) for row in d.checks or ()]
    yield "Checks", ("check", "old", "new", "message"), checks
    yield "Fleet", ("host", "GPU", "driver", "old", "new", "why"), [_host(row) for row in d.hosts or ()]
    headers: tuple[str, ...] = ("duration", "new/old within rounds", "answer", "old median", "new median", "note")
    yield "Durations", headers, [_timing(row) for row in d.timings or ()]
    headers = ("point", "new/old within rounds", "answer", "old MB", "new MB")
    yield "Peak memory", headers, [_memory(row) for row in d.memory or ()]
    yield "Packages", ("package", "change", "old", "new", "licence"), [_package(row) for row in d.packages or ()]
    yield "What TensorFlow requires", ("package", "old", "new"), [_fact(fact) for fact in d.requirements or ()]
    layers = [(row.created_by, _megabytes(row.old), _megabytes(row.new)) for row in d.layers if row.old != row.new]
    yield "Layers", ("layer", "old MB", "new MB"), layers
    yield "Numerics", ("operation", "old error", "new error", "note"), [_numeric(row) for row in d.numerics or ()]
    headers = ("operation", "difference, of the largest", "note")
    yield "Results on the same inputs", headers, [_output(row) for row in d.outputs or ()]
    models = [(row.name, row.saved_by, row.wrong) for row in d.models or () if row.wrong]
    yield "Models that the other image saved", ("format", "saved by", "failure"), models
    yield "Warnings newly printed", ("line",), [(line,) for line in d.warnings_new or ()]
    yield from _surface(d.surface)


def _test(row: OutcomeChange) -> tuple[str, ...]:
    counts = row.again and f" ({row.again})"
    return row.name, row.old, row.new, f"{'FLAKY: ' * row.flaky}{row.message}{counts}"


def _fact(fact: FactChange) -> tuple[str, ...]:
    return fact.name, fact.old or "-", fact.new or "-"


def _sides(document: UpgradeDocument) -> Rows:
    return [
        (
            name,
            side.environment.id,
            side.verdict or "none",
            side.level,
            f"{side.image.size / 1e6:.0f} MB" if side.image else "-",
            side.image.id[:19] if side.image else "-",
        )
        for name, side in (("old", document.old), ("new", document.new))
    ]


def _clauses(clauses: Sequence[Clause]) -> Rows:
    return [(c.says, _MARK[c.state], f"{c.limit:g}", c.found, c.otherwise) for c in clauses]


def _platform(differences: Differences) -> Rows:
    changed = [row for row in differences.sets if row.gained or row.lost]
    sets = [(row.name, _listed("lost", row.lost), _listed("gained", row.gained)) for row in changed]
    return [*map(_fact, differences.platform), *sets]


def _listed(word: str, texts: Sequence[str]) -> str:
    return f"{word} {', '.join(texts)}" if texts else f"{word} none"


def _host(row: HostChange) -> tuple[str, ...]:
    why = "; ".join(f"{finding.code}: {finding.message}" for finding in row.findings)
    return row.host, row.gpu, row.driver, row.old, row.new, why


def _timing(row: RatioResult) -> tuple[str, ...]:
    note = SPEED_CHANGED if speed_changed(row.old_s, row.new_s, row.ratio) else ""
    return row.name, _between(row.ratio, "{:.2f}") + " x", row.change, _seconds(row.old_s), _seconds(row.new_s), note


def _memory(row: MemoryChange) -> tuple[str, ...]:
    sizes = (f"{one.value / 1e6:.0f}" for one in (row.old, row.new))
    return row.name, _between(row.ratio, "{:.2f}") + " x", row.change, *sizes


def _seconds(interval: Interval) -> str:
    return _between(interval, "{:.3g}") + " s"


def _between(interval: Interval, form: str) -> str:
    value = form.format(interval.value)
    if interval.low is None or interval.high is None:
        return value
    return f"{value} ({form.format(interval.low)} to {form.format(interval.high)})"


def _package(row: PackageChange) -> tuple[str, ...]:
    same = row.old is None or (row.new is not None and spdx(row.old_licence or "") == spdx(row.new_licence or ""))
    licence = row.new_licence if same else f"{row.old_licence or '-'} → {row.new_licence or '-'}"
    return row.name, row.change, row.old or "-", row.new or "-", licence or "-"


def _megabytes(size: int | None) -> str:
    return "-" if size is None else f"{size / 1e6:.1f}"


def _numeric(row: NumericChange) -> tuple[str, ...]:
    old, new = ("raises" if error is None else f"{error:.2e}" for error in (row.old, row.new))
    return row.operation, old, new, row.message or ("outside tolerance" if row.outside else "within tolerance")


def _output(row: OutputChange) -> tuple[str, ...]:
    drift = "not comparable" if row.drift is None else f"{row.drift:.1e}"
    return row.operation, drift, f"{'outside' if row.outside else 'within'} {row.tolerance:.0e}"


def _surface(surface: SurfaceChange | None) -> Iterator[Section]:
    if surface is None:
        return
    members = [(f"{m.member} (of {m.count} classes: {', '.join(m.classes)})",) for m in surface.removed_members]
    yield "Public names removed", ("name",), [*((f"tf.{name}",) for name in surface.removed), *members]
    calls: list[tuple[str, ...]] = [
        (f"tf.{name}", c.old, c.new, c.breaks) for name, c in without_aliases(surface.signatures)
    ]
    calls += [(f"{m.member} (of {m.count} classes)", "", "", m.breaks) for m in surface.changed_members if m.breaks]
    yield "Calls that can break", ("name", "old", "new", "why"), calls
    yield "Newly deprecated", ("name",), [(f"tf.{name}",) for name in surface.newly_deprecated]
    yield "Public names added", ("name",), [(f"tf.{name}",) for name in surface.added]
