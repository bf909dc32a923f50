"""The reply to post under a report: the cause and how sure it is, the line that decides, one fix, what is harmless."""

from __future__ import annotations

import re

from envbuilder.reproduce.diagnosis import Diagnosis
from envbuilder.reproduce.report.reported import Evidence
from envbuilder.reproduce.reproduction import Nearest, ReproduceDocument
from envbuilder.reproduce.reproduction_text import WORDS, rows
from envbuilder.support import terminal_text

_SURE = {"certain": "certain", "likely": "likely", "unsure": "not sure"}
_OURS = "envbuilder "


def as_markdown(document: ReproduceDocument) -> str:
    """Write a comment to post, safe as Markdown: no mention, link or markup of a report survives in it."""
    parts = (
        _cause(document.diagnosis),
        _decisive(document.diagnosis),
        _fix(document),
        _harmless(document.diagnosis),
        _ask(document.diagnosis),
        _read(document),
        _verified(document),
    )
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _cause(diagnosis: Diagnosis) -> list[str]:
    return [f"**Cause ({_SURE[diagnosis.confidence]}):** {terminal_text.markdown(diagnosis.cause)}"]


def _decisive(diagnosis: Diagnosis) -> list[str]:
    if not diagnosis.line:
        return []
    return [f"Line {diagnosis.line} shows it:", "", *block("text", (diagnosis.quote,))]


def _fix(document: ReproduceDocument) -> list[str]:
    """Name one fix: the commands where other versions mend it, else the sentence."""
    near, diagnosis = document.nearest, document.diagnosis
    lines = [f"**Fix:** {terminal_text.markdown(diagnosis.fix)}"] if diagnosis.fix else []
    if near is None:
        if diagnosis.place == "host":
            lines += ["", "Changing versions will not help: the cause lies outside of the installation."]
        return lines
    lines += [""] if lines else []
    lines += [f"What works nearest to this: {', '.join(terminal_text.code(change) for change in near.changes)}."]
    told = [f"{row.field} {terminal_text.code(row.value)} (line {row.line})" for row in near.worked]
    lines += [f"It is what the report has working: {', '.join(told)}."] if told else []
    commands = [command for command in near.commands if not command.startswith(_OURS)]
    lines += ["", *block("console", [f"$ {command}" for command in commands])] if commands else []
    return [*lines, *_beside(near, commands, document.reported.cuda)]


def _beside(near: Nearest, commands: list[str], present: str | None) -> list[str]:
    """Say which CUDA a newly installed TensorFlow needs where no wheels bring it, and it is not ``present``."""
    found = near.environment
    if near.matrix or found.cuda in {None, present} or not any(row.startswith("pip install") for row in commands):
        return []
    cudnn = f" and cuDNN {terminal_text.code(found.cudnn)}" if found.cudnn else ""
    both = f"CUDA {terminal_text.code(found.cuda or '')}{cudnn}"
    image = "; the image brings both" if any(row.startswith("docker run") for row in commands) else ""
    return ["", f"This TensorFlow runs with {both}, which pip does not bring here: install them beside it{image}."]


def _harmless(diagnosis: Diagnosis) -> list[str]:
    if not diagnosis.harmless:
        return []
    return [
        "**Harmless, although it looks bad:**",
        "",
        *(f"- {terminal_text.markdown(text)}" for text in diagnosis.harmless),
    ]


def _ask(diagnosis: Diagnosis) -> list[str]:
    if diagnosis.confidence != "unsure":
        return []
    return ["Please paste what these print; it tells the cause:", "", *block("console", diagnosis.ask)]


def _read(document: ReproduceDocument) -> list[str]:
    """Say what was read, so that the reporter can correct it."""
    stated = [f"{title} {terminal_text.code(value)} (line {line})" for title, value, line, _ in rows(document.reported)]
    lines = [f"Read from the report: {', '.join(stated)}."] if stated else []
    for row in document.reported.contradictions:
        kept, dropped = row.kept, row.dropped
        values = [f"{terminal_text.code(value.value)} in {_where(value)}" for value in (dropped, kept)]
        lines.append(f"It also says {'; '.join(values)} weighs more ({kept.trust} over {_trust(dropped)}).")
    return lines


def _trust(row: Evidence) -> str:
    return f"{row.trust} in a title" if row.title else row.trust.value


def _where(row: Evidence) -> str:
    """Name a statement's place; a title is named as one, for it is outweighed by every other sentence."""
    return f"line {row.line} (the title)" if row.title else f"line {row.line}"


def _verified(document: ReproduceDocument) -> list[str]:
    run, near = document.run, document.nearest
    if run is None:
        return []
    where = f"in {terminal_text.code(run.image)}" if run.image else ""
    host = f" on a simulated host ({terminal_text.code(document.recipe.host)})" if run.simulated else ""
    host += f", with stand-ins for {', '.join(map(terminal_text.code, run.stand_ins))}" if run.stand_ins else ""
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
    """Show lines as they are: a fence longer than any run of backticks in them."""
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *(terminal_text.line(line) for line in lines), fence]
