"""Render the answer as text, or as a reply to post in the thread, by the templates in `templates/reproduce`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from envbuilder.compat.install import WHEELS
from envbuilder.reproduce.causes import cause_of
from envbuilder.reproduce.document import POSTED, Nearest, ReproduceDocument
from envbuilder.reproduce.grammar import GRAMMAR
from envbuilder.reproduce.messages.catalog import error_messages, get
from envbuilder.reproduce.report.reported import Reported, ReportStatement
from envbuilder.support import terminal_text
from envbuilder.support.tables import table
from envbuilder.support.templates import text_template

_SHOWN = 110
_LONGEST_QUOTE = 240
_WITH_COMMAND = re.compile(
    r"`(?:apptainer|bazel|conda|docker|export|import|kubectl|ln|(?:python -m )?pip|podman|poetry|set|sudo|uv|where) "
    r"|`(?:winget|wsl) "
)
_BRINGS_CUDA = re.compile(r"docker run|cudatoolkit|and-cuda|nvidia-")
_WORDS = {True: "yes", False: "no", None: "cannot be known here"}
"""Shown for an unknown result."""


def rows(reported: Reported) -> list[tuple[str, str, str, str]]:
    found = []
    for name, title in GRAMMAR.titles.items():
        value = getattr(reported, name) if name != "gpus" else ", ".join(reported.gpus)
        if value:
            same = (row for row in reported.evidence if row.field == name and (name == "gpus" or row.value == value))
            source = next(same, None)
            found.append((title, value, str(source.line) if source else "", str(source.trust) if source else ""))
    return found


def as_text(document: ReproduceDocument) -> str:
    messages = error_messages(document.symptoms)
    return _rendered("answer.txt", document, table=table, messages=messages, posted=POSTED)


def as_markdown(document: ReproduceDocument) -> str:
    """Write a comment to post, as safe Markdown: it contains no mention, link or markup of the report."""
    diagnosis, near = document.diagnosis, document.nearest
    quote = diagnosis.quote if len(diagnosis.quote) <= _LONGEST_QUOTE else f"{diagnosis.quote[:_LONGEST_QUOTE]}…"
    short, long = _commands(near) if near is not None else ([], [])
    cuda = near is not None and any(change.startswith(("cuda ", "cudnn ")) for change in near.changes)
    incomplete = cuda and bool(short and diagnosis.fix) and not any(map(_BRINGS_CUDA.search, (*short, *long)))
    own = incomplete or _WITH_COMMAND.search(diagnosis.fix) is not None
    versions_help = "version" in diagnosis.fix or any(cause_of(code).fixed_by for code in diagnosis.codes[:1])
    useless = near is None and diagnosis.place == "host" and diagnosis.confidence == "certain" and not versions_help
    proposed = [] if own else [f"$ {command}" for command in short]
    others = [*short, *["# or"][: len(short) * len(long)], *long] if own else long
    at = [get(row.signature) for row in document.symptoms if row.line == diagnosis.line]
    own_words = any(row.prose for row in at) and not any(
        row.code in diagnosis.codes[:1] and not row.prose for row in at
    )
    told = (diagnosis.line == 1 or own_words) and diagnosis.confidence != "certain"  # its reader wrote it
    given = {"quote": "" if told else quote, "own": own, "proposed": proposed, "others": others, "useless": useless}
    return _rendered("reply.md", document, **given, block=_block) + "\n"


def _rendered(name: str, document: ReproduceDocument, **more: object) -> str:
    fields = {field: getattr(document, field) for field in document.__struct_fields__}
    template = text_template(f"reproduce/{name}.j2", _FILTERS)
    return template.render(rows=rows(document.reported), **fields, **more).rstrip("\n")


def _short(text: str) -> str:
    plain = terminal_text.line(text)
    return plain if len(plain) <= _SHOWN else plain[: _SHOWN - 1] + "…"


_NAME = re.compile(
    r"(?:--?|_)?[A-Za-z0-9/.=<>\-]*[A-Za-z0-9][_*][\w/.=*\-]*[\w*]|[A-Za-z0-9_]*/\*|--[a-z][\w=-]*"
    r"|[A-Za-z][\w.-]* ?(?:[<>=!~]=?[0-9][\w.*]*,?)+(?<!,)"
)
"""A name in a sentence that Markdown would change: it is written as code."""


def _prose(text: str) -> str:
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return terminal_text.markdown(text)
    return "".join(_code(part) if at % 2 else _named(part) for at, part in enumerate(parts))


def _named(text: str) -> str:
    written, end = "", 0
    for match in _NAME.finditer(text):
        written += _plain(text[end : match.start()]) + _code(match[0])
        end = match.end()
    return written + _plain(text[end:])


def _plain(text: str) -> str:
    inner = terminal_text.markdown(text)
    return f"{' ' * text[:1].isspace()}{inner}{' ' * (bool(inner) and text[-1:].isspace())}" if text else ""


def _code(text: str) -> str:
    """Write inline code outside of tables, where a pipe is a character as any other."""
    return f"`{terminal_text.line(text.replace('`', ' '))}`"


_LONG = 5
"""A command with more requirements is listed below the reply."""


def _commands(near: Nearest) -> tuple[list[str], list[str]]:
    own = [command for command in near.commands if not command.startswith("envbuilder ")]
    images = [command for command in own if command.startswith("docker run")]
    long = any(command.count("==") > _LONG or command.startswith(WHEELS) for command in own)
    return (images, [row for row in own if row not in images]) if images or long else (own, [])


def _field(row: tuple[str, str, str, str]) -> str:
    title, value, line, _ = row
    return f"{title} {terminal_text.code(value)} (line {line})"


def _statement(row: ReportStatement) -> str:
    return f"{terminal_text.code(row.value)} in line {row.line}{' (the title)' if row.title else ''}"


def _block(language: str, lines: Iterable[str]) -> str:
    """Quote lines in a fence that is longer than any run of backticks in them."""
    shown = [terminal_text.line(line) for line in lines]
    fence = "`" * max(3, *(len(run) + 1 for line in shown for run in re.findall(r"`+", line)), 0)
    return "\n".join([f"{fence}{language}", *shown, fence])


_FILTERS: dict[str, Callable[..., Any]] = {
    "short": _short, "word": _WORDS.get, "line": terminal_text.line, "code": terminal_text.code, "field": _field,
    "markdown": terminal_text.markdown, "prose": _prose, "statement": _statement,
}  # fmt: skip
