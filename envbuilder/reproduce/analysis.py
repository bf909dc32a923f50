"""Analyse a report: transcript, fields, messages, causes, and the closest compatible environment."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.environment import Environment
from envbuilder.errors import InputError, Problem
from envbuilder.reproduce.causes import predict
from envbuilder.reproduce.diagnosis import diagnose
from envbuilder.reproduce.document import POSTED, Nearest, ReproduceDocument, build_command, matrix_path
from envbuilder.reproduce.fix import closest_environment
from envbuilder.reproduce.messages.fuzzy import find_all
from envbuilder.reproduce.question_from_report import question_of
from envbuilder.reproduce.rebuild import Rebuild, plan
from envbuilder.reproduce.report.read import cleaned, read
from envbuilder.reproduce.transcript import LARGEST, shortened
from envbuilder.workspace import Workspace, write_atomically


@dataclass(frozen=True)
class Analysis:
    """All results that need no build: the document, the rebuild plan, and the closest compatible environment."""

    document: ReproduceDocument
    rebuild: Rebuild
    near: Environment | None


def analyse(text: str, catalog: Catalog, driver_here: str | None = None) -> Analysis:
    """Read a report: find its cause, plan the rebuild, and choose the closest compatible environment.

    Raises InputError for an empty text.
    """
    if not text.strip():
        raise InputError(
            (Problem("report", 0, "", "is empty"),), hint="paste an issue, a log, or the output of envbuilder capture"
        )
    if len(text) > LARGEST:
        text = shortened(text.split("\n"))
    transcript = cleaned(text)
    reported, symptoms = read(text, transcript), find_all(transcript)
    question = question_of(reported, symptoms, catalog)
    predicted = predict(reported, symptoms, catalog)
    rebuild = plan(reported, question, predicted, catalog, driver_here)
    diagnosis = diagnose(reported, predicted, symptoms)
    closest = closest_environment(reported, question, diagnosis, catalog)
    near, environment = closest if closest is not None else (None, None)
    document = ReproduceDocument(
        reported=reported,
        symptoms=symptoms,
        predicted=predicted,
        diagnosis=diagnosis,
        recipe=rebuild.recipe,
        nearest=near,
    )
    return Analysis(document, rebuild, environment)


def with_command(document: ReproduceDocument, workspace: Workspace | None = None) -> ReproduceDocument:
    """Add the command that builds the closest environment from its matrix.

    The matrix is written to ``out/reproduce/matrices`` of the workspace. Without a workspace nothing is written: the
    document contains the matrix, and the command names the file to save it in.
    """
    near: Nearest | None = document.nearest
    if near is None or not near.matrix:
        return document
    if workspace is not None:
        write_atomically(matrix_path(document, workspace), near.matrix.encode())
    ours = build_command(document) if workspace is not None else f"envbuilder run {POSTED}"
    commands = (ours, *near.commands)
    return msgspec.structs.replace(document, nearest=msgspec.structs.replace(near, commands=commands))
