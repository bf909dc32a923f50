"""Tell a person what became of a report: as a table, or as a reply to post under it."""

from __future__ import annotations

from envbuilder.console import table
from envbuilder.errors import printable
from envbuilder.finding import Finding, Severity
from envbuilder.reproduce.messages.recognise import get
from envbuilder.reproduce.report.reported import SCALARS, Reported
from envbuilder.reproduce.reproduction import POSTED, ReproduceDocument, Run, build_command
from envbuilder.reproduce.symptom_comparison import telling

_TITLES = {
    "tensorflow": "TensorFlow", "python": "Python", "cuda": "CUDA", "cudnn": "cuDNN", "driver": "driver",
    "driver_cuda": "driver serves CUDA", "os": "system", "install": "installed with", "image": "image",
    "distribution": "package", "build": "build", "arch": "processor",
}  # fmt: skip
_SHOWN = 110
_WORDS = {True: "yes", False: "no", None: "cannot be known here"}


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
        f"(line {row.dropped.line})"
        for row in reported.contradictions
    ]
    parts += [f"pause: {row.seconds:.0f} s after line {row.line}" for row in reported.pauses]
    symptoms = telling(document.symptoms)
    if symptoms:
        parts += ["", "messages:"]
        parts += [f"  line {row.line}: {row.signature}: {_short(row.text)}" for row in symptoms]
    parts += ["", "predicted:" if document.predicted else "predicted: nothing"]
    for finding in document.predicted:
        parts += [
            f"  {finding.severity}  {finding.code}  {finding.message}",
            *([f"    fix: {finding.fix}"] if finding.fix else []),
        ]
    parts += ["", *_recipe(document), *_run(document.run), *_nearest(document)]
    return "\n".join(parts)


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
    lines = [f"reproduced: {_WORDS[run.reproduced]}" + (f" ({run.needs})" if run.needs else "")]
    lines += [f"  reported: {_short(reported)}\n  seen:     {_short(seen)}" for reported, seen in run.proof]
    if run.verdict:
        lines.append(f"suite: {run.verdict}{', simulated' if run.simulated else ''}")
    if run.stand_ins:
        lines.append(f"stand-ins: {', '.join(run.stand_ins)}")
    return lines


def _nearest(document: ReproduceDocument) -> list[str]:
    near = document.nearest
    if near is None:
        return ["nearest that works: none is known with this driver, GPU and system"]
    lines = ["nearest that works: " + (", ".join(near.changes) or "the same versions, installed from a lock")]
    lines += [f"  {line}" for line in near.diff]
    lines += [f"  $ {command}" for command in near.commands]
    if document.run is None and near.matrix:  # nothing was written: the file that the command names is here
        lines += [f"  {POSTED}:", *(f"    {line}" for line in near.matrix.splitlines())]
    if near.proof is not None:
        lines.append(f"  proven: {_WORDS[near.proof.proven]}" + (f" ({near.proof.needs})" if near.proof.needs else ""))
    return lines


def _short(text: str) -> str:
    plain = printable.line(text)
    return plain if len(plain) <= _SHOWN else plain[: _SHOWN - 1] + "…"


def as_markdown(document: ReproduceDocument) -> str:
    """Write a comment to post: what was found with its lines, the cause, the fix, and how it was verified."""
    return "\n".join(
        line for part in (_found(document), _cause(document), _fix(document), _verified(document)) for line in part
    )


def _found(document: ReproduceDocument) -> list[str]:
    lines = ["### What the report says", "", "| | | line |", "|---|---|---|"]
    lines += [f"| {title} | {printable.code(value)} | {line} |" for title, value, line, _ in rows(document.reported)]
    for row in document.reported.contradictions:
        kept, dropped = row.kept, row.dropped
        both = f"{printable.code(kept.value)} ({kept.trust}) over {printable.code(dropped.value)} ({dropped.trust})"
        lines.append(f"| {_TITLES.get(row.field, row.field)}, contradicted | {both} | {kept.line}, {dropped.line} |")
    symptoms = telling(document.symptoms)
    lines += ["", *(f"- line {row.line}: {printable.code(_short(row.text))}" for row in symptoms[:8])]
    lines += [f"- {row.seconds:.0f} s pass after line {row.line}" for row in document.reported.pauses[:3]]
    return [*lines, ""]


def _cause(document: ReproduceDocument) -> list[str]:
    serious = [row for row in document.predicted if row.severity is not Severity.INFO]
    if not serious:
        causes = [get(row.signature) for row in telling(document.symptoms)]
        said = [f"- {printable.markdown(row.cause)}" for row in dict.fromkeys(causes)]
        return ["### Cause", "", *(said or ["Nothing in the report points to a version mismatch."]), ""]
    return ["### Cause", "", *(_told(row) for row in serious), ""]


def _told(finding: Finding) -> str:
    links = [source if source.startswith("https://") else printable.code(source) for source in finding.sources[:2]]
    return f"- **{finding.code}**: {printable.markdown(finding.message)}" + (f" ({', '.join(links)})" if links else "")


_BUILDS = f"envbuilder run {POSTED}"
"""A reply is read on another machine: it brings the matrix along instead of naming our own file."""


def _fix(document: ReproduceDocument) -> list[str]:
    lines = ["### Fix", ""]
    near = document.nearest
    fixes = [row.fix for row in document.predicted if row.fix and row.severity is not Severity.INFO]
    lines += [f"- {printable.markdown(text)}" for text in dict.fromkeys(fixes)]
    if near is not None and near.diff:
        lines += ["", "Nearest environment that works:", "", "```diff", *near.diff, "```"]
    if near is not None and near.commands:
        ours = build_command(document)
        here = [_BUILDS if command == ours else command for command in near.commands]
        lines += ["", "```console", *(f"$ {command}" for command in here), "```"]
        if _BUILDS in here:
            lines += ["", f"`{POSTED}`:", "", "```yaml", *near.matrix.splitlines(), "```"]
    return [*lines, ""]


def _verified(document: ReproduceDocument) -> list[str]:
    run, near = document.run, document.nearest
    lines = ["### How this was verified", ""]
    if run is None:
        return [*lines, "By the compatibility catalogue; nothing was built.", ""]
    where = f"in {printable.code(run.image)}" if run.image else ""
    host = f" on a simulated host ({printable.code(document.recipe.host)})" if run.simulated else ""
    host += f", with stand-ins for {', '.join(map(printable.code, run.stand_ins))}" if run.stand_ins else ""
    lines.append(f"Reproduced: **{_WORDS[run.reproduced]}** {where}{host}{_because(run.needs)}".rstrip())
    lines += [f"- seen: {printable.code(_short(seen))}" for _, seen in run.proof]
    if near is not None and near.proof is not None:
        proof = near.proof
        built = f", built and run as {printable.code(proof.image)}" if proof.image else ""
        simulated = ", simulated" if proof.simulated else ""
        lines.append(f"The fix works: **{_WORDS[proof.proven]}**{built}{simulated}{_because(proof.needs)}")
    return [*lines, ""]


def _because(needs: str) -> str:
    return f": {printable.markdown(needs)}" if needs else ""
