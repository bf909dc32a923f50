"""From a report to its answer: transcript, fields, messages, causes, and the closest compatible environment."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.environment import Environment
from envbuilder.errors import InputError, Problem
from envbuilder.reproduce.causes import is_cause
from envbuilder.reproduce.diagnose import diagnose, predict
from envbuilder.reproduce.document import POSTED, ReproduceDocument
from envbuilder.reproduce.fix import closest_environment
from envbuilder.reproduce.grammar import GRAMMAR, respelt
from envbuilder.reproduce.messages.catalog import find
from envbuilder.reproduce.question import Case
from envbuilder.reproduce.rebuild import Rebuild, plan
from envbuilder.reproduce.report.context import complaints
from envbuilder.reproduce.report.read import cleaned, read
from envbuilder.workspace import Workspace, write_atomically


@dataclass(frozen=True)
class Analysis:
    """All results that need no build: the document, the rebuild plan, and the closest compatible environment."""

    document: ReproduceDocument
    rebuild: Rebuild
    near: Environment | None


def analyse(text: str, catalog: Catalog, driver_here: str | None = None) -> Analysis:
    """Read a report. Raises InputError for an empty text."""
    if not text.strip():
        hint = "paste an issue, a log, or the output of envbuilder capture"
        raise InputError((Problem("report", 0, "", "is empty"),), hint=hint)
    transcript = cleaned(text)
    case = Case(read(text, transcript), find(transcript), catalog).settled()
    predicted = predict(case)
    unspecific = set(asked := case.reported.complaints) <= {"installing", "import", "breaks"}
    if unspecific and not any(map(is_cause, predicted)):  # the title names the complaint, else the text
        wider = complaints(transcript, everywhere=True)
        other = dataclasses.replace(case, reported=msgspec.structs.replace(case.reported, complaints=wider)).settled()
        if any(map(is_cause, found := predict(other))) or (asked == ("installing",) and "invisible" in wider):
            case, predicted = other, found
    rebuild = plan(case, predicted, driver_here)
    diagnosis = diagnose(case, predicted)
    near, environment = closest_environment(case, diagnosis) or (None, None)
    quotes = "quotes of cmd" if case.reported.platform == "windows" else "quotes"
    said = text.split("\n")[diagnosis.line - 1].strip()[:400] if diagnosis.line else ""
    foreign = any(word.isalpha() and word in said for word in GRAMMAR.translations)
    own = tuple(respelt(respelt(text, f"environment{case.form}"), quotes) for text in near.commands) if near else ()
    fix, quote = respelt(respelt(diagnosis.fix, quotes), f"sentence{case.form}"), said if foreign else diagnosis.quote
    document = ReproduceDocument(
        reported=case.reported,
        symptoms=case.messages,
        predicted=predicted,
        diagnosis=msgspec.structs.replace(diagnosis, fix=fix, quote=quote),
        recipe=rebuild.recipe,
        nearest=near and msgspec.structs.replace(near, commands=own),
    )
    return Analysis(document, rebuild, environment)


def with_command(document: ReproduceDocument, workspace: Workspace | None = None) -> ReproduceDocument:
    """Add the command that builds the closest environment from its matrix.

    The matrix is written to ``out/reproduce/matrices`` of the workspace. Without a workspace nothing is written: the
    document contains the matrix, and the command names the file to save it in.
    """
    near = document.nearest
    if near is None or not near.matrix:
        return document
    file = POSTED
    if workspace is not None:
        path = workspace.report_matrix(document.recipe.environment or "report")
        write_atomically(path, near.matrix.encode())
        file = str(path.relative_to(workspace.root))
    commands = (f"envbuilder run {file}", *near.commands)
    return msgspec.structs.replace(document, nearest=msgspec.structs.replace(near, commands=commands))
