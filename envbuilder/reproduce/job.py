"""The reproduce job: from a report to a document."""

from __future__ import annotations

import sys
from pathlib import Path

from envbuilder import host
from envbuilder.catalog.model import Catalog
from envbuilder.errors import InputError, Problem
from envbuilder.reproduce.analysis import analyse, with_command
from envbuilder.reproduce.document import ReproduceDocument
from envbuilder.reproduce.transcript import read_text
from envbuilder.support.console import Console
from envbuilder.workspace import Workspace


def read_report(report: str) -> str:
    """Read a report from a file, or from standard input for ``-``. Raises InputError if it cannot be read."""
    try:
        if report == "-":
            return read_text(sys.stdin.buffer)
        with Path(report).open("rb") as stream:
            return read_text(stream)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError((Problem(report, 0, "", reason),), hint="give a file, or - for standard input") from error


def reproduce_report(
    report: str, workspace: Workspace, console: Console, catalog: Catalog, *, dry_run: bool = False, prove: bool = False
) -> ReproduceDocument:
    """Process a report: with ``dry_run`` without any build, with ``prove`` including the closest environment."""
    text, driver = read_report(report), host.describe().driver
    if dry_run:
        return with_command(analyse(text, catalog, driver).document)
    # Imported here because the engine and the suite take half of the start-up time, and a dry run needs neither.
    from envbuilder.engine.docker import connect  # noqa: PLC0415
    from envbuilder.reproduce.run import ReproduceTools, reproduce  # noqa: PLC0415

    tools = ReproduceTools(catalog, workspace, connect(), console.say)
    return reproduce(text, tools, driver, prove=prove)
