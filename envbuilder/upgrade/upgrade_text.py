"""Write an upgrade's document for people: a table for the terminal, Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from envbuilder.console import table
from envbuilder.upgrade.inventory import spdx
from envbuilder.upgrade.statistics import Interval, Measured
from envbuilder.upgrade.upgrade_document import (
    Clause,
    Differences,
    HostChange,
    PackageChange,
    SurfaceChange,
    UpgradeDocument,
)

Rows = Sequence[tuple[str, ...]]
Section = tuple[str, tuple[str, ...], Rows]
"""A title, the headers of its columns, and its rows."""

_MARK = {"ok": "ok", "violated": "VIOLATED", "unknown": "unknown", "not asked": "-"}
_SHOWN = 12
_WIDTH = 100


def as_text(document: UpgradeDocument) -> str:
    """Write a document for the terminal."""
    title = f"TensorFlow {document.old.tensorflow} → {document.new.tensorflow} ({document.flavor}): {document.decision}"
    parts = ["\n".join([title, *judged_on(document)])]
    for number, (title, headers, rows) in enumerate(sections(document)):
        shown = len(rows) if number < _UNFOLDED else _SHOWN
        cut = [tuple(_short(cell) for cell in row) for row in rows[:shown]]
        more = [] if len(rows) <= shown else [f"  … and {len(rows) - shown} more (--format json)"]
        parts.append("\n".join([title, *(f"  {line}" for line in table(headers, cut).splitlines()), *more]))
    parts += [f"gap: {gap}" for gap in document.gaps]
    parts.append(
        f"{document.old.tensorflow} → {document.new.tensorflow}: {document.decision} (policy {document.policy})"
    )
    return "\n\n".join(parts)


def as_markdown(document: UpgradeDocument) -> str:
    """Write a document for a pull request: the decision and its clauses first, long lists folded away."""
    old, new = document.old, document.new
    parts = [
        f"## TensorFlow {old.tensorflow} → {new.tensorflow} ({document.flavor}): {document.decision}",
        f"Judged by policy `{document.policy}` over {document.rounds} interleaved rounds.",
        *map(_cell, judged_on(document)),
    ]
    for number, (title, headers, rows) in enumerate(sections(document)):
        if number < _UNFOLDED:
            parts.append(f"### {title}\n\n{_pipes(headers, rows)}")
        else:
            summary = f"<summary>{title} ({len(rows)})</summary>"
            parts.append(f"<details>{summary}\n\n{_pipes(headers, rows)}\n\n</details>")
    if document.gaps:
        parts.append("### Not known\n\n" + "\n".join(f"- {_cell(gap)}" for gap in document.gaps))
    return "\n\n".join(parts) + "\n"


_LOCKS = {"committed": "committed lock", "made": "locked for this", "proposed": "proposed, locked close to the old"}


def judged_on(document: UpgradeDocument) -> Iterator[str]:
    """Say on which row it was judged and whether that is what is offered; nothing for documents that do not know."""
    if not document.row:
        return
    offered = f"matrix {document.matrix}" if document.matrix else "in no matrix"
    sides = " → ".join(f"{side.environment.id} ({_LOCKS[side.lock_is]})" for side in (document.old, document.new))
    yield f"on {document.row}, {offered}: {sides}"
    if document.not_judged:
        yield f"offered as well, not judged here (--select): {', '.join(document.not_judged)}"


_UNFOLDED = 3
"""Sections that a reader sees at once: sides, clauses, platform."""


def _pipes(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(headers) + " |", "|" + " --- |" * len(headers)]
    lines += ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _cell(text: str) -> str:
    """Write a text so that it stays one cell and is no markup."""
    plain = " ".join(text.split()).replace("\\", "\\\\")
    for character in "|<>`*_[]":
        plain = plain.replace(
            character, f"\\{character}" if character not in "<>" else {"<": "&lt;", ">": "&gt;"}[character]
        )
    return plain


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _WIDTH else plain[: _WIDTH - 1] + "…"


def sections(document: UpgradeDocument) -> Iterator[Section]:
    """Yield every section that has something to say, the decision's grounds first."""
    differences = document.differences
    yield "Sides", ("side", "environment", "verdict", "level", "size", "image"), _sides(document)
    yield "Policy", ("clause", "state", "limit", "found", "otherwise"), _clauses(document.clauses)
    yield "Platform", ("fact", "old", "new"), _platform(differences)
    yield from (section for section in _rest(document.clauses, differences) if section[2])


