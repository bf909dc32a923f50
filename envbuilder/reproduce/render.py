"""Render the answer as text, or as a reply to post in the thread."""

from __future__ import annotations

import re

from envbuilder.compat.install import WHEELS
from envbuilder.reproduce.causes import cause_of
from envbuilder.reproduce.diagnose import ReportDiagnosis
from envbuilder.reproduce.document import POSTED, Nearest, ReproduceDocument, Run
from envbuilder.reproduce.messages.catalog import error_messages
from envbuilder.reproduce.report.reported import Reported, ReportStatement
from envbuilder.support import terminal_text
from envbuilder.support.tables import table

_TITLES = {
    "tensorflow": "TensorFlow", "distribution": "package", "build": "build", "python": "Python", "cuda": "CUDA",
    "cudnn": "cuDNN", "driver": "driver", "driver_cuda": "driver serves CUDA", "os": "system", "arch": "processor",
    "install": "installed with", "image": "image", "gpus": "GPUs",
}  # fmt: skip
_SHOWN = 110
WORDS = {True: "yes", False: "no", None: "cannot be known here"}
"""Shown for an unknown result."""


def rows(reported: Reported) -> list[tuple[str, str, str, str]]:
    found = []
    for name, title in _TITLES.items():
        value = getattr(reported, name) if name != "gpus" else ", ".join(reported.gpus)
        if value:
            same = (row for row in reported.evidence if row.field == name and (name == "gpus" or row.value == value))
            source = next(same, None)
            found.append((title, value, str(source.line) if source else "", str(source.trust) if source else ""))
    return found


def as_text(document: ReproduceDocument) -> str:
    reported = document.reported
    parts = [table(("field", "value", "line", "weight"), rows(reported)) if rows(reported) else "nothing is stated"]
    parts += [
        f"contradiction: {row.field} {row.kept.value} (line {row.kept.line}) over {row.dropped.value} "
        f"(line {row.dropped.line}{', the title' if row.dropped.title else ''})"
        for row in reported.contradictions
    ]
    parts += [f"pause: {row.seconds:.0f} s after line {row.line}" for row in reported.pauses]
    symptoms = error_messages(document.symptoms)
    if symptoms:
        parts += ["", "messages:"]
        parts += [f"  line {row.line}: {row.signature}: {_short(row.text)}" for row in symptoms]
    parts += ["", *_diagnosed(document.diagnosis)]
    parts += ["", "predicted:" if document.predicted else "predicted: nothing"]
    for finding in document.predicted:
        parts += [f"  {finding.severity}  {finding.code}  {finding.message}"]
        parts += [f"    fix: {finding.fix}"] if finding.fix else []
    parts += ["", *_recipe(document), *_run(document.run), *_nearest(document)]
    return "\n".join(parts)


def _diagnosed(diagnosis: ReportDiagnosis) -> list[str]:
    lines = [f"cause ({diagnosis.confidence}): {diagnosis.cause}"]
    lines += [f"  line {diagnosis.line}: {terminal_text.line(diagnosis.quote)}"] if diagnosis.line else []
    lines += [f"  fix: {diagnosis.fix}"] if diagnosis.fix else []
    lines += [f"  harmless: {text}" for text in diagnosis.harmless]
    return [*lines, *(f"  ask: {command}" for command in diagnosis.ask if diagnosis.confidence == "unsure")]


def _recipe(document: ReproduceDocument) -> list[str]:
    recipe = document.recipe
    if recipe.kind == "none":
        return [f"not rebuilt: {recipe.why_not}"]
    base = recipe.environment or recipe.base
    deviations = f" with {', '.join(recipe.deviations)} on top" if recipe.deviations else ""
    untold = ", without loader configuration for its CUDA wheels" if recipe.untold else ""
    host = f", on a simulated {recipe.host}" if recipe.host else ""
    return [f"rebuilt as: {base}{deviations}{untold}{host}"]


def _run(run: Run | None) -> list[str]:
    if run is None:
        return ["not run (--dry-run)"]
    lines = [f"reproduced: {WORDS[run.reproduced]}" + (f" ({run.needs})" if run.needs else "")]
    lines += [f"  reported: {_short(reported)}\n  seen:     {_short(seen)}" for reported, seen in run.proof]
    if run.verdict:
        lines.append(f"suite: {run.verdict}{', simulated' if run.simulated else ''}")
    return lines


def _nearest(document: ReproduceDocument) -> list[str]:
    near = document.nearest
    if near is None:
        if document.diagnosis.place == "host":
            return ["nearest that works: none; changing versions will not help"]
        return ["nearest that works: none is known"]
    lines = [f"nearest that works: {', '.join(near.changes)}"]
    lines += [f"  the report says that it works: {row.field} {row.value} (line {row.line})" for row in near.worked]
    lines += [f"  {line}" for line in near.diff]
    lines += [f"  image: {near.image}"] if near.image else []
    lines += [f"  $ {command}" for command in near.commands]
    if document.run is None and near.matrix:  # nothing was written: show the file that the command names
        lines += [f"  {POSTED}:", *(f"    {line}" for line in near.matrix.splitlines())]
    if near.proof is not None:
        lines.append(f"  proven: {WORDS[near.proof.proven]}" + (f" ({near.proof.needs})" if near.proof.needs else ""))
    return lines


def _short(text: str) -> str:
    plain = terminal_text.line(text)
    return plain if len(plain) <= _SHOWN else plain[: _SHOWN - 1] + "…"


_SURE = {"certain": "certain", "likely": "likely", "unsure": "not sure"}


