"""The answer of ``reproduce``: its document, as text, and as a reply to post in the thread (`templates/reproduce`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec

from envbuilder.compat.check import EnvironmentAnswer
from envbuilder.environment import Predicate
from envbuilder.finding import Code, Finding
from envbuilder.reproduce.causes import cause_of, is_cause
from envbuilder.reproduce.diagnose import ReportDiagnosis
from envbuilder.reproduce.grammar import GRAMMAR
from envbuilder.reproduce.messages.catalog import MessageMatch, error_messages
from envbuilder.reproduce.report.reported import Reported
from envbuilder.support import terminal_text
from envbuilder.support.tables import table
from envbuilder.support.templates import text_template
from envbuilder.verdict import Word

Kind = Literal["wheels", "image", "none"]


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """How the reported environment is rebuilt.

    ``kind`` is ``wheels`` (an envbuilder environment, with ``deviations`` installed on top), ``image`` (a published
    image with CUDA) or ``none``; ``why_not`` then gives the reason. ``untold`` removes the loader configuration for
    CUDA wheels. ``host`` is the simulated driver and GPU ('' for this host). ``dockerfile`` is the text that is built.
    """

    kind: Kind
    environment: str | None = None
    base: str | None = None
    deviations: tuple[str, ...] = ()
    untold: bool = False
    host: str = ""
    dockerfile: str = ""
    why_not: str = ""


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What an image showed when it was run; None and empty if it was not."""

    image: str | None = None
    verdict: Word | None = None
    simulated: bool = False
    symptoms: tuple[MessageMatch, ...] = ()
    needs: str = ""


class Run(Observed, frozen=True, kw_only=True):
    """The result of the rebuilt environment.

    ``reproduced`` is true if every reported message that can appear here did, false if none did, null if this host
    cannot decide it; ``needs`` then names what is missing. ``proof`` pairs each reported message with the observed
    line.
    """

    findings: tuple[Finding, ...] = ()
    reproduced: bool | None = None
    proof: tuple[tuple[str, str], ...] = ()


class NearestRun(Observed, frozen=True, kw_only=True):
    """The result of the closest environment when it was built.

    ``proven`` is true if the failure was reproduced before, and here none of its messages or findings appeared and the
    suite found no other failure. ``needs`` names further findings, or why nothing is proven.
    """

    proven: bool | None = None


POSTED = "nearest.yaml"  # the suggested file name for the matrix that the answer contains


class Nearest(msgspec.Struct, frozen=True, kw_only=True):
    """The closest compatible environment: its changes, the commands that install it, and the matrix that builds it.

    ``predicate`` defines "works", as in the answer of ``envbuilder check``. ``id`` and ``image`` name envbuilder's own
    environment for it ('' if there is none).
    """

    environment: EnvironmentAnswer
    changes: tuple[str, ...]
    predicate: Predicate = "installable"
    id: str = ""
    image: str = ""
    diff: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    matrix: str = ""
    proof: NearestRun | None = None

    @property
    def needs_driver(self) -> bool:
        """True if the versions are not enough: the driver changes too."""
        return any(change.startswith("driver ") for change in self.changes)


class ReproduceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``envbuilder reproduce``."""

    schema: str = "envbuilder/reproduce/v1"
    reported: Reported
    symptoms: tuple[MessageMatch, ...]
    predicted: tuple[Finding, ...]
    diagnosis: ReportDiagnosis
    recipe: Recipe
    run: Run | None = None
    nearest: Nearest | None = None

    @property
    def answered(self) -> bool | None:
        """True if reproduced or explained, False if the run differs, None if unknown."""
        if self.run is not None:
            refuted = self.nearest is not None and self.nearest.proof is not None and self.nearest.proof.proven is False
            return False if refuted and self.run.reproduced else self.run.reproduced
        unknown = any(row.code is Code.UNKNOWN for row in self.predicted)
        known = any(map(is_cause, self.predicted)) or (self.reported.tensorflow is not None and not unknown)
        return True if known else None


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
    commands = _commands(near, diagnosis.fix) if near is not None else []
    versions_help = "version" in diagnosis.fix or any(cause_of(code).fixed_by for code in diagnosis.codes[:1])
    useless = near is None and diagnosis.place == "host" and diagnosis.confidence == "certain" and not versions_help
    at = [row.known for row in document.symptoms if row.line == diagnosis.line]
    worded = any(row.prose for row in at) and not any(row.code in diagnosis.codes[:1] and not row.prose for row in at)
    printed = not diagnosis.codes and any(row.id == "unknown_error" for row in at)
    told = (diagnosis.line == 1 or worded) and diagnosis.confidence != "certain" and not printed  # its reader wrote it
    given = {"quoted": not told, "commands": commands, "useless": useless}
    return _rendered("reply.md", document, **given, block=_block) + "\n"


def _rendered(name: str, document: ReproduceDocument, **more: object) -> str:
    fields = {field: getattr(document, field) for field in document.__struct_fields__}
    template = text_template(f"reproduce/{name}.j2", _FILTERS)
    return template.render(rows=rows(document.reported), **fields, **more).rstrip("\n")


_CODE = re.compile(
    r"(`[^`]*`"
    r"|(?:--?|_)?[A-Za-z0-9/.=<>\-]*[A-Za-z0-9][_*][\w/.=*\-]*[\w*]|[A-Za-z0-9_]*/\*|--[a-z][\w=-]*"
    r"|[A-Za-z][\w.-]* ?(?:[<>=!~]=?[0-9][\w.*]*,?)+(?<!,))"
)
"""What a sentence marks as code, or a name that Markdown would change: both are written as code."""


def _prose(text: str) -> str:
    if text.count("`") % 2:
        return terminal_text.markdown(text)
    return "".join(_code(part.strip("`")) if at % 2 else _plain(part) for at, part in enumerate(_CODE.split(text)))


def _plain(text: str) -> str:
    inner = terminal_text.markdown(text)
    return f"{' ' * text[:1].isspace()}{inner}{' ' * (bool(inner) and text[-1:].isspace())}" if text else ""


def _code(text: str) -> str:
    """Write inline code outside of tables, where a pipe is a character as any other."""
    return f"`{terminal_text.line(text.replace('`', ' '))}`"


def _commands(near: Nearest, fix: str) -> list[str]:
    """List the commands of an environment, those of an image first; none if the fix has all of them."""
    own = [command for command in near.commands if not command.startswith("envbuilder ")]
    own = own if any(command not in fix for command in own) else []
    images = [command for command in own if command.startswith(("docker run", "podman", "apptainer", "kubectl"))]
    others = [command for command in own if command not in images]
    return [*images, *["# or, with its CUDA installed"][: len(images) * len(others)], *others]


def _block(language: str, lines: Iterable[str]) -> str:
    """Quote lines in a fence that is longer than any run of backticks in them."""
    shown = [terminal_text.line(line) for line in lines]
    fence = "`" * max(3, *(len(run) + 1 for line in shown for run in re.findall(r"`+", line)), 0)
    return "\n".join([f"{fence}{language}", *shown, fence])


_FILTERS: dict[str, Callable[..., Any]] = {
    "word": {True: "yes", False: "no", None: "cannot be known here"}.get, "prose": _prose,
    "line": terminal_text.line, "code": terminal_text.code, "markdown": terminal_text.markdown,
}  # fmt: skip
