"""Verdicts in the formats of other tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from envbuilder.compat.selectors import select
from envbuilder.errors import InputError, NothingSelectedError, Problem
from envbuilder.report.junit import junit
from envbuilder.report.markdown import markdown
from envbuilder.report.metrics import prometheus
from envbuilder.report.report_data import current_verdicts, name_of
from envbuilder.validation.verdict_store import History, users_verdict
from envbuilder.verdict import Verdict
from envbuilder.workspace import Workspace

FORMATS: dict[str, Callable[[tuple[Verdict, ...]], str]] = {
    "junit": junit,
    "markdown": markdown,
    "prometheus": prometheus,
}


@dataclass(frozen=True)
class VerdictSource:
    """Where verdicts come from: files; else a history (``store``, ``since``); else the newest in ``out/``."""

    files: Sequence[Path] = ()
    store: Path | None = None
    since: datetime | None = None


def export_verdicts(form: str, source: VerdictSource, selectors: Sequence[str], workspace: Workspace) -> str:
    """Write verdicts in one of `FORMATS`.

    Raises InputError for a file that is not a verdict, NothingSelectedError if there is no verdict.
    """
    verdicts = _from_files(source.files) if source.files else _stored(workspace, source)
    if selectors:
        environments = tuple(one.environment for one in verdicts if one.environment is not None)
        chosen = {one.id for one in select(environments, tuple(selectors))}
        verdicts = tuple(one for one in verdicts if name_of(one) in chosen)
    if not verdicts:
        raise NothingSelectedError("there is no verdict to export", hint="envbuilder run, or name a verdict.json")
    return FORMATS[form](verdicts)


def _from_files(files: Sequence[Path]) -> tuple[Verdict, ...]:
    found: list[Verdict] = []
    problems: list[Problem] = []
    for path in files:
        try:
            found.append(users_verdict(path))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(tuple(problems), hint="envbuilder run writes out/<id>/verdict.json")
    return tuple(found)


def _stored(workspace: Workspace, source: VerdictSource) -> tuple[Verdict, ...]:
    if source.store is None and source.since is None:
        return current_verdicts(workspace)
    return History(source.store or workspace.history).since(source.since)