def as_markdown(document: ReproduceDocument) -> str:
    """Write a comment to post, as safe Markdown: it contains no mention, link or markup of the report."""
    diagnosis = document.diagnosis
    quote = diagnosis.quote if len(diagnosis.quote) <= _LONGEST_QUOTE else f"{diagnosis.quote[:_LONGEST_QUOTE]}…"
    parts = (
        [f"**Cause ({_SURE[diagnosis.confidence]}):** {_prose(diagnosis.cause)}"],
        block("text", (quote,)) if diagnosis.line else [],
        *_fix(document),
        [_ASK, "", *block("console", diagnosis.ask)] if diagnosis.confidence == "unsure" else [],
        _verified(document),
        _details(document),
    )
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


_ASK = "Please paste the output of these commands; it shows the cause:"
_LONGEST_QUOTE = 240
_NAME = re.compile(r"(?:--?|_)?[A-Za-z0-9/.=<>\-]*[A-Za-z0-9][_*][\w/.=*\-]*[\w*]|[A-Za-z0-9_]*/\*|--[a-z][\w=-]*")
"""A name in a sentence that Markdown would change: it is written as code."""


def _prose(text: str) -> str:
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return terminal_text.markdown(text)
    return "".join(_code(part) if at % 2 else _named(part) for at, part in enumerate(parts))


def _named(text: str) -> str:
    """Write a part of a sentence without commands; the spaces at its ends stay."""
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
    """Split the commands of an environment into short ones and long ones."""
    own = [command for command in near.commands if not command.startswith("envbuilder ")]
    images = [command for command in own if command.startswith("docker run")]
    long = any(command.count("==") > _LONG or command.startswith(WHEELS) for command in own)
    return (images, [row for row in own if row not in images]) if images or long else (own, [])


def _fix(document: ReproduceDocument) -> list[list[str]]:
    near, diagnosis = document.nearest, document.diagnosis
    said = [f"**Fix:** {_prose(diagnosis.fix)}"] if diagnosis.fix else []
    if near is None:
        versions_help = any(cause_of(code).fixed_by for code in diagnosis.codes[:1])
        if diagnosis.place == "host" and "version" not in diagnosis.fix and not versions_help:
            said += ["", "Changing versions will not help: the cause is outside of the installation."]
        return [said]
    short, _ = _commands(near)
    changes = ", ".join(terminal_text.code(change) for change in near.changes)
    own = "`" in diagnosis.fix
    named = f"closest compatible environment: {changes}" + (f" ({terminal_text.code(near.id)})" if near.id else "")
    told = [f"{row.field} {terminal_text.code(row.value)} (line {row.line})" for row in near.worked]
    rest = [f"The report says that it works: {', '.join(told)}."] if told else []
    if own or not short:
        return [said, [f"C{named[1:]}.", *rest]]
    return [[f"**Fix:** {named}:", "", *block("console", [f"$ {command}" for command in short])], rest]


def _details(document: ReproduceDocument) -> list[str]:
    """List what only the reporter checks: the fields that were read, harmless lines, other commands."""
    diagnosis, near = document.diagnosis, document.nearest
    short, long = _commands(near) if near is not None else ([], [])
    own = "`" in diagnosis.fix
    others = [*(short if own else []), *long]
    parts = [
        _read(document),
        ["Harmless messages:", "", *(f"- {_prose(text)}" for text in diagnosis.harmless)] if diagnosis.harmless else [],
        ["The closest environment as commands:", "", *block("console", others)] if others else [],
        ["To decide it:", "", *block("console", diagnosis.ask)]
        if diagnosis.ask and diagnosis.confidence == "likely"
        else [],
    ]
    body = "\n\n".join("\n".join(part) for part in parts if part)
    return ["<details><summary>Details</summary>", "", body, "", "</details>"] if body else []


def _read(document: ReproduceDocument) -> list[str]:
    stated = [f"{title} {terminal_text.code(value)} (line {line})" for title, value, line, _ in rows(document.reported)]
    lines = [f"Read from the report: {', '.join(stated)}."] if stated else []
    for row in document.reported.contradictions:
        kept, dropped = row.kept, row.dropped
        one, other = (f"{terminal_text.code(said.value)} in {_where(said)}" for said in (dropped, kept))
        lines.append(f"It also says {one}; {other} was taken.")
    return lines


def _where(row: ReportStatement) -> str:
    """Name a statement's place; titles are marked, because every other sentence outranks them."""
    return f"line {row.line} (the title)" if row.title else f"line {row.line}"


def _verified(document: ReproduceDocument) -> list[str]:
    run, near = document.run, document.nearest
    if run is None:
        return []
    where = f"in {terminal_text.code(run.image)}" if run.image else ""
    host = f" on a simulated host ({terminal_text.code(document.recipe.host)})" if run.simulated else ""
    lines = [f"Reproduced: **{WORDS[run.reproduced]}** {where}{host}{_because(run.needs)}".rstrip()]
    lines += [f"- seen: {terminal_text.code(seen)}" for _, seen in run.proof]
    if near is not None and near.proof is not None:
        proof = near.proof
        built = f", built and run as {terminal_text.code(proof.image)}" if proof.image else ""
        simulated = ", simulated" if proof.simulated else ""
        lines.append(f"The fix works: **{WORDS[proof.proven]}**{built}{simulated}{_because(proof.needs)}")
    return lines


def _because(needs: str) -> str:
    return f": {terminal_text.markdown(needs)}" if needs else ""


def block(language: str, lines: tuple[str, ...] | list[str]) -> list[str]:
    """Quote lines in a fence that is longer than any run of backticks in them."""
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *(terminal_text.line(line) for line in lines), fence]