def _rest(clauses: Sequence[Clause], differences: Differences) -> Iterator[Section]:
    details = [
        (clause.clause, line)
        for clause in clauses
        if clause.state in ("violated", "unknown")
        for line in clause.details
    ]
    yield "Why", ("clause", "detail"), details
    yield (
        "Your tests",
        ("test", "old", "new", "message"),
        [(t.name, t.old, t.new, t.message) for t in differences.tests or ()],
    )
    yield (
        "Checks",
        ("check", "old", "new", "message"),
        [(c.name, c.old, c.new, c.message) for c in differences.checks or ()],
    )
    yield "Fleet", ("host", "GPU", "driver", "old", "new", "why"), [_host(row) for row in differences.hosts or ()]
    yield (
        "Durations",
        ("duration", "old", "new", "ratio", "answer"),
        [_timing(row) for row in differences.timings or ()],
    )
    yield (
        "Packages",
        ("package", "change", "old", "new", "licence"),
        [_package(row) for row in differences.packages or ()],
    )
    facts = [(fact.name, fact.old or "-", fact.new or "-") for fact in differences.requirements or ()]
    yield "What TensorFlow requires", ("package", "old", "new"), facts
    yield "Layers", ("layer", "old MB", "new MB"), _layers(differences)
    yield "Numerics", ("operation", "old error", "new error", "note"), _numerics(differences)
    yield "Warnings newly printed", ("line",), [(line,) for line in differences.warnings_new or ()]
    yield from _surface(differences.surface)


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
    facts: list[tuple[str, ...]] = [(fact.name, fact.old or "-", fact.new or "-") for fact in differences.platform]
    facts += [
        (change.name, _listed("lost", change.lost), _listed("gained", change.gained))
        for change in differences.sets
        if change.gained or change.lost
    ]
    return facts


def _listed(word: str, texts: Sequence[str]) -> str:
    return f"{word} {', '.join(texts)}" if texts else f"{word} none"


def _host(row: HostChange) -> tuple[str, ...]:
    why = "; ".join(f"{finding.code}: {finding.message}" for finding in row.findings)
    return row.host, row.gpu, row.driver, row.old, row.new, why


def _timing(row: Measured) -> tuple[str, ...]:
    return row.name, _seconds(row.old_s), _seconds(row.new_s), _between(row.ratio, "{:.2f}"), row.change


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


def _layers(differences: Differences) -> Rows:
    return [
        (layer.created_by, _megabytes(layer.old), _megabytes(layer.new))
        for layer in differences.layers
        if layer.old != layer.new
    ]


def _megabytes(size: int | None) -> str:
    return "-" if size is None else f"{size / 1e6:.1f}"


def _numerics(differences: Differences) -> Rows:
    return [
        (
            row.operation,
            "raises" if row.old is None else f"{row.old:.2e}",
            "raises" if row.new is None else f"{row.new:.2e}",
            row.message or ("outside tolerance" if row.outside else "within tolerance"),
        )
        for row in differences.numerics or ()
    ]


def _surface(surface: SurfaceChange | None) -> Iterator[Section]:
    if surface is None:
        return
    members = [(f"{m.member} (of {m.count} classes: {', '.join(m.classes)})",) for m in surface.removed_members]
    yield "Public names removed", ("name",), [*((f"tf.{name}",) for name in surface.removed), *members]
    calls: list[tuple[str, ...]] = [(f"tf.{c.name}", c.old, c.new, c.breaks) for c in surface.signatures if c.breaks]
    calls += [(f"{m.member} (of {m.count} classes)", "", "", m.breaks) for m in surface.changed_members if m.breaks]
    yield "Calls that can break", ("name", "old", "new", "why"), calls
    yield "Newly deprecated", ("name",), [(f"tf.{name}",) for name in surface.newly_deprecated]
    yield "Public names added", ("name",), [(f"tf.{name}",) for name in surface.added]
