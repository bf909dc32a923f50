"""What ``envbuilder export`` was asked for: verdicts or build plans, written in another tool's format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from envbuilder.catalog.model import Catalog
from envbuilder.choice import choose
from envbuilder.compat.selectors import select
from envbuilder.errors import InputError, NothingSelectedError, Problem, UsageError
from envbuilder.registry.reference import parse
from envbuilder.report.collect import current_verdicts
from envbuilder.report.formats import FORMATS
from envbuilder.report.formats.bake import bake
from envbuilder.report.formats.titles import name_of
from envbuilder.validation.history import History
from envbuilder.validation.stored import users_verdict
from envbuilder.verdict import Verdict
from envbuilder.workspace import Workspace


@dataclass(frozen=True)
class Source:
    """Where verdicts come from: files; else a history (``store``, ``since``); else the newest in ``out/``."""

    files: Sequence[Path] = ()
    store: Path | None = None
    since: datetime | None = None


def export_verdicts(form: str, source: Source, selectors: Sequence[str], workspace: Workspace) -> str:
    """Write verdicts in one of `FORMATS`.

    Raises InputError for a file that is no verdict, NothingSelectedError where there is none.
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


def _stored(workspace: Workspace, source: Source) -> tuple[Verdict, ...]:
    if source.store is None and source.since is None:
        return current_verdicts(workspace)
    return History(source.store or workspace.history).since(source.since)


def export_bake(
    matrix: str | None, selectors: Sequence[str], to: str | None, workspace: Workspace, catalog: Catalog
) -> str:
    """Write ``docker-bake.json`` for a matrix's environments, on the bases that a registry gives."""
    if to is None:
        raise UsageError("a bake file needs to know where its images go", hint="--to registry.example.org/team/image")
    choice = choose(matrix, selectors, workspace, catalog)
    bases = {system.name: system.image for system in choice.catalog.systems}
    return bake(choice.environments, parse(to).name, bases)
