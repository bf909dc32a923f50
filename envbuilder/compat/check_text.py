"""The text of `check`: plain lines, most serious first."""

from __future__ import annotations

from envbuilder.compat.check import CheckDocument, EnvironmentAnswer
from envbuilder.environment import Change, Predicate
from envbuilder.finding import Code, Finding, compatible, is_condition, obstacle
from envbuilder.support.tables import folded

_WIDTH = 102


def as_text(document: CheckDocument) -> str:
    lines = [folded(_environment(document.environment), rest="  "), _verdict(document)]
    for finding in document.findings:
        lines += ["", *finding_lines(finding)]
    if document.nearest is not None:
        lines += ["", folded(nearest_line(document.nearest.predicate, document.nearest.changes), rest="  ")]
    elif document.compatible is False:
        lines += ["", "nearest that works: none with this driver and GPU"]
    if document.image is not None:
        lines += [*([""] if document.nearest is None else []), f"image to build: {document.image.image}"]
    return "\n".join(lines)


_NEAREST: dict[Predicate, str] = {
    "installable": "nearest that works",
    "unhindered": "nearest that works, without a warning about the GPU",
    "buildable": "nearest that can be built here",
}


def nearest_line(predicate: Predicate, changes: tuple[Change, ...]) -> str:
    return f"{_NEAREST[predicate]}: {', '.join(map(change_text, changes))}"


def change_text(change: Change) -> str:
    """Write one difference: ``cuda 11.2 → 11.0``."""
    return f"{change.field} {change.old} → {new_text(change)}"


def new_text(change: Change) -> str:
    return change.new or _GONE.get(change.field, "left open")


_GONE = {"install": "pinned CUDA wheels", "base_image": "none (pinned CUDA wheels)"}


def _verdict(document: CheckDocument) -> str:
    if document.compatible is True:
        unit = "GPU" if document.environment.cuda else "CPU"
        return f"compatible: it will use the {unit}{'; see below' if document.findings else ''}"
    if document.compatible is False:
        codes = dict.fromkeys(finding.code.value for finding in document.findings if finding.severity == "error")
        return f"incompatible: {', '.join(codes)}"
    if any(finding.code is Code.UNKNOWN for finding in document.findings):
        return "no claim: the catalogue does not know enough"
    return f"{CONDITIONAL}; see below"


CONDITIONAL = "conditional: it will use the GPU on one condition"


def _environment(answer: EnvironmentAnswer) -> str:
    fields = (
        ("tensorflow", answer.package, answer.tensorflow),
        ("python", "Python", answer.python),
        ("cuda", "CUDA", answer.cuda),
        ("cudnn", "cuDNN", answer.cudnn),
        ("driver", "driver", _driver(answer)),
        ("os", "on", answer.os),
        ("base_image", "in", answer.base_image),
    )
    parts = [f"{title} {text}{'*' if name in answer.chosen else ''}" for name, title, text in fields if text]
    parts += [f"on {answer.arch}{'*' if 'arch' in answer.chosen else ''}"] if answer.arch != "x86_64" else []
    parts += [f"{gpu.name} ({gpu.compute_capability or 'unknown'})" for gpu in answer.gpus]
    parts += list(answer.packages)
    return ", ".join(parts) + (" (* chosen)" if answer.chosen else "")


def _driver(answer: EnvironmentAnswer) -> str | None:
    """Write the driver, and its branch if the number does not begin with it, as on Windows."""
    if answer.driver is None or answer.branch is None or answer.driver.lstrip("Rr").startswith(answer.branch):
        return answer.driver
    return f"{answer.driver} (Windows' number for branch {answer.branch})"


def finding_lines(finding: Finding) -> list[str]:
    fix = [f"fix: {finding.fix}"] if finding.fix else []
    body = [folded(text, "  ", "  ", most=_WIDTH) for text in (finding.message, *fix)]
    return [f"{finding.severity.value}  {finding.code.value}  {finding.subject}", *body]


def mark(findings: tuple[Finding, ...]) -> str:
    """Return ``yes``, ``slow`` (compiles its kernels first), ``no``, ``if`` (on a condition) or ``?``."""
    judged = compatible(findings)
    if judged is True:
        return "slow" if any(finding.code is Code.PTX_JIT for finding in findings) else "yes"
    found = obstacle(findings)
    return "no" if judged is False else "if" if found is not None and is_condition(found) else "?"
