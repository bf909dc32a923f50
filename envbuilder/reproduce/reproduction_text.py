"""Tell a person what became of a report: what it says, what is wrong, and what was done about it."""

from __future__ import annotations

from envbuilder.reproduce.diagnosis import Diagnosis
from envbuilder.reproduce.report.reported import SCALARS, Reported
from envbuilder.reproduce.reproduction import POSTED, ReproduceDocument, Run
from envbuilder.reproduce.symptom_comparison import telling
from envbuilder.support import terminal_text
from envbuilder.support.console import table

_TITLES = {
    "tensorflow": "TensorFlow", "python": "Python", "cuda": "CUDA", "cudnn": "cuDNN", "driver": "driver",
    "driver_cuda": "driver serves CUDA", "os": "system", "install": "installed with", "image": "image",
    "distribution": "package", "build": "build", "arch": "processor",
}  # fmt: skip
_SHOWN = 110
WORDS = {True: "yes", False: "no", None: "cannot be known here"}
"""What an answer that may be open is called."""


def rows(reported: Reported) -> list[tuple[str, str, str, str]]:
    """List field, value, line and how it weighs, for every field that the report states."""
    found = []
    for name in SCALARS:
        value = getattr(reported, name)
        if value is None or name not in _TITLES:
            continue
        source = next((row for row in reported.evidence if (row.field, row.value) == (name, value)), None)
        found.append((_TITLES[name], value, str(source.line) if source else "", source.trust.value if source else ""))
    if reported.gpus:
        source = next((row for row in reported.evidence if row.field == "gpus"), None)
        found.append(
            ("GPUs", ", ".join(reported.gpus), str(source.line) if source else "", source.trust if source else "")
        )
    return found


def as_text(document: ReproduceDocument) -> str:
    """Write the answer for a terminal."""
    reported = document.reported
    parts = [table(("field", "value", "line", "weight"), rows(reported)) if rows(reported) else "nothing is stated"]
    parts += [
        f"contradiction: {row.field} {row.kept.value} (line {row.kept.line}) over {row.dropped.value} "
        f"(line {row.dropped.line}{', the title' if row.dropped.title else ''})"
        for row in reported.contradictions
    ]
    parts += [f"pause: {row.seconds:.0f} s after line {row.line}" for row in reported.pauses]
    symptoms = telling(document.symptoms)
    if symptoms:
        parts += ["", "messages:"]
        parts += [f"  line {row.line}: {row.signature}: {_short(row.text)}" for row in symptoms]
    parts += ["", *_diagnosed(document.diagnosis)]
    parts += ["", "predicted:" if document.predicted else "predicted: nothing"]
    for finding in document.predicted:
        parts += [
            f"  {finding.severity}  {finding.code}  {finding.message}",
            *([f"    fix: {finding.fix}"] if finding.fix else []),
        ]
    parts += ["", *_recipe(document), *_run(document.run), *_nearest(document)]
    return "\n".join(parts)


def _diagnosed(diagnosis: Diagnosis) -> list[str]:
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
    untold = ", the loader not told of its CUDA wheels" if recipe.untold else ""
    host = f", on a simulated {recipe.host}" if recipe.host else ""
    return [f"rebuilt as: {base}{deviations}{untold}{host}"]


def _run(run: Run | None) -> list[str]:
    if run is None:
        return ["not run (--dry-run)"]
    lines = [f"reproduced: {WORDS[run.reproduced]}" + (f" ({run.needs})" if run.needs else "")]
    lines += [f"  reported: {_short(reported)}\n  seen:     {_short(seen)}" for reported, seen in run.proof]
    if run.verdict:
        lines.append(f"suite: {run.verdict}{', simulated' if run.simulated else ''}")
    if run.stand_ins:
        lines.append(f"stand-ins: {', '.join(run.stand_ins)}")
    return lines


def _nearest(document: ReproduceDocument) -> list[str]:
    near = document.nearest
    if near is None:
        if document.diagnosis.place == "host":
            return ["nearest that works: none; changing versions will not help"]
        return ["nearest that works: none is known that would mend this"]
    lines = [f"nearest that works: {', '.join(near.changes)}"]
    lines += [f"  the report has it working: {row.field} {row.value} (line {row.line})" for row in near.worked]
    lines += [f"  {line}" for line in near.diff]
    lines += [f"  $ {command}" for command in near.commands]
    if document.run is None and near.matrix:  # nothing was written: the file that the command names is here
        lines += [f"  {POSTED}:", *(f"    {line}" for line in near.matrix.splitlines())]
    if near.proof is not None:
        lines.append(f"  proven: {WORDS[near.proof.proven]}" + (f" ({near.proof.needs})" if near.proof.needs else ""))
    return lines


def _short(text: str) -> str:
    plain = terminal_text.line(text)
    return plain if len(plain) <= _SHOWN else plain[: _SHOWN - 1] + "…"
