"""Build findings and the phrases in their messages: one place for how the rules speak."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from envbuilder.catalog.rows import Row, TensorflowRelease
from envbuilder.finding import Code, Finding, Severity


def error(
    code: Code,
    subject: str,
    message: str,
    *,
    requires: str = "",
    found: str = "",
    fix: str = "",
    rows: Iterable[Row | None] = (),
) -> Finding:
    """State that something cannot work."""
    return _finding(code, Severity.ERROR, subject, message, requires, found, fix, rows)


def warning(
    code: Code,
    subject: str,
    message: str,
    *,
    requires: str = "",
    found: str = "",
    fix: str = "",
    rows: Iterable[Row | None] = (),
) -> Finding:
    """State that something works with a cost or a risk."""
    return _finding(code, Severity.WARNING, subject, message, requires, found, fix, rows)


def info(
    code: Code,
    subject: str,
    message: str,
    *,
    requires: str = "",
    found: str = "",
    fix: str = "",
    rows: Iterable[Row | None] = (),
) -> Finding:
    """State something worth knowing that costs nothing."""
    return _finding(code, Severity.INFO, subject, message, requires, found, fix, rows)


def unknown(subject: str, message: str, *, fix: str = "") -> Finding:
    """State that the catalogue has no row, so that no claim is made."""
    return Finding(
        code=Code.UNKNOWN,
        severity=Severity.WARNING,
        subject=subject,
        message=message,
        fix=fix or "See `envbuilder catalog list` for what is known.",
    )


def _finding(
    code: Code,
    severity: Severity,
    subject: str,
    message: str,
    requires: str,
    found: str,
    fix: str,
    rows: Iterable[Row | None],
) -> Finding:
    sources = dict.fromkeys(source for row in rows if row is not None for source in row.source)
    return Finding(
        code=code,
        severity=severity,
        subject=subject,
        message=message,
        requires=requires,
        found=found,
        fix=fix,
        sources=tuple(sources),
    )


def name(release: TensorflowRelease) -> str:
    """Name a release as people write it: ``TensorFlow 2.20.0``, ``tensorflow-cpu 2.20.0``."""
    return (
        f"TensorFlow {release.version}" if release.package == "tensorflow" else f"{release.package} {release.version}"
    )


def words(items: Sequence[str], joint: str = "and") -> str:
    """Join words as a sentence does: ``a, b and c``."""
    if len(items) < 2:  # noqa: PLR2004 - one word needs no joint
        return "".join(items)
    return f"{', '.join(items[:-1])} {joint} {items[-1]}"


def span(items: Sequence[str]) -> str:
    """Shorten an ordered list to its ends where it has more than two: ``3.10 to 3.13``."""
    return f"{items[0]} to {items[-1]}" if len(items) > 2 else words(items)  # noqa: PLR2004
