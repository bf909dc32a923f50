"""What ``envbuilder reproduce`` was asked for: read the report, do it, and write the answer."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, assert_never

from envbuilder import host
from envbuilder.catalog import store
from envbuilder.console import Console
from envbuilder.engine.docker import connect
from envbuilder.errors import InputError, Problem
from envbuilder.reproduce.reproduce import Options, foresee, reproduce, with_command
from envbuilder.reproduce.reproduction import ReproduceDocument
from envbuilder.reproduce.reproduction_text import as_markdown, as_text
from envbuilder.reproduce.trial import Tools
from envbuilder.schemas import as_json
from envbuilder.workspace import Workspace

Form = Literal["table", "json", "markdown"]


@dataclass(frozen=True)
class Words:
    """The command's words, as given."""

    report: str
    options: Options


def text_of(report: str) -> str:
    """Read a report from a file, or from standard input for ``-``. Raises InputError where it cannot be read."""
    try:
        data = sys.stdin.buffer.read() if report == "-" else Path(report).read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError((Problem(report, 0, "", reason),), hint="give a file, or - for standard input") from error
    return data.decode("utf-8", errors="replace")


def answer(words: Words, workspace: Workspace, console: Console) -> ReproduceDocument:
    """Do what the words ask for; only a real run needs an engine."""
    text, catalog, driver = text_of(words.report), store.load(), host.describe().driver
    if words.options.dry_run:
        return with_command(foresee(text, catalog, driver).document)
    return reproduce(text, Tools(catalog, workspace, connect(), console.say), words.options, driver)


def told(document: ReproduceDocument, form: Form) -> str:
    """Write the answer in the form that was asked for."""
    match form:
        case "table":
            return as_text(document)
        case "json":
            return as_json(document)
        case "markdown":
            return as_markdown(document)
        case _:
            assert_never(form)
