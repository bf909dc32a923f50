"""Verdicts and build plans in the formats that other tools read; each is derived from the one verdict document."""

from __future__ import annotations

from collections.abc import Callable

from envbuilder.report.formats.junit import junit
from envbuilder.report.formats.markdown import markdown
from envbuilder.report.formats.openmetrics import openmetrics
from envbuilder.report.formats.sarif import sarif
from envbuilder.verdict import Verdict

FORMATS: dict[str, Callable[[tuple[Verdict, ...]], str]] = {
    "junit": junit,
    "sarif": sarif,
    "markdown": markdown,
    "openmetrics": openmetrics,
}
"""Name on the command line → the function that writes it, from verdicts in the order that they are to be shown in."""

__all__ = ["FORMATS", "junit", "markdown", "openmetrics", "sarif"]
